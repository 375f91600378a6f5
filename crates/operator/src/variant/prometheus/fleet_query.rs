//! Runs all queries for the fleet, and scrapes the pods that Prometheus does not have.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use steersman_plan::variant::ModelMetrics;
use steersman_reconcile::NamespacedName;
use tokio::time::Instant;

use super::batches::{batches, periods};
use super::client::{Connection, QuerySession};
use super::pod_index::PodIndex;
use super::promql::{self, HITS, INPUT, ITL, KV, NamespaceSelector, OUTPUT, QUEUE, RUNNING, SERVICE_TIME, TTFT};
use super::query::query;
use super::response::Sample;
use super::results::{OtherModels, QueryResults, RequestCounts, picker_queues};
use super::samples::{MAX_SAMPLE_AGE, PodMetric, PodValue, PodValues, pod_value};
use super::scrape::Scraper;
use super::{FleetPod, ModelQuery};

/// Time for all queries together.
pub const TIME_LIMIT: Duration = Duration::from_secs(30);
const MAX_CONCURRENT: usize = 4;

/// Queries about pods. Without the first three, nothing is known about a pod; the others are optional.
const POD_METRICS: [PodMetric; 14] = [
    PodMetric::Kv,
    PodMetric::Queue,
    PodMetric::Age,
    PodMetric::Capacity,
    PodMetric::Input,
    PodMetric::Output,
    PodMetric::Hits,
    PodMetric::Waiting,
    PodMetric::Running,
    PodMetric::Completed,
    PodMetric::CompletionRate,
    PodMetric::ServiceTime,
    PodMetric::Ttft,
    PodMetric::Itl,
];
const REQUIRED_METRICS: [PodMetric; 3] = [PodMetric::Kv, PodMetric::Queue, PodMetric::Age];

pub struct FleetQuery<'a> {
    pub models: &'a [ModelQuery],
    pub index: PodIndex<'a>,
    pub now: Timestamp,
    /// The queried period for each requested one.
    periods: BTreeMap<SignedDuration, SignedDuration>,
    namespaces: BTreeSet<&'a str>,
    deadline: Instant,
}

/// The answer to one query.
enum QueryResult {
    Pods(usize, PodMetric, Result<Vec<PodValue>, String>),
    /// Includes models that no object has.
    LastSample(Vec<PodValue>, OtherModels),
    Requests(usize, SignedDuration, Result<Arc<RequestCounts>, String>),
    PickerQueues(Result<Vec<Sample>, String>),
}

/// All answers about the pods of one batch.
type Answers = Vec<(PodMetric, Result<Vec<PodValue>, String>)>;

impl<'a> FleetQuery<'a> {
    pub fn new(models: &'a [ModelQuery], pods: &'a [impl Borrow<FleetPod>], now: Timestamp) -> Self {
        Self {
            models,
            index: PodIndex::new(models, pods),
            now,
            periods: periods(&models.iter().map(|model| model.retention).collect()),
            namespaces: models.iter().map(|model| model.key.namespace.as_str()).collect(),
            deadline: Instant::now() + TIME_LIMIT,
        }
    }

    pub async fn run(
        self,
        connection: &Connection,
        max_series: u64,
        scraper: Option<&Scraper>,
    ) -> BTreeMap<NamespacedName, ModelMetrics> {
        let mut results = match self.prometheus(connection, max_series).await {
            Ok(results) => results,
            Err(cause) => self.empty_results(&cause),
        };
        if let Some(scraper) = scraper {
            for (metric, value) in
                scraper.scrape(&self.index, self.pods_without_values(&results.values), self.now).await
            {
                results.add_unscraped(&value, &self.index.pods);
                results.values.add(metric, value);
            }
        }
        // The rest of the snapshot can be dropped.
        let Self { models, index: PodIndex { pods, .. }, periods, now, .. } = self;
        results.into_metrics(models, &pods, &periods, now)
    }

    async fn prometheus(&self, connection: &Connection, max_series: u64) -> Result<QueryResults, String> {
        let mut session = connection.session()?;
        let everywhere = NamespaceSelector::new(self.namespaces.iter().copied(), true);
        // This query is cheap, and the first to fail if Prometheus does not answer.
        let count = promql::count(&everywhere);
        let counted = self.query(&session, &count, Some).await?;
        // All further queries are evaluated at the same time, because values of different times would not fit together.
        session.at = counted.first().map(|sample| sample.at);
        let session = &session;
        let series = counted.into_iter().filter_map(|sample| Some((sample.labels.namespace, sample.value? as u64)));
        let batches = batches(&self.namespaces, &series.collect(), max_series);
        let selector = |number: usize| NamespaceSelector::new(batches[number].iter().copied(), number == 0);
        let selectors: Vec<NamespaceSelector> = (0..batches.len()).map(selector).collect();
        // Requests without a namespace may belong to a model of any batch.
        let request_selectors: Vec<NamespaceSelector> =
            batches.iter().map(|batch| NamespaceSelector::new(batch.iter().copied(), true)).collect();
        let mut results =
            self.collect(&batches, self.queries(session, &selectors, &request_selectors, &everywhere)).await;
        self.query_last_samples(session, &batches, &selectors, &mut results).await;
        Ok(results)
    }

