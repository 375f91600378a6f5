//! The accelerators that all variants share, where the limiter is on.
//! Comes in: what nodes offer, what runs and what was decided; goes out: what is left for each variant before anything is decided,
//! and decisions that promise nothing that is not there.

use std::collections::{BTreeMap, BTreeSet};

use steersman_reconcile::{Lookup, NamespacedName};

use super::hold::hold;
use super::states::FOLLOW;
use super::{Decision, FleetPlan, Standing};
use crate::variant::Mode;
use crate::variant::conflict::Conflict;
use crate::variant::factor::{Explanation, Factor, FactorCode, Reference};
use crate::variant::limits::enforce::USUAL_COST;
use crate::variant::limits::gpus::{Granted, Wanted, limit};
use crate::variant::seen::{Seen, VariantSeen};
use crate::variant::story::Binding;

fn is_on(seen: &Seen) -> bool {
    seen.config.thresholds("", "", Mode::Steersman).is_some_and(|thresholds| thresholds.limiter)
}

/// Accelerators that nobody uses or is about to take. What one model leaves may be another's in the same pass: the last word has `share`.
pub struct Free<'a> {
    offered: &'a BTreeMap<String, i32>,
    left: BTreeMap<String, i32>,
    /// Replicas that a variant was granted and is about to take.
    coming: BTreeMap<&'a NamespacedName, i32>,
}

impl<'a> Free<'a> {
    /// None: nobody counts them, or nobody could.
    pub fn of(seen: &'a Seen, conflicts: &BTreeMap<NamespacedName, Conflict>) -> Option<Self> {
        let offered = seen.gpus.known().filter(|_| is_on(seen) && seen.settings.mode == Mode::Steersman)?;
        let mut left = offered.clone();
        let mut coming = BTreeMap::new();
        let mut counted = BTreeSet::new();
        let lost = |variant: &&VariantSeen| matches!(conflicts.get(&variant.key), Some(Conflict::Lost { .. }));
        for variant in seen.variants.iter().filter(|variant| !variant.deleting && !lost(variant)) {
            if let Some(left) = left.get_mut(&variant.accelerator()).filter(|_| counted.insert(place(variant))) {
                let more = about_to_come(seen, variant);
                *left = left.saturating_sub(in_use(variant).saturating_add(more).saturating_mul(variant.gpus()));
                coming.insert(&variant.key, more);
            }
        }
        Some(Self { offered, left, coming })
    }

    /// How many replicas there are accelerators for, never fewer than there are, and what there is.
    pub fn room(&self, variant: &VariantSeen, current: i32) -> (i32, Explanation) {
        let accelerator = variant.accelerator();
        let own = self.coming.get(&variant.key).copied().unwrap_or_default().saturating_mul(variant.gpus());
        let more = self.left.get(&accelerator).map_or(0, |left| left.saturating_add(own).max(0) / variant.gpus());
        (current.saturating_add(more), offer(&accelerator, self.offered))
    }
}

fn place(variant: &VariantSeen) -> (String, String) {
    (variant.key.namespace.clone(), variant.workload())
}

/// Replicas that it was granted and does not have yet, for as long as it is waited for.
fn about_to_come(seen: &Seen, variant: &VariantSeen) -> i32 {
    let waits = seen.memory.waits.get(&variant.memory_key()).filter(|waits| waits.unfollowed.is_none());
    let since = waits.and_then(|waits| waits.above).filter(|(current, _)| variant.current() == Some(*current));
    let awaited = since.filter(|(_, since)| seen.now.duration_since(*since) <= FOLLOW);
    awaited.map_or(0, |(current, _)| variant.previous().replicas.saturating_sub(current).max(0))
}

/// Replicas with accelerators: where they cannot be looked at, as many as there last were.
fn in_use(variant: &VariantSeen) -> i32 {
    let last = || variant.status.as_ref()?.current_alloc.as_ref().map(|alloc| alloc.num_replicas);
    match &variant.target {
        Lookup::Known(_) => variant.current().unwrap_or_default(),
        Lookup::Unknown(_) => last().unwrap_or_else(|| variant.previous().replicas).max(0),
    }
}

