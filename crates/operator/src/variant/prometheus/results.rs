//! Builds the metrics of each model from the answers, or the reason why there are none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use steersman_plan::variant::SchedulerQueue;
use steersman_plan::variant::config::duration;
use steersman_plan::variant::{MetricsError, ModelMetrics, PodMetrics};
use steersman_reconcile::{Lookup, NamespacedName};

use super::response::{Sample, SampleLabels};
use super::samples::{Measured, PodValue, PodValues};
use super::{FleetPod, ModelQuery};

/// Requests by namespace and model within one period. The namespace is empty for series without one.
pub type RequestCounts = BTreeMap<(String, String), Option<f64>>;

/// Limit of the names in a message.
const MAX_NAMED_MODELS: usize = 3;

/// By namespace: models that its pods serve and that no object has.
pub type OtherModels = BTreeMap<String, BTreeSet<String>>;

pub struct QueryResults {
    pub values: PodValues,
    /// By namespace: why nothing is known about its pods.
    pub failed: BTreeMap<String, String>,
    /// By index of the model: age of its newest sample.
    pub last_sample: BTreeMap<usize, SignedDuration>,
    pub other_models: OtherModels,
    /// By index of the model: the first of its pods that Prometheus does not have.
    pub unscraped: BTreeMap<usize, Arc<str>>,
    /// By period and namespace.
    pub requests: BTreeMap<(SignedDuration, String), Result<Arc<RequestCounts>, String>>,
    /// Requests that wait before the replicas.
    pub picker_queues: Result<PickerQueues, String>,
}

/// By target model, or by requested model if there is no target.
pub type PickerQueues = BTreeMap<String, Vec<Sample>>;

pub fn picker_queues(samples: Vec<Sample>) -> PickerQueues {
    let mut queues = PickerQueues::new();
    for sample in samples {
        let SampleLabels { target_model_name, model_name, .. } = &sample.labels;
        let model = if target_model_name.is_empty() { model_name } else { target_model_name };
        queues.entry(model.clone()).or_default().push(sample);
    }
    queues
}

impl QueryResults {
    /// Records a pod that was scraped directly because Prometheus does not have it. Its requests are missing in
    /// Prometheus, and one scrape shows how many there were, not when.
    pub fn add_unscraped(&mut self, value: &PodValue, pods: &[&FleetPod]) {
        if let Some((pod, model)) = value.indices() {
            let name = &pods[pod].name;
            let first = self.unscraped.entry(model).or_insert_with(|| name.clone());
            if *name < *first {
                *first = name.clone();
            }
        }
    }

    /// `periods`: the queried period for each requested one.
    pub fn into_metrics(
        self,
        models: &[ModelQuery],
        pods: &[&FleetPod],
        periods: &BTreeMap<SignedDuration, SignedDuration>,
        now: Timestamp,
    ) -> BTreeMap<NamespacedName, ModelMetrics> {
        let mut measured = self.values.by_model(pods, now);
        let metrics = |(number, model): (usize, &ModelQuery)| {
            let model_metrics = ModelMetrics {
                pods: self.pods(number, &model.key, measured.remove(&number).unwrap_or_default()),
                requests: self.requests(number, model, periods),
                queue: self.queue(&model.key),
            };
            (model.key.clone(), model_metrics)
        };
        models.iter().enumerate().map(metrics).collect()
    }

    fn pods(
        &self,
        number: usize,
        model: &NamespacedName,
        measured: Vec<Measured>,
    ) -> Result<Vec<PodMetrics>, MetricsError> {
        let youngest = measured.iter().filter_map(|one| one.as_ref().err()).min().copied();
        let mut fresh: Vec<PodMetrics> = measured.into_iter().flatten().collect();
        // The list grew one by one and is kept during the whole reconcile.
        fresh.shrink_to_fit();
        if !fresh.is_empty() {
            return Ok(fresh);
        }
        if let Some(cause) = self.failed.get(&model.namespace) {
            return Err(MetricsError::QueryFailed(cause.clone()));
        }
        let age = youngest.or_else(|| self.last_sample.get(&number).copied());
        let others = self.other_models.get(&model.namespace).map(|names| names.iter().take(MAX_NAMED_MODELS).cloned());
        Err(match (age, others) {
            (Some(age), _) => MetricsError::Stale(duration::go(age)),
            (None, Some(others)) => MetricsError::ModelNameMismatch(others.collect()),
            (None, None) => MetricsError::NotFound,
        })
    }

