//! Plans the fleet: sorts out the objects that cannot be decided, decides each model, then applies the shared GPU
//! limit.

mod gpu_limit;
mod group;
mod recommendation;
mod replicas;
mod scale_to_zero;
mod states;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;
use steersman_api::meta::conditions;
use steersman_api::variant::v1alpha1::{MAX_MODEL_ID_LENGTH, VariantAutoscalingSpec};
use steersman_reconcile::{Finding, Lookup, NamespacedName, Severity};

use self::gpu_limit::GpuHeadroom;
use self::group::Group;
use self::states::FOLLOW;
use super::conflict::{Conflict, conflicts};
use super::decision_trace::{DecidedBy, DecisionTrace};
use super::events::is_suppressed;
use super::factor::{Explanation, FactorCode};
use super::limits::Bounds;
use super::limits::enforce::DEFAULT_COST;
use super::limits::fallback::{FallbackInput, HeldTarget, Previous, hold};
use super::saturation::tokens::capacity::Memory;
use super::snapshot::{FleetSnapshot, MetricsError, ObservedVariant};
use super::target::is_decided_for;
use super::{legacy_texts, names};

/// Smallest `spec.maxReplicas` we act on. An object stored under an older schema may have 0; it keeps its last decision
/// instead of being scaled to zero.
const MIN_MAX_REPLICAS: i32 = 1;

/// Reported for every variant of a model whose plan panics.
const DEFECTIVE: &str = "internal error: a defect in Steersman prevents decisions for this model. Its replicas stay as they \
                         are; other models are not affected. Search the log of Steersman for \"panicked\" and report it";

/// The decisions for all objects that are not being deleted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetPlan {
    pub decisions: BTreeMap<NamespacedName, Decision>,
    /// State for the next reconcile.
    pub memory: Memory,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    pub kind: DecisionKind,
    /// `None` if there is nothing to publish: no number is known, or another object decides.
    pub replicas: Option<i32>,
    pub reason: String,
    /// `reason` without what bounds changed; None if they changed nothing.
    pub unclamped_reason: Option<String>,
    pub accelerator: String,
    /// Free share of the capacity. Variants with the smallest share get scarce GPUs first.
    pub spare: f64,
    pub metrics: MetricsState,
    /// The scale target did not follow an earlier scale-up.
    pub ignored_target: bool,
    pub conflict: Option<Conflict>,
    pub trace: DecisionTrace,
    pub findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum DecisionKind {
    /// The number was decided in this reconcile.
    Decided,
    /// The last number is kept.
    Held,
    /// The object cannot be decided on, with the reason.
    Failed(Explanation),
    /// Another object decides on the scale target.
    Suppressed,
}

/// Availability of the model's metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum MetricsState {
    NotQueried,
    Available,
    Unavailable(MetricsError),
    /// Some metrics are missing; the explanation names them.
    Incomplete(Explanation),
    /// No replica runs, so there are no metrics.
    NoReplicas,
}