    fn queries<'b>(
        &'b self,
        session: &'b QuerySession,
        selectors: &[NamespaceSelector],
        request_selectors: &[NamespaceSelector],
        everywhere: &NamespaceSelector,
    ) -> Vec<BoxFuture<'b, QueryResult>> {
        let mut queries: Vec<BoxFuture<'b, QueryResult>> = Vec::new();
        let waiting = promql::waiting(everywhere);
        queries.push(async move { QueryResult::PickerQueues(self.query(session, &waiting, Some).await) }.boxed());
        for (batch, (namespaces, request_namespaces)) in selectors.iter().zip(request_selectors).enumerate() {
            for metric in POD_METRICS {
                queries.push(self.query_pods(session, batch, metric, pod_promql(metric, namespaces)).boxed());
            }
            for period in self.periods.values().copied().collect::<BTreeSet<_>>() {
                let promql = promql::requests(period, request_namespaces);
                let count = |sample: Sample| Some(((sample.labels.namespace, sample.labels.model_name), sample.value));
                let requests = async move {
                    let counts = self.query(session, &promql, count).await;
                    QueryResult::Requests(batch, period, counts.map(|counts| Arc::new(counts.into_iter().collect())))
                };
                queries.push(requests.boxed());
            }
        }
        queries
    }

    async fn query_pods(&self, session: &QuerySession, batch: usize, metric: PodMetric, promql: String) -> QueryResult {
        QueryResult::Pods(
            batch,
            metric,
            self.query(session, &promql, |sample| pod_value(metric, &self.index, &sample)).await,
        )
    }

    async fn query<T>(
        &self,
        session: &QuerySession,
        promql: &str,
        take: impl FnMut(Sample) -> Option<T>,
    ) -> Result<Vec<T>, String> {
        let late = || {
            Err(format!("all queries together took longer than {TIME_LIMIT:?}; check whether Prometheus is overloaded"))
        };
        tokio::time::timeout_at(self.deadline, query(session, promql, take)).await.unwrap_or_else(|_| late())
    }

    async fn all(&self, queries: Vec<BoxFuture<'_, QueryResult>>) -> Vec<QueryResult> {
        stream::iter(queries).buffer_unordered(MAX_CONCURRENT).collect().await
    }

    async fn collect(&self, batches: &[BTreeSet<&str>], queries: Vec<BoxFuture<'_, QueryResult>>) -> QueryResults {
        let mut results = self.empty_results("");
        results.failed.clear();
        let mut open: BTreeMap<usize, Answers> = BTreeMap::new();
        let mut answers = stream::iter(queries).buffer_unordered(MAX_CONCURRENT);
        while let Some(one) = answers.next().await {
            match one {
                QueryResult::PickerQueues(samples) => results.picker_queues = samples.map(picker_queues),
                QueryResult::Requests(batch, period, counts) => {
                    for namespace in &batches[batch] {
                        results.requests.insert((period, (*namespace).to_owned()), counts.clone());
                    }
                }
                QueryResult::Pods(batch, metric, answer) => {
                    let batch_answers = open.entry(batch).or_default();
                    batch_answers.push((metric, answer));
                    // Complete batches are merged at once, because the answers take more space than the result.
                    if batch_answers.len() == POD_METRICS.len() {
                        results.merge(&batches[batch], open.remove(&batch).unwrap_or_default());
                    }
                }
                QueryResult::LastSample(..) => {}
            }
        }
        results
    }

    /// Finds out whether a model without metrics had some within the last hour.
    async fn query_last_samples(
        &self,
        session: &QuerySession,
        batches: &[BTreeSet<&str>],
        selectors: &[NamespaceSelector],
        results: &mut QueryResults,
    ) {
        let (known, _) = results.values.measured_indices(&self.index.pods, self.now);
        let is_missing = |(number, model): &(usize, &ModelQuery)| {
            !known.contains(number) && !results.failed.contains_key(&model.key.namespace)
        };
        let missing = self.models.iter().enumerate().filter(is_missing);
        let missing: BTreeSet<&str> = missing.map(|(_, model)| model.key.namespace.as_str()).collect();
        let populated: BTreeSet<&str> = self.index.pods.iter().map(|pod| &*pod.namespace).collect();
        let missing: BTreeSet<&str> = missing.intersection(&populated).copied().collect();
        let concerned = batches.iter().enumerate().filter(|(_, batch)| !batch.is_disjoint(&missing));
        let queries =
            concerned.map(|(batch, _)| self.last_sample(session, promql::last_sample(&selectors[batch])).boxed());
        let mut ages = PodValues::default();
        for result in self.all(queries.collect()).await {
            if let QueryResult::LastSample(values, other_models) = result {
                values.into_iter().for_each(|value| ages.add(PodMetric::Age, value));
                for (namespace, names) in other_models {
                    results.other_models.entry(namespace).or_default().extend(names);
                }
            }
        }
        results.last_sample = ages.last_sample(&self.index.pods, self.now);
    }

    /// A failed query counts as no answer.
    async fn last_sample(&self, session: &QuerySession, promql: String) -> QueryResult {
        let mut other_models = OtherModels::new();
        let values = self.query(session, &promql, |sample| {
            let fresh = sample.value.is_some_and(|age| age <= MAX_SAMPLE_AGE.as_secs_f64());
            if let Some((pod, name)) = self.index.other_model(&sample.labels).filter(|_| fresh) {
                other_models.entry(pod.namespace.to_string()).or_default().insert(name.to_owned());
            }
            pod_value(PodMetric::Age, &self.index, &sample)
        });
        QueryResult::LastSample(values.await.unwrap_or_default(), other_models)
    }

    /// Ready pods without fresh metrics.
    fn pods_without_values(&self, values: &PodValues) -> Vec<(usize, &'a FleetPod)> {
        let (_, measured) = values.measured_indices(&self.index.pods, self.now);
        let lacks_values = |(number, pod): &(usize, &FleetPod)| {
            let queried = self.namespaces.contains(&*pod.namespace);
            queried && pod.ready && pod.ip.is_some() && !measured.contains(number)
        };
        self.index.pods.iter().copied().enumerate().filter(lacks_values).collect()
    }

    /// The result without any answer.
    fn empty_results(&self, cause: &str) -> QueryResults {
        let periods: BTreeSet<SignedDuration> = self.periods.values().copied().collect();
        let each = |namespace: &&str| {
            let namespace = (*namespace).to_owned();
            periods.iter().map(move |period| (*period, namespace.clone())).collect::<Vec<_>>()
        };
        QueryResults {
            values: PodValues::with_capacity(self.index.pods.len()),
            failed: self.namespaces.iter().map(|one| ((*one).to_owned(), cause.to_owned())).collect(),
            last_sample: BTreeMap::new(),
            other_models: OtherModels::new(),
            unscraped: BTreeMap::new(),
            requests: self.namespaces.iter().flat_map(each).map(|key| (key, Err(cause.to_owned()))).collect(),
            picker_queues: Err(cause.to_owned()),
        }
    }
}

