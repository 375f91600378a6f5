//! Plans the fleet: sorts out the objects that cannot be decided, decides each model, then applies the shared GPU
//! limit.

mod accelerators;
mod group;
mod hold;
mod replicas;
mod said;
mod sleep;
mod states;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;
use steersman_api::meta::conditions;
use steersman_api::variant::v1alpha1::VariantAutoscalingSpec;
use steersman_reconcile::{Finding, Lookup, NamespacedName, Severity};

use self::accelerators::Free;
use self::group::Group;
use self::states::FOLLOW;
use super::Mode;
use super::conflict::{Conflict, conflicts};
use super::factor::{Explanation, FactorCode};
use super::limits::enforce::USUAL_COST;
use super::limits::{Bounds, fallback};
use super::notes::suppressed;
use super::saturation::tokens::capacity::Memory;
use super::seen::{Seen, Silence, VariantSeen};
use super::story::{Binding, Story};
use super::target::is_decided_for;
use super::{legacy_texts, names};

/// Smallest `spec.maxReplicas` we act on. An object stored under an older schema may have 0; it keeps its last decision
/// instead of being scaled to zero.
const LEAST_MAXIMUM: i32 = 1;

/// Reported for every variant of a model whose plan panics.
const DEFECTIVE: &str = "internal error: deciding on this model failed because of a defect of the operator. Its replicas stay \
                         as they are, and other models are not affected. See the operator's log for \"panicked\", and report it";

