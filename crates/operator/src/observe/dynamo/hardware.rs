//! What the cluster tells of its GPUs.
//! Comes in: a client; goes out: the labels of all nodes and what runs for their GPUs. Exporters are not asked: that way
//! leads past the API server, and the labels say as much.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use steersman_plan::dynamo::hardware::{HardwareSeen, NodeSeen};
use steersman_plan::preflight::Answer;
use tokio::sync::Mutex;

use crate::client::{CallError, Server};
use crate::rbac::Rule;

/// Many requests at once look at the same nodes. Who waits for a node looks again after a minute.
const HOLDS: Duration = Duration::from_secs(10);

const NETWORK_OPERATOR: &str = "nvidia-network-operator";
const GPU_OPERATOR: &str = "gpu-operator";

/// What is not asked yet says so where nothing else is known.
const EXPORTERS: &str = "this version of Steersman does not ask them";

pub fn rules() -> Vec<Rule> {
    vec![Rule {
        group: "",
        resource: "nodes",
        names: vec![],
        verbs: &["list"],
        namespaced: false,
        why: "find out for requests which GPUs the cluster has",
    }]
}

/// Nothing of it, for requests that need nothing of it.
pub fn unasked() -> HardwareSeen {
    let unknown = "nobody has looked".to_owned();
    HardwareSeen {
        exporters: Answer::Unknown(unknown.clone()),
        gpu_operator: false,
        nodes: Answer::Unknown(unknown),
        rdma_pod: false,
    }
}

#[derive(Default)]
pub struct Hardware {
    /// Held while somebody looks, so that nobody else does at the same time.
    known: Mutex<Option<(Instant, HardwareSeen)>>,
}

impl Hardware {
    pub async fn look(&self, server: &Server) -> Result<HardwareSeen, CallError> {
        let mut known = self.known.lock().await;
        if let Some((when, seen)) = known.as_ref().filter(|(when, _)| when.elapsed() < HOLDS) {
            tracing::debug!(seconds = when.elapsed().as_secs(), "the cluster's GPUs are known");
            return Ok(seen.clone());
        }
        let seen = look(server).await?;
        *known = Some((Instant::now(), seen.clone()));
        Ok(seen)
    }
}

async fn look(server: &Server) -> Result<HardwareSeen, CallError> {
    let nodes: Api<Node> = Api::all(server.client.clone());
    let nodes = match server.call(nodes.list_metadata(&ListParams::default())).await {
        Ok(listed) => {
            let seen = |node: &kube::api::PartialObjectMeta<Node>| NodeSeen {
                name: node.name_any(),
                labels: node.labels().clone(),
            };
            Answer::Known(listed.items.iter().map(seen).collect())
        }
        // Who may watch one namespace only may not see nodes.
        Err(error @ CallError::Answered { code: 403, .. }) => Answer::Unknown(error.to_string()),
        Err(error) => return Err(error),
    };
    Ok(HardwareSeen {
        exporters: Answer::Unknown(EXPORTERS.to_owned()),
        gpu_operator: any_pod(server, GPU_OPERATOR, |_| true).await?,
        nodes,
        rdma_pod: any_pod(server, NETWORK_OPERATOR, |name| name.contains("rdma")).await?,
    })
}

async fn any_pod(server: &Server, namespace: &str, is: impl Fn(&str) -> bool) -> Result<bool, CallError> {
    let pods: Api<Pod> = Api::namespaced(server.client.clone(), namespace);
    match server.call(pods.list_metadata(&ListParams::default())).await {
        Ok(listed) => Ok(listed.items.iter().any(|pod| is(&pod.name_any()))),
        Err(CallError::Answered { code: 403, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
