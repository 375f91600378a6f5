//! Plans the whole fleet off the async threads. A panic affects only the models that cause it.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use steersman_plan::variant::{FleetPlan, FleetSnapshot};
use steersman_reconcile::NamespacedName;

use crate::variant::observe::ObservedFleet;

/// `None` if no plan could be made; nothing is changed then. It runs on a blocking thread, because planning thousands
/// of objects takes long.
pub async fn decide(observed: &Arc<ObservedFleet>, plan: fn(&FleetSnapshot) -> FleetPlan) -> Option<FleetPlan> {
    let observed = observed.clone();
    let decided = tokio::task::spawn_blocking(move || {
        let snapshot = &observed.snapshot;
        // The snapshot is only read, so a panic leaves nothing half-changed behind.
        catch_unwind(AssertUnwindSafe(|| plan(snapshot))).ok().or_else(|| plan_without_defective(snapshot, plan))
    });
    let decided = decided.await.ok().flatten();
    if decided.is_none() {
        tracing::error!(
            "planning the fleet panicked; no number of replicas is changed. This is a defect of Steersman: report it with \
             the panic above"
        );
    }
    decided
}

/// Plans each model alone to find those that panic, then the fleet with these keeping their last decision.
fn plan_without_defective(snapshot: &FleetSnapshot, plan: fn(&FleetSnapshot) -> FleetPlan) -> Option<FleetPlan> {
    let attempt = |snapshot: &FleetSnapshot| catch_unwind(AssertUnwindSafe(|| plan(snapshot))).ok();
    let model = |key: &NamespacedName, id: &str| NamespacedName::new(&key.namespace, id);
    let models: BTreeSet<NamespacedName> =
        snapshot.variants.iter().map(|variant| model(&variant.key, &variant.spec.model_id)).collect();
    // A snapshot with one model. Copying the whole snapshot for each model would be quadratic.
    let alone = |only: &NamespacedName| {
        let of_model = snapshot.variants.iter().filter(|one| model(&one.key, &one.spec.model_id) == *only);
        FleetSnapshot {
            now: snapshot.now,
            settings: snapshot.settings,
            config: snapshot.config.clone(),
            variants: of_model.cloned().collect(),
            models: snapshot.models.get(only).map(|metrics| (only.clone(), metrics.clone())).into_iter().collect(),
            gpus: snapshot.gpus.clone(),
            memory: snapshot.memory.clone(),
            defective: BTreeSet::new(),
        }
    };
    let defective: BTreeSet<NamespacedName> = models.into_iter().filter(|one| attempt(&alone(one)).is_none()).collect();
    for NamespacedName { namespace, name } in &defective {
        tracing::error!(
            namespace,
            model = name,
            "planning the model panicked; the model keeps its last decision. This is a defect of Steersman: report it with \
             the panic above"
        );
    }
    attempt(&FleetSnapshot { defective, ..snapshot.clone() })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use jiff::Timestamp;
    use serde_json::json;
    use steersman_plan::variant::config::Config;
    use steersman_plan::variant::memory::Memory;
    use steersman_plan::variant::{DecisionKind, FactorCode, ObservedVariant, Settings, plan};
    use steersman_reconcile::Lookup;

    use super::*;

    fn observed(variants: Vec<ObservedVariant>, memory: Memory) -> Arc<ObservedFleet> {
        let snapshot = FleetSnapshot {
            now: Timestamp::UNIX_EPOCH,
            settings: Settings::default(),
            config: Config::default(),
            variants,
            models: BTreeMap::new(),
            gpus: Lookup::Unknown("not counted".to_owned()),
            memory,
            defective: BTreeSet::new(),
        };
        Arc::new(ObservedFleet { snapshot, versions: BTreeMap::new(), undecodable: vec![], waited: Duration::ZERO })
    }

    fn variant(model: &str) -> ObservedVariant {
        let spec = json!({ "modelID": model, "scaleTargetRef": { "kind": "Deployment", "name": model } });
        let status = json!({ "desiredOptimizedAlloc": {
            "numReplicas": 3, "accelerator": "L40S", "lastRunTime": "2026-11-16T00:00:00Z" } });
        ObservedVariant {
            key: NamespacedName::new("n", model),
            generation: Some(1),
            created: Timestamp::UNIX_EPOCH,
            deleting: false,
            labels: BTreeMap::new(),
            spec: Arc::new(serde_json::from_value(spec).unwrap()),
            status: Some(Arc::new(serde_json::from_value(status).unwrap())),
            target: Lookup::Known(Some(Default::default())),
            config: [].into(),
        }
    }

    #[tokio::test]
    async fn memory_survives_a_plan_that_panics() {
        let mut memory = Memory { decided: Some(BTreeMap::new()), ..Memory::default() };
        memory.observe("n|m|H100|short", 8_000, Timestamp::UNIX_EPOCH);
        let observed = observed(vec![], memory.clone());
        assert!(decide(&observed, |_| panic!("planted")).await.is_none());
        assert_eq!(observed.snapshot.memory, memory);
        assert_eq!(decide(&observed, plan).await.map(|plan| plan.memory), Some(memory));
    }

    #[tokio::test]
    async fn planted_panic_affects_only_its_model() {
        let observed = observed(vec![variant("sound"), variant("broken"), variant("other")], Memory::default());
        let planted = |snapshot: &FleetSnapshot| {
            let broken = NamespacedName::new("n", "broken");
            let planned = !snapshot.defective.contains(&broken);
            assert!(!planned || snapshot.variants.iter().all(|one| one.key != broken), "planted");
            plan(snapshot)
        };
        let decided = decide(&observed, planted).await.unwrap();
        let undisturbed = decide(&observed, plan).await.unwrap();
        for name in ["sound", "other"] {
            let key = NamespacedName::new("n", name);
            assert_eq!(decided.decisions[&key], undisturbed.decisions[&key], "{name}");
        }
        let broken = &decided.decisions[&NamespacedName::new("n", "broken")];
        assert_eq!(broken.replicas, Some(3), "the last decision");
        assert!(matches!(&broken.kind, DecisionKind::Failed(why) if why.has(FactorCode::InternalError)), "{broken:?}");
    }
}
