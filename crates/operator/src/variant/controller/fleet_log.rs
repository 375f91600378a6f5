//! Logs the lines that users know from the Go operator. Each is logged once until its content changes.

use std::collections::{BTreeMap, BTreeSet};

use steersman_plan::variant::config::Config;
use steersman_plan::variant::{Conflict, FleetPlan, FleetSnapshot, Hint, HintKind, ObservedVariant, hints};
use steersman_reconcile::NamespacedName;

/// Limit of the names in one line.
const MAX_NAMES: usize = 20;

#[derive(Default)]
pub struct FleetLog {
    /// Whether `WVA_SCALE_TO_ZERO` was logged as on.
    scale_to_zero: bool,
    logged_hints: Vec<Hint>,
    /// Objects that are being deleted.
    deleting: BTreeSet<NamespacedName>,
    /// Models that wait for an earlier decision.
    in_transition: BTreeSet<NamespacedName>,
    /// Suppressed objects by the object that decides.
    conflicts: BTreeMap<NamespacedName, Vec<NamespacedName>>,
}

impl FleetLog {
    pub fn settings(&mut self, config: &Config) {
        if config.zero.environment && !self.scale_to_zero {
            tracing::info!("Scaling to zero is enabled!");
        }
        self.scale_to_zero = config.zero.environment;
    }

    pub fn deleting(&mut self, snapshot: &FleetSnapshot) {
        let deleting = snapshot.variants.iter().filter(|variant| variant.deleting);
        let deleting: BTreeSet<NamespacedName> = deleting.map(|variant| variant.key.clone()).collect();
        for NamespacedName { namespace, name } in deleting.difference(&self.deleting) {
            tracing::info!(namespace, name, "skipping deleted variantAutoscaling");
        }
        self.deleting = deleting;
    }

    pub fn hints(&mut self, snapshot: &FleetSnapshot) {
        let now = hints(snapshot);
        let all = snapshot.variants.iter().filter(|variant| !variant.deleting).count();
        for hint in now.iter().filter(|hint| !self.logged_hints.contains(hint)) {
            let (some, names) = (hint.variants.len(), listed(&hint.variants));
            let (message, recommendation) = (hint.message, hint.recommendation);
            match hint.kind {
                HintKind::DefaultCosts => tracing::warn!(
                    totalVariants = all,
                    variantsUsingDefault = some,
                    variantNames = names,
                    recommendation,
                    "{message}"
                ),
                HintKind::MinReplicas => tracing::warn!(
                    totalVariants = all,
                    variants = some,
                    variantNames = names,
                    recommendation,
                    "{message}"
                ),
            }
        }
        self.logged_hints = now;
    }

    pub fn decided(&mut self, snapshot: &FleetSnapshot, plan: &FleetPlan) {
        let mut in_transition = BTreeSet::new();
        let mut conflicts = BTreeMap::new();
        for variant in &snapshot.variants {
            let Some(decision) = plan.decisions.get(&variant.key) else { continue };
            if decision.trace.in_transition() {
                let model = NamespacedName::new(&variant.key.namespace, &variant.spec.model_id);
                if !self.in_transition.contains(&model) && !in_transition.contains(&model) {
                    let hold = decision.trace.hold_text();
                    let NamespacedName { namespace, name } = &model;
                    tracing::info!(namespace, modelID = name, hold, "Model in transition, blocking scaling decisions");
                }
                in_transition.insert(model);
            }
            if let Some(Conflict::Won { others }) = &decision.conflict {
                if self.conflicts.get(&variant.key) != Some(others) {
                    log_conflict(variant, others);
                }
                conflicts.insert(variant.key.clone(), others.clone());
            }
        }
        (self.in_transition, self.conflicts) = (in_transition, conflicts);
    }
}

fn log_conflict(winner: &ObservedVariant, others: &[NamespacedName]) {
    tracing::error!(
        namespace = winner.key.namespace,
        deployment = winner.workload(),
        winner = winner.key.name,
        suppressed = listed(others),
        action = "delete the suppressed VariantAutoscalings, or set another scaleTargetRef in each",
        "Several VariantAutoscalings target the same deployment: the oldest decides, the others are suppressed"
    );
}

