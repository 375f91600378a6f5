//! Distributes the cluster's GPUs: first up to earlier grants, then by the priority of the service
//! class, then to the most saturated variants. The room of each
//! variant is estimated before models are decided, and the decisions are limited afterwards.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use steersman_reconcile::{Lookup, NamespacedName};

use super::eligibility::Conflict;
use super::plan::{Decision, DecisionKind, FleetPlan};
use super::progress::FOLLOW_TIMEOUT;
use super::snapshot::{FleetSnapshot, ObservedVariant};
use super::trace::{DecidedBy, Explanation, Factor, FactorCode, FactorSubject};

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuRequest {
    pub variant: String,
    pub accelerator: String,
    pub current: i32,
    pub target: i32,
    /// Replicas granted earlier. They are served first, because otherwise a grant would be revoked while it is carried
    /// out.
    pub held: i32,
    /// Accelerators per replica.
    pub gpus: i32,
    /// Accelerators of its pods on nodes. `None`: those of `current` replicas.
    pub used: Option<i32>,
    /// The target is not of this reconcile, so that nothing beyond `held` is granted.
    pub only_held: bool,
    /// Its pods request no accelerator. It is limited to the free ones like others, but takes none of them.
    pub takes_none: bool,
    /// Priority of the service class. A smaller number is served first.
    pub priority: i64,
    pub spare_kv: f64,
    pub cost: f64,
}

impl GpuRequest {
    /// Accelerators of the current replicas.
    fn of_replicas(&self) -> i32 {
        self.current.saturating_mul(self.gpus.max(1))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuGrant {
    pub variant: String,
    pub target: i32,
    pub gpus: i32,
    pub limited: bool,
    pub reason: String,
}

/// `offered`: GPUs by short product name.
pub fn limit(wanted: &[GpuRequest], offered: &BTreeMap<String, i32>) -> Vec<GpuGrant> {
    let mut free = offered.clone();
    for one in wanted.iter().filter(|one| !one.takes_none) {
        if let Some(left) = free.get_mut(&one.accelerator) {
            *left = left.saturating_sub(one.used.unwrap_or_else(|| one.of_replicas()));
        }
    }
    let mut order: Vec<usize> = (0..wanted.len()).filter(|at| wanted[*at].target > wanted[*at].current).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&wanted[*a], &wanted[*b]);
        let by_priority = a.priority.cmp(&b.priority);
        by_priority
            .then(a.spare_kv.total_cmp(&b.spare_kv))
            .then(a.cost.total_cmp(&b.cost))
            .then(a.variant.cmp(&b.variant))
    });
    let mut added_replicas: BTreeMap<usize, i32> = BTreeMap::new();
    let held = order.iter().map(|at| (*at, wanted[*at].target.min(wanted[*at].held)));
    let all = order.iter().filter(|at| !wanted[**at].only_held).map(|at| (*at, wanted[*at].target));
    for (at, target) in held.chain(all) {
        let one = &wanted[at];
        let already_added = added_replicas.entry(at).or_default();
        let mut left = free.get_mut(&one.accelerator);
        // Its own replicas without a node need their GPUs before further ones do.
        let used = one.used.filter(|_| !one.takes_none);
        let awaited = used.map_or(0, |used| one.of_replicas().saturating_sub(used).max(0));
        let room = left.as_ref().map_or(0, |left| left.saturating_sub(awaited) / one.gpus.max(1)).max(0);
        let added = target.saturating_sub(one.current).saturating_sub(*already_added).clamp(0, room);
        if let Some(left) = left.as_mut().filter(|_| !one.takes_none) {
            **left = left.saturating_sub(added.saturating_mul(one.gpus.max(1)));
        }
        *already_added = already_added.saturating_add(added);
    }
    wanted.iter().enumerate().map(|(at, one)| grant(one, added_replicas.get(&at).copied())).collect()
}

fn grant(one: &GpuRequest, added: Option<i32>) -> GpuGrant {
    let target = added.map_or(one.target, |added| one.current.saturating_add(added));
    let limited = target < one.target;
    let gpus = added.unwrap_or_default().saturating_mul(one.gpus.max(1));
    let reason = match added {
        Some(added @ 1..) if limited => format!("limited: allocated {gpus} GPUs for +{added} replicas"),
        Some(added @ 1..) => format!("allocated {gpus} GPUs for +{added} replicas"),
        _ => format!("no scale-up (target={target}, current={})", one.current),
    };
    GpuGrant { variant: one.variant.clone(), target, gpus, limited, reason }
}

