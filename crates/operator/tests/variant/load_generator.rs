//! Simulates the servers of one model: publishes metrics for the pods that run on the cluster, as a simulated fleet of
//! these pods has them under the given load. Prometheus scrapes them with the labels of real scrapes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use steersman_sim::expose;
use steersman_sim::fleet::Fleet;
use steersman_sim::load::{Load, Rate};
use steersman_sim::server::{RequestShape, Speed};
use steersman_testkit::pod_behaviour::is_serving;
use steersman_testkit::{FakePodMetrics, wait};
use tokio::task::JoinHandle;

use crate::env::SharedPrometheus;
use crate::test_namespace::{MODEL_LABEL, TestNamespace};

/// Nearly all tokens of a request are input, so that the use of the cache is proportional to the number of requests.
const REQUEST_SHAPE: RequestShape = RequestShape { input: 190, output: 10, cached: 0 };

/// A request takes two seconds. 40 requests fit, and each uses 0.024 of the cache.
const SERVER_SPEED: Speed = Speed { start: 0, prefill: 19_000, decode: 5, sequences: 40, blocks: 500, block_size: 16 };

/// The load with this number of concurrent requests in all pods together, reached after two seconds.
fn load(requests: u32) -> Load {
    // A request takes 2.01 s.
    Load::Constant(Rate(requests * 100_000 / 201))
}

/// The empty text is a part of every name.
const ALL_PODS: &str = "";

const UPDATE_INTERVAL: Duration = Duration::from_millis(250);

/// Simulates the servers of one model until it is dropped.
pub struct LoadGenerator {
    state: Arc<Mutex<SimulatedPods>>,
    task: JoinHandle<()>,
}

impl Drop for LoadGenerator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct SimulatedPods {
    fleet: Fleet,
    /// Texts that replace the metrics of pods, by the name of their workload.
    overrides: BTreeMap<String, String>,
    /// Parts of the names of pods whose metrics are not served.
    hidden: BTreeSet<String>,
}

impl LoadGenerator {
    /// Starts with no load and with visible metrics.
    pub async fn idle(ns: &TestNamespace, model: &str) -> Self {
        let load = Self::new(ns, model).await;
        load.hide_metrics(ALL_PODS, false);
        load
    }

    /// Starts with hidden metrics; [`Self::start_load`] shows them.
    pub async fn new(ns: &TestNamespace, model: &str) -> Self {
        Self::with_prometheus(ns, model, &ns.env.prometheus).await
    }

    pub async fn with_prometheus(ns: &TestNamespace, model: &str, prometheus: &SharedPrometheus) -> Self {
        let fleet = Fleet::new(REQUEST_SHAPE, load(0));
        let state = SimulatedPods { fleet, overrides: BTreeMap::new(), hidden: [ALL_PODS.to_owned()].into() };
        let state = Arc::new(Mutex::new(state));
        let task = UpdateTask {
            state: state.clone(),
            pods: ns.namespace.api(),
            namespace: ns.name().to_owned(),
            model: model.to_owned(),
            pod_metrics: FakePodMetrics::start().await.unwrap(),
            prometheus: prometheus.clone(),
        };
        Self { state, task: tokio::spawn(task.run()) }
    }

    /// Waits for this number of pods, starts the load, and shows the metrics once the load is reached: before that the pods
    /// look idle, and the operator could scale down.
    pub async fn start_load(&self, pods: usize, requests: u32) -> Vec<String> {
        let pods = self.wait_for_pods(pods).await;
        self.set_load(requests);
        let what = format!("{requests} concurrent requests are running");
        // The next request starts when the oldest has ended, so the number may be lower by one.
        let reached = async || (self.state().fleet.running() + 1 >= u64::from(requests)).then_some(());
        wait::eventually(&what, reached).await.unwrap();
        self.hide_metrics(ALL_PODS, false);
        pods
    }

