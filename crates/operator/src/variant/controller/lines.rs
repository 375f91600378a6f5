//! Logs the lines that users know from the Go operator. Each is logged once until its content changes.

use std::collections::{BTreeMap, BTreeSet};

use steersman_plan::variant::config::Config;
use steersman_plan::variant::{About, Conflict, FleetPlan, Hint, Seen, VariantSeen, hints};
use steersman_reconcile::NamespacedName;

/// Limit of the names in one line.
const MOST_NAMES: usize = 20;

#[derive(Default)]
pub struct Lines {
    /// Whether `WVA_SCALE_TO_ZERO` was logged as on.
    sleep: bool,
    hinted: Vec<Hint>,
    /// Objects that are being deleted.
    leaving: BTreeSet<NamespacedName>,
    /// Models that wait for an earlier decision.
    waiting: BTreeSet<NamespacedName>,
    /// Suppressed objects by the object that decides.
    conflicts: BTreeMap<NamespacedName, Vec<NamespacedName>>,
}

impl Lines {
    pub fn settings(&mut self, config: &Config) {
        if config.zero.environment && !self.sleep {
            tracing::info!("Scaling to zero is enabled!");
        }
        self.sleep = config.zero.environment;
    }

    pub fn leaving(&mut self, seen: &Seen) {
        let leaving = seen.variants.iter().filter(|variant| variant.deleting);
        let leaving: BTreeSet<NamespacedName> = leaving.map(|variant| variant.key.clone()).collect();
        for NamespacedName { namespace, name } in leaving.difference(&self.leaving) {
            tracing::info!(namespace, name, "skipping deleted variantAutoscaling");
        }
        self.leaving = leaving;
    }

    pub fn hints(&mut self, seen: &Seen) {
        let now = hints(seen);
        let all = seen.variants.iter().filter(|variant| !variant.deleting).count();
        for hint in now.iter().filter(|hint| !self.hinted.contains(hint)) {
            let (some, names) = (hint.variants.len(), listed(&hint.variants));
            let (message, recommendation) = (hint.message, hint.recommendation);
            match hint.about {
                About::Costs => tracing::warn!(
                    totalVariants = all,
                    variantsUsingDefault = some,
                    variantNames = names,
                    recommendation,
                    "{message}"
                ),
                About::Minima => tracing::warn!(
                    totalVariants = all,
                    variants = some,
                    variantNames = names,
                    recommendation,
                    "{message}"
                ),
            }
        }
        self.hinted = now;
    }

    pub fn decided(&mut self, seen: &Seen, plan: &FleetPlan) {
        let mut waiting = BTreeSet::new();
        let mut conflicts = BTreeMap::new();
        for variant in &seen.variants {
            let Some(decision) = plan.decisions.get(&variant.key) else { continue };
            if decision.story.in_transition() {
                let model = NamespacedName::new(&variant.key.namespace, &variant.spec.model_id);
                if !self.waiting.contains(&model) && !waiting.contains(&model) {
                    let hold = decision.story.hold_text();
                    let NamespacedName { namespace, name } = &model;
                    tracing::info!(namespace, modelID = name, hold, "Model in transition, blocking scaling decisions");
                }
                waiting.insert(model);
            }
            if let Some(Conflict::Won { others }) = &decision.conflict {
                if self.conflicts.get(&variant.key) != Some(others) {
                    tell_conflict(variant, others);
                }
                conflicts.insert(variant.key.clone(), others.clone());
            }
        }
        (self.waiting, self.conflicts) = (waiting, conflicts);
    }
}

fn tell_conflict(winner: &VariantSeen, others: &[NamespacedName]) {
    tracing::error!(
        namespace = winner.key.namespace,
        deployment = winner.workload(),
        winner = winner.key.name,
        suppressed = listed(others),
        action = "delete the suppressed VariantAutoscalings, or give each a scaleTargetRef of its own",
        "Several VariantAutoscalings target the same deployment: the oldest decides, the others are suppressed"
    );
}

