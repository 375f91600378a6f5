//! Reconciles the whole fleet of VariantAutoscalings in one loop. Triggers carry no payload and are debounced: a burst
//! of changes causes one reconcile, whose cost depends only on the number of objects.

mod debouncer;
mod decide;
#[cfg(test)]
mod earlier_texts;
mod excluded;
mod fleet_log;
mod gauge_values;
mod metrics_source;
mod owners;
mod reconcile;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use steersman_api::Family as Api;
use steersman_reconcile::NamespacedName;
use steersman_runtime::apply::Recorder;
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::controller::{ControllerContext, RECHECK_INTERVAL, retry_delay};
use steersman_runtime::rbac::Rule;
use steersman_runtime::store::served;
use steersman_runtime::telemetry::metrics::{Metrics, ReconcileResult};
use tokio_util::sync::CancellationToken;

use self::debouncer::Debouncer;
use crate::installation::Installation;
use crate::resource::custom_resource;
use crate::variant::metrics::Gauges;
use crate::variant::observe::{self as observed, Fleet, MANAGER, Trigger};

pub use debouncer::DebounceConfig;
pub use reconcile::FleetOutcome;

/// Permissions that the controller needs in every namespace.
pub fn rules() -> Vec<Rule> {
    let status = Rule {
        group: Api::Va.group(),
        resource: "variantautoscalings/status",
        names: vec![],
        verbs: &["update"],
        namespaced: true,
        why: "write the status of VariantAutoscalings",
    };
    [observed::rules(), vec![status]].concat()
}

pub struct FleetController {
    fleet: Fleet,
    server: Server,
    recorder: Recorder,
    metrics: Arc<Metrics>,
    gauges: Arc<Gauges>,
    debouncer: Debouncer,
    /// Set once stored decisions are published. From then on, changes of objects update the gauges.
    published: OnceLock<()>,
    /// Set once all stores are synced. From then on, changes trigger a reconcile.
    synced: OnceLock<()>,
    state: tokio::sync::Mutex<reconcile::ReconcileState>,
}

/// Dependencies of the controller.
#[derive(Clone)]
pub struct FleetContext {
    pub controller: ControllerContext,
    pub installation: Installation,
    pub options: observed::Options,
    pub gauges: Arc<Gauges>,
}

/// Runs until `stop`, and until the current reconcile has ended.
pub async fn run(context: FleetContext, debounce: DebounceConfig, stop: CancellationToken) {
    let resource = custom_resource(Api::Va);
    tokio::select! {
        () = stop.cancelled() => return,
        () = served::until_served(&context.controller.server, &resource) => {}
    }
    let controller = FleetController::new(&context, debounce);
    tracing::info!(controller = %Api::Va, "controller started");
    let watches =
        stop.run_until_cancelled(controller.fleet.follow(&controller.server, |trigger| controller.on_trigger(trigger)));
    tokio::join!(watches, controller.run_reconciles(&stop));
    tracing::info!(controller = %Api::Va, "controller stopped");
}

impl FleetController {
    pub fn new(context: &FleetContext, debounce: DebounceConfig) -> Self {
        let FleetContext { controller, installation, options, gauges } = context;
        let fleet = Fleet::new(installation, options, &controller.scope);
        gauges.set_instance(fleet.instance.clone());
        Self {
            state: tokio::sync::Mutex::new(reconcile::ReconcileState::new(&fleet, options.inside.clone())),
            fleet,
            server: controller.server.clone(),
            recorder: Recorder::new(controller.server.clone(), MANAGER, &controller.identity),
            metrics: controller.metrics.clone(),
            gauges: gauges.clone(),
            debouncer: Debouncer::new(debounce),
            published: OnceLock::new(),
            synced: OnceLock::new(),
        }
    }

    /// Lists everything once, without watches.
    pub async fn fill(&self) -> Result<(), CallError> {
        self.fleet.fill(&self.server).await
    }

