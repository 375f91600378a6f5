//! Applies the GPU limit: estimates the room of each variant before models are decided, and limits the decisions
//! afterwards.

use std::collections::{BTreeMap, BTreeSet};

use steersman_reconcile::{Lookup, NamespacedName};

use super::states::FOLLOW;
use super::{Decision, DecisionKind, FleetPlan};
use crate::variant::conflict::Conflict;
use crate::variant::decision_trace::DecidedBy;
use crate::variant::factor::{Explanation, Factor, FactorCode, FactorSubject};
use crate::variant::limits::enforce::DEFAULT_COST;
use crate::variant::limits::gpus::{GpuGrant, GpuRequest, limit};
use crate::variant::snapshot::{FleetSnapshot, ObservedVariant};

fn is_on(seen: &FleetSnapshot) -> bool {
    seen.config.thresholds("", "").limiter
}

/// GPUs that are neither in use nor granted. Each model sees the same free GPUs, so `share` has to resolve competing
/// claims.
pub struct GpuHeadroom<'a> {
    offered: &'a BTreeMap<String, i32>,
    left: BTreeMap<String, i32>,
    /// GPUs of replicas that a variant was granted and does not have yet, minus those of replicas without a node.
    own: BTreeMap<&'a NamespacedName, i32>,
}

impl<'a> GpuHeadroom<'a> {
    /// `None` if the limiter is off or the GPUs could not be counted.
    pub fn of(seen: &'a FleetSnapshot, conflicts: &BTreeMap<NamespacedName, Conflict>) -> Option<Self> {
        let offered = seen.gpus.known().filter(|_| is_on(seen))?;
        let mut left = offered.clone();
        let mut own = BTreeMap::new();
        let mut counted = BTreeSet::new();
        let lost = |variant: &&ObservedVariant| matches!(conflicts.get(&variant.key), Some(Conflict::Lost { .. }));
        let counts = |variant: &&ObservedVariant| !variant.deleting && !lost(variant) && variant.uses_gpus();
        for variant in seen.variants.iter().filter(counts) {
            if let Some(left) = left.get_mut(&variant.accelerator()).filter(|_| counted.insert(place(variant))) {
                let more = about_to_come(seen, variant);
                let granted = more.saturating_mul(variant.gpus());
                let used = used_gpus(seen, variant);
                *left = left.saturating_sub(used.saturating_add(granted));
                let awaited = in_use(seen, variant).saturating_mul(variant.gpus()).saturating_sub(used).max(0);
                own.insert(&variant.key, granted.saturating_sub(awaited));
            }
        }
        Some(Self { offered, left, own })
    }

    /// Replicas that there are GPUs for, at least `current`, and an explanation of the supply.
    pub fn room(&self, variant: &ObservedVariant, current: i32) -> (i32, Explanation) {
        let accelerator = variant.accelerator();
        let own = self.own.get(&variant.key).copied().unwrap_or_default();
        let more = self.left.get(&accelerator).map_or(0, |left| left.saturating_add(own).max(0) / variant.gpus());
        (current.saturating_add(more), offer(&accelerator, self.offered))
    }
}

fn place(variant: &ObservedVariant) -> (String, String) {
    (variant.key.namespace.clone(), variant.workload())
}

/// The last decided number. Users can write a status, so that its number counts only as far as it was decided here. After a start
/// of the operator, it counts once.
fn granted(seen: &FleetSnapshot, variant: &ObservedVariant, stored: i32) -> i32 {
    let Some(decided) = &seen.memory.decided else { return stored };
    decided.get(&variant.memory_key()).map_or(0, |decided| stored.min(*decided))
}

/// Replicas that were granted and are still awaited.
fn about_to_come(seen: &FleetSnapshot, variant: &ObservedVariant) -> i32 {
    let waits = seen.memory.progress.get(&variant.memory_key()).filter(|waits| waits.ignored_target.is_none());
    let since = waits.and_then(|waits| waits.above).filter(|(current, _)| variant.current() == Some(*current));
    let awaited = since.filter(|(_, since)| seen.now.duration_since(*since) <= FOLLOW);
    let previous = granted(seen, variant, variant.previous().replicas);
    awaited.map_or(0, |(current, _)| previous.saturating_sub(current).max(0))
}

/// GPUs that the pods of the variant have. Replicas without a node have none: otherwise one user could take the GPUs of all by a
/// number that no node has room for.
fn used_gpus(seen: &FleetSnapshot, variant: &ObservedVariant) -> i32 {
    let of_pods = variant.target.known().and_then(|target| target.as_ref()?.used_gpus);
    of_pods.unwrap_or_else(|| in_use(seen, variant).saturating_mul(variant.gpus()))
}

/// Replicas that use GPUs. If the scale target cannot be read, the last known number.
fn in_use(seen: &FleetSnapshot, variant: &ObservedVariant) -> i32 {
    let last = || variant.status.as_ref()?.current_alloc.as_ref().map(|alloc| alloc.num_replicas);
    match &variant.target {
        Lookup::Known(_) => variant.current().unwrap_or_default(),
        Lookup::Unknown(_) => granted(seen, variant, last().unwrap_or_else(|| variant.previous().replicas)).max(0),
    }
}

