//! Combines the samples of each pod into its metrics. Missing values stay missing.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use steersman_plan::variant::PodMetrics;

use super::FleetPod;
use super::pod_index::{Certainty, PodIndex};
use super::response::{Sample, SampleLabels};

/// Older samples are not used.
pub const MAX_SAMPLE_AGE: SignedDuration = SignedDuration::from_mins(5);

/// Tolerance for differences between clocks, in seconds.
const CLOCK_TOLERANCE_SECONDS: f64 = 5.0;

/// The metric that a query is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodMetric {
    Kv,
    Queue,
    /// Seconds since the last sample.
    Age,
    Capacity,
    Input,
    Output,
    Hits,
    /// Waiting requests in the newest sample.
    Waiting,
    Running,
    Completed,
    /// Completed requests per second.
    CompletionRate,
    /// Seconds that a request ran.
    ServiceTime,
    /// Seconds to the first token.
    Ttft,
    /// Seconds between tokens.
    Itl,
}

const POD_METRIC_COUNT: usize = PodMetric::Itl as usize + 1;

/// A value of a pod. Pod and model are indices of 32 bits, because there are many values.
pub struct PodValue {
    pod: u32,
    /// `None` if the series has no model, as those of the capacity.
    model: Option<u32>,
    certainty: Certainty,
    value: f64,
}

impl PodValue {
    /// Indices of pod and model, if it has a model.
    pub fn indices(&self) -> Option<(usize, usize)> {
        self.model.map(|model| (self.pod as usize, model as usize))
    }
}

/// `None` if it is not a valid number, or its pod or model is unknown.
pub fn pod_value(metric: PodMetric, index: &PodIndex<'_>, sample: &Sample) -> Option<PodValue> {
    let (pod, certainty) = index.pod(&sample.labels)?;
    value_of_pod(metric, index, pod, certainty, sample)
}

/// For a known pod.
pub fn value_of_pod(
    metric: PodMetric,
    index: &PodIndex<'_>,
    pod: usize,
    certainty: Certainty,
    sample: &Sample,
) -> Option<PodValue> {
    let model = match sample.labels.model_name.as_str() {
        "" if metric == PodMetric::Capacity => None,
        name => Some(index.model(pod, name)? as u32),
    };
    let value = match metric {
        PodMetric::Capacity => tokens(sample)?,
        _ => sample.value.filter(|value| metric.allows(*value))?,
    };
    Some(PodValue { pod: pod as u32, model, certainty, value })
}

impl PodMetric {
    /// Allows for differences between clocks and rounding errors.
    fn allows(self, value: f64) -> bool {
        match self {
            Self::Kv | Self::Hits => (0.0..=1.0 + 1e-6).contains(&value),
            Self::Age => true,
            _ => value >= 0.0,
        }
    }
}

/// vLLM reports blocks and their size as labels, SGLang the tokens as value.
fn tokens(sample: &Sample) -> Option<f64> {
    let SampleLabels { num_gpu_blocks, block_size, .. } = &sample.labels;
    let tokens = match num_gpu_blocks.as_str() {
        "" => sample.value?,
        blocks => blocks.parse::<u32>().ok().map(f64::from)? * f64::from(block_size.parse::<u32>().ok()?),
    };
    (tokens > 0.0).then_some(tokens)
}

/// All values of the fleet.
#[derive(Default)]
pub struct PodValues {
    /// By pod: its first model. Nearly all pods serve one, and a list takes half the space of a map.
    first: Vec<Option<(u32, Values)>>,
    /// By pod and model: further models.
    further: BTreeMap<(u32, u32), Values>,
    /// By pod: capacities whose series have no model.
    without_model: BTreeMap<u32, (Certainty, f64)>,
}

/// A missing value has no `certainty`. Two arrays, because an array of pairs takes half as much space again, and there is
/// one per pod.
#[derive(Clone, Copy, Default)]
struct Values {
    certainty: [Option<Certainty>; POD_METRIC_COUNT],
    value: [f64; POD_METRIC_COUNT],
}

/// Metrics of a model on a pod, or their age if they are stale.
pub type Measured = Result<PodMetrics, SignedDuration>;

impl PodValues {
    /// With space for so many pods.
    pub fn with_capacity(pods: usize) -> Self {
        Self { first: vec![None; pods], ..Self::default() }
    }