/// The decisions for all objects that are not being deleted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetPlan {
    pub decisions: BTreeMap<NamespacedName, Decision>,
    /// State for the next reconcile.
    pub memory: Memory,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    pub standing: Standing,
    /// `None` if there is nothing to publish: no number is known, or another object decides.
    pub replicas: Option<i32>,
    pub reason: String,
    /// `reason` without what bounds changed; None if they changed nothing.
    pub unclamped_reason: Option<String>,
    pub accelerator: String,
    /// Free share of the capacity. Variants with the smallest share get scarce GPUs first.
    pub spare: f64,
    pub metrics: Metrics,
    /// The scale target did not follow an earlier scale-up.
    pub unfollowed: bool,
    pub conflict: Option<Conflict>,
    pub story: Story,
    pub findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Standing {
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
pub enum Metrics {
    NotAsked,
    Found,
    Silent(Silence),
    /// Some metrics are missing; the explanation names them.
    Partial(Explanation),
    /// No replica runs, so there are no metrics.
    Asleep,
}

/// Total: every object gets a decision, and an error in one object does not affect others.
pub fn plan(seen: &Seen) -> FleetPlan {
    let living: Vec<&VariantSeen> = seen.variants.iter().filter(|variant| !variant.deleting).collect();
    let able: Vec<&VariantSeen> = living.iter().copied().filter(|variant| unable(&variant.spec).is_none()).collect();
    let conflicts = conflicts(&able);
    let mut plan = FleetPlan { memory: seen.memory.clone(), ..FleetPlan::default() };
    if seen.settings.mode == Mode::Steersman {
        plan.memory.forget(seen.now);
    }
    let mut groups: BTreeMap<NamespacedName, Vec<&VariantSeen>> = BTreeMap::new();
    // Models with a variant that is not decided on but may serve requests.
    let mut unseen: BTreeSet<NamespacedName> = BTreeSet::new();
    for variant in living {
        let conflict = conflicts.get(&variant.key);
        let model = NamespacedName::new(&variant.key.namespace, &variant.spec.model_id);
        let standing = match (unable(&variant.spec), conflict, &variant.target) {
            _ if seen.defective.contains(&model) => {
                Some(Standing::Failed(Explanation::new(FactorCode::InternalError, DEFECTIVE)))
            }
            (Some(why), ..) => Some(Standing::Failed(why)),
            (_, Some(Conflict::Lost { .. }), _) => Some(Standing::Suppressed),
            (_, _, Lookup::Unknown(why)) => {
                let text = format!("Scale target {} could not be read: {why}", variant.workload());
                Some(Standing::Failed(Explanation::new(FactorCode::ScaleTargetUnreadable, text)))
            }
            (_, _, Lookup::Known(None)) => {
                let text = format!(
                    "Deployment not found: there is no {} in namespace {}; create it or correct spec.scaleTargetRef",
                    variant.workload(),
                    variant.key.namespace
                );
                Some(Standing::Failed(Explanation::new(FactorCode::ScaleTargetNotFound, text)))
            }
            _ => None,
        };
        if matches!(standing, Some(Standing::Failed(_))) && may_run(variant, seen.now) {
            unseen.insert(model.clone());
        }
        match standing {
            Some(standing) => drop(plan.decisions.insert(variant.key.clone(), apart(variant, standing, conflict))),
            None => {
                groups.entry(model).or_default().push(variant);
            }
        }
    }
    let free = Free::of(seen, &conflicts);
    let mut looked_at: BTreeSet<String> = BTreeSet::new();
    for (model, mut variants) in groups {
        looked_at.extend(variants.iter().map(|variant| variant.memory_key()));
        if seen.settings.mode == Mode::Steersman {
            variants.sort_by(|a, b| a.key.cmp(&b.key));
        }
        let group = Group::of(seen, &model, &variants, unseen.contains(&model), free.as_ref());
        let decided = match seen.settings.mode {
            Mode::Steersman => group.decide(&mut plan.memory),
            Mode::Upstream => upstream::decide(&group, &mut plan.memory),
        };
        for (variant, mut decision) in variants.iter().zip(decided) {
            decision.conflict = conflicts.get(&variant.key).cloned();
            plan.decisions.insert(variant.key.clone(), decision);
        }
    }
    accelerators::share(seen, &mut plan);
    // Progress of a variant that was not evaluated now is unknown; a stale timer would count as elapsed.
    plan.memory.waits.retain(|key, _| looked_at.contains(key));
    plan
}

/// An error in the spec that rules out any decision.
fn unable(spec: &VariantAutoscalingSpec) -> Option<Explanation> {
    if spec.model_id.is_empty() {
        return Some(Explanation::new(FactorCode::ModelIDEmpty, "ModelID is empty - cannot optimize"));
    }
    // Current schemas reject this value. An object stored under an older one must not be scaled to zero by it.
    if let Some(max) = spec.max_replicas.filter(|max| *max < LEAST_MAXIMUM) {
        let text = format!(
            "spec.maxReplicas={max} allows no replica at all - cannot optimize: set it to {LEAST_MAXIMUM} or more, or leave \
             it out"
        );
        return Some(Explanation::new(FactorCode::MaxReplicasBelowOne, text));
    }
    let target = spec.scale_target_ref.as_ref().filter(|target| !target.name.is_empty());
    target.is_none().then(|| {
        let text =
            "scaleTargetRef is missing - cannot optimize: give spec.scaleTargetRef kind and name of the workload";
        Explanation::new(FactorCode::ScaleTargetMissing, text)
    })
}

/// Whether an object that is not decided on may have replicas. A deleted scale target may be recreated, so it counts
/// for a while.
fn may_run(variant: &VariantSeen, now: Timestamp) -> bool {
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
fn apart(variant: &VariantSeen, standing: Standing, conflict: Option<&Conflict>) -> Decision {
    let previous = variant.previous();
    let known = previous.at.is_some() && standing != Standing::Suppressed;
    let kept = variant.bounds().clamp(previous.replicas);
    let why = match (&standing, conflict) {
        (Standing::Failed(why), _) => why.clone(),
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
        metrics: Metrics::NotAsked,
        unfollowed: false,
        conflict: conflict.cloned(),
        story: Story { hold: Some(why), binding: Binding::Hold, wish: kept, granted: kept, ..Story::default() },
        findings: variant.findings(),
        standing,
    }
}

impl VariantSeen {
    /// Key of the variant in `Memory`.
    pub fn memory_key(&self) -> String {
        Memory::key(&self.key.namespace, &self.spec.model_id, &self.key.name)
    }

    /// Kind and name, for messages.
    pub fn workload(&self) -> String {
        self.spec.scale_target_ref.as_ref().map(|to| format!("{} {}", to.kind, to.name)).unwrap_or_default()
    }

    pub fn bounds(&self) -> Bounds {
        Bounds { min: self.spec.min_replicas, max: self.spec.max_replicas.filter(|max| *max >= LEAST_MAXIMUM) }
    }

    /// `spec.replicas` of the scale target.
    pub fn current(&self) -> Option<i32> {
        self.target.known()?.as_ref().map(|target| target.replicas.unwrap_or(1).max(0))
    }

    pub fn cost(&self) -> Option<f64> {
        self.spec.variant_cost.parse().ok().filter(|cost: &f64| cost.is_finite() && *cost >= 0.0)
    }

    pub fn gpus(&self) -> i32 {
        let counted = self.target.known().and_then(|target| target.as_ref()).map_or(0, |target| target.gpus);
        let said = self.spec.accelerator_count.and_then(|count| i32::try_from(count).ok());
        said.unwrap_or(counted).max(1)
    }

    /// Empty if unknown. The decision is published in any case.
    pub fn accelerator(&self) -> String {
        let label = || self.labels.get(names::ACCELERATOR_LABEL).cloned();
        let stored = || self.status.as_ref()?.desired_optimized_alloc.as_ref()?.accelerator.clone();
        self.spec.accelerator.clone().or_else(label).or_else(stored).unwrap_or_default()
    }

    /// The stored decision, if it was made for this scale target.
    pub fn previous(&self) -> fallback::Previous {
        let status = self.status.as_ref().filter(|_| !self.begins_anew());
        let stored = status.and_then(|status| status.desired_optimized_alloc.clone()).unwrap_or_default();
        let update = stored.last_update.unwrap_or_default();
        let decided = stored.num_replicas.is_some();
        let at = update.update_time.or(stored.last_run_time).map(|time| time.0);
        let reason = update.reason.unwrap_or_default();
        fallback::Previous {
            replicas: stored.num_replicas.unwrap_or_default(),
            unclamped_reason: update.unclamped_reason.or_else(|| legacy_texts::unclamped_reason(&reason)),
            reason,
            at: at.or(Some(self.created)).filter(|_| decided),
        }
    }

    /// Whether the stored decision does not apply: it was made for another scale target, or another object decided in
    /// between.
    pub fn begins_anew(&self) -> bool {
        self.is_moved() || self.status.as_deref().is_some_and(suppressed)
    }

    /// Whether `scaleTargetRef` was changed since the status was written, so that the status is about another scale
    /// target.
    pub fn is_moved(&self) -> bool {
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
            Some(max) if max < min => format!("spec.maxReplicas={max} is below spec.minReplicas={min}; {max} holds."),
            _ if min < 0 => format!("spec.minReplicas={min} is below 0; 0 holds."),
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
                    "spec.variantCost {:?} is not a number; {USUAL_COST} is used.",
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
                    "spec.variantProfile and spec.sloClassRef are ignored by this version of Steersman: replicas are \
                          decided by how saturated the running ones are."
                        .to_owned(),
                remedy: "Nothing needs to be changed.".to_owned(),
            });
        }
        if let Some(id) = &self.spec.variant_id {
            findings.push(Finding {
                severity: Severity::Info,
                reason: "VariantIDIgnored",
                message: format!(
                    "spec.variantID {id:?} is shown and decides nothing: variants are told apart by their names."
                ),
                remedy: "Nothing needs to be changed.".to_owned(),
            });
        }
        findings
    }
}
