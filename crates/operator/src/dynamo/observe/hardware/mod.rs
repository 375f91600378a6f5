//! What the cluster tells of its GPUs, kept up to date beside the passes while requests want to know it: no pass waits for an
//! exporter.
//! Comes in: which requests want to know; goes out: what is known now, and later which requests should look again.

mod exporters;
mod known;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams, PartialObjectMeta};
use steersman_plan::dynamo::hardware::{LABELS, ObservedHardware, ObservedNode};
use steersman_reconcile::{Lookup, NamespacedName};
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::http::Http;
use steersman_runtime::rbac::Rule;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::known::Known;

pub use exporters::{ENDPOINT, Endpoint};

const NETWORK_OPERATOR: &str = "nvidia-network-operator";
const GPU_OPERATOR: &str = "gpu-operator";

/// What nobody asks says so where nothing else is known.
const UNASKED: &str = "no exporter is asked outside a running operator";

const SWITCHED_OFF: &str = "the operator's settings do not let it look at nodes";

/// Exporters are pods, which the controller may list for other reasons.
pub fn rules() -> Vec<Rule> {
    vec![Rule::cluster("", "nodes", &["list"], "find out for requests which GPUs the cluster has")]
}

/// Where to look.
#[derive(Clone)]
pub struct Sources {
    /// The way to exporters, and where each of them serves. None: they are not asked.
    pub exporters: Option<(Http, Endpoint)>,
    /// Whether nodes are looked at.
    pub by_labels: bool,
}

pub struct Hardware {
    sources: Sources,
    known: Mutex<Known>,
    /// Somebody waits for a first answer.
    work: Notify,
}

impl Hardware {
    pub fn new(sources: Sources) -> Self {
        Self { sources, known: Mutex::default(), work: Notify::new() }
    }

    /// What is known now, for a request that from now on wants to know. Where nothing runs beside the passes, it is looked
    /// up here and now.
    pub async fn seen(&self, server: &Server, place: &NamespacedName) -> Result<ObservedHardware, CallError> {
        if self.sources.exporters.is_none() {
            return look(server, &self.sources).await;
        }
        let known = self.known().want(place, Instant::now());
        Ok(known.unwrap_or_else(|| {
            self.work.notify_one();
            ObservedHardware::awaited()
        }))
    }

    /// The request is gone, or knows all that it wants to.
    pub fn forget(&self, place: &NamespacedName) {
        self.known().forget(place);
    }

    /// Looks for as long as some request wants to know, until `stop`, and wakes those for which there is something new.
    pub async fn run(&self, server: &Server, wake: impl Fn(NamespacedName), stop: CancellationToken) {
        if self.sources.exporters.is_none() {
            return;
        }
        loop {
            let due = self.known().due();
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.work.notified() => continue,
                () = at(due) => {}
            }
            let looked = tokio::select! {
                () = stop.cancelled() => return,
                looked = look(server, &self.sources) => looked,
            };
            match looked {
                Ok(seen) => self.known().learned(seen, Instant::now()).into_iter().for_each(&wake),
                Err(error) => {
                    tracing::warn!(%error, "the cluster's GPUs could not be looked at, and are looked at again");
                    self.known().failed(Instant::now());
                }
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn look(server: &Server, sources: &Sources) -> Result<ObservedHardware, CallError> {
    let exporters = match &sources.exporters {
        Some((http, endpoint)) => exporters::look(server, http, endpoint).await?,
        None => Lookup::Unknown(UNASKED.to_owned()),
    };
    let nodes = if sources.by_labels { nodes(server).await? } else { Lookup::Unknown(SWITCHED_OFF.to_owned()) };
    let seen = ObservedHardware {
        awaited: false,
        // Tells why there is no exporter; with one, nobody asks.
        gpu_operator: exporters.known().is_some_and(Vec::is_empty) && any_pod(server, GPU_OPERATOR, |_| true).await?,
        exporters,
        by_labels: sources.by_labels,
        nodes,
        rdma_pod: any_pod(server, NETWORK_OPERATOR, |name| name.contains("rdma")).await?,
    };
    let answering = seen.exporters.known().map(|all| all.iter().filter(|one| one.gpus.known().is_some()).count());
    tracing::debug!(
        exporters = seen.exporters.known().map(Vec::len),
        answering,
        nodes = seen.nodes.known().map(Vec::len),
        "looked at the cluster's GPUs"
    );
    Ok(seen)
}

async fn nodes(server: &Server) -> Result<Lookup<Vec<ObservedNode>>, CallError> {
    let api: Api<Node> = Api::all(server.client.clone());
    let listed = server.call(api.list_metadata(&ListParams::default())).await;
    known_unless_forbidden(listed.map(|listed| listed.items.iter().map(node_seen).collect()))
}

fn node_seen(node: &PartialObjectMeta<Node>) -> ObservedNode {
    let labels = node.labels();
    let kept = LABELS.iter().filter_map(|label| Some(((*label).to_owned(), labels.get(*label)?.clone())));
    ObservedNode { name: node.name_any(), labels: kept.collect::<BTreeMap<_, _>>() }
}

async fn any_pod(server: &Server, namespace: &str, is: impl Fn(&str) -> bool) -> Result<bool, CallError> {
    let pods: Api<Pod> = Api::namespaced(server.client.clone(), namespace);
    let listed = server.call(pods.list_metadata(&ListParams::default())).await;
    let any = known_unless_forbidden(listed.map(|listed| listed.items.iter().any(|pod| is(&pod.name_any()))))?;
    Ok(any.known().copied().unwrap_or_default())
}

/// Who may watch one namespace only may not see nodes, nor pods elsewhere.
fn known_unless_forbidden<T>(listed: Result<T, CallError>) -> Result<Lookup<T>, CallError> {
    match listed {
        Ok(found) => Ok(Lookup::Known(found)),
        Err(error @ CallError::Answered { code: 403, .. }) => Ok(Lookup::Unknown(error.to_string())),
        Err(error) => Err(error),
    }
}