/// The short name of a node's product label: `NVIDIA-A100-PCIE-80GB` is an `A100`.
pub fn short_product_name(product: &str) -> String {
    let parts: Vec<&str> = product.split('-').collect();
    match parts.as_slice() {
        [_] | [] => product.to_owned(),
        [vendor, family, series, ..] if vendor.eq_ignore_ascii_case("intel") => format!("{family}-{series}"),
        [_, model, ..] => (*model).to_owned(),
    }
}

fn is_on(snapshot: &FleetSnapshot) -> bool {
    snapshot.config.thresholds("", "").limiter
}

/// GPUs that are neither in use nor granted. Each model sees the same free GPUs, so that `apply` has to resolve competing
/// claims.
pub struct GpuHeadroom<'a> {
    offered: &'a BTreeMap<String, i32>,
    left: BTreeMap<String, i32>,
    /// GPUs of replicas that a variant was granted and does not have yet, minus those of replicas without a node.
    own: BTreeMap<&'a NamespacedName, i32>,
}

impl<'a> GpuHeadroom<'a> {
    /// `None` if the limiter is off or the GPUs could not be counted.
    pub fn of(snapshot: &'a FleetSnapshot, conflicts: &BTreeMap<NamespacedName, Conflict>) -> Option<Self> {
        let offered = snapshot.gpus.known().filter(|_| is_on(snapshot))?;
        let mut left = offered.clone();
        let mut own = BTreeMap::new();
        let mut counted = BTreeSet::new();
        let lost = |variant: &&ObservedVariant| matches!(conflicts.get(&variant.key), Some(Conflict::Lost { .. }));
        let counts = |variant: &&ObservedVariant| !variant.deleting && !lost(variant) && variant.uses_gpus();
        for variant in snapshot.variants.iter().filter(counts) {
            if let Some(left) =
                left.get_mut(&variant.accelerator()).filter(|_| counted.insert(scale_target_key(variant)))
            {
                let granted = awaited_replicas(snapshot, variant).saturating_mul(variant.gpus());
                let used = used_gpus(snapshot, variant);
                *left = left.saturating_sub(used.saturating_add(granted));
                let awaited =
                    running_replicas(snapshot, variant).saturating_mul(variant.gpus()).saturating_sub(used).max(0);
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

fn scale_target_key(variant: &ObservedVariant) -> (String, String) {
    (variant.key.namespace.clone(), variant.workload())
}

/// The last decided number. Users can write a status, so that its number counts only as far as it was decided here. After
/// a start of the operator, it counts once.
fn granted_replicas(snapshot: &FleetSnapshot, variant: &ObservedVariant, stored: i32) -> i32 {
    let Some(decided) = &snapshot.memory.decided else { return stored };
    decided.get(&variant.memory_key()).map_or(0, |decided| stored.min(*decided))
}

/// Replicas that were granted and are still awaited.
fn awaited_replicas(snapshot: &FleetSnapshot, variant: &ObservedVariant) -> i32 {
    let progress = snapshot.memory.progress.get(&variant.memory_key());
    let progress = progress.filter(|progress| progress.ignored_target.is_none());
    let since =
        progress.and_then(|progress| progress.scale_up).filter(|(current, _)| variant.current() == Some(*current));
    let awaited = since.filter(|(_, since)| snapshot.now.duration_since(*since) <= FOLLOW_TIMEOUT);
    let previous = granted_replicas(snapshot, variant, variant.previous().replicas);
    awaited.map_or(0, |(current, _)| previous.saturating_sub(current).max(0))
}

/// GPUs that the pods of the variant have. Replicas without a node have none: otherwise one user could take the GPUs of all by a
/// number that no node has room for.
fn used_gpus(snapshot: &FleetSnapshot, variant: &ObservedVariant) -> i32 {
    let of_pods = variant.scale_target().and_then(|target| target.used_gpus);
    of_pods.unwrap_or_else(|| running_replicas(snapshot, variant).saturating_mul(variant.gpus()))
}

/// Replicas that use GPUs. If the scale target cannot be read, the last known number.
fn running_replicas(snapshot: &FleetSnapshot, variant: &ObservedVariant) -> i32 {
    let last = || variant.status.as_ref()?.current_alloc.as_ref().map(|alloc| alloc.num_replicas);
    match &variant.target {
        Lookup::Known(_) => variant.current().unwrap_or_default(),
        Lookup::Unknown(_) => {
            granted_replicas(snapshot, variant, last().unwrap_or_else(|| variant.previous().replicas)).max(0)
        }
    }
}

/// Limits decisions to the GPUs that exist, if the limiter is on.
pub fn apply(snapshot: &FleetSnapshot, plan: &mut FleetPlan) {
    if !is_on(snapshot) {
        return;
    }
    let mut variants: Vec<&ObservedVariant> = Vec::new();
    let mut wanted = Vec::new();
    for variant in &snapshot.variants {
        let takes_part = |decision: &&Decision| matches!(decision.kind, DecisionKind::Decided | DecisionKind::Held);
        let Some(decision) = plan.decisions.get(&variant.key).filter(takes_part) else { continue };
        let (Some(target), Some(replicas)) = (decision.replicas, variant.current()) else { continue };
        let mut one = request(snapshot, variant, decision, replicas, target);
        if decision.ignored_target {
            // A variant that does not take its granted replicas is served last.
            one.spare_kv = f64::INFINITY;
        } else {
            // A granted number is kept even if metrics are missing now.
            one.held = granted_replicas(snapshot, variant, variant.previous().replicas);
            one.only_held = decision.kind == DecisionKind::Held && snapshot.memory.decided.is_some();
        }
        variants.push(variant);
        wanted.push(one);
    }
    wanted.extend(undecided(snapshot, plan, &variants));
    let granted = match &snapshot.gpus {
        Lookup::Known(offered) => {
            let explanation = |(grant, request): (GpuGrant, &GpuRequest)| {
                let offer = offer(&request.accelerator, offered);
                let text = format!("{}; {offer}", grant.reason);
                (grant.target, grant.limited, offer.reworded(text))
            };
            limit(&wanted, offered).into_iter().zip(&wanted).map(explanation).collect()
        }
        // Without a count of GPUs nothing grows.
        Lookup::Unknown(why) => {
            let text = format!(
                "cannot count the accelerators of the nodes: {why}; allow Steersman's service account to list nodes, or correct \
                 WVA_NODE_SELECTOR"
            );
            let explanation = Explanation::new(FactorCode::AcceleratorsNotCounted, text);
            let held = |(one, variant): (&GpuRequest, &&ObservedVariant)| {
                let kept = variant.held(snapshot.now).replicas;
                (one.target.min(kept), one.target > kept, explanation.clone())
            };
            wanted.iter().zip(&variants).map(held).collect::<Vec<_>>()
        }
    };
    for (variant, (target, limited, reason)) in variants.into_iter().zip(granted) {
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

fn request(
    snapshot: &FleetSnapshot,
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
        used: Some(used_gpus(snapshot, variant)),
        only_held: false,
        takes_none: !variant.uses_gpus(),
        priority: decision.priority,
        spare_kv: decision.spare,
        cost: variant.cost(&snapshot.config.costs),
    }
}

/// Objects that cannot be decided on still use their GPUs.
fn undecided(snapshot: &FleetSnapshot, plan: &FleetPlan, counted: &[&ObservedVariant]) -> Vec<GpuRequest> {
    let mut counted: BTreeSet<(String, String)> = counted.iter().map(|variant| scale_target_key(variant)).collect();
    let mut requests = Vec::new();
    for variant in &snapshot.variants {
        let failed = |decision: &&Decision| matches!(decision.kind, DecisionKind::Failed(_));
        let Some(decision) = plan.decisions.get(&variant.key).filter(failed) else { continue };
        let replicas = running_replicas(snapshot, variant);
        if replicas > 0 && counted.insert(scale_target_key(variant)) {
            requests.push(request(snapshot, variant, decision, replicas, replicas));
        }
    }
    requests
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