    async fn run_reconciles(&self, stop: &CancellationToken) {
        // Stored decisions are published before all stores are synced, so that an HPA does not lose its series because
        // another kind cannot be listed.
        if stop.run_until_cancelled(self.fleet.wait_for_variants()).await.is_none() {
            return;
        }
        self.republish();
        self.published.get_or_init(|| ());
        if stop.run_until_cancelled(self.fleet.wait_for_all()).await.is_none() {
            return;
        }
        self.fleet.collect_excluded(None);
        self.synced.get_or_init(|| ());
        let mut failures = 0;
        // An empty fleet needs no first reconcile.
        let mut due = (self.count().0 > 0 || self.fleet.has_pending_exclusions()).then(Instant::now);
        while stop.run_until_cancelled(self.debouncer.wait(due)).await.is_some() {
            let began = Instant::now();
            let outcome = self.reconcile().await;
            let result = match &outcome {
                FleetOutcome { failed: 0, conflicts: 0, .. } => ReconcileResult::Success,
                FleetOutcome { failed: 0, .. } => ReconcileResult::RequeueAfter,
                _ => ReconcileResult::Error,
            };
            self.metrics.reconciled(Api::Va.short_name(), result, began.elapsed());
            failures = if result == ReconcileResult::Success { 0 } else { failures + 1 };
            due = next_delay(&outcome, failures).map(|wait| Instant::now() + wait);
        }
    }

    fn on_trigger(&self, trigger: Trigger) {
        match &trigger {
            // Gauges are removed at once, not in the next reconcile: an HPA must not follow a deleted object, and in an
            // excluded namespace another operator may publish the same series, which would be added up.
            Trigger::VariantDeleted(object) => self.gauges.remove(object),
            Trigger::NamespaceChanged(name) if self.fleet.is_excluded(name) => self.gauges.remove_namespace(name),
            Trigger::VariantChanged(_)
            | Trigger::ConfigMapChanged(_)
            | Trigger::TargetChanged(_)
            | Trigger::NamespaceChanged(_) => {}
        }
        if self.synced.get().is_none() {
            // The first reconcile covers all changes before it, but it may be far off.
            if self.published.get().is_some() {
                self.update_gauges(&trigger);
            }
            return;
        }
        match trigger {
            Trigger::ConfigMapChanged(map) => return self.map_changed(&map.name),
            Trigger::VariantDeleted(_)
            | Trigger::VariantChanged(_)
            | Trigger::TargetChanged(_)
            | Trigger::NamespaceChanged(_) => {}
        }
        self.debouncer.trigger();
    }

    /// Logs each change; all of them cause one reconcile.
    fn map_changed(&self, name: &str) {
        match self.count() {
            (total, Some(NamespacedName { name: first, .. })) => {
                tracing::info!(
                    configMap = name,
                    totalVAs = total,
                    trigger = first,
                    "ConfigMap changed, triggering global reconciliation"
                );
                self.debouncer.trigger();
            }
            _ => {
                tracing::info!(configMap = name, "No VariantAutoscalings found, skipping ConfigMap reconciliation");
            }
        }
    }

    /// The number of objects, and the first of them.
    fn count(&self) -> (usize, Option<NamespacedName>) {
        let (mut total, mut first) = (0, None);
        self.fleet.each(|namespace, name, _| {
            total += 1;
            first.get_or_insert_with(|| NamespacedName::new(namespace, name));
        });
        (total, first)
    }
}

/// Time until the next reconcile. `None` if only a change causes one.
fn next_delay(outcome: &FleetOutcome, failures: u32) -> Option<Duration> {
    let interval = Duration::try_from(outcome.interval).unwrap_or(Duration::from_secs(60));
    if failures > 0 {
        return Some(interval.min(retry_delay(failures)));
    }
    match outcome {
        FleetOutcome { decided: 0, undecodable: 0, .. } => None,
        FleetOutcome { decided: 0, .. } => Some(RECHECK_INTERVAL),
        _ => Some(interval),
    }
}

