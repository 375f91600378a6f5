//! Several objects for one workload.

use steersman_api::meta::conditions;
use steersman_plan::variant::{Conflict, DecisionKind, FleetSnapshot, names};
use steersman_reconcile::NamespacedName;

use super::{NAMESPACE, a_fleet, a_variant, ago, decision, replicas, spec, stored};

/// `young` wants the workload of `old`.
pub fn rivals() -> FleetSnapshot {
    let old = a_variant("old", "5", 2);
    let mut young = a_variant("young", "5", 2);
    spec(&mut young).scale_target_ref = old.spec.scale_target_ref.clone();
    young.created = ago(1);
    let mut seen = a_fleet(vec![old], 0.75, 2.0);
    seen.variants.insert(0, young);
    seen
}

#[test]
fn the_oldest_object_decides_and_the_other_publishes_nothing() {
    let seen = rivals();
    assert_eq!(replicas(&seen, "old"), 3);
    let lost = decision(&seen, "young");
    assert_eq!((lost.kind, lost.replicas), (DecisionKind::Suppressed, None));
    let (old, young) = (NamespacedName::new(NAMESPACE, "old"), NamespacedName::new(NAMESPACE, "young"));
    assert_eq!(lost.conflict, Some(Conflict::Lost { target: "old-decode".into(), winner: old }));
    assert_eq!(decision(&seen, "old").conflict, Some(Conflict::Won { others: vec![young] }));
}

#[test]
fn both_sides_are_told_and_the_words_go_with_the_conflict() {
    let mut seen = rivals();
    for (key, status) in stored(&seen) {
        seen.variants.iter_mut().find(|variant| variant.key == key).unwrap().status = Some(status);
    }
    let told = |seen: &FleetSnapshot, name: &str, type_: &str| {
        let variant = seen.variants.iter().find(|variant| variant.key.name == name).unwrap();
        let conditions = &variant.status.as_ref().unwrap().conditions;
        conditions::find(conditions, type_)
            .map(|found| (found.status.clone(), found.reason.clone(), found.message.clone()))
    };
    let own = |status: &str, reason: &str, message: &str| Some((status.into(), reason.into(), message.into()));
    assert_eq!(
        told(&seen, "old", names::CONFLICT),
        own(
            "True",
            "ConflictResolvedByArbitration",
            "This VA won arbitration (oldest) but 1 other VA(s) also target the same deployment: team-a/young. \
             DELETE OR REASSIGN: team-a/young"
        )
    );
    assert_eq!(
        told(&seen, "young", names::CONFLICT),
        own(
            "True",
            "SuppressedDueToConflict",
            "SUPPRESSED: This VA targets deployment old-decode which is already managed by team-a/old (older VA). \
             No optimization/metrics for this VA. \
             ACTION: Delete this VA or change scaleTargetRef to a unique deployment."
        )
    );
    assert_eq!(
        told(&seen, "young", names::READY),
        own("False", "DeploymentTargetConflict", "Suppressed due to deployment target conflict")
    );
    // What was said of it before it lost holds no longer.
    let words = "No replicas are decided: another VariantAutoscaling decides for this scale target; see condition \
                 DeploymentTargetConflict";
    assert_eq!(told(&seen, "young", names::OPTIMIZATION), own("False", "SkippedProcessing", words));
    assert_eq!(told(&seen, "young", names::METRICS).unwrap().1, "SkippedProcessing");
    seen.variants.retain(|variant| variant.key.name == "young");
    seen.variants[0].status = stored(&seen).into_values().next();
    assert_eq!(told(&seen, "young", names::CONFLICT), None);
    assert_eq!(told(&seen, "young", names::READY), None);
    assert_eq!(told(&seen, "young", names::OPTIMIZATION).unwrap().1, "OptimizationSucceeded");
    assert_eq!(decision(&seen, "young").kind, DecisionKind::Decided);
}

#[test]
fn the_same_names_in_two_namespaces_are_no_conflict() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.75, 2.0);
    let mut other = a_variant("v", "5", 2);
    other.key.namespace = "team-b".into();
    seen.variants.push(other);
    assert_eq!(steersman_plan::variant::plan(&seen).decisions.values().filter(|one| one.conflict.is_some()).count(), 0);
    assert_eq!(replicas(&seen, "v"), 3);
}