/// Total: every object gets a decision, and an error in one object does not affect others.
pub fn plan(seen: &FleetSnapshot) -> FleetPlan {
    let living: Vec<&ObservedVariant> = seen.variants.iter().filter(|variant| !variant.deleting).collect();
    let able: Vec<&ObservedVariant> =
        living.iter().copied().filter(|variant| spec_error(&variant.spec).is_none()).collect();
    let conflicts = conflicts(&able);
    let mut plan = FleetPlan { memory: seen.memory.clone(), ..FleetPlan::default() };
    plan.memory.forget(seen.now);
    let mut groups: BTreeMap<NamespacedName, Vec<&ObservedVariant>> = BTreeMap::new();
    // Models with a variant that is not decided on but may serve requests.
    let mut unseen: BTreeSet<NamespacedName> = BTreeSet::new();
    for variant in living {
        let conflict = conflicts.get(&variant.key);
        let model = NamespacedName::new(&variant.key.namespace, &variant.spec.model_id);
        let kind = match (spec_error(&variant.spec), conflict, &variant.target) {
            _ if seen.defective.contains(&model) => {
                Some(DecisionKind::Failed(Explanation::new(FactorCode::InternalError, DEFECTIVE)))
            }
            (Some(why), ..) => Some(DecisionKind::Failed(why)),
            (_, Some(Conflict::Lost { .. }), _) => Some(DecisionKind::Suppressed),
            (_, _, Lookup::Unknown(why)) => {
                let text = format!("Scale target {} could not be read: {why}", variant.workload());
                Some(DecisionKind::Failed(Explanation::new(FactorCode::ScaleTargetUnreadable, text)))
            }
            (_, _, Lookup::Known(None)) => {
                let text = format!(
                    "Deployment not found: {} does not exist in namespace {}; create it or correct spec.scaleTargetRef",
                    variant.workload(),
                    variant.key.namespace
                );
                Some(DecisionKind::Failed(Explanation::new(FactorCode::ScaleTargetNotFound, text)))
            }
            _ => None,
        };
        if matches!(kind, Some(DecisionKind::Failed(_))) && may_run(variant, seen.now) {
            unseen.insert(model.clone());
        }
        match kind {
            Some(kind) => drop(plan.decisions.insert(variant.key.clone(), keep_last_decision(variant, kind, conflict))),
            None => {
                groups.entry(model).or_default().push(variant);
            }
        }
    }
    let free = GpuHeadroom::of(seen, &conflicts);
    let mut looked_at: BTreeSet<String> = BTreeSet::new();
    for (model, mut variants) in groups {
        looked_at.extend(variants.iter().map(|variant| variant.memory_key()));
        variants.sort_by(|a, b| a.key.cmp(&b.key));
        let group = Group::of(seen, &model, &variants, unseen.contains(&model), free.as_ref());
        for (variant, mut decision) in variants.iter().zip(group.decide(&mut plan.memory)) {
            decision.conflict = conflicts.get(&variant.key).cloned();
            plan.decisions.insert(variant.key.clone(), decision);
        }
    }
    gpu_limit::apply_gpu_limit(seen, &mut plan);
    // ScaleProgress of a variant that was not evaluated now is unknown; a stale timer would count as elapsed.
    plan.memory.progress.retain(|key, _| looked_at.contains(key));
    plan.memory.decided = Some(decided_numbers(seen, &plan));
    plan
}

