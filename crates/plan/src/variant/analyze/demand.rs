//! The demand engine: compares the rate at which requests arrive with the rate that the replicas can complete, and adds
//! all missing capacity at once. Partial metrics may raise a number, and never lower it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use jiff::SignedDuration;
use steersman_reconcile::Lookup;

use super::engine_args::EngineArgs;
use super::measured_demand::{
    self, Analysis, CapacitySource, DemandSettings, FlipPoints, ModelSample, PickerQueue, PodSample, ScaleDownBlock,
    ScaleUpTrigger, VariantSample,
};
use super::{MeasuredPod, MetricsState, Recommendation, ReplicaTarget, add_given_up, valid};
use crate::variant::config::thresholds::Thresholds;
use crate::variant::memory::Memory;
use crate::variant::optimize::cost_aware::{self, Need, Offer};
use crate::variant::progress::VariantState;
use crate::variant::snapshot::{ObservedModel, ObservedVariant, PodMetrics};
use crate::variant::trace::{Explanation, Factor, FactorCode, FactorSubject};

/// Missing request counters are a fault for this long after the last measurement.
const COUNTER_PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// Pods without metrics that a text names.
const MAX_NAMED_PODS: usize = 3;

/// Whether a pod exports what a request rate is computed from.
pub fn has_request_counters(pods: &[MeasuredPod<'_>]) -> bool {
    let counts = |pod: &PodMetrics| {
        valid(pod.waiting).is_some() && valid(pod.completed).or(valid(pod.completed_per_second)).is_some()
    };
    pods.iter().any(|(_, pod)| counts(pod))
}

/// Whether the request counters of the model were known a moment ago.
pub fn was_measured(model: &ObservedModel<'_>, memory: &Memory) -> bool {
    let last = memory.demand.get(&Memory::key(model.namespace, model.name, "")).and_then(|demand| demand.last_use());
    last.is_some_and(|at| model.snapshot.now.duration_since(at) < COUNTER_PATIENCE)
}

pub fn counters_missing() -> Explanation {
    let text = "no pod exports both a counter of completed requests (vllm:request_success_total) and waiting requests \
                (vllm:num_requests_waiting)";
    Explanation::new(FactorCode::RequestCountersMissing, text)
}

pub fn recommend(
    model: &ObservedModel<'_>,
    thresholds: &Thresholds,
    states: &[VariantState],
    memory: &mut Memory,
) -> (MetricsState, Recommendation) {
    let analysis = measure(model, thresholds, states, memory);
    let without_metrics = pods_without_metrics(&analysis.without_metrics);
    let mut recommendation = recommendation(&analysis, thresholds, states);
    if let Some(why) = &without_metrics {
        recommendation.signal.factors.extend(why.factors.iter().cloned());
        let _ = write!(recommendation.signal.text, "; {why}");
    }
    // Other blocks come and go with the load. They are in the text only, so that they cause no write.
    if analysis.blocks.contains(&ScaleDownBlock::PickerQueueUnknown) {
        let text = "the queue of the endpoint picker is unknown; check that Prometheus scrapes its metrics";
        recommendation.block_scale_down(model, Explanation::new(FactorCode::EndpointPickerQueueUnknown, text));
    } else if let Some(why) =
        without_metrics.as_ref().filter(|_| analysis.blocks.contains(&ScaleDownBlock::PodsWithoutMetrics))
    {
        recommendation.block_scale_down(model, why.clone());
    }
    (without_metrics.map_or(MetricsState::Available, MetricsState::Partial), recommendation)
}

/// Names the first pods without metrics.
pub fn pods_without_metrics(pods: &[Arc<str>]) -> Option<Explanation> {
    let named: Vec<&str> = pods.iter().take(MAX_NAMED_PODS).map(|pod| &**pod).collect();
    let factor = |pod: &&str| Factor::about(FactorCode::PodWithoutMetrics, FactorSubject::Pod((*pod).to_owned()));
    let more = match pods.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let text = format!("no metrics of pod {}{more}", named.join(", "));
    (!named.is_empty()).then(|| Explanation { factors: named.iter().map(factor).collect(), text })
}

fn recommendation(analysis: &Analysis, thresholds: &Thresholds, states: &[VariantState]) -> Recommendation {
    let each = || analysis.variants.iter().zip(states);
    let offer = |(variant, state): (&measured_demand::VariantCapacity, &VariantState)| Offer {
        current: planned(state),
        ready: variant.ready.min(planned(state)),
        ..cost_aware::offer(state, variant.capacity, state.cost)
    };
    let offers: Vec<Offer> = each().map(offer).collect();
    // Ready replicas beyond the planned ones go in any case.
    let leaving = each()
        .map(|(variant, state)| f64::from(variant.ready.saturating_sub(planned(state)).max(0)) * variant.capacity);
    let need = Need { required: analysis.required, spare: (analysis.spare - leaving.sum::<f64>()).max(0.0) };
    let short = analysis.required > 0.0 || analysis.demand > thresholds.scale_up * analysis.supply;
    let reason = |offer: &Offer, target: i32| {
        let Analysis { demand, .. } = analysis;
        match target.cmp(&offer.current) {
            std::cmp::Ordering::Greater => {
                format!("scale-up: {demand:.2} requests/s arrive, capacity for {:.2} more is missing", need.required)
            }
            std::cmp::Ordering::Less => {
                format!("scale-down: {demand:.2} requests/s arrive, capacity for {:.2} is spare", need.spare)
            }
            std::cmp::Ordering::Equal => format!("steady: {demand:.2} requests/s arrive"),
        }
    };
    let mut targets = cost_aware::targets(&offers, states, need, short, None, reason);
    start_unmeasured(&mut targets, &offers, states, need);
    let mut signal = Explanation::new(FactorCode::RequestDemand, signal(analysis));
    add_given_up(&mut signal, states);
    Recommendation {
        signal,
        need: need_text(analysis, need),
        targets,
        spare: 1.0 - analysis.utilization,
        transition: None,
        scale_down_block: None,
        flip: analysis.flip,
    }
}

/// Starts a variant of unknown capacity if the others cannot provide what is missing.
fn start_unmeasured(
    targets: &mut BTreeMap<String, ReplicaTarget>,
    offers: &[Offer],
    states: &[VariantState],
    need: Need,
) {
    let added = |offer: &Offer| {
        let target = targets.get(&offer.variant).map_or(offer.current, |number| number.target);
        f64::from(target.saturating_sub(offer.current).max(0)) * offer.capacity
    };
    let comes = states.iter().any(|state| state.pending > 0 && !state.stuck);
    if need.required <= 0.0 || comes || offers.iter().map(added).sum::<f64>() >= need.required {
        return;
    }
    let is_startable = |(offer, state): &(&Offer, &VariantState)| {
        let idle = offer.current == 0 && offer.capacity <= 0.0 && state.ignored_target.is_none();
        idle && offer.bounds.allow(1)
    };
    let open = offers.iter().zip(states).filter(is_startable);
    let cheapest = open.min_by(|(a, _), (b, _)| a.cost.total_cmp(&b.cost).then(a.variant.cmp(&b.variant)));
    if let Some((offer, _)) = cheapest {
        let reason = "scale-up: the running variants cannot grow; its capacity is not measured yet".to_owned();
        let number = ReplicaTarget { target: 1, unconstrained: 1, reason, obstacle: None };
        targets.insert(offer.variant.clone(), number);
    }
}

fn signal(analysis: &Analysis) -> String {
    let Analysis { demand, peak, waiting, supply, flip, .. } = analysis;
    let ready: i32 = analysis.variants.iter().map(|variant| variant.ready).sum();
    let mut text =
        format!("{demand:.2} requests/s arrive (at most {peak:.2} in the last 5 minutes), {waiting:.0} wait; ");
    let _ = match source(analysis) {
        Some(source) => write!(text, "{ready} ready replicas can complete {supply:.2} requests/s ({source})"),
        None => write!(text, "the capacity of {ready} ready replicas is not measured yet"),
    };
    let FlipPoints { scales_up_above, scales_down_below, scales_down_below_in_time } = flip;
    if let Some(above) = scales_up_above {
        let _ = write!(text, "; up above {above:.2}");
    }
    match (scales_down_below, scales_down_below_in_time) {
        (Some(below), _) => drop(write!(text, "; down below {below:.2}")),
        (None, Some(below)) => drop(write!(text, "; down after 5 minutes below {below:.2}")),
        (None, None) => {}
    }
    text
}

/// Names the origin of the least certain capacity of a serving variant.
fn source(analysis: &Analysis) -> Option<&'static str> {
    let serving = analysis.variants.iter().filter(|variant| variant.ready > 0);
    match serving.map(|variant| variant.source).min() {
        Some(CapacitySource::Measured) => Some("measured on saturated replicas"),
        Some(CapacitySource::Estimated) => Some("an upper bound from saturated replicas"),
        Some(CapacitySource::LoadShare) => Some("extrapolated from their load"),
        Some(CapacitySource::Extrapolated) => Some("extrapolated from a part of their limits"),
        Some(CapacitySource::Unknown) | None => None,
    }
}

