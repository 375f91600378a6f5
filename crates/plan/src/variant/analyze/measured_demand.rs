//! Sizes a model by flow: the rate at which requests arrive, against the rate that a replica can complete. A rate that
//! is known in part may ask for more replicas, and never for fewer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::variant::optimize::cost_aware::Need;

/// A snapshot older than this is no baseline for the growth of the queues.
const OLDEST_BASELINE: SignedDuration = SignedDuration::from_mins(10);

/// Smallest distance between stored snapshots. Reconciles may follow each other within milliseconds, and a snapshot holds
/// all pods of the model.
const SNAPSHOT_SPACING: SignedDuration = SignedDuration::from_secs(10);

/// A longer time between two reconciles is a gap: the demand in between is unknown.
const LONGEST_GAP: SignedDuration = SignedDuration::from_secs(150);

/// Reconciles are not exactly on time.
const TIMER_SLACK: SignedDuration = SignedDuration::from_secs(2);

/// A capacity is trusted if one request time is at most this share of the measured time. Requests that started together
/// end together, so a shorter measurement may count one batch too many or too few.
const TRUSTED_PHASE_ERROR: f64 = 0.07;

/// Capacity measurements beyond this time replace older ones.
const CAPACITY_SPAN_SECONDS: f64 = 900.0;
const CAPACITY_SPAN_REQUESTS: f64 = 20.0;

/// Capacities without a measurement are forgotten after this time.
const CAPACITY_LIFETIME: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Time before a step without trusted capacity is repeated.
const STEP_PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// A step without trusted capacity at most doubles the replicas or adds this many.
const STEP_REPLICAS: f64 = 4.0;

/// Rates within this factor of the newest one belong to the same level of load.
const LEVEL_RATIO: f64 = 1.6;

/// The level follows the last two minutes if they differ from it by more than this share.
const LEVEL_CHANGE: f64 = 0.25;
const LEVEL_RECENT: SignedDuration = SignedDuration::from_mins(2);

/// A load may leave its length bucket only by this share, so that an average at the border does not change the capacity.
const BUCKET_HYSTERESIS: f64 = 0.2;

/// A scale-down waits while the peak of the window exceeds that of its newer half by more than this share: the number
/// would be lowered again as soon as the peak leaves the window.
const PEAK_DECLINE: f64 = 0.05;

/// Share of an extrapolated capacity that scale-down relies on. The KV cache fills unevenly, so a share of it
/// overstates the free capacity.
const LOAD_SHARE_CAUTION: f64 = 0.75;

/// Time over which the completion rate is compared with the load of the replicas.
const LOAD_SHARE_SECONDS: f64 = 300.0;

/// Rounding error of a sum of rates.
const ROUNDING: f64 = 1e-9;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DemandSettings {
    /// Utilization above which capacity is missing: `scaleUpThreshold`.
    pub scale_up: f64,
    /// Utilization that a smaller size must not exceed: `scaleDownBoundary`.
    pub scale_down: f64,
    pub kv_cache: f64,
    pub kv_spare: f64,
    pub queue_length: f64,
    pub queue_spare: f64,
    /// Window of the rates that Prometheus computes.
    pub rate_window: SignedDuration,
    /// Scale-down uses the largest demand in this window; scale-up without a queue uses the smallest.
    pub stabilization: SignedDuration,
    /// Time that a new pod has to expose metrics.
    pub grace: SignedDuration,
    /// A pod without metrics for this long no longer blocks scale-down: it counts as busy instead.
    pub silence: SignedDuration,
}

impl Default for DemandSettings {
    fn default() -> Self {
        Self {
            scale_up: 0.85,
            scale_down: 0.70,
            kv_cache: 0.80,
            kv_spare: 0.10,
            queue_length: 5.0,
            queue_spare: 3.0,
            rate_window: SignedDuration::from_mins(1),
            stabilization: SignedDuration::from_mins(5),
            grace: SignedDuration::from_mins(2),
            silence: SignedDuration::from_mins(10),
        }
    }
}

impl DemandSettings {
    /// The middle of the two boundaries, so that an error of the measured rates in either direction changes nothing.
    pub fn target_utilization(&self) -> f64 {
        f64::midpoint(self.scale_up, self.scale_down)
    }
}

/// Metrics of a ready pod. A missing or invalid value is `None`, never zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PodSample {
    pub name: Arc<str>,
    pub variant: Arc<str>,
    pub ready_since: Option<Timestamp>,
    /// Used share of the KV cache.
    pub kv: Option<f64>,
    /// Waiting requests now, not the maximum of a window.
    pub waiting: Option<f64>,
    /// Running requests now.
    pub running: Option<f64>,
    /// Completed requests since the start of the server. Exact where a rate depends on the times of the scrapes.
    pub completed: Option<f64>,
    /// Completed requests per second, over the rate window. Used where `completed` is missing.
    pub completions: Option<f64>,
    /// Average seconds that a completed request was running, without its time in the queue.
    pub service_time: Option<f64>,
    /// Average output tokens per request.
    pub output: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VariantSample {
    pub name: Arc<str>,
    /// Everything that a replica's capacity depends on, other than the load: accelerator, GPUs, engine arguments.
    pub capacity_key: String,
    /// Replicas that are expected to become ready. Negative if ready ones are expected to go.
    pub coming: i32,
    /// Most requests that a replica runs at once, from the engine arguments.
    pub max_sequences: Option<f64>,
}

/// Requests that wait at the endpoint picker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub enum PickerQueue {
    #[default]
    Absent,
    Waiting(f64),
    Unknown,
}

