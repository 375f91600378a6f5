//! Plans the fleet: calls the stages of a decision in their order.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use steersman_reconcile::{Finding, NamespacedName};

use super::analyze::service_levels::{Outlook, ServiceLevelDecision, SizeCache};
use super::analyze::{MetricsState, saturation_tokens};
use super::config::classes;
use super::eligibility::{Conflict, Eligibility, classify};
use super::gpu_limit::GpuHeadroom;
use super::memory::Memory;
use super::progress::VariantState;
use super::snapshot::{FleetSnapshot, ObservedModel, ObservedVariant};
use super::trace::{DecisionTrace, Explanation, Proposal};
use super::{analyze, bounds, gpu_limit, progress, scale_to_zero, stabilize};

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
    /// Of the service class. Variants with the smallest number get scarce GPUs first.
    pub priority: i64,
    /// If the queueing engine decides.
    pub service_level: Option<ServiceLevelDecision>,
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

/// Total: every object gets a decision, and an error in one object does not affect others.
pub fn plan(snapshot: &FleetSnapshot) -> FleetPlan {
    let Eligibility { models, ineligible, partly_unseen, conflicts } = classify(snapshot);
    let headroom = GpuHeadroom::of(snapshot, &conflicts);
    let mut plan = FleetPlan { decisions: ineligible, memory: snapshot.memory.clone() };
    plan.memory.expire(snapshot.now);
    let mut tracked: BTreeSet<String> = BTreeSet::new();
    let mut cache = SizeCache::default();
    let mut outlooks: Vec<(&[&ObservedVariant], Outlook)> = Vec::new();
    for (key, variants) in &models {
        let model = ObservedModel {
            snapshot,
            namespace: &key.namespace,
            name: &key.name,
            variants,
            metrics: snapshot.models.get(key),
            is_partly_unseen: partly_unseen.contains(key),
        };
        let (decisions, outlook) = decide(&model, headroom.as_ref(), &mut plan.memory, &mut cache);
        outlooks.extend(outlook.map(|outlook| (variants.as_slice(), outlook)));
        for (variant, decision) in variants.iter().zip(decisions) {
            tracked.insert(variant.memory_key());
            let conflict = conflicts.get(&variant.key).cloned();
            plan.decisions.insert(variant.key.clone(), Decision { conflict, ..decision });
        }
    }
    gpu_limit::apply(snapshot, &mut plan);
    for (variants, outlook) in &outlooks {
        predict(&mut plan, variants, outlook);
    }
    // Progress of a variant that was not evaluated now is unknown; a stale timer would count as elapsed.
    plan.memory.progress.retain(|key, _| tracked.contains(key));
    plan.memory.decided = Some(decided_numbers(snapshot, &plan));
    plan
}

/// Decides all variants of one model together.
fn decide(
    model: &ObservedModel<'_>,
    headroom: Option<&GpuHeadroom<'_>>,
    memory: &mut Memory,
    cache: &mut SizeCache,
) -> (Vec<Decision>, Option<Outlook>) {
    saturation_tokens::record_engine_args(model, memory);
    let states = progress::track(model, headroom, memory);
    let mut analysis = analyze::analyze(model, &states, memory, cache);
    let scale_to_zero = scale_to_zero::evaluate(model, &analysis.metrics, memory);
    let mut proposals: Vec<_> = model.variants.iter().map(|variant| analysis.propose(model, variant)).collect();
    proposals.iter_mut().for_each(bounds::apply);
    proposals.iter_mut().for_each(progress::report_unfollowed);
    scale_to_zero::apply(model, &states, &scale_to_zero, &mut proposals);
    proposals.iter_mut().for_each(|proposal| stabilize::apply(proposal, model.snapshot));
    let decision = |(mut proposal, state): (Proposal<'_>, &VariantState)| {
        let variant = proposal.variant;
        proposal.trace.granted = proposal.replicas;
        let mut findings = variant.findings();
        findings.extend(analysis.findings.remove(&variant.key.name).unwrap_or_default());
        findings.extend(scale_to_zero::prevented(variant, model, &scale_to_zero));
        Decision {
            kind: if proposal.is_decided { DecisionKind::Decided } else { DecisionKind::Held },
            replicas: Some(proposal.replicas),
            reason: proposal.reason,
            unclamped_reason: proposal.unclamped_reason,
            accelerator: variant.accelerator(),
            spare: analysis.recommendation.as_ref().map_or(1.0, |recommendation| recommendation.spare),
            priority: priority(model, variant),
            service_level: None,
            metrics: analysis.metrics.clone(),
            ignored_target: state.ignored_target.is_some(),
            conflict: None,
            trace: proposal.trace,
            findings,
        }
    };
    let decisions = proposals.into_iter().zip(&states).map(decision).collect();
    (decisions, analysis.outlook)
}

/// The priority of the variant's service class, whichever engine decides.
fn priority(model: &ObservedModel<'_>, variant: &ObservedVariant) -> i64 {
    let key = variant.spec.slo_class_ref.as_ref().map(|class| class.key.as_str());
    let found = model.snapshot.config.classes.find(model.namespace, model.name, key);
    found.map_or(classes::LAST, |found| found.class.priority)
}

/// Predicts the latency of each variant of a model at the granted numbers.
fn predict(plan: &mut FleetPlan, variants: &[&ObservedVariant], outlook: &Outlook) {
    let mut replicas: BTreeMap<&str, i32> = BTreeMap::new();
    for variant in variants {
        let granted = plan.decisions.get(&variant.key).and_then(|decision| decision.replicas);
        replicas.insert(&variant.key.name, granted.unwrap_or_default());
    }
    for variant in variants {
        if let Some(decision) = plan.decisions.get_mut(&variant.key) {
            decision.service_level = outlook.at(&variant.key.name, &replicas);
        }
    }
}

/// The numbers that were decided from observations, by [`ObservedVariant::memory_key`].
fn decided_numbers(snapshot: &FleetSnapshot, plan: &FleetPlan) -> BTreeMap<String, i32> {
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
    snapshot.variants.iter().filter_map(number).collect()
}