    /// Keeps the value that most surely belongs to the pod; of equals, the highest value or the lowest age.
    pub fn add(&mut self, metric: PodMetric, pod_value: PodValue) {
        let PodValue { pod, model, certainty, value } = pod_value;
        let Some(model) = model else {
            let kept = self.without_model.entry(pod).or_insert((certainty, value));
            *kept = better(metric, *kept, (certainty, value));
            return;
        };
        let values = self.values(pod, model);
        let kept = values.certainty[metric as usize].map(|certainty| (certainty, values.value[metric as usize]));
        let (certainty, value) = kept.map_or((certainty, value), |kept| better(metric, kept, (certainty, value)));
        (values.certainty[metric as usize], values.value[metric as usize]) = (Some(certainty), value);
    }

    fn values(&mut self, pod: u32, model: u32) -> &mut Values {
        match self.first.get_mut(pod as usize) {
            Some(first) if first.as_ref().is_none_or(|(own, _)| *own == model) => {
                &mut first.get_or_insert_with(|| (model, Values::default())).1
            }
            _ => self.further.entry((pod, model)).or_default(),
        }
    }

    /// Values that belong to the current pods, whatever their age.
    fn own(&self, pods: &[&FleetPod], now: Timestamp) -> impl Iterator<Item = (usize, usize, &Values)> {
        let first =
            (0_u32..).zip(&self.first).filter_map(|(pod, first)| first.as_ref().map(|(model, of)| (pod, *model, of)));
        let further = self.further.iter().map(|((pod, model), of)| (*pod, *model, of));
        first.chain(further).filter_map(move |(pod, model, values)| {
            let (pod, model) = (pod as usize, model as usize);
            is_own(pods[pod], values, now).then_some((pod, model, values))
        })
    }

    /// Values that include KV cache or queue.
    fn measured(&self, pods: &[&FleetPod], now: Timestamp) -> impl Iterator<Item = (usize, usize, &Values)> {
        self.own(pods, now).filter(|(.., values)| is_measured(values))
    }

    /// Indices of models with any measured pod, and of pods with fresh values.
    pub fn measured_indices(&self, pods: &[&FleetPod], now: Timestamp) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let models = self.measured(pods, now).map(|(_, model, _)| model).collect();
        let fresh = self.measured(pods, now).filter(|(.., values)| age(values) <= MAX_SAMPLE_AGE);
        (models, fresh.map(|(pod, ..)| pod).collect())
    }

    /// By index of the model.
    pub fn by_model(&self, pods: &[&FleetPod], now: Timestamp) -> BTreeMap<usize, Vec<Measured>> {
        let mut models: BTreeMap<usize, Vec<Measured>> = BTreeMap::new();
        for (number, model, values) in self.measured(pods, now) {
            let pod = pods[number];
            let without_model = || self.without_model.get(&(number as u32)).map(|(_, tokens)| *tokens);
            let capacity = get(values, PodMetric::Capacity).or_else(without_model);
            let metrics = || PodMetrics {
                name: pod.name.clone(),
                target: pod.target.clone(),
                ready: pod.ready,
                kv: get(values, PodMetric::Kv).map(|kv| kv.min(1.0)),
                queue: get(values, PodMetric::Queue),
                total_kv: capacity.map(|tokens| tokens as i64),
                input: get(values, PodMetric::Input),
                output: get(values, PodMetric::Output),
                hit_rate: get(values, PodMetric::Hits).map(|rate| rate.min(1.0)),
                waiting: get(values, PodMetric::Waiting),
                running: get(values, PodMetric::Running),
                completed: get(values, PodMetric::Completed),
                completed_per_second: get(values, PodMetric::CompletionRate),
                service_seconds: get(values, PodMetric::ServiceTime),
                ttft_seconds: get(values, PodMetric::Ttft),
                itl_seconds: get(values, PodMetric::Itl),
            };
            let age = age(values);
            models.entry(model).or_default().push(if age > MAX_SAMPLE_AGE { Err(age) } else { Ok(metrics()) });
        }
        models
    }

    /// By index of the model: age of the newest sample of any of its pods.
    pub fn last_sample(&self, pods: &[&FleetPod], now: Timestamp) -> BTreeMap<usize, SignedDuration> {
        let mut models = BTreeMap::new();
        for (_, model, values) in self.own(pods, now) {
            let youngest = models.entry(model).or_insert(age(values));
            *youngest = age(values).min(*youngest);
        }
        models
    }
}