/// All ready pods of a model, with or without metrics.
#[derive(Clone, Copy, Debug)]
pub struct ModelSample<'a> {
    pub now: Timestamp,
    pub settings: &'a DemandSettings,
    pub variants: &'a [VariantSample],
    pub pods: &'a [PodSample],
    pub picker: PickerQueue,
}

/// Origin of the capacity of a replica, the least certain first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum CapacitySource {
    #[default]
    Unknown,
    /// Completion rate by share of the KV cache and of the sequences in use, or measured with other output lengths.
    Extrapolated,
    /// Extrapolated from all limits of the replica.
    LoadShare,
    /// Upper bound from replicas with a queue, which have not been measured long enough.
    Estimated,
    /// Measured on replicas with a queue.
    Measured,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VariantCapacity {
    pub variant: Arc<str>,
    pub ready: i32,
    pub coming: i32,
    /// Requests per second and replica; 0 if unknown.
    pub capacity: f64,
    pub source: CapacitySource,
    /// Replicas with a queue.
    pub saturated: i32,
}

/// Why nothing is lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ScaleDownBlock {
    RequestsWaiting,
    PodsWithoutMetrics,
    PickerQueueUnknown,
    ReplicasStarting,
    /// There is no earlier snapshot to compare with.
    DemandUnknown,
    CapacityUnknown,
    /// The stabilization window has a gap, or another reason to lower nothing.
    StabilizationWindow,
}

/// Why capacity is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ScaleUpTrigger {
    /// The demand exceeds all capacity.
    Overload,
    /// The utilization is above `scaleUpThreshold`, with a queue or for the whole stabilization window.
    Utilization,
    /// Queue or KV cache exceed their triggers, and the capacity is an upper bound. The step is bounded.
    Saturation,
}

/// Demand rates at which the stage decides otherwise, while all other inputs stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FlipPoints {
    pub scales_up_above: Option<f64>,
    pub scales_down_below: Option<f64>,
    /// The demand that allows scale-down if it is not exceeded during the next stabilization window.
    pub scales_down_below_in_time: Option<f64>,
}

/// Rates are in requests per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Analysis {
    pub variants: Vec<VariantCapacity>,
    /// Level of the arrival rate, as far as it is known.
    pub demand: f64,
    /// Largest arrival rate of the stabilization window, with all doubts counted as load.
    pub peak: f64,
    pub supply: f64,
    /// Supply including starting replicas.
    pub anticipated: f64,
    pub utilization: f64,
    pub required: f64,
    pub spare: f64,
    pub waiting: f64,
    /// Seconds until the queues are empty. `None` if they do not shrink.
    pub drain: Option<f64>,
    pub trigger: Option<ScaleUpTrigger>,
    pub blocks: Vec<ScaleDownBlock>,
    /// Pods without metrics after their grace period.
    pub silent: Vec<Arc<str>>,
    /// All pods without metrics.
    pub without_metrics: Vec<Arc<str>>,
    pub flip: FlipPoints,
    rule: Rule,
}

impl Analysis {
    /// The need if the demand were `demand`, and all else the same.
    pub fn need_at(&self, demand: f64) -> Need {
        self.rule.need(demand)
    }
}

/// The decision as a function of the demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Rule {
    supply: f64,
    anticipated: f64,
    target: f64,
    scale_down: f64,
    /// `None` if nothing may grow.
    grows_above: Option<f64>,
    /// Most capacity added at once.
    largest_step: f64,
    /// Capacity to add whatever the demand is.
    blind_step: Option<f64>,
    may_shrink: bool,
    /// Most capacity removed at once. An extrapolated capacity is more certain with each replica that the others replace.
    largest_drop: f64,
    /// Largest peak that one replica fewer can carry.
    shrinks_at: Option<f64>,
    /// Smallest capacity of a ready replica.
    smallest: f64,
    /// Peak of the stabilization window before this snapshot.
    earlier_peak: f64,
    /// Demand of pods without metrics, which only prevents scale-down.
    unmeasured: f64,
}

impl Rule {
    fn need(&self, demand: f64) -> Need {
        if let Some(required) = self.blind_step {
            return Need { required, spare: 0.0 };
        }
        if let Some(above) = self.grows_above
            && demand > above
        {
            let required = (demand / self.target - self.anticipated).clamp(0.0, self.largest_step);
            return Need { required, spare: 0.0 };
        }
        let peak = demand.max(self.earlier_peak) + self.unmeasured;
        let spare = match self.shrinks_at {
            Some(least) if self.may_shrink && peak <= least => {
                (self.supply - peak / self.scale_down).clamp(self.smallest, self.largest_drop.max(self.smallest))
            }
            _ => 0.0,
        };
        Need { required: 0.0, spare }
    }
}

/// Measurements of a model between reconciles. Losing them costs accuracy, not safety.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DemandMemory {
    /// Oldest first.
    snapshots: VecDeque<InFlight>,
    /// Oldest first.
    rates: VecDeque<ArrivalRate>,
    pods: BTreeMap<Arc<str>, PodTimers>,
    /// By capacity key and output length.
    throughput: BTreeMap<String, Throughput>,
    /// By variant.
    buckets: BTreeMap<Arc<str>, LengthBucket>,
    /// When a step without trusted capacity was taken.
    stepped: Option<Timestamp>,
    pressure_since: Option<Timestamp>,
    pressure_last: Option<Timestamp>,
}