fn listed(keys: &[NamespacedName]) -> String {
    let names: Vec<String> = keys.iter().take(MOST_NAMES).map(ToString::to_string).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::{Arc, Mutex};
    use steersman_reconcile::Lookup;

    use jiff::Timestamp;
    use serde_json::json;
    use steersman_plan::variant::{Explanation, FactorCode, Settings, TargetSeen, plan};
    use tracing::field::{Field, Visit};
    use tracing::{Event, Subscriber};
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::{Context, SubscriberExt};

    use super::*;

    /// Records one text per log line.
    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<String>>>);

    struct Words(String);

    impl Visit for Words {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            self.0 += &format!("{field}={value:?} ");
        }
    }

    impl<S: Subscriber> Layer<S> for Heard {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut words = Words(format!("{} ", event.metadata().level()));
            event.record(&mut words);
            self.0.lock().unwrap().push(words.0);
        }
    }

    impl Heard {
        fn of(say: impl FnOnce()) -> Vec<String> {
            let heard = Self::default();
            tracing::subscriber::with_default(tracing_subscriber::registry().with(heard.clone()), say);
            let said = heard.0.lock().unwrap();
            said.clone()
        }
    }

    /// The scale target has two replicas.
    fn variant(name: &str, target: &str) -> VariantSeen {
        let spec = json!({ "scaleTargetRef": { "kind": "Deployment", "name": target }, "modelID": "m" });
        let replicas = TargetSeen { replicas: Some(2), ready: 2, ..TargetSeen::default() };
        VariantSeen {
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

    fn fleet(variants: Vec<VariantSeen>) -> Seen {
        Seen {
            now: Timestamp::UNIX_EPOCH,
            settings: Settings::default(),
            config: Config::default(),
            variants,
            models: BTreeMap::new(),
            gpus: Lookup::Unknown("nobody has counted".to_owned()),
            memory: Default::default(),
            defective: Default::default(),
        }
    }

    fn assert_said(said: &[String], expected: &[&str]) {
        assert_eq!(said.len(), expected.len(), "{said:?}");
        for (said, expected) in said.iter().zip(expected) {
            let parts: Vec<&str> = expected.split(" … ").collect();
            assert!(parts.iter().all(|part| said.contains(part)), "{said} has not all of {parts:?}");
        }
    }

    #[test]
    fn fleet_lines_are_logged_once_per_change() {
        let mut lines = Lines::default();
        let mut seen = fleet(vec![variant("a", "x"), variant("b", "y")]);
        seen.config.zero.environment = true;
        let mut all = |seen: &Seen| {
            Heard::of(|| {
                lines.settings(&seen.config);
                lines.leaving(seen);
                lines.hints(seen);
            })
        };
        let costs = "Multiple variants detected with some using default variantCost";
        let expected = [
            "INFO message=Scaling to zero is enabled!",
            &format!("WARN … {costs} … totalVariants=2 … variantsUsingDefault=2 … variantNames=\"team/a, team/b\""),
        ];
        assert_said(&all(&seen), &expected);
        assert_said(&all(&seen), &[]);
        seen.variants[1].deleting = true;
        let expected = "INFO message=skipping deleted variantAutoscaling … namespace=\"team\" … name=\"b\"";
        assert_said(&all(&seen), &[expected]);
        assert_said(&all(&seen), &[]);
    }

    #[test]
    fn shared_scale_target_is_logged_once() {
        let mut lines = Lines::default();
        let mut seen = fleet(vec![variant("a", "x"), variant("b", "x"), variant("c", "y")]);
        let mut all = |seen: &Seen| Heard::of(|| lines.decided(seen, &plan(seen)));
        let expected = "ERROR … target the same deployment … deployment=\"Deployment x\" … winner=\"a\" … \
                        suppressed=\"team/b\"";
        assert_said(&all(&seen), &[expected]);
        assert_said(&all(&seen), &[]);
        seen.variants[2] = variant("c", "x");
        assert_said(&all(&seen), &["suppressed=\"team/b, team/c\""]);
        seen.variants.truncate(1);
        assert_said(&all(&seen), &[]);
    }

    #[test]
    fn model_in_transition_is_logged_once() {
        let mut lines = Lines::default();
        let seen = fleet(vec![variant("a", "x"), variant("b", "y")]);
        let mut all = |hold: Option<Explanation>| {
            let mut plan = plan(&seen);
            plan.decisions.values_mut().for_each(|decision| decision.story.hold = hold.clone());
            Heard::of(|| lines.decided(&seen, &plan))
        };
        let waits = || Some(Explanation::new(FactorCode::InTransition, "a is to have 3 replicas and has 2"));
        let expected = "INFO message=Model in transition, blocking scaling decisions … namespace=\"team\" … \
                        modelID=\"m\" … a is to have 3 replicas";
        assert_said(&all(None), &[]);
        assert_said(&all(waits()), &[expected]);
        assert_said(&all(waits()), &[]);
        assert_said(&all(Some(Explanation::new(FactorCode::MetricsMissing, "there are no metrics"))), &[]);
        assert_said(&all(waits()), &[expected]);
    }
}