/// Limits decisions to the GPUs that exist, if the limiter is on.
pub fn apply_gpu_limit(seen: &FleetSnapshot, plan: &mut FleetPlan) {
    if !is_on(seen) {
        return;
    }
    let mut places: Vec<&ObservedVariant> = Vec::new();
    let mut wanted = Vec::new();
    for variant in &seen.variants {
        let takes_part = |decision: &&Decision| matches!(decision.kind, DecisionKind::Decided | DecisionKind::Held);
        let Some(decision) = plan.decisions.get(&variant.key).filter(takes_part) else { continue };
        let (Some(target), Some(replicas)) = (decision.replicas, variant.current()) else { continue };
        let mut one = wants(seen, variant, decision, replicas, target);
        if decision.ignored_target {
            // A variant that does not take its granted replicas is served last.
            one.spare_kv = f64::INFINITY;
        } else {
            // A granted number is kept even if metrics are missing now.
            one.held = granted(seen, variant, variant.previous().replicas);
            one.only_held = decision.kind == DecisionKind::Held && seen.memory.decided.is_some();
        }
        places.push(variant);
        wanted.push(one);
    }
    wanted.extend(unseen(seen, plan, &places));
    let granted = match &seen.gpus {
        Lookup::Known(offered) => {
            let told = |(one, asked): (GpuGrant, &GpuRequest)| {
                let offer = offer(&asked.accelerator, offered);
                let text = format!("{}; {offer}", one.reason);
                (one.target, one.limited, offer.reworded(text))
            };
            limit(&wanted, offered).into_iter().zip(&wanted).map(told).collect()
        }
        // Without a count of GPUs nothing grows.
        Lookup::Unknown(why) => {
            let text = format!(
                "cannot count the accelerators of the nodes: {why}; allow Steersman's service account to list nodes, or correct \
                 WVA_NODE_SELECTOR"
            );
            let told = Explanation::new(FactorCode::AcceleratorsNotCounted, text);
            let held = |(one, variant): (&GpuRequest, &&ObservedVariant)| {
                let kept = variant.held(seen.now).replicas;
                (one.target.min(kept), one.target > kept, told.clone())
            };
            wanted.iter().zip(&places).map(held).collect::<Vec<_>>()
        }
    };
    for (variant, (target, limited, reason)) in places.into_iter().zip(granted) {
        let Some(decision) = plan.decisions.get_mut(&variant.key).filter(|_| limited) else { continue };
        let target = variant.bounds().clamp(target);
        decision.replicas = Some(target);
        decision.trace.granted = target;
        decision.reason = format!("{}; limited by gpu-limiter: {reason}", decision.reason);
        decision.unclamped_reason = None;
        let text = format!("gpu-limiter: {reason}");
        decision.trace.limits.push(reason.reworded(text));
        decision.trace.decided_by = DecidedBy::Limits;
    }
}

fn wants(
    seen: &FleetSnapshot,
    variant: &ObservedVariant,
    decision: &Decision,
    current: i32,
    target: i32,
) -> GpuRequest {
    GpuRequest {
        variant: variant.key.to_string(),
        accelerator: decision.accelerator.clone(),
        current,
        target,
        held: 0,
        gpus: variant.gpus(),
        used: Some(used_gpus(seen, variant)),
        only_held: false,
        takes_none: !variant.uses_gpus(),
        spare_kv: decision.spare,
        cost: variant.cost().unwrap_or(DEFAULT_COST),
    }
}

/// Objects that cannot be decided on still use their GPUs.
fn unseen(seen: &FleetSnapshot, plan: &FleetPlan, counted: &[&ObservedVariant]) -> Vec<GpuRequest> {
    let mut counted: BTreeSet<(String, String)> = counted.iter().map(|variant| place(variant)).collect();
    let mut unseen = Vec::new();
    for variant in &seen.variants {
        let failed = |decision: &&Decision| matches!(decision.kind, DecisionKind::Failed(_));
        let Some(decision) = plan.decisions.get(&variant.key).filter(failed) else { continue };
        let replicas = in_use(seen, variant);
        if replicas > 0 && counted.insert(place(variant)) {
            unseen.push(wants(seen, variant, decision, replicas, replicas));
        }
    }
    unseen
}

/// Explains how much of an accelerator the nodes offer.
fn offer(accelerator: &str, offered: &BTreeMap<String, i32>) -> Explanation {
    let about = |code: FactorCode, text: String| {
        Explanation::of(Factor::about(code, FactorSubject::Accelerator(accelerator.to_owned())), text)
    };
    match offered.get(accelerator) {
        _ if accelerator.is_empty() => Explanation::new(
            FactorCode::AcceleratorUnknown,
            "the accelerator of this variant is unknown: set spec.accelerator to the short product name of the nodes, for example \
             H100",
        ),
        Some(count) => about(FactorCode::AcceleratorsShort, format!("the nodes have {count} {accelerator} in total")),
        None => {
            let types: Vec<&str> = offered.keys().map(String::as_str).collect();
            let types = if types.is_empty() { "none".to_owned() } else { types.join(", ") };
            let text = format!("no node has {accelerator}; available: {types}");
            about(FactorCode::AcceleratorNotOffered, text)
        }
    }
}