fn listed(keys: &[NamespacedName]) -> String {
    let names: Vec<String> = keys.iter().take(MAX_NAMES).map(ToString::to_string).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::{Arc, Mutex};
    use steersman_reconcile::Lookup;

    use jiff::Timestamp;
    use serde_json::json;
    use steersman_plan::variant::{Explanation, FactorCode, ObservedTarget, Settings, plan};
    use tracing::field::{Field, Visit};
    use tracing::{Event, Subscriber};
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::{Context, SubscriberExt};

    use super::*;

    /// Records one text per log line.
    #[derive(Clone, Default)]
    struct RecordedLog(Arc<Mutex<Vec<String>>>);

    struct LineVisitor(String);

    impl Visit for LineVisitor {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            self.0 += &format!("{field}={value:?} ");
        }
    }

    impl<S: Subscriber> Layer<S> for RecordedLog {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut line = LineVisitor(format!("{} ", event.metadata().level()));
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
    }

    impl RecordedLog {
        fn of(log: impl FnOnce()) -> Vec<String> {
            let recorded = Self::default();
            tracing::subscriber::with_default(tracing_subscriber::registry().with(recorded.clone()), log);
            let logged = recorded.0.lock().unwrap();
            logged.clone()
        }
    }

    /// The scale target has two replicas.
    fn variant(name: &str, target: &str) -> ObservedVariant {
        let spec = json!({ "scaleTargetRef": { "kind": "Deployment", "name": target }, "modelID": "m" });
        let replicas = ObservedTarget { replicas: Some(2), ready: 2, ..ObservedTarget::default() };
        ObservedVariant {
            key: NamespacedName::new("team", name),
            generation: None,
            created: Timestamp::UNIX_EPOCH,
            deleting: false,
            labels: BTreeMap::new(),
            spec: serde_json::from_value(spec).unwrap(),
            status: None,
            target: Lookup::Known(Some(replicas)),
            config: Default::default(),
        }
    }

    fn fleet(variants: Vec<ObservedVariant>) -> FleetSnapshot {
        FleetSnapshot {
            now: Timestamp::UNIX_EPOCH,
            settings: Settings::default(),
            config: Config::default(),
            variants,
            models: BTreeMap::new(),
            gpus: Lookup::Unknown("not counted".to_owned()),
            memory: Default::default(),
            defective: Default::default(),
        }
    }

    fn assert_logged(logged: &[String], expected: &[&str]) {
        assert_eq!(logged.len(), expected.len(), "{logged:?}");
        for (logged, expected) in logged.iter().zip(expected) {
            let parts: Vec<&str> = expected.split(" … ").collect();
            assert!(parts.iter().all(|part| logged.contains(part)), "{logged} does not contain all of {parts:?}");
        }
    }

    #[test]
    fn fleet_lines_are_logged_once_per_change() {
        let mut lines = FleetLog::default();
        let mut snapshot = fleet(vec![variant("a", "x"), variant("b", "y")]);
        snapshot.config.zero.environment = true;
        let mut all = |snapshot: &FleetSnapshot| {
            RecordedLog::of(|| {
                lines.settings(&snapshot.config);
                lines.deleting(snapshot);
                lines.hints(snapshot);
            })
        };
        let costs = "Multiple variants detected with some using default variantCost";
        let expected = [
            "INFO message=Scaling to zero is enabled!",
            &format!("WARN … {costs} … totalVariants=2 … variantsUsingDefault=2 … variantNames=\"team/a, team/b\""),
        ];
        assert_logged(&all(&snapshot), &expected);
        assert_logged(&all(&snapshot), &[]);
        snapshot.variants[1].deleting = true;
        let expected = "INFO message=skipping deleted variantAutoscaling … namespace=\"team\" … name=\"b\"";
        assert_logged(&all(&snapshot), &[expected]);
        assert_logged(&all(&snapshot), &[]);
    }

    #[test]
    fn shared_scale_target_is_logged_once() {
        let mut lines = FleetLog::default();
        let mut snapshot = fleet(vec![variant("a", "x"), variant("b", "x"), variant("c", "y")]);
        let mut all = |snapshot: &FleetSnapshot| RecordedLog::of(|| lines.decided(snapshot, &plan(snapshot)));
        let expected = "ERROR … target the same deployment … deployment=\"Deployment x\" … winner=\"a\" … \
                        suppressed=\"team/b\"";
        assert_logged(&all(&snapshot), &[expected]);
        assert_logged(&all(&snapshot), &[]);
        snapshot.variants[2] = variant("c", "x");
        assert_logged(&all(&snapshot), &["suppressed=\"team/b, team/c\""]);
        snapshot.variants.truncate(1);
        assert_logged(&all(&snapshot), &[]);
    }

    #[test]
    fn model_in_transition_is_logged_once() {
        let mut lines = FleetLog::default();
        let snapshot = fleet(vec![variant("a", "x"), variant("b", "y")]);
        let mut all = |hold: Option<Explanation>| {
            let mut plan = plan(&snapshot);
            plan.decisions.values_mut().for_each(|decision| decision.trace.hold = hold.clone());
            RecordedLog::of(|| lines.decided(&snapshot, &plan))
        };
        let transition = || Some(Explanation::new(FactorCode::InTransition, "variant a has 2 replicas, 3 are desired"));
        let expected = "INFO message=Model in transition, blocking scaling decisions … namespace=\"team\" … \
                        modelID=\"m\" … 3 are desired";
        assert_logged(&all(None), &[]);
        assert_logged(&all(transition()), &[expected]);
        assert_logged(&all(transition()), &[]);
        assert_logged(&all(Some(Explanation::new(FactorCode::MetricsMissing, "there are no metrics"))), &[]);
        assert_logged(&all(transition()), &[expected]);
    }
}