/// Requests in the pods and at the endpoint picker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct InFlight {
    at: Timestamp,
    picker: Option<f64>,
    pods: BTreeMap<Arc<str>, PodRequests>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct PodRequests {
    waiting: Option<f64>,
    running: Option<f64>,
    completed: Option<f64>,
    /// The pod had no metrics yet.
    young: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct ArrivalRate {
    at: Timestamp,
    /// Lower bound; `None` without a baseline.
    low: Option<f64>,
    /// Upper bound.
    high: f64,
    /// Only the window prevents scale-down.
    calm: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct PodTimers {
    saturated_since: Option<Timestamp>,
    silent_since: Option<Timestamp>,
    measured_until: Option<Timestamp>,
    /// Completed requests at that time.
    measured_completed: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum LengthBucket {
    Short,
    Medium,
    Long,
}

/// Sums over replicas with a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Throughput {
    served: f64,
    pod_seconds: f64,
    /// Measured time, however many pods there were.
    span: f64,
    /// Running requests times seconds.
    running: f64,
    /// Seconds per request, if batches may distort the sums; else 0.
    phase: f64,
    output: f64,
    at: Option<Timestamp>,
    /// Requests and time of replicas without a queue.
    carried: f64,
    carried_seconds: f64,
    carried_span: f64,
    carried_until: Option<Timestamp>,
    /// Requests and load of all replicas, with older ones fading.
    share_served: f64,
    share_load: f64,
    share_until: Option<Timestamp>,
}

impl Throughput {
    fn capacity(&self) -> Option<f64> {
        (self.pod_seconds > 0.0 && self.served > 0.0).then(|| self.served / self.pod_seconds)
    }

    fn trusted(&self, window: f64) -> Option<f64> {
        let trusted = self.span >= window && self.phase <= self.span * TRUSTED_PHASE_ERROR;
        self.capacity().filter(|_| trusted)
    }

    /// Shortens the memory, so that a changed capacity is learned within the span.
    fn forget(&mut self) {
        let longest = CAPACITY_SPAN_SECONDS.max(CAPACITY_SPAN_REQUESTS * self.phase);
        if self.span > longest {
            let kept = longest / self.span;
            self.served *= kept;
            self.pod_seconds *= kept;
            self.running *= kept;
            self.span = longest;
        }
        if self.carried_span > longest {
            let kept = longest / self.carried_span;
            self.carried *= kept;
            self.carried_seconds *= kept;
            self.carried_span = longest;
        }
    }
}

pub fn analyze(model: &ModelSample<'_>, memory: &mut DemandMemory) -> Analysis {
    let settings = model.settings;
    memory.expire(model);
    memory.track_pods(model);
    let arrivals = arrivals(model, memory);
    let mut variants: Vec<VariantCapacity> =
        model.variants.iter().map(|variant| variant_capacity(model, variant, memory)).collect();
    let waiting = valid_sum(model.pods.iter().map(|pod| pod.waiting)) + picker_requests(model.picker);
    let mut totals = Totals::of(&variants);
    let idle = is_idle(model) && arrivals.high <= 0.0;
    let (mut blocks, silent, unmeasured) = scale_down_blocks(model, memory, &variants, waiting, arrivals.known);
    let pressure = memory.pressure(model, waiting);
    memory.rates.push_back(ArrivalRate {
        at: model.now,
        low: arrivals.known.then_some(arrivals.low),
        high: arrivals.high,
        calm: blocks.is_empty(),
    });
    memory.remember_requests(model);

    let serving: Vec<VariantCapacity> = variants.iter().filter(|variant| variant.ready > 0).cloned().collect();
    let trusted = serving.iter().all(|variant| variant.source == CapacitySource::Measured);
    let sizable =
        serving.iter().all(|variant| matches!(variant.source, CapacitySource::Measured | CapacitySource::LoadShare));
    let ready: i32 = variants.iter().map(|variant| variant.ready).sum();
    if idle && ready > 0 {
        // Without load, any capacity is enough. One that is unknown needs a number, so that the solver can remove it.
        for variant in variants.iter_mut().filter(|variant| variant.capacity <= 0.0) {
            variant.capacity = 1.0;
        }
        totals = Totals::of(&variants);
    } else if !sizable {
        blocks.push(ScaleDownBlock::CapacityUnknown);
    }
    let peak = memory.peak(model.now, settings.stabilization);
    if peak.is_none() {
        blocks.push(ScaleDownBlock::StabilizationWindow);
    }
    let (demand, steady) = memory.level(model).unwrap_or((arrivals.low, true));
    // Noisy rates may never settle. A queue that lasts for the stabilization window does not wait for them.
    let confirmed = steady || memory.pressure_lasts(model.now, settings.stabilization);
    let serving_capacities = variants.iter().filter(|variant| variant.ready > 0 && variant.capacity > 0.0);
    let smallest = serving_capacities.map(|variant| variant.capacity).fold(f64::INFINITY, f64::min);
    let scale_down = settings.scale_down * if trusted { 1.0 } else { LOAD_SHARE_CAUTION };
    let mut rule = Rule {
        supply: totals.supply,
        anticipated: totals.anticipated,
        target: settings.target_utilization(),
        scale_down,
        grows_above: None,
        largest_step: f64::INFINITY,
        blind_step: None,
        may_shrink: blocks.is_empty(),
        largest_drop: if trusted || idle { f64::INFINITY } else { smallest },
        shrinks_at: (ready > 1 && smallest.is_finite())
            .then_some(scale_down * (totals.supply - smallest))
            .filter(|least| *least > 0.0),
        smallest,
        earlier_peak: peak.unwrap_or(arrivals.high),
        unmeasured,
    };
    if trusted && ready > 0 {
        memory.stepped = None;
        let above = settings.scale_up * totals.anticipated;
        let sustained = memory.exceeded(model.now, settings.stabilization, above);
        let above = if pressure.is_some() || sustained { above } else { totals.anticipated };
        rule.grows_above = Some(above).filter(|_| confirmed);
    } else if ready > 0 && confirmed && memory.may_step(model, &variants, pressure) {
        let fewest = serving.iter().map(|variant| variant.capacity).fold(f64::INFINITY, f64::min);
        if fewest > 0.0 {
            rule.grows_above = Some(settings.scale_up * totals.anticipated);
            rule.largest_step = f64::from(ready).max(STEP_REPLICAS) * fewest;
        } else if memory.pressure_lasts(model.now, settings.rate_window * 3) {
            // No request has completed, so the demand cannot be compared with anything: double.
            for variant in variants.iter_mut().filter(|variant| variant.capacity <= 0.0) {
                variant.capacity = 1.0;
            }
            totals = Totals::of(&variants);
            rule.blind_step = Some(totals.supply);
        }
    }
    let need = rule.need(demand);
    let trigger = if need.required <= 0.0 {
        None
    } else if !trusted {
        Some(ScaleUpTrigger::Saturation)
    } else if demand > totals.anticipated {
        Some(ScaleUpTrigger::Overload)
    } else {
        Some(ScaleUpTrigger::Utilization)
    };
    if trigger == Some(ScaleUpTrigger::Saturation) {
        memory.stepped = Some(model.now);
    }
    let free = totals.supply - arrivals.low;
    Analysis {
        demand,
        peak: demand.max(rule.earlier_peak) + unmeasured,
        supply: totals.supply,
        anticipated: totals.anticipated,
        utilization: if totals.supply > 0.0 { demand / totals.supply } else { 0.0 },
        required: need.required,
        spare: need.spare,
        waiting,
        drain: (free > 0.0).then(|| waiting / free),
        trigger,
        blocks,
        silent,
        without_metrics: model.pods.iter().filter(|pod| !is_measured(pod)).map(|pod| pod.name.clone()).collect(),
        flip: flip_points(&rule),
        rule,
        variants,
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    supply: f64,
    anticipated: f64,
}

impl Totals {
    fn of(variants: &[VariantCapacity]) -> Self {
        let sum = |replicas: fn(&VariantCapacity) -> i32| {
            variants.iter().map(|variant| f64::from(replicas(variant)) * variant.capacity).sum()
        };
        Self {
            supply: sum(|variant| variant.ready),
            anticipated: sum(|variant| variant.ready.saturating_add(variant.coming).max(0)),
        }
    }
}

fn flip_points(rule: &Rule) -> FlipPoints {
    let in_time = rule.shrinks_at.map(|least| least - rule.unmeasured).filter(|below| *below > 0.0);
    FlipPoints {
        scales_up_above: rule.grows_above,
        scales_down_below: in_time.filter(|below| rule.may_shrink && rule.earlier_peak <= *below),
        scales_down_below_in_time: in_time,
    }
}

#[derive(Clone, Copy, Debug)]
struct Arrivals {
    low: f64,
    high: f64,
    known: bool,
}

/// Requests that arrived are requests that completed, and the growth of those that have not. Pods without metrics count
/// as unchanged for `low`, and their requests as new for `high`.
fn arrivals(model: &ModelSample<'_>, memory: &DemandMemory) -> Arrivals {
    let completions = valid_sum(model.pods.iter().map(|pod| memory.completion_rate(model, pod)));
    let Some((before, age)) = memory.baseline(model) else {
        return Arrivals { low: completions, high: completions, known: false };
    };
    let (mut low, mut high) = (0.0, 0.0);
    for pod in model.pods {
        let (waiting, running) = (valid(pod.waiting), valid(pod.running));
        let all = waiting.unwrap_or_default() + running.unwrap_or_default();
        match before.pods.get(&pod.name) {
            None => (low, high) = (low + all, high + all),
            Some(was) if was.young => (low, high) = (low + all, high + all),
            Some(PodRequests { waiting: None, .. }) => high += all,
            Some(was) => {
                let growth = |now: Option<f64>, was: Option<f64>| now.zip(was).map_or(0.0, |(now, was)| now - was);
                let grown = growth(waiting, was.waiting) + growth(running, was.running);
                (low, high) = (low + grown, high + grown);
            }
        }
    }
    // The requests of a removed pod are finished, or they start again at another pod and are not new.
    for (name, was) in &before.pods {
        if !model.pods.iter().any(|pod| pod.name == *name) {
            low -= was.waiting.unwrap_or_default() + was.running.unwrap_or_default();
        }
    }
    match (model.picker, before.picker) {
        (PickerQueue::Unknown, _) => {}
        (picker, Some(was)) => {
            let grown = picker_requests(picker) - was;
            (low, high) = (low + grown, high + grown);
        }
        (picker, None) => high += picker_requests(picker),
    }
    let rate = |growth: f64| (completions + growth / age).max(0.0);
    Arrivals { low: rate(low), high: rate(high.max(low)), known: true }
}

/// Reasons against scale-down, the pods without metrics, and the demand that those may carry.
fn scale_down_blocks(
    model: &ModelSample<'_>,
    memory: &DemandMemory,
    variants: &[VariantCapacity],
    waiting: f64,
    known: bool,
) -> (Vec<ScaleDownBlock>, Vec<Arc<str>>, f64) {
    let mut blocks = Vec::new();
    let (mut silent, mut unmeasured) = (Vec::new(), 0.0);
    let mut starting = variants.iter().any(|variant| variant.coming > 0);
    let mut unsure = false;
    for pod in model.pods.iter().filter(|pod| !is_measured(pod)) {
        if is_young(pod, model) {
            starting = true;
            continue;
        }
        silent.push(pod.name.clone());
        let since = memory.pods.get(&pod.name).and_then(|timers| timers.silent_since);
        if since.is_some_and(|since| model.now.duration_since(since) >= model.settings.silence) {
            let capacity = variants.iter().find(|variant| variant.variant == pod.variant);
            unmeasured += capacity.map_or(0.0, |variant| variant.capacity);
        } else {
            unsure = true;
        }
    }
    let reasons = [
        (waiting > 0.0, ScaleDownBlock::RequestsWaiting),
        (unsure || silent.len() == model.pods.len(), ScaleDownBlock::PodsWithoutMetrics),
        (model.picker == PickerQueue::Unknown, ScaleDownBlock::PickerQueueUnknown),
        (starting, ScaleDownBlock::ReplicasStarting),
        (!known, ScaleDownBlock::DemandUnknown),
    ];
    blocks.extend(reasons.into_iter().filter(|(applies, _)| *applies).map(|(_, block)| block));
    (blocks, silent, unmeasured)
}

fn variant_capacity(model: &ModelSample<'_>, variant: &VariantSample, memory: &mut DemandMemory) -> VariantCapacity {
    let pods: Vec<&PodSample> = model.pods.iter().filter(|pod| pod.variant == variant.name).collect();
    let window = model.settings.rate_window.as_secs_f64();
    let output = mean(pods.iter().filter_map(|pod| valid(pod.output)).filter(|output| *output > 0.0));
    let bucket = memory.bucket(&variant.name, output);
    let key = format!("{}|{bucket:?}", variant.capacity_key);
    let bound = memory.measure(model, &pods, &key, output);
    memory.refute(model, &pods, &key);
    let saturated = pods.iter().filter(|pod| memory.saturated_since(pod).is_some()).count();
    let shares = memory.load_share(model, variant, &pods, &key);
    let throughput = memory.throughput.get(&key);
    let measured = throughput.and_then(|throughput| throughput.trusted(window)).map(|c| (c, CapacitySource::Measured));
    let estimated = || bound.map(|capacity| (capacity, CapacitySource::Estimated));
    let is_complete = |pod: &&PodSample| is_measured(pod) && valid(pod.running).is_some();
    let complete = variant.max_sequences.is_some() && pods.iter().all(is_complete);
    let extrapolated = || {
        let source = if complete { CapacitySource::LoadShare } else { CapacitySource::Extrapolated };
        shares.map(|capacity| (capacity, source))
    };
    let remembered = || {
        let own = throughput.and_then(Throughput::capacity);
        own.or_else(|| memory.other_lengths(&variant.capacity_key, output))
            .map(|capacity| (capacity, CapacitySource::Extrapolated))
    };
    let known = if complete {
        measured.or_else(estimated).or_else(extrapolated).or_else(remembered)
    } else {
        measured.or_else(estimated).or_else(remembered).or_else(extrapolated)
    };
    let (capacity, source) = known.unwrap_or_default();
    VariantCapacity {
        variant: variant.name.clone(),
        ready: count(pods.len()),
        coming: variant.coming,
        capacity,
        source,
        saturated: count(saturated),
    }
}

impl DemandMemory {
    /// Requests per second at full load, if the completion rate grows with the load.
    fn load_share(
        &mut self,
        model: &ModelSample<'_>,
        variant: &VariantSample,
        pods: &[&PodSample],
        key: &str,
    ) -> Option<f64> {
        let (mut served, mut load) = (0.0, 0.0);
        for pod in pods {
            let by_cache = valid(pod.kv).map(|kv| kv / model.settings.kv_cache.max(f64::EPSILON));
            let by_sequences = valid(pod.running).zip(variant.max_sequences.filter(|most| *most > 0.0));
            let share = [by_cache, by_sequences.map(|(running, most)| running / most)].into_iter().flatten();
            if let Some((completions, share)) = self.completion_rate(model, pod).zip(share.reduce(f64::max)) {
                served += completions;
                load += share;
            }
        }
        let throughput = self.throughput.entry(key.to_owned()).or_default();
        let window = model.settings.rate_window.as_secs_f64();
        let age = throughput.share_until.map(|until| model.now.duration_since(until).as_secs_f64());
        let fresh = age.map_or(window, |age| age.clamp(0.0, window));
        let kept = (1.0 - age.unwrap_or(LOAD_SHARE_SECONDS) / LOAD_SHARE_SECONDS).clamp(0.0, 1.0);
        throughput.share_served = throughput.share_served * kept + served * fresh;
        throughput.share_load = throughput.share_load * kept + load * fresh;
        throughput.share_until = Some(model.now);
        let known = throughput.share_served > 0.0 && throughput.share_load > 0.0;
        known.then(|| throughput.share_served / throughput.share_load)
    }

    /// Time of the last analysis.
    pub fn last_use(&self) -> Option<Timestamp> {
        self.rates.back().map(|rate| rate.at)
    }

    fn expire(&mut self, model: &ModelSample<'_>) {
        let now = model.now;
        // A clock that was set back makes all times useless.
        if self.rates.back().is_some_and(|last| last.at > now) {
            *self = Self { throughput: std::mem::take(&mut self.throughput), ..Self::default() };
        }
        let age = |at: Timestamp| now.duration_since(at);
        self.snapshots.retain(|snapshot| age(snapshot.at) <= OLDEST_BASELINE);
        // The newest of the older rates stays: it shows that the window is complete.
        while self.rates.get(1).is_some_and(|second| age(second.at) >= model.settings.stabilization) {
            self.rates.pop_front();
        }
        self.pods.retain(|name, _| model.pods.iter().any(|pod| pod.name == *name));
        self.buckets.retain(|name, _| model.variants.iter().any(|variant| variant.name == *name));
        self.throughput.retain(|_, seen| seen.at.max(seen.share_until).is_some_and(|at| age(at) <= CAPACITY_LIFETIME));
        for throughput in self.throughput.values_mut() {
            if throughput.at.is_some_and(|at| at > now) || throughput.share_until.is_some_and(|at| at > now) {
                (throughput.at, throughput.carried_until, throughput.share_until) = (Some(now), None, None);
            }
        }
    }

    fn track_pods(&mut self, model: &ModelSample<'_>) {
        let at_picker = picker_requests(model.picker) > 0.0;
        for pod in model.pods {
            let timers = self.pods.entry(pod.name.clone()).or_default();
            let queue = valid(pod.waiting).map(|waiting| waiting > 0.0 || at_picker);
            match queue {
                Some(true) => timers.saturated_since = timers.saturated_since.or(Some(model.now)),
                Some(false) | None => {
                    (timers.saturated_since, timers.measured_until, timers.measured_completed) = (None, None, None);
                }
            }
            let silent = !is_measured(pod) && !is_young(pod, model);
            timers.silent_since = if silent { timers.silent_since.or(Some(model.now)) } else { None };
        }
    }

    fn saturated_since(&self, pod: &PodSample) -> Option<Timestamp> {
        self.pods.get(&pod.name)?.saturated_since
    }

    /// The snapshot whose age is closest to the rate window, and its age in seconds. Growth and completions have to be
    /// about the same time.
    fn baseline(&self, model: &ModelSample<'_>) -> Option<(&InFlight, f64)> {
        let window = model.settings.rate_window.as_secs_f64();
        let aged =
            self.snapshots.iter().map(|snapshot| (snapshot, model.now.duration_since(snapshot.at).as_secs_f64()));
        aged.filter(|(_, age)| *age >= window / 2.0)
            .min_by(|(_, a), (_, b)| (a - window).abs().total_cmp(&(b - window).abs()))
    }

    /// Completed requests per second since the baseline.
    fn completion_rate(&self, model: &ModelSample<'_>, pod: &PodSample) -> Option<f64> {
        let counted = || {
            let (before, age) = self.baseline(model)?;
            let completed = valid(pod.completed)?;
            let earlier = match before.pods.get(&pod.name) {
                None => None,
                Some(was) if was.young => None,
                Some(was) => Some(was.completed?),
            };
            let rate = (completed - earlier.unwrap_or_default()) / age;
            // A pod that is new here may have served for a long time, so that its counter is not that of one window.
            let most = if earlier.is_none() { valid(pod.completions).unwrap_or(f64::INFINITY) } else { f64::INFINITY };
            // A smaller count is that of a restarted container.
            (rate >= 0.0).then_some(rate.min(most))
        };
        counted().or(valid(pod.completions))
    }

    fn remember_requests(&mut self, model: &ModelSample<'_>) {
        let young = |pod: &PodSample| valid(pod.waiting).is_none() && is_young(pod, model);
        let none_measured = !model.pods.is_empty() && !model.pods.iter().any(is_measured);
        let too_soon = self.snapshots.back().is_some_and(|last| model.now.duration_since(last.at) < SNAPSHOT_SPACING);
        // A reconcile without any metrics is a gap. The snapshot before it stays the baseline.
        if too_soon || none_measured {
            return;
        }
        let pods = model.pods.iter().map(|pod| {
            let requests = PodRequests {
                waiting: valid(pod.waiting),
                running: valid(pod.running),
                completed: valid(pod.completed),
                young: young(pod),
            };
            (pod.name.clone(), requests)
        });
        let picker = (model.picker != PickerQueue::Unknown).then(|| picker_requests(model.picker));
        self.snapshots.push_back(InFlight { at: model.now, picker, pods: pods.collect() });
        // The newest snapshot that is older than the window is enough.
        let old = |snapshot: &InFlight| model.now.duration_since(snapshot.at) > model.settings.rate_window;
        while self.snapshots.get(1).is_some_and(old) {
            self.snapshots.pop_front();
        }
    }

    fn bucket(&mut self, variant: &Arc<str>, output: Option<f64>) -> LengthBucket {
        let last = self.buckets.get(variant).copied();
        let Some(output) = output else { return last.unwrap_or(LengthBucket::Medium) };
        let border = |tokens: f64, below: bool| {
            let moved = if below { 1.0 + BUCKET_HYSTERESIS } else { 1.0 - BUCKET_HYSTERESIS };
            if last.is_some() { tokens * moved } else { tokens }
        };
        let bucket = if output < border(100.0, last == Some(LengthBucket::Short)) {
            LengthBucket::Short
        } else if output < border(500.0, last != Some(LengthBucket::Long)) {
            LengthBucket::Medium
        } else {
            LengthBucket::Long
        };
        self.buckets.insert(variant.clone(), bucket);
        bucket
    }

    /// Adds the pods that had a queue during the whole rate window. Returns an upper bound of the capacity, if a pod
    /// has a queue for that long.
    fn measure(&mut self, model: &ModelSample<'_>, pods: &[&PodSample], key: &str, output: Option<f64>) -> Option<f64> {
        let window = model.settings.rate_window;
        let mut full = Vec::new();
        for pod in pods {
            let Some(since) = self.saturated_since(pod) else { continue };
            let duration = model.now.duration_since(since) + TIMER_SLACK;
            if let Some(completions) = self.completion_rate(model, pod).filter(|rate| *rate > 0.0 && duration >= window)
            {
                full.push((*pod, completions, duration.as_secs_f64()));
            }
        }
        let rate = mean(full.iter().map(|(_, completions, _)| *completions))?;
        let running = mean(full.iter().filter_map(|(pod, ..)| valid(pod.running)));
        let reported = mean(full.iter().filter_map(|(pod, ..)| valid(pod.service_time)).filter(|time| *time > 0.0));
        // By Little's law. Without either number, a request may take the whole window.
        let service_time = reported.or(running.map(|running| running / rate)).unwrap_or(window.as_secs_f64());
        // The first requests of a full pod complete only after their service time.
        let lead = if service_time > window.as_secs_f64() * TRUSTED_PHASE_ERROR { service_time } else { 0.0 };
        let longest = full.iter().map(|(.., duration)| *duration).fold(0.0, f64::max);
        let throughput = self.throughput.entry(key.to_owned()).or_default();
        let mut span: f64 = 0.0;
        for (pod, completions, duration) in &full {
            if *duration < window.as_secs_f64() + lead {
                continue;
            }
            let Some(timers) = self.pods.get_mut(&pod.name) else { continue };
            let since = timers.measured_until.map(|until| model.now.duration_since(until));
            let whole = since.is_some_and(|since| !since.is_zero() && since <= window + TIMER_SLACK);
            let fresh = since.map_or(window, |since| if whole { since } else { since.min(window) });
            timers.measured_until = Some(model.now);
            let earlier = std::mem::replace(&mut timers.measured_completed, valid(pod.completed));
            let counted = earlier.zip(valid(pod.completed)).filter(|(was, now)| now >= was && whole);
            let completions = counted.map_or(*completions, |(was, now)| (now - was) / fresh.as_secs_f64());
            let by_time = valid(pod.running).zip(valid(pod.service_time).filter(|time| *time > 0.0));
            let served = by_time.map_or(completions, |(running, time)| running / time);
            throughput.served += served * fresh.as_secs_f64();
            throughput.pod_seconds += fresh.as_secs_f64();
            throughput.running += valid(pod.running).unwrap_or(service_time * served) * fresh.as_secs_f64();
            span = span.max(fresh.as_secs_f64());
        }
        if span > 0.0 {
            throughput.span += span;
            throughput.phase =
                if reported.is_some() { 0.0 } else { throughput.running / throughput.served.max(f64::EPSILON) };
            throughput.output = output.unwrap_or(throughput.output);
            throughput.at = Some(model.now);
            throughput.forget();
            if let Some(capacity) = throughput.capacity() {
                return Some(capacity * (1.0 + throughput.phase / throughput.span));
            }
        }
        Some(rate + running.map_or(rate, |running| running / longest))
    }

    /// Raises a capacity that replicas without a queue exceed. The replica that had a queue may have been starting.
    fn refute(&mut self, model: &ModelSample<'_>, pods: &[&PodSample], key: &str) {
        let queued = pods.iter().any(|pod| valid(pod.waiting).is_none_or(|waiting| waiting > 0.0));
        let completions = valid_sum(pods.iter().map(|pod| self.completion_rate(model, pod)));
        let Some(throughput) = self.throughput.get_mut(key) else { return };
        if queued || pods.is_empty() {
            throughput.carried_until = None;
            (throughput.carried, throughput.carried_seconds, throughput.carried_span) = (0.0, 0.0, 0.0);
            return;
        }
        let fresh = throughput.carried_until.map_or(0.0, |until| model.now.duration_since(until).as_secs_f64());
        throughput.carried_until = Some(model.now);
        let fresh = fresh.min(model.settings.rate_window.as_secs_f64());
        throughput.carried += fresh * completions;
        throughput.carried_seconds += fresh * f64::from(count(pods.len()));
        throughput.carried_span += fresh;
        throughput.forget();
        let longest = model.settings.stabilization.as_secs_f64().max(throughput.phase / TRUSTED_PHASE_ERROR);
        if throughput.carried_span < longest || throughput.carried_seconds <= 0.0 {
            return;
        }
        let carried = throughput.carried / throughput.carried_seconds;
        if throughput.capacity().is_some_and(|capacity| carried > capacity) {
            throughput.served = carried * throughput.pod_seconds;
        }
    }

    /// A capacity that was measured with another output length, in proportion to the lengths.
    fn other_lengths(&self, capacity_key: &str, output: Option<f64>) -> Option<f64> {
        let output = output.filter(|output| *output > 0.0)?;
        let of_variant =
            |(key, _): &(&String, &Throughput)| key.rsplit_once('|').is_some_and(|(own, _)| own == capacity_key);
        let mut found = self.throughput.iter().filter(of_variant).filter(|(_, seen)| seen.output > 0.0);
        found.find_map(|(_, seen)| Some(seen.capacity()? * seen.output / output))
    }

    /// Since when the queues or the KV caches exceed their triggers. All ready pods count: an empty new replica does
    /// not hide the queue of another, and a pod without metrics counts as idle.
    fn pressure(&mut self, model: &ModelSample<'_>, waiting: f64) -> Option<Timestamp> {
        let settings = model.settings;
        let pods = f64::from(count(model.pods.len()));
        let cache = valid_sum(model.pods.iter().map(|pod| pod.kv));
        let long = waiting > pods * (settings.queue_length - settings.queue_spare).max(0.0) && waiting > 0.0;
        let full = cache > 0.0 && cache > pods * (settings.kv_cache - settings.kv_spare);
        if self.rates.back().is_none_or(|last| model.now.duration_since(last.at) > LONGEST_GAP) {
            self.pressure_since = None;
        }
        self.pressure_since = if long || full { self.pressure_since.or(Some(model.now)) } else { None };
        if self.pressure_since.is_some() {
            self.pressure_last = Some(model.now);
        }
        self.pressure_since
    }

    fn pressure_lasts(&self, now: Timestamp, duration: SignedDuration) -> bool {
        self.pressure_since.is_some_and(|since| now.duration_since(since) + TIMER_SLACK >= duration)
    }

    /// One step without trusted capacity. The next waits for a measurement, and no longer than `STEP_PATIENCE`.
    fn may_step(&mut self, model: &ModelSample<'_>, variants: &[VariantCapacity], pressure: Option<Timestamp>) -> bool {
        let age = |at: Timestamp| model.now.duration_since(at);
        if self.pressure_last.is_some_and(|last| age(last) >= model.settings.stabilization) {
            self.stepped = None;
        }
        let patient = self.stepped.is_some_and(|stepped| age(stepped) < STEP_PATIENCE);
        let coming = variants.iter().any(|variant| variant.coming > 0);
        pressure.is_some() && self.pressure_lasts(model.now, model.settings.rate_window) && !patient && !coming
    }

    /// The rates of the window, newest first. `None` if the window is not complete.
    fn window(&self, now: Timestamp, window: SignedDuration) -> Option<Vec<&ArrivalRate>> {
        let mut later = now;
        let mut rates = Vec::new();
        for rate in self.rates.iter().rev() {
            if later.duration_since(rate.at) > LONGEST_GAP {
                return None;
            }
            rates.push(rate);
            later = rate.at;
            if now.duration_since(rate.at) + TIMER_SLACK >= window {
                return Some(rates);
            }
        }
        None
    }

    fn peak(&self, now: Timestamp, window: SignedDuration) -> Option<f64> {
        let rates = self.window(now, window)?;
        let highest = |rates: &[&ArrivalRate]| rates.iter().map(|rate| rate.high).fold(0.0, f64::max);
        let newer = rates.partition_point(|rate| now.duration_since(rate.at) * 2 <= window);
        let peak = highest(&rates);
        let declines = peak > highest(&rates[..newer]) * (1.0 + PEAK_DECLINE) + ROUNDING;
        (rates.iter().all(|rate| rate.calm) && !declines).then_some(peak)
    }

    /// Whether all rates of the window are above `rate`.
    fn exceeded(&self, now: Timestamp, window: SignedDuration, rate: f64) -> bool {
        let above = |seen: &&ArrivalRate| seen.low.is_some_and(|low| low > rate);
        self.window(now, window).is_some_and(|rates| rates.iter().all(above))
    }

    /// Average of the rates since the load last changed, as far as it shows, and whether a rise has lasted for a rate
    /// window. During the first window, the rate mixes the old load with the new one.
    fn level(&self, model: &ModelSample<'_>) -> Option<(f64, bool)> {
        let settings = model.settings;
        let age = |rate: &&ArrivalRate| model.now.duration_since(rate.at);
        let newest = self.rates.back()?.low?;
        let alike = |rate: f64| rate <= newest * LEVEL_RATIO + ROUNDING && newest <= rate * LEVEL_RATIO + ROUNDING;
        let in_window = || self.rates.iter().rev().take_while(|rate| age(rate) <= settings.stabilization);
        let same: Vec<&ArrivalRate> = in_window().take_while(|rate| rate.low.is_some_and(alike)).collect();
        let average =
            |longest: SignedDuration| mean(same.iter().filter(|rate| age(rate) <= longest).filter_map(|rate| rate.low));
        let (level, recent) = (average(settings.stabilization)?, average(LEVEL_RECENT)?);
        let level = if (recent - level).abs() > LEVEL_CHANGE * level { recent } else { level };
        let rises = in_window().nth(same.len()).and_then(|rate| rate.low).is_some_and(|before| before < level);
        let lasts = same.last().is_some_and(|first| age(first) + TIMER_SLACK >= settings.rate_window);
        Some((level, lasts || !rises))
    }
}

fn is_measured(pod: &PodSample) -> bool {
    let completions = valid(pod.completed).is_some() || valid(pod.completions).is_some();
    completions && valid(pod.waiting).is_some() && valid(pod.kv).is_some()
}

fn is_young(pod: &PodSample, model: &ModelSample<'_>) -> bool {
    pod.ready_since.is_some_and(|since| model.now.duration_since(since) <= model.settings.grace)
}

fn is_idle(model: &ModelSample<'_>) -> bool {
    let idle = |pod: &PodSample| {
        is_measured(pod)
            && [pod.waiting, pod.running].into_iter().all(|value| valid(value).is_none_or(|value| value <= 0.0))
    };
    model.pods.iter().all(idle) && picker_requests(model.picker) <= 0.0
}

fn picker_requests(picker: PickerQueue) -> f64 {
    match picker {
        PickerQueue::Waiting(requests) => valid(Some(requests)).unwrap_or_default(),
        PickerQueue::Absent | PickerQueue::Unknown => 0.0,
    }
}

fn valid(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && *value >= 0.0)
}

fn valid_sum(values: impl Iterator<Item = Option<f64>>) -> f64 {
    values.filter_map(valid).sum()
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

fn count(items: usize) -> i32 {
    i32::try_from(items).unwrap_or(i32::MAX)
}