fn better(metric: PodMetric, kept: (Certainty, f64), new: (Certainty, f64)) -> (Certainty, f64) {
    match new.0.cmp(&kept.0) {
        Ordering::Less => kept,
        Ordering::Equal if metric == PodMetric::Age => (new.0, kept.1.min(new.1)),
        Ordering::Equal => (new.0, kept.1.max(new.1)),
        Ordering::Greater => new,
    }
}

fn get(values: &Values, metric: PodMetric) -> Option<f64> {
    values.certainty[metric as usize].map(|_| values.value[metric as usize])
}

/// Whether KV cache or queue is known.
fn is_measured(values: &Values) -> bool {
    [PodMetric::Kv, PodMetric::Queue].iter().any(|metric| get(values, *metric).is_some())
}

/// A pod measured within the last minute may have no age.
fn age(values: &Values) -> SignedDuration {
    SignedDuration::from_secs(get(values, PodMetric::Age).map_or(0, |age| age.round() as i64))
}

/// Whether the values are of this pod. A pod of a StatefulSet has the name of its predecessor, whose last samples are
/// still there. A sample from the pod's own address needs no comparison of times: the node's clock, which sets the
/// start time, may be ahead of ours.
fn is_own(pod: &FleetPod, values: &Values, now: Timestamp) -> bool {
    let lived = pod.started.map(|started| now.duration_since(started).as_secs_f64());
    match (get(values, PodMetric::Age), lived) {
        (Some(_), _) if values.certainty[PodMetric::Age as usize] == Some(Certainty::OwnAddress) => true,
        (Some(age), Some(lived)) => age <= lived + CLOCK_TOLERANCE_SECONDS,
        (Some(_), None) => true,
        // The series has ended: samples from another address are those of an earlier pod.
        (None, _) => values.certainty.iter().flatten().any(|certainty| *certainty > Certainty::OtherAddress),
    }
}

#[cfg(test)]
mod tests {
    use steersman_reconcile::NamespacedName;

    use super::super::ModelQuery;
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn pod(name: &str, started: Option<i64>) -> FleetPod {
        FleetPod {
            namespace: "n".into(),
            name: name.into(),
            target: Default::default(),
            ip: "10.0.0.1".parse().ok(),
            ready: true,
            ready_since: None,
            started: started.map(|ago| NOW - SignedDuration::from_secs(ago)),
            gpus: 0,
            worker: false,
        }
    }

    fn sample(pod: &str, instance: &str, value: &str) -> Sample {
        let labels = SampleLabels {
            namespace: "n".to_owned(),
            pod: pod.to_owned(),
            instance: instance.to_owned(),
            model_name: "m".to_owned(),
            ..SampleLabels::default()
        };
        Sample { labels, value: super::super::response::number(value), at: 0.0 }
    }

    fn measured(pods: &[FleetPod], samples: &[(PodMetric, Sample)]) -> Vec<Measured> {
        let models = [ModelQuery { key: NamespacedName::new("n", "m"), retention: SignedDuration::ZERO }];
        let (index, mut values) = (PodIndex::new(&models, pods), PodValues::default());
        for (metric, sample) in samples {
            if let Some(value) = pod_value(*metric, &index, sample) {
                values.add(*metric, value);
            }
        }
        values.by_model(&index.pods, NOW).remove(&0).unwrap_or_default()
    }

    #[test]
    fn invalid_values_are_absent() {
        let pods = [pod("p", None)];
        for (metric, value, expected) in [
            (PodMetric::Kv, "0.5", Some(0.5)),
            (PodMetric::Kv, "NaN", None),
            (PodMetric::Kv, "+Inf", None),
            (PodMetric::Kv, "-0.1", None),
            (PodMetric::Kv, "73", None),
            (PodMetric::Kv, "1.0000000001", Some(1.0)),
            (PodMetric::Kv, "0", Some(0.0)),
        ] {
            let queue = (PodMetric::Queue, sample("p", "", "1"));
            let one = measured(&pods, &[queue, (metric, sample("p", "", value))]).remove(0).unwrap();
            assert_eq!((one.kv, one.queue), (expected, Some(1.0)), "{value}");
        }
        assert!(
            measured(&pods, &[(PodMetric::Kv, sample("p", "", "NaN")), (PodMetric::Input, sample("p", "", "5"))])
                .is_empty()
        );
        let mut other = sample("p", "", "0.5");
        other.labels.model_name = "another".to_owned();
        assert!(measured(&pods, &[(PodMetric::Kv, other)]).is_empty(), "no object has that model");
    }