/// The numbers that were decided from observations, by [`ObservedVariant::memory_key`].
fn decided_numbers(seen: &FleetSnapshot, plan: &FleetPlan) -> BTreeMap<String, i32> {
    let number = |variant: &ObservedVariant| {
        let (key, decision) = (variant.memory_key(), plan.decisions.get(&variant.key)?);
        let number = match decision.kind {
            DecisionKind::Decided | DecisionKind::Held => decision.replicas,
            DecisionKind::Failed(_) | DecisionKind::Suppressed => {
                plan.memory.decided.as_ref().and_then(|decided| decided.get(&key).copied())
            }
        };
        Some((key, number?))
    };
    seen.variants.iter().filter_map(number).collect()
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
    let missing = conditions::find(stored, names::TARGET).filter(|told| told.status == "False");
    let lately = missing.is_none_or(|told| now.duration_since(told.last_transition_time.0) <= FOLLOW);
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

impl ObservedVariant {
    /// Key of the variant in `Memory`.
    pub fn memory_key(&self) -> String {
        Memory::key(&self.key.namespace, &self.spec.model_id, &self.key.name)
    }

    /// Kind and name, for messages.
    pub fn workload(&self) -> String {
        self.spec.scale_target_ref.as_ref().map(|to| format!("{} {}", to.kind, to.name)).unwrap_or_default()
    }

    pub fn bounds(&self) -> Bounds {
        Bounds { min: self.spec.min_replicas, max: self.spec.max_replicas.filter(|max| *max >= MIN_MAX_REPLICAS) }
    }

    /// `spec.replicas` of the scale target.
    pub fn current(&self) -> Option<i32> {
        self.target.known()?.as_ref().map(|target| target.replicas.unwrap_or(1).max(0))
    }

    pub fn cost(&self) -> Option<f64> {
        self.spec.variant_cost.parse().ok().filter(|cost: &f64| cost.is_finite() && *cost >= 0.0)
    }

    /// GPUs of one replica: those that its pods request. `spec.acceleratorCount` counts only if they request none, because a
    /// claim of one user must not take GPUs from others.
    pub fn gpus(&self) -> i32 {
        let Lookup::Known(Some(target)) = &self.target else { return 1 };
        let claimed = || self.spec.accelerator_count.and_then(|count| i32::try_from(count).ok()).unwrap_or(1);
        if target.gpus > 0 { target.gpus } else { claimed().max(1) }
    }

    /// Whether the GPUs of its replicas count as used. Pods that request none use none, whatever the object claims. If the scale
    /// target cannot be read, one GPU for each replica is kept.
    pub fn uses_gpus(&self) -> bool {
        !matches!(&self.target, Lookup::Known(Some(target)) if target.gpus <= 0)
    }

    /// Empty if unknown. The decision is published in any case.
    pub fn accelerator(&self) -> String {
        let label = || self.labels.get(names::ACCELERATOR_LABEL).cloned();
        let stored = || self.status.as_ref()?.desired_optimized_alloc.as_ref()?.accelerator.clone();
        self.spec.accelerator.clone().or_else(label).or_else(stored).unwrap_or_default()
    }

    /// The number that is kept while nothing can be decided.
    pub fn held(&self, now: Timestamp) -> HeldTarget {
        let input = FallbackInput {
            bounds: self.bounds(),
            current: self.current().unwrap_or_default(),
            created: self.created,
            previous: self.previous(),
            others_run: false,
        };
        hold(&input, now)
    }

    /// The stored decision, if it was made for this scale target.
    pub fn previous(&self) -> Previous {
        let status = self.status.as_ref().filter(|_| !self.starts_over());
        let stored = status.and_then(|status| status.desired_optimized_alloc.clone()).unwrap_or_default();
        let update = stored.last_update.unwrap_or_default();
        let decided = stored.num_replicas.is_some();
        let at = update.update_time.or(stored.last_run_time).map(|time| time.0);
        let reason = update.reason.unwrap_or_default();
        Previous {
            replicas: stored.num_replicas.unwrap_or_default(),
            unclamped_reason: update.unclamped_reason.or_else(|| legacy_texts::unclamped_reason(&reason)),
            reason,
            at: at.or(Some(self.created)).filter(|_| decided),
        }
    }

    /// Whether the stored decision does not apply: it was made for another scale target, or another object decided in
    /// between.
    pub fn starts_over(&self) -> bool {
        self.is_retargeted() || self.status.as_deref().is_some_and(is_suppressed)
    }

    /// Whether `scaleTargetRef` was changed since the status was written, so that the status is about another scale
    /// target.
    pub fn is_retargeted(&self) -> bool {
        let (Some(status), Some(target)) = (self.status.as_deref(), self.spec.scale_target_ref.as_ref()) else {
            return false;
        };
        match status.decision.as_ref().and_then(|decision| decision.scale_target_ref.as_ref()) {
            Some(decided) => !is_decided_for(decided, target),
            // Earlier operators stored no group.
            None => legacy_texts::scale_target(status)
                .is_some_and(|decided| (decided.kind, decided.name) != (target.kind.clone(), target.name.clone())),
        }
    }

    /// Contradicting bounds, which an object stored under an older schema may have.
    fn odd_bounds(&self) -> Option<Finding> {
        let Bounds { min, max } = self.bounds();
        let message = match max {
            Some(max) if max < min => format!("spec.maxReplicas={max} is below spec.minReplicas={min}; {max} is used."),
            _ if min < 0 => format!("spec.minReplicas={min} is below 0; 0 is used."),
            _ => return None,
        };
        let remedy = "Correct spec.minReplicas or spec.maxReplicas: 0 <= minReplicas <= maxReplicas.".to_owned();
        Some(Finding { severity: Severity::Warning, reason: "BoundsContradict", message, remedy })
    }

    /// Fields of the spec that are ignored or invalid.
    fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.cost().is_none() {
            findings.push(Finding {
                severity: Severity::Warning,
                reason: "VariantCostInvalid",
                message: format!(
                    "spec.variantCost {:?} is not a number; {DEFAULT_COST} is used.",
                    self.spec.variant_cost
                ),
                remedy: "Write a decimal number such as \"10\" or \"12.5\".".to_owned(),
            });
        }
        findings.extend(self.odd_bounds());
        if self.spec.variant_profile.is_some() || self.spec.slo_class_ref.is_some() {
            findings.push(Finding {
                severity: Severity::Info,
                reason: "VariantProfileIgnored",
                message:
                    "spec.variantProfile and spec.sloClassRef are accepted but not used yet: replicas are decided by the \
                          saturation of the running ones."
                        .to_owned(),
                remedy: "No action is needed.".to_owned(),
            });
        }
        if let Some(id) = &self.spec.variant_id {
            findings.push(Finding {
                severity: Severity::Info,
                reason: "VariantIDIgnored",
                message: format!("spec.variantID {id:?} is only displayed: variants are identified by metadata.name."),
                remedy: "No action is needed.".to_owned(),
            });
        }
        findings
    }
}
