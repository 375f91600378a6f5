//! Reconciles the whole fleet of VariantAutoscalings in one loop. Triggers carry no payload and are debounced: a burst
//! of changes causes one reconcile, whose cost depends only on the number of objects.

mod alarm;
mod decide;
mod excluded;
mod lines;
mod metering;
mod owners;
mod pass;
mod shown;

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

use self::alarm::Alarm;
use crate::installation::Installation;
use crate::resource::custom_resource;
use crate::variant::metrics::Gauges;
use crate::variant::observe::{self as observed, Fleet, MANAGER, News};

pub use alarm::Rhythm;
pub use pass::Passed;

/// Permissions that the controller needs in every namespace.
pub fn rules() -> Vec<Rule> {
    let status = Rule {
        group: Api::Va.group(),
        resource: "variantautoscalings/status",
        names: vec![],
        verbs: &["update"],
        namespaced: true,
        why: "say in its objects' status what it did",
    };
    [observed::rules(), vec![status]].concat()
}

pub struct Variants {
    fleet: Fleet,
    server: Server,
    recorder: Recorder,
    metrics: Arc<Metrics>,
    gauges: Arc<Gauges>,
    alarm: Alarm,
    /// Set once stored decisions are published. From then on, changes of objects update the gauges.
    shown: OnceLock<()>,
    /// Set once all stores are synced. From then on, changes trigger a reconcile.
    begun: OnceLock<()>,
    kept: tokio::sync::Mutex<pass::Kept>,
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
pub async fn run(context: FleetContext, rhythm: Rhythm, stop: CancellationToken) {
    let resource = custom_resource(Api::Va);
    tokio::select! {
        () = stop.cancelled() => return,
        () = served::until_served(&context.controller.server, &resource) => {}
    }
    let variants = Variants::new(&context, rhythm);
    tracing::info!(controller = %Api::Va, "controller started");
    let followed = stop.run_until_cancelled(variants.fleet.follow(&variants.server, |news| variants.hear(news)));
    tokio::join!(followed, variants.passes(&stop));
    tracing::info!(controller = %Api::Va, "controller stopped");
}

impl Variants {
    pub fn new(context: &FleetContext, rhythm: Rhythm) -> Self {
        let FleetContext { controller, installation, options, gauges } = context;
        let fleet = Fleet::new(installation, options, &controller.scope);
        gauges.speak_as(fleet.instance.clone());
        Self {
            kept: tokio::sync::Mutex::new(pass::Kept::new(&fleet)),
            fleet,
            server: controller.server.clone(),
            recorder: Recorder::new(controller.server.clone(), MANAGER, &controller.identity),
            metrics: controller.metrics.clone(),
            gauges: gauges.clone(),
            alarm: Alarm::new(rhythm),
            shown: OnceLock::new(),
            begun: OnceLock::new(),
        }
    }

    /// Lists everything once, without watches.
    pub async fn fill(&self) -> Result<(), CallError> {
        self.fleet.fill(&self.server).await
    }

    async fn passes(&self, stop: &CancellationToken) {
        // Stored decisions are published before all stores are synced, so that an HPA does not lose its series because
        // another kind cannot be listed.
        if stop.run_until_cancelled(self.fleet.shown()).await.is_none() {
            return;
        }
        self.republish();
        self.shown.get_or_init(|| ());
        if stop.run_until_cancelled(self.fleet.synced()).await.is_none() {
            return;
        }
        self.fleet.note_excluded(None);
        self.begun.get_or_init(|| ());
        let mut failures = 0;
        // An empty fleet needs no first reconcile.
        let mut due = (self.count().0 > 0 || self.fleet.has_untold()).then(Instant::now);
        while stop.run_until_cancelled(self.alarm.next(due)).await.is_some() {
            let began = Instant::now();
            let passed = self.pass().await;
            let result = match &passed {
                Passed { failed: 0, overtaken: 0, .. } => ReconcileResult::Success,
                Passed { failed: 0, .. } => ReconcileResult::RequeueAfter,
                _ => ReconcileResult::Error,
            };
            self.metrics.reconciled(Api::Va.short_name(), result, began.elapsed());
            failures = if result == ReconcileResult::Success { 0 } else { failures + 1 };
            due = again_in(&passed, failures).map(|wait| Instant::now() + wait);
        }
    }