    #[test]
    fn series_of_own_address_win() {
        let pods = [pod("p", None)];
        let kv = |instance: &str, value: &str| (PodMetric::Kv, sample("p", instance, value));
        let age = (PodMetric::Age, sample("p", "10.0.0.9:1", "1"));
        for (samples, expected) in [
            (vec![kv("10.0.0.1:1", "0.2"), kv("10.0.0.1:2", "0.4")], Some(0.4)),
            (vec![kv("10.0.0.1:1", "0.2"), kv("10.0.0.9:1", "0.9"), age.clone()], Some(0.2)),
            (vec![kv("10.0.0.9:1", "0.9"), kv("10.0.0.1:1", "0.2")], Some(0.2)),
            (vec![kv("node", "0.3")], Some(0.3)),
            (vec![kv("10.0.0.9:1", "0.9"), age], Some(0.9)),
            // The sample is a minute old and from an address that is gone, so it belongs to an earlier pod.
            (vec![kv("10.0.0.9:1", "0.9")], None),
        ] {
            let kv = measured(&pods, &samples).first().and_then(|one| one.as_ref().ok()?.kv);
            assert_eq!(kv, expected);
        }
    }

    #[test]
    fn old_samples_are_ignored_or_stale() {
        for (started, age, expected) in [
            (Some(100), "30", Some(true)),
            (Some(10), "30", None),
            (Some(10), "12", Some(true)),
            (None, "30", Some(true)),
            (None, "300", Some(true)),
            (None, "301", Some(false)),
            (Some(1000), "301", Some(false)),
            (Some(1000), "-3", Some(true)),
        ] {
            let samples = [(PodMetric::Kv, sample("p", "", "0.5")), (PodMetric::Age, sample("p", "", age))];
            let fresh = measured(&[pod("p", started)], &samples).first().map(Result::is_ok);
            assert_eq!(fresh, expected, "started {started:?} s ago, measured {age} s ago");
        }
    }

    #[test]
    fn own_address_counts_despite_clock_skew() {
        // By our clock the pod starts in ten minutes.
        let pods = [pod("p", Some(-600))];
        for (instance, expected) in [("10.0.0.1:8000", Some(Some(0.5))), ("10.0.0.9:8000", None), ("", None)] {
            let samples = [(PodMetric::Kv, sample("p", instance, "0.5")), (PodMetric::Age, sample("p", instance, "1"))];
            let kv = measured(&pods, &samples).first().map(|one| one.as_ref().unwrap().kv);
            assert_eq!(kv, expected, "measured at {instance:?}");
        }
    }

    #[test]
    fn capacity_comes_from_labels_or_value() {
        let pods = [pod("p", None)];
        let capacity = |blocks: &str, size: &str, value: &str| {
            let mut sample = sample("p", "", value);
            sample.labels.model_name.clear();
            (sample.labels.num_gpu_blocks, sample.labels.block_size) = (blocks.to_owned(), size.to_owned());
            (PodMetric::Capacity, sample)
        };
        for (given, expected) in [
            (capacity("1000", "16", "1"), Some(16_000)),
            (capacity("", "", "4096"), Some(4096)),
            (capacity("None", "16", "1"), None),
            (capacity("1000", "", "1"), None),
            (capacity("0", "16", "1"), None),
            (
                capacity("4294967295", "4294967295", "1"),
                Some(18_446_744_065_119_617_025_i128.min(i128::from(i64::MAX)) as i64),
            ),
            (capacity("", "", "NaN"), None),
        ] {
            let one = measured(&pods, &[(PodMetric::Kv, sample("p", "", "0")), given]).remove(0).unwrap();
            assert_eq!(one.total_kv, expected);
        }
    }
}
