//! Separates the objects that are decided on from those that cannot be: their spec is wrong, an older object has the same
//! scale target, or their scale target is unknown. These keep their last number.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;
use steersman_api::meta::conditions;
use steersman_api::variant::v1alpha1::{MAX_MODEL_ID_LENGTH, VariantAutoscalingSpec};
use steersman_reconcile::{Lookup, NamespacedName};

use super::analyze::MetricsState;
use super::config::classes::LAST;
use super::names;
use super::plan::{Decision, DecisionKind};
use super::progress::FOLLOW_TIMEOUT;
use super::snapshot::{FleetSnapshot, MIN_MAX_REPLICAS, ObservedVariant};
use super::target::TargetName;
use super::trace::{DecidedBy, DecisionTrace, Explanation, Factor, FactorCode, FactorSubject};

/// Reported for every variant of a model whose plan panics.
const DEFECTIVE: &str = "internal error: a defect in Steersman prevents decisions for this model. Its replicas stay as they \
                         are; other models are not affected. Search the log of Steersman for \"panicked\" and report it";

/// The objects that are not being deleted.
pub struct Eligibility<'a> {
    /// Variants that are decided on, by model and sorted by name.
    pub models: BTreeMap<NamespacedName, Vec<&'a ObservedVariant>>,
    /// The other objects with their last number.
    pub ineligible: BTreeMap<NamespacedName, Decision>,
    /// Models with an ineligible variant that may serve requests.
    pub partly_unseen: BTreeSet<NamespacedName>,
    pub conflicts: BTreeMap<NamespacedName, Conflict>,
}

pub fn classify(snapshot: &FleetSnapshot) -> Eligibility<'_> {
    let living: Vec<&ObservedVariant> = snapshot.variants.iter().filter(|variant| !variant.deleting).collect();
    let valid: Vec<&ObservedVariant> =
        living.iter().copied().filter(|variant| spec_error(&variant.spec).is_none()).collect();
    let mut models: BTreeMap<NamespacedName, Vec<&ObservedVariant>> = BTreeMap::new();
    let mut ineligible = BTreeMap::new();
    let mut partly_unseen = BTreeSet::new();
    let conflicts = conflicts(&valid);
    for variant in living {
        let conflict = conflicts.get(&variant.key);
        let model = NamespacedName::new(&variant.key.namespace, &variant.spec.model_id);
        let Some(kind) = ineligibility(snapshot, variant, &model, conflict) else {
            models.entry(model).or_default().push(variant);
            continue;
        };
        if matches!(kind, DecisionKind::Failed(_)) && may_run(variant, snapshot.now) {
            partly_unseen.insert(model);
        }
        ineligible.insert(variant.key.clone(), keep_last_decision(variant, kind, conflict));
    }
    models.values_mut().for_each(|variants| variants.sort_by(|a, b| a.key.cmp(&b.key)));
    Eligibility { models, ineligible, partly_unseen, conflicts }
}

/// Why the object cannot be decided on.
fn ineligibility(
    snapshot: &FleetSnapshot,
    variant: &ObservedVariant,
    model: &NamespacedName,
    conflict: Option<&Conflict>,
) -> Option<DecisionKind> {
    let failed = |code: FactorCode, text: String| Some(DecisionKind::Failed(Explanation::new(code, text)));
    if snapshot.defective.contains(model) {
        return failed(FactorCode::InternalError, DEFECTIVE.to_owned());
    }
    if let Some(error) = spec_error(&variant.spec) {
        return Some(DecisionKind::Failed(error));
    }
    match (conflict, &variant.target) {
        (Some(Conflict::Lost { .. }), _) => Some(DecisionKind::Suppressed),
        (_, Lookup::Unknown(why)) => {
            let text = format!("Scale target {} could not be read: {why}", variant.workload());
            failed(FactorCode::ScaleTargetUnreadable, text)
        }
        (_, Lookup::Known(None)) => {
            let text = format!(
                "Deployment not found: {} does not exist in namespace {}; create it or correct spec.scaleTargetRef",
                variant.workload(),
                variant.key.namespace
            );
            failed(FactorCode::ScaleTargetNotFound, text)
        }
        (_, Lookup::Known(Some(_))) => None,
    }
}

/// An error in the spec that rules out any decision.
fn spec_error(spec: &VariantAutoscalingSpec) -> Option<Explanation> {
    if spec.model_id.is_empty() {
        return Some(Explanation::new(FactorCode::ModelIDEmpty, "ModelID is empty - cannot optimize"));
    }
    // Current schemas reject the values below. An object stored under an older one keeps its last decision.
    if !has_model(spec) {
        let text = format!(
            "spec.modelID has more than {MAX_MODEL_ID_LENGTH} characters - cannot optimize: set it to the label model_name of \
             the server's metrics"
        );
        return Some(Explanation::new(FactorCode::ModelIDTooLong, text));
    }
    if let Some(max) = spec.max_replicas.filter(|max| *max < MIN_MAX_REPLICAS) {
        let text = format!(
            "spec.maxReplicas={max} allows no replicas - cannot optimize: set it to {MIN_MAX_REPLICAS} or more, or remove it"
        );
        return Some(Explanation::new(FactorCode::MaxReplicasBelowOne, text));
    }
    let target = spec.scale_target_ref.as_ref().filter(|target| !target.name.is_empty());
    target.is_none().then(|| {
        let text = "spec.scaleTargetRef is missing - cannot optimize: set kind and name of the workload to scale";
        Explanation::new(FactorCode::ScaleTargetMissing, text)
    })
}