    /// Sets the number of concurrent requests in all pods together.
    pub fn set_load(&self, requests: u32) {
        self.state().fleet.set_load(load(requests));
    }

    /// Replaces the metrics of the pods of a workload by this text. None: restores them.
    pub fn override_metrics(&self, target: &str, text: Option<&str>) {
        let mut state = self.state();
        match text {
            Some(text) => drop(state.overrides.insert(target.to_owned(), text.to_owned())),
            None => drop(state.overrides.remove(target)),
        }
    }

    /// Hides or shows the metrics of pods whose names contain `part`; the pods keep serving.
    pub fn hide_metrics(&self, part: &str, hidden: bool) {
        let mut state = self.state();
        state.hidden.retain(|known| known != part);
        state.hidden.extend(hidden.then(|| part.to_owned()));
    }

    /// Restarts the server in a pod, which resets its counters.
    pub fn restart_server(&self, pod: &str) {
        self.state().fleet.restart(pod);
    }

    pub fn request_count(&self, pod: &str) -> u64 {
        self.state().fleet.counters(pod).requests
    }

    /// Names of the serving pods.
    pub fn pods(&self) -> Vec<String> {
        self.state().fleet.pods().keys().cloned().collect()
    }

    pub async fn wait_for_pods(&self, count: usize) -> Vec<String> {
        let what = format!("{count} pods are serving");
        wait::eventually(&what, async || Some(self.pods()).filter(|pods| pods.len() == count)).await.unwrap()
    }

    fn state(&self) -> MutexGuard<'_, SimulatedPods> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the pods and their metrics up to date.
struct UpdateTask {
    state: Arc<Mutex<SimulatedPods>>,
    pods: Api<Pod>,
    namespace: String,
    model: String,
    pod_metrics: FakePodMetrics,
    prometheus: SharedPrometheus,
}

impl UpdateTask {
    async fn run(self) {
        let began = Instant::now();
        let selector = format!("{MODEL_LABEL}={}", self.model);
        loop {
            if let Ok(listed) = self.pods.list(&ListParams::default().labels(&selector)).await {
                let ready: BTreeSet<String> =
                    listed.items.iter().filter(|pod| is_serving(pod)).map(|pod| pod.name_any()).collect();
                self.sync_pods(&ready).await;
            }
            self.publish_metrics(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
            tokio::time::sleep(UPDATE_INTERVAL).await;
        }
    }

    /// Adds new pods to the targets of Prometheus, and removes deleted ones.
    async fn sync_pods(&self, ready: &BTreeSet<String>) {
        let known: BTreeSet<String> = self.lock().fleet.pods().keys().cloned().collect();
        let prometheus = self.prometheus.lock().await;
        let target = |name: &str| format!("{}.{name}", self.namespace);
        for name in ready.difference(&known) {
            self.lock().fleet.add(name, SERVER_SPEED);
            let labels = FakePodMetrics::target_labels(&self.namespace, name);
            prometheus.add_target(&target(name), &self.pod_metrics.address().to_string(), &labels).unwrap();
        }
        for name in known.difference(ready) {
            self.lock().fleet.remove(name);
            self.pod_metrics.remove(&self.namespace, name);
            prometheus.remove_target(&target(name)).unwrap();
        }
    }

    fn publish_metrics(&self, now: u64) {
        let mut state = self.lock();
        state.fleet.run_until(now);
        for name in state.fleet.pods().keys() {
            let replaced = state.overrides.iter().find(|(target, _)| name.starts_with(&format!("{target}-")));
            let text = replaced.map(|(_, text)| text.clone()).or_else(|| expose::pod(&state.fleet, name, &self.model));
            match text.filter(|_| !state.hidden.iter().any(|part| name.contains(part))) {
                Some(text) => self.pod_metrics.set(&self.namespace, name, text),
                None => self.pod_metrics.remove(&self.namespace, name),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, SimulatedPods> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