fn need_text(analysis: &Analysis, need: Need) -> String {
    let mut text = format!("required {:.2} requests/s, spare {:.2} requests/s", need.required, need.spare);
    let why = analysis.trigger.map(|trigger| match trigger {
        ScaleUpTrigger::Overload => "demand exceeds capacity",
        ScaleUpTrigger::Utilization => "utilization is above scaleUpThreshold",
        ScaleUpTrigger::Saturation => {
            "replicas are saturated and their capacity is not measured yet, so the step is bounded"
        }
    });
    let block = analysis.blocks.first().filter(|_| analysis.required <= 0.0).map(|block| match block {
        ScaleDownBlock::RequestsWaiting => "scale-down waits until no request waits",
        ScaleDownBlock::PodsWithoutMetrics => "scale-down waits for metrics of all pods",
        ScaleDownBlock::PickerQueueUnknown => "scale-down waits for the queue of the endpoint picker",
        ScaleDownBlock::ReplicasStarting => "scale-down waits for starting replicas",
        ScaleDownBlock::DemandUnknown => "scale-down waits for a second measurement of the request rate",
        ScaleDownBlock::CapacityUnknown => "scale-down waits for a known capacity",
        ScaleDownBlock::StabilizationWindow => "scale-down waits for a calm stabilization window",
    });
    if let Some(why) = why.or(block) {
        let _ = write!(text, "; {why}");
    }
    text
}