/// Whether the object names a model that metrics can be queried for.
pub fn has_model(spec: &VariantAutoscalingSpec) -> bool {
    !spec.model_id.is_empty() && spec.model_id.chars().nth(MAX_MODEL_ID_LENGTH).is_none()
}

/// Whether an object that is not decided on may have replicas. A deleted scale target may be recreated, so it counts
/// for a while.
fn may_run(variant: &ObservedVariant, now: Timestamp) -> bool {
    let stored = variant.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let missing = conditions::find(stored, names::TARGET).filter(|condition| condition.status == "False");
    let lately = missing.is_none_or(|condition| now.duration_since(condition.last_transition_time.0) <= FOLLOW_TIMEOUT);
    let there = match &variant.target {
        Lookup::Known(None) => lately,
        Lookup::Known(Some(_)) | Lookup::Unknown(_) => true,
    };
    let previous = variant.previous();
    there && previous.at.is_some() && previous.replicas > 0
}

/// The decision for an object that cannot be decided on: the last published number, within its bounds.
fn keep_last_decision(variant: &ObservedVariant, kind: DecisionKind, conflict: Option<&Conflict>) -> Decision {
    let previous = variant.previous();
    let known = previous.at.is_some() && kind != DecisionKind::Suppressed;
    let kept = variant.bounds().clamp(previous.replicas);
    let why = match (&kind, conflict) {
        (DecisionKind::Failed(why), _) => why.clone(),
        (_, Some(conflict)) => conflict.explanation(),
        (_, None) => Explanation::default(),
    };
    let (reason, unclamped_reason) = if previous.reason.is_empty() {
        (why.text.clone(), None)
    } else if known && kept != previous.replicas {
        let (reason, unclamped) = previous.clamped(kept);
        (reason, Some(unclamped))
    } else {
        (previous.reason, previous.unclamped_reason)
    };
    Decision {
        replicas: known.then_some(kept),
        reason,
        unclamped_reason,
        accelerator: variant.accelerator(),
        spare: 0.0,
        priority: LAST,
        service_level: None,
        metrics: MetricsState::NotQueried,
        ignored_target: false,
        conflict: conflict.cloned(),
        trace: DecisionTrace {
            hold: Some(why),
            decided_by: DecidedBy::Hold,
            wanted: kept,
            granted: kept,
            ..DecisionTrace::default()
        },
        findings: variant.findings(),
        kind,
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Conflict {
    /// This object decides. The others have the same scale target.
    Won { others: Vec<NamespacedName> },
    /// An older object decides.
    Lost { target: String, winner: NamespacedName },
}

/// Conflicts by object. Among objects of the same age the first by name wins, whatever the order of `all`.
pub fn conflicts(all: &[&ObservedVariant]) -> BTreeMap<NamespacedName, Conflict> {
    let mut by_target: BTreeMap<(&str, TargetName), Vec<&ObservedVariant>> = BTreeMap::new();
    for variant in all {
        if let Some(target) = &variant.spec.scale_target_ref {
            let place = (variant.key.namespace.as_str(), TargetName::from(target));
            by_target.entry(place).or_default().push(variant);
        }
    }
    let mut found = BTreeMap::new();
    for ((_, target), mut rivals) in by_target {
        rivals.sort_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key)));
        let Some((winner, losers)) = rivals.split_first().filter(|(_, losers)| !losers.is_empty()) else { continue };
        let others = losers.iter().map(|loser| loser.key.clone()).collect();
        found.insert(winner.key.clone(), Conflict::Won { others });
        for loser in losers {
            let lost = Conflict::Lost { target: target.name.clone(), winner: winner.key.clone() };
            found.insert(loser.key.clone(), lost);
        }
    }
    found
}

impl Conflict {
    /// Why the object that lost is not decided on.
    pub fn explanation(&self) -> Explanation {
        let factor = match self {
            Self::Won { .. } => Factor::new(FactorCode::TargetConflict),
            Self::Lost { winner, .. } => {
                Factor::about(FactorCode::TargetConflict, FactorSubject::Variant(winner.name.clone()))
            }
        };
        Explanation::of(factor, self.message())
    }

    pub fn message(&self) -> String {
        match self {
            Self::Won { others } => {
                let names: Vec<String> = others.iter().map(ToString::to_string).collect();
                let names = names.join(", ");
                format!(
                    "This VA won arbitration (oldest) but {} other VA(s) also target the same deployment: {names}. \
                     DELETE OR REASSIGN: {names}",
                    others.len()
                )
            }
            Self::Lost { target, winner } => format!(
                "SUPPRESSED: This VA targets deployment {target} which is already managed by {winner} (older VA). \
                 No optimization/metrics for this VA. \
                 ACTION: Delete this VA or change scaleTargetRef to a unique deployment."
            ),
        }
    }
}