/// Where the limiter is on, accelerators that are not there are not promised.
pub fn share(seen: &Seen, plan: &mut FleetPlan) {
    if !is_on(seen) {
        return;
    }
    let mut places: Vec<&VariantSeen> = Vec::new();
    let mut wanted = Vec::new();
    for variant in &seen.variants {
        let takes_part = |decision: &&Decision| matches!(decision.standing, Standing::Decided | Standing::Held);
        let Some(decision) = plan.decisions.get(&variant.key).filter(takes_part) else { continue };
        let (Some(target), Some(replicas)) = (decision.replicas, variant.current()) else { continue };
        let mut one = wants(variant, decision, replicas, target);
        match (seen.settings.mode, decision.unfollowed) {
            (Mode::Upstream, _) => {}
            // Whoever does not take what it was granted is served last.
            (Mode::Steersman, true) => one.spare_kv = f64::INFINITY,
            // Also where nothing is known of it now: what is missing takes nothing back.
            (Mode::Steersman, false) => one.held = variant.previous().replicas,
        }
        places.push(variant);
        wanted.push(one);
    }
    if seen.settings.mode == Mode::Steersman {
        wanted.extend(unseen(seen, plan, &places));
    }
    let granted = match &seen.gpus {
        Lookup::Known(offered) => {
            let told = |(one, asked): (Granted, &Wanted)| {
                let offer = offer(&asked.accelerator, offered);
                let text = format!("{}; {offer}", one.reason);
                (one.target, one.limited, offer.reworded(text))
            };
            limit(&wanted, offered).into_iter().zip(&wanted).map(told).collect()
        }
        // Upstream scales as if there were no limit; here nothing grows on what nobody has counted.
        Lookup::Unknown(_) if seen.settings.mode == Mode::Upstream => Vec::new(),
        Lookup::Unknown(why) => {
            let text = format!("the accelerators could not be counted: {why}");
            let told = Explanation::new(FactorCode::AcceleratorsNotCounted, text);
            let held = |(one, variant): (&Wanted, &&VariantSeen)| {
                let kept = hold(variant, seen.now).replicas;
                (one.target.min(kept), one.target > kept, told.clone())
            };
            wanted.iter().zip(&places).map(held).collect::<Vec<_>>()
        }
    };
    for (variant, (target, limited, reason)) in places.into_iter().zip(granted) {
        let Some(decision) = plan.decisions.get_mut(&variant.key).filter(|_| limited) else { continue };
        let target = if seen.settings.mode == Mode::Steersman { variant.bounds().clamp(target) } else { target };
        decision.replicas = Some(target);
        decision.story.granted = target;
        if seen.settings.mode == Mode::Steersman {
            decision.reason = format!("{}; limited by gpu-limiter: {reason}", decision.reason);
            decision.unclamped_reason = None;
        }
        let text = format!("gpu-limiter: {reason}");
        decision.story.limits.push(reason.reworded(text));
        decision.story.binding = Binding::Limits;
    }
}

fn wants(variant: &VariantSeen, decision: &Decision, current: i32, target: i32) -> Wanted {
    Wanted {
        variant: variant.key.to_string(),
        accelerator: decision.accelerator.clone(),
        current,
        target,
        held: 0,
        gpus: variant.gpus(),
        spare_kv: decision.spare,
        cost: variant.cost().unwrap_or(USUAL_COST),
    }
}

/// Objects that cannot be worked with use their accelerators all the same.
fn unseen(seen: &Seen, plan: &FleetPlan, counted: &[&VariantSeen]) -> Vec<Wanted> {
    let mut counted: BTreeSet<(String, String)> = counted.iter().map(|variant| place(variant)).collect();
    let mut unseen = Vec::new();
    for variant in &seen.variants {
        let failed = |decision: &&Decision| matches!(decision.standing, Standing::Failed(_));
        let Some(decision) = plan.decisions.get(&variant.key).filter(failed) else { continue };
        let replicas = in_use(variant);
        if replicas > 0 && counted.insert(place(variant)) {
            unseen.push(wants(variant, decision, replicas, replicas));
        }
    }
    unseen
}

/// What there is of an accelerator, for whoever wonders why it is not enough.
fn offer(accelerator: &str, offered: &BTreeMap<String, i32>) -> Explanation {
    let about = |code: FactorCode, text: String| {
        Explanation::of(Factor::about(code, Reference::Accelerator(accelerator.to_owned())), text)
    };
    match offered.get(accelerator) {
        _ if accelerator.is_empty() => Explanation::new(
            FactorCode::AcceleratorUnknown,
            "nobody knows its accelerator: set spec.accelerator to the short name of the nodes' product",
        ),
        Some(count) => about(FactorCode::AcceleratorsShort, format!("nodes offer {count} of {accelerator}")),
        None => {
            let types: Vec<&str> = offered.keys().map(String::as_str).collect();
            let types = if types.is_empty() { "no accelerators".to_owned() } else { types.join(", ") };
            let text = format!("no node offers {accelerator}; they offer {types}");
            about(FactorCode::AcceleratorNotOffered, text)
        }
    }
}