/// A controller that lost the lease is dropped at any point, and its gauges must not be scraped any longer.
impl Drop for FleetController {
    fn drop(&mut self) {
        self.gauges.clear();
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use steersman_plan::variant::names::EXCLUDE_ANNOTATION;
    use steersman_runtime::store::Scope;

    use super::*;

    /// A controller whose API calls all fail.
    pub(super) fn controller() -> FleetController {
        let failing = tower::service_fn(|_: http::Request<Body>| async {
            Err::<http::Response<Body>, _>(std::io::Error::other("no API server"))
        });
        let (metrics, gauges) = Metrics::new(Timestamp::UNIX_EPOCH, |_| Arc::new(Gauges::default()));
        let controller = ControllerContext {
            server: Server::new(Client::new(failing, "default"), String::new(), Duration::ZERO),
            scope: Scope::Cluster,
            identity: "test".to_owned(),
            metrics: Arc::new(metrics),
        };
        let context = FleetContext {
            controller,
            installation: Installation::default(),
            options: observed::Options::default(),
            gauges,
        };
        FleetController::new(&context, DebounceConfig::default())
    }

    pub(super) fn stored(namespace: &str, target: &str) -> serde_json::Value {
        json!({ "metadata": { "namespace": namespace, "name": "v", "uid": "u" },
            "spec": { "scaleTargetRef": { "kind": "Deployment", "name": target }, "modelID": "m" },
            "status": { "desiredOptimizedAlloc": { "numReplicas": 3 } } })
    }

    /// The metrics must not wait for the next reconcile, which may start late or take long.
    #[tokio::test]
    async fn excluded_namespace_hides_its_metrics_at_once() {
        for synced in [false, true] {
            let controller = controller();
            controller.fleet.put_variant(&stored("n", "decode"));
            controller.fleet.put_variant(&stored("other", "decode"));
            controller.republish();
            controller.published.get_or_init(|| ());
            if synced {
                controller.synced.get_or_init(|| ());
            }
            let is_published = |namespace: &str| controller.gauges.get(&NamespacedName::new(namespace, "v")).is_some();
            let annotate = |value: &str| {
                let annotated = json!({ "metadata": { "name": "n", "annotations": { EXCLUDE_ANNOTATION: value } } });
                controller.fleet.put_namespace(&annotated);
                controller.on_trigger(Trigger::NamespaceChanged("n".to_owned()));
            };
            assert!(is_published("n") && is_published("other"));
            annotate("true");
            assert!(!is_published("n") && is_published("other"), "synced: {synced}");
            annotate("false");
            assert_eq!(is_published("n"), !synced, "after the sync, the next reconcile publishes it");
            assert!(is_published("other"));
        }
    }

    #[tokio::test]
    async fn changed_object_is_hidden_before_first_reconcile() {
        let controller = controller();
        controller.fleet.put_variant(&stored("n", "decode"));
        let trigger = Trigger::VariantChanged(NamespacedName::new("n", "v"));
        let target = || controller.gauges.get(&NamespacedName::new("n", "v")).map(|values| values.target_name);
        controller.on_trigger(trigger.clone());
        assert_eq!(target(), None, "the excluded namespaces are not known yet");
        controller.republish();
        controller.published.get_or_init(|| ());
        assert_eq!(target().as_deref(), Some("decode"));
        let mut moved = stored("n", "prefill");
        let condition = json!({ "type": "TargetResolved", "status": "True", "reason": "TargetFound",
            "message": "Scale target Deployment decode found", "lastTransitionTime": "2026-11-16T00:00:00Z" });
        moved["status"]["conditions"] = json!([condition]);
        controller.fleet.put_variant(&moved);
        controller.on_trigger(trigger);
        assert_eq!(target(), None, "there is no decision for the new scale target");
    }

    #[test]
    fn undecodable_objects_are_requeued() {
        let interval = SignedDuration::from_secs(30);
        for (decided, undecodable, failures, expected) in [
            (0, 0, 0, None),
            (1, 0, 0, Some(Duration::from_secs(30))),
            (1, 1, 0, Some(Duration::from_secs(30))),
            (0, 1, 0, Some(RECHECK_INTERVAL)),
            (0, 0, 20, Some(Duration::from_secs(30))),
        ] {
            let outcome = FleetOutcome { decided, undecodable, interval, ..FleetOutcome::default() };
            assert_eq!(
                next_delay(&outcome, failures),
                expected,
                "{decided} decided, {undecodable} undecodable, {failures} failures"
            );
        }
    }
}
