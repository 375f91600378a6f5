//! Discovers the cluster's GPUs in the background while requests need them: no reconcile waits for an exporter.

mod exporters;
mod schedule;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use steersman_plan::dynamo::hardware::{LABELS, ObservedHardware, ObservedNode, is_gpu_resource};
use steersman_reconcile::{Lookup, NamespacedName};
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::rbac::Rule;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::schedule::DiscoverySchedule;
use crate::polling::sleep_until;

pub use exporters::{ENDPOINT, Endpoint, ExporterSource, NAMESPACES};

const NETWORK_OPERATOR: &str = "nvidia-network-operator";
const GPU_OPERATOR: &str = "gpu-operator";

const NODES_PER_PAGE: u32 = 200;

const NOT_POLLED: &str = "only a running operator polls exporters";
const LABELS_DISABLED: &str = "--gpu-discovery is off";

/// Rules for nodes. Exporters are pods, which the controller may list for other reasons.
pub fn rules() -> Vec<Rule> {
    vec![Rule::cluster("", "nodes", &["list"], "discover the GPUs of the cluster")]
}

#[derive(Clone)]
pub struct Sources {
    /// None: exporters are not polled.
    pub exporters: Option<ExporterSource>,
    /// Whether the labels of nodes are read.
    pub by_labels: bool,
}

pub struct HardwareDiscovery {
    sources: Sources,
    schedule: Mutex<DiscoverySchedule>,
    /// Notified when a request waits for its first result.
    work: Notify,
}

impl HardwareDiscovery {
    pub fn new(sources: Sources) -> Self {
        Self { sources, schedule: Mutex::default(), work: Notify::new() }
    }

    /// Returns the last discovered GPUs, and registers the request: [`Self::run`] enqueues it when the GPUs change.
    /// Without exporters nothing runs in the background, and discovery runs here.
    pub async fn get(&self, server: &Server, place: &NamespacedName) -> Result<ObservedHardware, CallError> {
        if self.sources.exporters.is_none() {
            return discover(server, &self.sources).await;
        }
        let known = self.schedule().last_result(place, Instant::now());
        Ok(known.unwrap_or_else(|| {
            self.work.notify_one();
            ObservedHardware::awaited()
        }))
    }

    /// Stops GPU discovery for a request that was deleted or needs no more results.
    pub fn forget(&self, place: &NamespacedName) {
        self.schedule().forget(place);
    }

    /// Discovers GPUs while requests are registered, until `stop`. Enqueues the requests for which a result is new.
    pub async fn run(&self, server: &Server, enqueue: impl Fn(NamespacedName), stop: CancellationToken) {
        if self.sources.exporters.is_none() {
            return;
        }
        loop {
            let due = self.schedule().due();
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.work.notified() => continue,
                () = sleep_until(due) => {}
            }
            let result = tokio::select! {
                () = stop.cancelled() => return,
                result = discover(server, &self.sources) => result,
            };
            match result {
                Ok(hardware) => self.schedule().store_result(hardware, Instant::now()).into_iter().for_each(&enqueue),
                Err(error) => {
                    tracing::warn!(%error, "GPU discovery failed; it is retried");
                    self.schedule().failed(Instant::now());
                }
            }
        }
    }

    fn schedule(&self) -> MutexGuard<'_, DiscoverySchedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn discover(server: &Server, sources: &Sources) -> Result<ObservedHardware, CallError> {
    let exporters = match &sources.exporters {
        Some(source) => exporters::poll(server, source).await?,
        None => Lookup::Unknown(NOT_POLLED.to_owned()),
    };
    let nodes = if sources.by_labels { nodes(server).await? } else { Lookup::Unknown(LABELS_DISABLED.to_owned()) };
    let hardware = ObservedHardware {
        awaited: false,
        // The GPU operator explains why there is no exporter, and does not matter otherwise.
        gpu_operator: exporters.known().is_some_and(Vec::is_empty) && any_pod(server, GPU_OPERATOR, |_| true).await?,
        exporters,
        by_labels: sources.by_labels,
        nodes,
        rdma_pod: any_pod(server, NETWORK_OPERATOR, |name| name.contains("rdma")).await?,
    };
    let answering = hardware.exporters.known().map(|all| all.iter().filter(|one| one.gpus.known().is_some()).count());
    tracing::debug!(
        exporters = hardware.exporters.known().map(Vec::len),
        answering,
        nodes = hardware.nodes.known().map(Vec::len),
        "discovered the GPUs of the cluster"
    );
    Ok(hardware)
}

/// Reads the nodes in pages, because each has a long list of images that is not kept.
async fn nodes(server: &Server) -> Result<Lookup<Vec<ObservedNode>>, CallError> {
    let api: Api<Node> = Api::all(server.client.clone());
    let mut params = ListParams::default().limit(NODES_PER_PAGE);
    let mut nodes = Vec::new();
    loop {
        let page = match known_unless_forbidden(server.call(api.list(&params)).await)? {
            Lookup::Known(page) => page,
            Lookup::Unknown(why) => return Ok(Lookup::Unknown(why)),
        };
        nodes.extend(page.items.iter().map(observed_node));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(Lookup::Known(nodes)),
        }
    }
}

fn observed_node(node: &Node) -> ObservedNode {
    let labels = node.labels();
    let known_labels = LABELS.iter().filter_map(|label| Some(((*label).to_owned(), labels.get(*label)?.clone())));
    let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
    let gpus = capacity.into_iter().flatten().filter(|(name, _)| is_gpu_resource(name));
    let gpus = gpus.filter_map(|(_, quantity)| quantity.0.parse::<i32>().ok()).fold(0, i32::saturating_add);
    ObservedNode { name: node.name_any(), labels: known_labels.collect::<BTreeMap<_, _>>(), gpus }
}

async fn any_pod(server: &Server, namespace: &str, is: impl Fn(&str) -> bool) -> Result<bool, CallError> {
    let pods: Api<Pod> = Api::namespaced(server.client.clone(), namespace);
    let listed = server.call(pods.list_metadata(&ListParams::default())).await;
    let any = known_unless_forbidden(listed.map(|listed| listed.items.iter().any(|pod| is(&pod.name_any()))))?;
    Ok(any.known().copied().unwrap_or_default())
}

/// An operator of a single namespace has no right to list nodes, nor pods of other namespaces.
fn known_unless_forbidden<T>(listed: Result<T, CallError>) -> Result<Lookup<T>, CallError> {
    match listed {
        Ok(found) => Ok(Lookup::Known(found)),
        Err(error @ CallError::Answered { code: 403, .. }) => Ok(Lookup::Unknown(error.to_string())),
        Err(error) => Err(error),
    }
}
