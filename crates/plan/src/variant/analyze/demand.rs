//! The demand engine: builds the inputs of `measured_demand` from the observed model, and remembers the result.

use std::sync::Arc;

use steersman_reconcile::Lookup;

use super::engine_args::EngineArgs;
use super::measured_demand::{self, Analysis, DemandSettings, ModelSample, PickerQueue, PodSample, VariantSample};
use crate::variant::config::thresholds::Thresholds;
use crate::variant::memory::Memory;
use crate::variant::progress::VariantState;
use crate::variant::snapshot::{ObservedModel, ObservedVariant, PodMetrics};

/// Measures the arrival rate and the capacities of a model. It runs at most once per model and reconcile, because each
/// run is a measurement.
pub fn measure(
    model: &ObservedModel<'_>,
    thresholds: &Thresholds,
    states: &[VariantState],
    memory: &mut Memory,
) -> Analysis {
    let settings = settings(thresholds);
    let each = model.variants.iter().zip(states);
    let variants: Vec<VariantSample> = each.map(|(variant, state)| variant_sample(variant, state, memory)).collect();
    let pods = pod_samples(model);
    let sample = ModelSample {
        now: model.snapshot.now,
        settings: &settings,
        variants: &variants,
        pods: &pods,
        picker: picker_queue(model),
    };
    let remembered = memory.demand.entry(Memory::key(model.namespace, model.name, "")).or_default();
    measured_demand::analyze(&sample, remembered)
}

pub fn settings(thresholds: &Thresholds) -> DemandSettings {
    DemandSettings {
        scale_up: thresholds.scale_up,
        scale_down: thresholds.scale_down,
        kv_cache: thresholds.kv_cache,
        kv_spare: thresholds.kv_spare,
        queue_length: thresholds.queue_length,
        queue_spare: thresholds.queue_spare,
        ..DemandSettings::default()
    }
}

fn picker_queue(model: &ObservedModel<'_>) -> PickerQueue {
    match model.metrics.map(|metrics| &metrics.queue) {
        Some(Lookup::Known(Some(queue))) => PickerQueue::Waiting(queue.requests),
        Some(Lookup::Known(None)) => PickerQueue::Absent,
        Some(Lookup::Unknown(_)) | None => PickerQueue::Unknown,
    }
}

fn variant_sample(variant: &ObservedVariant, state: &VariantState, memory: &Memory) -> VariantSample {
    let args = memory.records.get(&variant.memory_key()).and_then(|record| record.args.as_ref());
    let starting = if state.stuck { 0 } else { state.pending };
    let requested = state.awaited().map_or(0, |desired| desired.saturating_sub(state.current).max(0));
    VariantSample {
        name: variant.key.name.as_str().into(),
        capacity_key: capacity_key(variant, args),
        coming: starting.saturating_add(requested),
        max_sequences: args.map(|args| args.max_num_seqs).filter(|most| *most > 0).map(count),
    }
}

/// Variants with equal keys share their measurements.
fn capacity_key(variant: &ObservedVariant, args: Option<&EngineArgs>) -> String {
    let accelerator = variant.accelerator();
    // Two unknown accelerators may be different ones.
    let hardware = if accelerator.is_empty() { format!("variant/{}", variant.key.name) } else { accelerator };
    format!("{hardware}|{}|{}", variant.gpus(), args.map(EngineArgs::capacity_key).unwrap_or_default())
}

/// All ready pods of the model, sorted by name.
fn pod_samples(model: &ObservedModel<'_>) -> Vec<PodSample> {
    let measured = model.pods().unwrap_or_default();
    let mut samples = Vec::with_capacity(measured.len());
    for variant in model.variants {
        let name: Arc<str> = variant.key.name.as_str().into();
        let Some(target) = variant.scale_target() else { continue };
        let since = |pod: &PodMetrics| target.pods.iter().find(|ready| ready.name == pod.name)?.since;
        let own: Vec<&PodMetrics> =
            measured.iter().filter(|(owner, pod)| owner.key == variant.key && pod.ready).map(|(_, pod)| *pod).collect();
        samples.extend(own.iter().map(|pod| pod_sample(pod, &name, since(pod))));
        let without = target.pods.iter().filter(|ready| !own.iter().any(|pod| pod.name == ready.name));
        let mut known = own.len();
        for ready in without {
            known += 1;
            samples.push(PodSample {
                name: ready.name.clone(),
                variant: name.clone(),
                ready_since: ready.since,
                ..PodSample::default()
            });
        }
        // The scale target counts more ready replicas than there are known pods.
        let counted = usize::try_from(variant.ready_replicas()).unwrap_or_default();
        for number in known..counted {
            samples.push(PodSample {
                name: format!("{name}/unknown-{number}").into(),
                variant: name.clone(),
                ..PodSample::default()
            });
        }
    }
    samples.sort_by(|a, b| a.name.cmp(&b.name));
    samples
}

fn pod_sample(pod: &PodMetrics, variant: &Arc<str>, ready_since: Option<jiff::Timestamp>) -> PodSample {
    PodSample {
        name: pod.name.clone(),
        variant: variant.clone(),
        ready_since,
        kv: pod.kv,
        waiting: pod.waiting,
        running: pod.running,
        completed: pod.completed,
        completions: pod.completed_per_second,
        service_time: pod.service_seconds,
        output: pod.output,
    }
}

#[expect(clippy::cast_precision_loss, reason = "sequence counts are far below 2^52")]
fn count(sequences: i64) -> f64 {
    sequences as f64
}