    fn requests(
        &self,
        number: usize,
        model: &ModelQuery,
        periods: &BTreeMap<SignedDuration, SignedDuration>,
    ) -> Lookup<f64> {
        let NamespacedName { namespace, name } = &model.key;
        let period = periods.get(&model.retention).copied().unwrap_or(model.retention);
        let counts = match self.requests.get(&(period, namespace.clone())) {
            Some(Ok(counts)) => counts,
            Some(Err(cause)) => return Lookup::Unknown(cause.clone()),
            None => return Lookup::Unknown("Prometheus was not queried".to_owned()),
        };
        // Series without a namespace may belong to any: a model that may be in use counts as used.
        let namespaces = [namespace.as_str(), ""];
        let counted = namespaces.into_iter().filter_map(|namespace| counts.get(&(namespace.to_owned(), name.clone())));
        let sum = counted.copied().reduce(|one, other| Some(one? + other?));
        match (sum, self.unscraped.get(&number)) {
            // A positive count shows that the model is used. A count of zero shows nothing while a pod is missing.
            (Some(Some(requests)), None) => Lookup::Known(requests),
            (Some(Some(requests)), Some(_)) if requests > 0.0 => Lookup::Known(requests),
            (Some(Some(_)), Some(pod)) => Lookup::Unknown(format!(
                "Prometheus does not scrape pod {pod}, so its requests are not counted; select it with a PodMonitor or \
                 ServiceMonitor in namespace {namespace}"
            )),
            (Some(None), _) => Lookup::Unknown("the count in Prometheus is not a number".to_owned()),
            (None, _) => {
                let period = duration::go(period);
                Lookup::Unknown(format!("Prometheus has no request count for the last {period}"))
            }
        }
    }