impl QueryResults {
    /// Merges the answers about one batch. If a required one is missing, none is used.
    fn merge(&mut self, namespaces: &BTreeSet<&str>, answers: Answers) {
        // Searched in a fixed order, not in the order of arrival, so that the same error gives the same message.
        let failed = |required: &PodMetric| {
            let answer = answers.iter().find(|(metric, _)| metric == required);
            answer.and_then(|(_, answer)| answer.as_ref().err().cloned())
        };
        if let Some(cause) = REQUIRED_METRICS.iter().find_map(failed) {
            self.failed.extend(namespaces.iter().map(|namespace| ((*namespace).to_owned(), cause.clone())));
            return;
        }
        for (metric, answer) in answers {
            match answer {
                Ok(values) => values.into_iter().for_each(|value| self.values.add(metric, value)),
                Err(cause) => tracing::debug!(cause, "query of optional pod metric {metric:?} failed"),
            }
        }
    }
}

fn pod_promql(metric: PodMetric, namespaces: &NamespaceSelector) -> String {
    match metric {
        PodMetric::Kv => promql::peak(&KV, namespaces),
        PodMetric::Queue => promql::peak(&QUEUE, namespaces),
        PodMetric::Age => promql::age(namespaces),
        PodMetric::Capacity => promql::capacity(namespaces),
        PodMetric::Input => promql::ratio(&INPUT, namespaces),
        PodMetric::Output => promql::ratio(&OUTPUT, namespaces),
        PodMetric::Hits => promql::ratio(&HITS, namespaces),
        PodMetric::Waiting => promql::newest(&QUEUE, namespaces),
        PodMetric::Running => promql::newest(&RUNNING, namespaces),
        PodMetric::Completed => promql::completed(namespaces),
        PodMetric::CompletionRate => promql::completion_rate(namespaces),
        PodMetric::ServiceTime => promql::ratio(&SERVICE_TIME, namespaces),
        PodMetric::Ttft => promql::ratio(&TTFT, namespaces),
        PodMetric::Itl => promql::ratio(&ITL, namespaces),
    }
}
