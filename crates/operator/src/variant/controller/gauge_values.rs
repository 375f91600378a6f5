//! Computes the gauge values of an object from its decision, or from its stored status before the first reconcile.

use std::collections::{BTreeMap, BTreeSet};

use steersman_api::variant::v1alpha1::VariantAutoscalingStatus;
use steersman_plan::variant::analyze::service_levels::Latency;
use steersman_plan::variant::{Conflict, Decision, FleetPlan, ObservedVariant, is_suppressed};

use super::FleetController;
use crate::variant::metrics::{ConflictResolution, GaugeValues, LatencySeconds};
use crate::variant::observe::Trigger;

/// Values after a decision.
pub fn decided(variant: &ObservedVariant, decision: &Decision) -> GaugeValues {
    let conflict = match &decision.conflict {
        None => None,
        Some(Conflict::Won { others }) => Some(ConflictResolution::Winner(others.len() + 1)),
        Some(Conflict::Lost { .. }) => Some(ConflictResolution::Suppressed),
    };
    let running = variant.target.known().and_then(Option::as_ref);
    let running = running.map(|target| target.status_replicas.or(target.replicas).unwrap_or(1).max(0));
    let level = decision.service_level.as_ref();
    GaugeValues {
        predicted: level.map(|level| seconds(level.predicted)).unwrap_or_default(),
        measured: level.map(|level| seconds(level.measured)).unwrap_or_default(),
        desired: decision.replicas,
        accelerator: decision.accelerator.clone(),
        current: running.unwrap_or_else(|| stored_current(variant)),
        reason: decision.trace.decided_by.as_str(),
        conflict,
        ..target_labels(variant)
    }
}

fn seconds(latency: Latency) -> LatencySeconds {
    LatencySeconds { ttft: latency.ttft.map(|ms| ms / 1e3), itl: latency.itl.map(|ms| ms / 1e3) }
}

/// Number of objects by each factor of their decision. An object counts once for each factor.
pub fn factors(plan: &FleetPlan) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for decision in plan.decisions.values() {
        let codes: BTreeSet<&'static str> = decision.trace.factors().map(|factor| factor.code.as_str()).collect();
        for code in codes {
            *counts.entry(code).or_default() += 1;
        }
    }
    counts
}

/// Values from the stored status. `None` if there is no decision for this scale target, or another object decides.
fn stored(variant: &ObservedVariant) -> Option<GaugeValues> {
    let ours =
        |status: &&VariantAutoscalingStatus| !variant.deleting && !variant.is_retargeted() && !is_suppressed(status);
    let status = variant.status.as_deref().filter(ours)?;
    let desired = status.desired_optimized_alloc.as_ref()?.num_replicas?;
    Some(GaugeValues {
        desired: Some(desired),
        accelerator: variant.accelerator(),
        current: stored_current(variant),
        reason: "hold",
        ..target_labels(variant)
    })
}

fn stored_current(variant: &ObservedVariant) -> i32 {
    let current = variant.status.as_ref().and_then(|status| status.current_alloc.as_ref());
    current.map_or(0, |current| current.num_replicas)
}

fn target_labels(variant: &ObservedVariant) -> GaugeValues {
    let target = variant.spec.scale_target_ref.as_ref();
    GaugeValues {
        model: variant.spec.model_id.clone(),
        target_name: target.map(|target| target.name.clone()).unwrap_or_default(),
        target_kind: target.map(|target| target.kind.clone()).unwrap_or_default(),
        ..GaugeValues::default()
    }
}

impl FleetController {
    /// Publishes stored decisions, so that an HPA does not lose its series however long the first reconcile takes.
    pub fn republish(&self) {
        let mut all = BTreeMap::new();
        self.fleet.each(|_, _, record| {
            if let Ok(variant) = &record.variant {
                all.extend(stored(variant).map(|values| (variant.key.clone(), values)));
            }
        });
        self.gauges.publish(all);
    }

    /// Updates the gauges for a change before the first reconcile.
    pub fn update_gauges(&self, trigger: &Trigger) {
        match trigger {
            Trigger::VariantChanged(key) => {
                match self.fleet.with_owned(key, |record| record.variant.as_ref().map(stored).ok()) {
                    Some(Some(values)) => self.gauges.set(key.clone(), values),
                    // The spec cannot be decoded; the stored decision still applies.
                    Some(None) => {}
                    None => self.gauges.remove(key),
                }
            }
            // Objects of a namespace that is no longer excluded are published again.
            Trigger::NamespaceChanged(_) => self.republish(),
            Trigger::VariantDeleted(_) | Trigger::ConfigMapChanged(_) | Trigger::TargetChanged(_) => {}
        }
    }
}