    /// The queue at the endpoint picker.
    fn queue(&self, model: &NamespacedName) -> Lookup<Option<SchedulerQueue>> {
        let samples = match &self.picker_queues {
            Ok(queues) => queues.get(&model.name).map_or(&[][..], Vec::as_slice),
            Err(cause) => return Lookup::Unknown(cause.clone()),
        };
        let near = |sample: &&Sample| [model.namespace.as_str(), ""].contains(&sample.labels.namespace.as_str());
        let has_target = |sample: &&Sample| !sample.labels.target_model_name.is_empty();
        let mut own: Vec<&Sample> = samples.iter().filter(near).filter(has_target).collect();
        if own.is_empty() {
            own = samples.iter().filter(near).collect();
        }
        let sum = |ending: &str| {
            let mut metrics: BTreeMap<&str, Option<f64>> = BTreeMap::new();
            for sample in own.iter().filter(|sample| sample.labels.metric.ends_with(ending)) {
                let sum = metrics.entry(&sample.labels.metric).or_insert(Some(0.0));
                *sum = sum.zip(sample.value).map(|(sum, value)| sum + value);
            }
            // An endpoint picker may export the same value under its old and its new name.
            metrics.into_values().reduce(|one, other| Some(one?.max(other?)))
        };
        match (own.is_empty(), sum("_size"), sum("_bytes")) {
            (true, ..) => Lookup::Known(None),
            // Missing bytes count as 0, because they only ever add to the demand.
            (_, Some(Some(requests)), bytes) => {
                Lookup::Known(Some(SchedulerQueue { requests, bytes: bytes.flatten().unwrap_or_default() }))
            }
            _ => Lookup::Unknown("the endpoint picker exports no valid queue size".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> QueryResults {
        QueryResults {
            values: PodValues::default(),
            failed: BTreeMap::new(),
            last_sample: BTreeMap::new(),
            other_models: OtherModels::new(),
            unscraped: BTreeMap::new(),
            requests: BTreeMap::new(),
            picker_queues: Ok(PickerQueues::new()),
        }
    }

    fn waits(metric: &str, namespace: &str, model: &str, target: &str, value: Option<f64>) -> Sample {
        let labels = SampleLabels {
            metric: metric.to_owned(),
            namespace: namespace.to_owned(),
            model_name: model.to_owned(),
            target_model_name: target.to_owned(),
            ..SampleLabels::default()
        };
        Sample { labels, value, at: 0.0 }
    }

    #[test]
    fn scheduler_queue_is_summed_by_target_model() {
        let size = "inference_extension_flow_control_queue_size";
        let (later, bytes) = ("llm_d_epp_flow_control_queue_size", "llm_d_epp_flow_control_queue_bytes");
        let known = |requests, bytes| Lookup::Known(Some(SchedulerQueue { requests, bytes }));
        for (samples, expected) in [
            (vec![], Lookup::Known(None)),
            (vec![waits(size, "n", "x", "m", Some(2.0)), waits(size, "n", "y", "m", Some(3.0))], known(5.0, 0.0)),
            (vec![waits(size, "n", "m", "", Some(2.0)), waits(bytes, "n", "m", "", Some(80.0))], known(2.0, 80.0)),
            // Both metric names describe the same queue.
            (vec![waits(size, "n", "m", "m", Some(3.0)), waits(later, "n", "m", "m", Some(3.0))], known(3.0, 0.0)),
            (
                vec![
                    waits(later, "n", "x", "m", Some(3.0)),
                    waits(size, "n", "x", "m", Some(3.0)),
                    waits(later, "n", "y", "m", Some(2.0)),
                ],
                known(5.0, 0.0),
            ),
            // Another target model, or another namespace.
            (vec![waits(size, "n", "m", "other", Some(2.0))], Lookup::Known(None)),
            (vec![waits(size, "other", "m", "m", Some(2.0))], Lookup::Known(None)),
            (vec![waits(size, "", "m", "m", Some(2.0))], known(2.0, 0.0)),
            // If some series have a target, those without one are ignored.
            (vec![waits(size, "n", "m", "m", Some(2.0)), waits(size, "n", "m", "", Some(9.0))], known(2.0, 0.0)),
            (
                vec![waits(size, "n", "m", "m", None)],
                Lookup::Unknown("the endpoint picker exports no valid queue size".to_owned()),
            ),
            (
                vec![waits(bytes, "n", "m", "m", Some(1.0))],
                Lookup::Unknown("the endpoint picker exports no valid queue size".to_owned()),
            ),
        ] {
            let results = QueryResults { picker_queues: Ok(picker_queues(samples.clone())), ..results() };
            assert_eq!(results.queue(&NamespacedName::new("n", "m")), expected, "{samples:?}");
        }
        let failed = QueryResults { picker_queues: Err("down".to_owned()), ..results() };
        assert_eq!(failed.queue(&NamespacedName::new("n", "m")), Lookup::Unknown("down".to_owned()));
    }

    #[test]
    fn uncounted_requests_are_unknown() {
        let hour = SignedDuration::from_hours(1);
        let model = ModelQuery { key: NamespacedName::new("n", "m"), retention: hour };
        let counts = |all: &[(&str, &str, Option<f64>)]| {
            let each = all.iter().map(|(place, name, count)| (((*place).to_owned(), (*name).to_owned()), *count));
            Ok(Arc::new(each.collect::<RequestCounts>()))
        };
        let unknown = |why: &str| Lookup::Unknown(why.to_owned());
        for (counted, expected) in [
            (counts(&[("n", "m", Some(3.0)), ("n", "x", Some(9.0)), ("o", "m", Some(9.0))]), Lookup::Known(3.0)),
            (counts(&[("n", "m", Some(0.0))]), Lookup::Known(0.0)),
            (counts(&[("n", "m", Some(0.0)), ("", "m", Some(2.0))]), Lookup::Known(2.0)),
            (counts(&[("n", "m", None)]), unknown("the count in Prometheus is not a number")),
            (counts(&[("o", "m", Some(9.0))]), unknown("Prometheus has no request count for the last 1h0m0s")),
            (Err("down".to_owned()), unknown("down")),
        ] {
            let results = QueryResults { requests: BTreeMap::from([((hour, "n".to_owned()), counted)]), ..results() };
            assert_eq!(results.requests(0, &model, &BTreeMap::new()), expected);
        }
    }

    #[test]
    fn zero_requests_with_unscraped_pod_are_unknown() {
        let hour = SignedDuration::from_hours(1);
        let model = ModelQuery { key: NamespacedName::new("n", "m"), retention: hour };
        let missing = "Prometheus does not scrape pod p, so its requests are not counted; select it with a PodMonitor or \
                       ServiceMonitor in namespace n";
        for (count, of, expected) in
            [(0.0, 0, Lookup::Unknown(missing.to_owned())), (3.0, 0, Lookup::Known(3.0)), (0.0, 1, Lookup::Known(0.0))]
        {
            let counts = RequestCounts::from([(("n".to_owned(), "m".to_owned()), Some(count))]);
            let requests = BTreeMap::from([((hour, "n".to_owned()), Ok(Arc::new(counts)))]);
            let results = QueryResults { requests, unscraped: BTreeMap::from([(of, "p".into())]), ..results() };
            assert_eq!(
                results.requests(0, &model, &BTreeMap::new()),
                expected,
                "{count} requests, a pod of model {of}"
            );
        }
    }

    #[test]
    fn metrics_errors_have_a_precedence() {
        let (key, age) = (NamespacedName::new("n", "m"), SignedDuration::from_secs(603));
        let stale = QueryResults { last_sample: BTreeMap::from([(0, age)]), ..results() };
        assert_eq!(results().pods(0, &key, vec![]), Err(MetricsError::NotFound));
        assert_eq!(stale.pods(0, &key, vec![]), Err(MetricsError::Stale("10m3s".to_owned())));
        assert_eq!(results().pods(0, &key, vec![Err(age)]), Err(MetricsError::Stale("10m3s".to_owned())));
        let names = ["v", "w", "x", "y"].map(str::to_owned);
        let other_models = OtherModels::from([("n".to_owned(), BTreeSet::from(names.clone()))]);
        let other = QueryResults { other_models: other_models.clone(), ..results() };
        assert_eq!(other.pods(0, &key, vec![]), Err(MetricsError::ModelNameMismatch(names[..3].to_vec())));
        assert_eq!(other.pods(0, &NamespacedName::new("o", "m"), vec![]), Err(MetricsError::NotFound));
        let stale = QueryResults { other_models, ..stale };
        assert_eq!(stale.pods(0, &key, vec![]), Err(MetricsError::Stale("10m3s".to_owned())));
        let failed = QueryResults { failed: BTreeMap::from([("n".to_owned(), "down".to_owned())]), ..stale };
        assert_eq!(failed.pods(0, &key, vec![]), Err(MetricsError::QueryFailed("down".to_owned())));
        let pod = PodMetrics { name: "p".into(), ..PodMetrics::default() };
        assert_eq!(failed.pods(0, &key, vec![Err(age), Ok(pod.clone())]), Ok(vec![pod]));
    }
}