    fn hear(&self, news: News) {
        match &news {
            // Gauges are removed at once, not in the next reconcile: an HPA must not follow a deleted object, and in an
            // excluded namespace another operator may publish the same series, which would be added up.
            News::Gone(object) => self.gauges.forget(object),
            News::Namespace(name) if self.fleet.is_excluded(name) => self.gauges.forget_all_of(name),
            News::Variant(_) | News::Map(_) | News::Target(_) | News::Namespace(_) => {}
        }
        if self.begun.get().is_none() {
            // The first reconcile covers all changes before it, but it may be far off.
            if self.shown.get().is_some() {
                self.reshow(&news);
            }
            return;
        }
        match news {
            News::Map(map) => return self.map_changed(&map.name),
            News::Gone(_) | News::Variant(_) | News::Target(_) | News::Namespace(_) => {}
        }
        self.alarm.wake();
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
                self.alarm.wake();
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
fn again_in(passed: &Passed, failures: u32) -> Option<Duration> {
    let interval = Duration::try_from(passed.interval).unwrap_or(Duration::from_secs(60));
    if failures > 0 {
        return Some(interval.min(retry_delay(failures)));
    }
    match passed {
        Passed { decided: 0, unreadable: 0, .. } => None,
        Passed { decided: 0, .. } => Some(RECHECK_INTERVAL),
        _ => Some(interval),
    }
}

/// A controller that lost the lease is dropped at any point, and its gauges must not be scraped any longer.
impl Drop for Variants {
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
    fn variants() -> Variants {
        let nobody = tower::service_fn(|_: http::Request<Body>| async {
            Err::<http::Response<Body>, _>(std::io::Error::other("nobody is asked"))
        });
        let (metrics, gauges) = Metrics::new(Timestamp::UNIX_EPOCH, |_| Arc::new(Gauges::default()));
        let controller = ControllerContext {
            server: Server::new(Client::new(nobody, "default"), String::new(), Duration::ZERO),
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
        Variants::new(&context, Rhythm::default())
    }

    fn stored(namespace: &str, target: &str) -> serde_json::Value {
        json!({ "metadata": { "namespace": namespace, "name": "v", "uid": "u" },
            "spec": { "scaleTargetRef": { "kind": "Deployment", "name": target }, "modelID": "m" },
            "status": { "desiredOptimizedAlloc": { "numReplicas": 3 } } })
    }

    /// The metrics must not wait for the next reconcile, which may start late or take long.
    #[tokio::test]
    async fn excluded_namespace_hides_its_metrics_at_once() {
        for begun in [false, true] {
            let variants = variants();
            variants.fleet.put_variant(&stored("n", "decode"));
            variants.fleet.put_variant(&stored("other", "decode"));
            variants.republish();
            variants.shown.get_or_init(|| ());
            if begun {
                variants.begun.get_or_init(|| ());
            }
            let shown = |namespace: &str| variants.gauges.shown(&NamespacedName::new(namespace, "v")).is_some();
            let mark = |value: &str| {
                let marked = json!({ "metadata": { "name": "n", "annotations": { EXCLUDE_ANNOTATION: value } } });
                variants.fleet.put_namespace(&marked);
                variants.hear(News::Namespace("n".to_owned()));
            };
            assert!(shown("n") && shown("other"));
            mark("true");
            assert!(!shown("n") && shown("other"), "begun: {begun}");
            mark("false");
            assert_eq!(shown("n"), !begun, "what was decided before, or by the next pass");
            assert!(shown("other"));
        }
    }

    #[tokio::test]
    async fn changed_object_is_hidden_before_first_reconcile() {
        let variants = variants();
        variants.fleet.put_variant(&stored("n", "decode"));
        let news = News::Variant(NamespacedName::new("n", "v"));
        let target = || variants.gauges.shown(&NamespacedName::new("n", "v")).map(|shown| shown.target_name);
        variants.hear(news.clone());
        assert_eq!(target(), None, "it is not known yet who is acted on");
        variants.republish();
        variants.shown.get_or_init(|| ());
        assert_eq!(target().as_deref(), Some("decode"));
        let mut moved = stored("n", "prefill");
        let told = json!({ "type": "TargetResolved", "status": "True", "reason": "TargetFound",
            "message": "Scale target Deployment decode found", "lastTransitionTime": "2026-11-16T00:00:00Z" });
        moved["status"]["conditions"] = json!([told]);
        variants.fleet.put_variant(&moved);
        variants.hear(news);
        assert_eq!(target(), None, "nothing was decided for that one");
    }

    #[test]
    fn unreadable_objects_are_requeued() {
        let interval = SignedDuration::from_secs(30);
        for (decided, unreadable, failures, expected) in [
            (0, 0, 0, None),
            (1, 0, 0, Some(Duration::from_secs(30))),
            (1, 1, 0, Some(Duration::from_secs(30))),
            (0, 1, 0, Some(RECHECK_INTERVAL)),
            (0, 0, 20, Some(Duration::from_secs(30))),
        ] {
            let passed = Passed { decided, unreadable, interval, ..Passed::default() };
            assert_eq!(
                again_in(&passed, failures),
                expected,
                "{decided} decided, {unreadable} unreadable, {failures} failures"
            );
        }
    }
}