/// Measures the arrival rate and the capacities of a model. It runs at most once per model and reconcile, because each
/// run is a measurement.
pub fn measure(
    model: &ObservedModel<'_>,
    thresholds: &Thresholds,
    states: &[VariantState],
    memory: &mut Memory,
) -> Analysis {
    let settings = settings(thresholds);
    let pods = pod_samples(model);
    let sample = |(variant, state): (&&ObservedVariant, &VariantState)| {
        let ready = pods.iter().filter(|pod| *pod.variant == *variant.key.name).count();
        variant_sample(variant, state, i32::try_from(ready).unwrap_or(i32::MAX), memory)
    };
    let variants: Vec<VariantSample> = model.variants.iter().zip(states).map(sample).collect();
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

/// The replicas once the last decision is carried out. New capacity is added to them.
fn planned(state: &VariantState) -> i32 {
    state.awaited().unwrap_or(state.current)
}

fn variant_sample(variant: &ObservedVariant, state: &VariantState, ready: i32, memory: &Memory) -> VariantSample {
    let args = memory.records.get(&variant.memory_key()).and_then(|record| record.args.as_ref());
    let lost = if state.stuck { state.pending } else { 0 };
    let coming = planned(state).saturating_sub(lost).saturating_sub(ready);
    VariantSample {
        name: variant.key.name.as_str().into(),
        capacity_key: capacity_key(variant, args),
        // Surplus pods of a paused rollout stay.
        coming: if state.surplus_pods { coming.max(0) } else { coming },
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
        samples.extend(without.map(|ready| PodSample {
            name: ready.name.clone(),
            variant: name.clone(),
            ready_since: ready.since,
            ..PodSample::default()
        }));
        // Without names, only the number of ready replicas is known.
        let counted = if target.pods.is_empty() { variant.ready_replicas() } else { 0 };
        samples.extend((own.len()..usize::try_from(counted).unwrap_or_default()).map(|number| PodSample {
            name: format!("{name}/unknown-{number}").into(),
            variant: name.clone(),
            ..PodSample::default()
        }));
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
