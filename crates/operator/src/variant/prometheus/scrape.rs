//! Scrapes pods directly if Prometheus does not have them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::stream::SelectAll;
use futures::{StreamExt, stream};
use http::Uri;
use jiff::{SignedDuration, Timestamp};
use steersman_plan::exposition::TooLarge;
use steersman_runtime::http::{Http, HttpError, HttpRequest, HttpSettings, Inside, Reach};
use tokio::sync::Semaphore;

use super::FleetPod;
use super::pod_index::{Certainty, PodIndex};
use super::promql::{CAPACITY, HITS, INPUT, KV, OUTPUT, QUEUE, RUNNING, Ratio};
use super::response::{Sample, SampleLabels};
use super::samples::{PodMetric, PodValue, value_of_pod};
use super::scrape_schedule::{PodResult, ScrapeSchedule};
use super::text_format::LineParser;

/// Limit of an answer; a server with a hundred adapters writes a tenth of it.
const MAX_RESPONSE_BYTES: usize = 8 * 1024 * 1024;

/// Most samples of the metrics that are read, for one pod. Sixteen engines write less than a third of it.
const MAX_SAMPLES: usize = 512;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct ScrapeConfig {
    /// Ports of the servers, tried in this order.
    pub ports: Vec<u16>,
    pub max_concurrent: usize,
    /// Pods of one namespace that are scraped at a time. Others are scraped even if these do not answer.
    pub max_concurrent_per_namespace: usize,
    /// Limit of pods per reconcile. Namespaces take turns.
    pub max_pods: usize,
    /// Time for one pod.
    pub answer: Duration,
    /// Time for all pods.
    pub limit: Duration,
    /// Pause after a scrape in which no pod answered, and of untried pods in a namespace with an excessive one.
    pub pause: SignedDuration,
    /// Routing of requests to pods.
    pub inside: Inside,
}

impl Default for ScrapeConfig {
    fn default() -> Self {
        Self {
            // vLLM and SGLang.
            ports: vec![8000, 30_000],
            max_concurrent: 32,
            max_concurrent_per_namespace: 8,
            max_pods: 1_000,
            answer: Duration::from_secs(2),
            limit: Duration::from_secs(5),
            pause: SignedDuration::from_mins(1),
            inside: Inside::default(),
        }
    }
}

pub struct Scraper {
    settings: ScrapeConfig,
    http: Http,
    schedule: Mutex<ScrapeSchedule>,
}

impl fmt::Debug for Scraper {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(out)
    }
}

impl Scraper {
    /// Time for all pods together.
    pub fn limit(&self) -> Duration {
        self.settings.limit
    }

    pub fn new(settings: ScrapeConfig) -> Result<Self, String> {
        let http_settings = HttpSettings {
            connect: CONNECT_TIMEOUT,
            answer: settings.answer,
            reach: Reach::Inside(settings.inside.clone()),
            idle: Duration::ZERO,
            ..HttpSettings::default()
        };
        let http =
            Http::new(http_settings).map_err(|error| format!("cannot build the client that scrapes pods: {error}"))?;
        Ok(Self { settings, http, schedule: Mutex::default() })
    }

    /// `pods` with their indices.
    pub async fn scrape(
        &self,
        index: &PodIndex<'_>,
        pods: Vec<(usize, &FleetPod)>,
        now: Timestamp,
    ) -> Vec<(PodMetric, PodValue)> {
        let pods = self.schedule().begin(pods, now, self.settings.max_pods);
        if pods.is_empty() {
            return Vec::new();
        }
        // Waiting scrapes get their permits in the order of their requests, so that namespaces take turns here too.
        let permits = Semaphore::new(self.settings.max_concurrent);
        // Lists instead of a closure, for which the compiler cannot prove that its futures are `Send`.
        let mut scrapes: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for (number, pod) in pods {
            scrapes.entry(&*pod.namespace).or_default().push(self.pod(&permits, index, number, pod));
        }
        let concurrent = self.settings.max_concurrent_per_namespace;
        let mut answers = SelectAll::new();
        for namespace in scrapes.into_values() {
            answers.push(stream::iter(namespace).buffer_unordered(concurrent));
        }
        let mut values = Vec::new();
        let all = async {
            while let Some(one) = answers.next().await {
                values.extend(one);
            }
        };
        // Answers until then are used.
        let _ = tokio::time::timeout(self.settings.limit, all).await;
        self.schedule().end(now, self.settings.pause);
        values
    }

    async fn pod(
        &self,
        permits: &Semaphore,
        index: &PodIndex<'_>,
        number: usize,
        pod: &FleetPod,
    ) -> Vec<(PodMetric, PodValue)> {
        // The error cannot happen: the semaphore is never closed.
        let _permit = permits.acquire().await;
        self.schedule().pod_begins(pod);
        let started = Instant::now();
        let (mut values, mut result) = (Vec::new(), PodResult::Failed);
        for url in self.settings.ports.iter().filter_map(|port| address(pod.ip?, *port)) {
            match self.read(url).await {
                Ok(metrics) => values = metrics.values(index, number),
                Err(failure) => result = failure,
            }
            if !values.is_empty() || result == PodResult::Excessive {
                break;
            }
        }
        if !values.is_empty() {
            result = PodResult::Answered;
        } else if started.elapsed() >= CONNECT_TIMEOUT {
            result = PodResult::Excessive;
        }
        self.schedule().pod_ends(pod, result);
        values
    }

    /// Fails if the pod did not answer, or not completely; a partial answer may lack important values.
    async fn read(&self, url: Uri) -> Result<ScrapedMetrics, PodResult> {
        let (mut lines, mut metrics) = (LineParser::default(), ScrapedMetrics::default());
        let request = HttpRequest::get(url, MAX_RESPONSE_BYTES);
        let sent = self.http.stream(&request, |status, piece| {
            if status.is_success() {
                lines.read(piece, |sample| metrics.add(sample));
            }
        });
        sent.await.map_err(|error| match error {
            HttpError::TooSlow { .. } | HttpError::TooLong { .. } => PodResult::Excessive,
            _ => PodResult::Failed,
        })?;
        let read = lines.finish(|sample| metrics.add(sample)).and_then(|()| metrics.checked());
        read.map_err(|error| {
            tracing::debug!(url = %request.url, %error, "ignored the metrics of a pod");
            PodResult::Excessive
        })
    }

    fn schedule(&self) -> MutexGuard<'_, ScrapeSchedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn address(ip: IpAddr, port: u16) -> Option<Uri> {
    format!("http://{}/metrics", SocketAddr::new(ip, port)).parse().ok()
}

/// Metrics from one scrape of one pod.
#[derive(Default)]
struct ScrapedMetrics {
    samples: Vec<(PodMetric, Sample)>,
    /// Sums of the metrics from which averages are computed, by metric and model.
    sums: BTreeMap<(String, String), f64>,
    /// Samples that were read; those after the limit are not kept.
    count: usize,
}

impl ScrapedMetrics {
    fn add(&mut self, sample: Sample) {
        let metric = sample.labels.metric.as_str();
        let direct = [
            (PodMetric::Kv, KV.as_slice()),
            (PodMetric::Queue, &QUEUE),
            (PodMetric::Running, &RUNNING),
            (PodMetric::Capacity, &CAPACITY),
        ];
        if let Some((kind, _)) = direct.into_iter().find(|(_, names)| names.contains(&metric)) {
            if !self.count() {
                return;
            }
            self.samples.push((kind, sample));
            return;
        }
        let part = |(above, below): &Ratio| metric == *above || metric == *below;
        if let Some(value) = sample.value.filter(|_| [INPUT.as_slice(), &OUTPUT, &HITS].into_iter().flatten().any(part))
        {
            if !self.count() {
                return;
            }
            let key = (metric.to_owned(), sample.labels.model_name);
            *self.sums.entry(key).or_default() += value;
        }
    }

    /// Counts a sample. False: it is not kept.
    fn count(&mut self) -> bool {
        self.count += 1;
        self.count <= MAX_SAMPLES
    }

    fn checked(self) -> Result<Self, TooLarge> {
        if self.count > MAX_SAMPLES { Err(TooLarge::Samples(MAX_SAMPLES)) } else { Ok(self) }
    }

    /// Averages cover the time since the pod's server started, because a single scrape knows no other period. Counters of
    /// requests and latencies, which are compared over time, are left out.
    fn values(self, index: &PodIndex<'_>, pod: usize) -> Vec<(PodMetric, PodValue)> {
        let mut samples = self.samples;
        let ratios = [(PodMetric::Input, INPUT.as_slice()), (PodMetric::Output, &OUTPUT), (PodMetric::Hits, &HITS)];
        for (metric, names) in ratios {
            for ((name, model), above) in &self.sums {
                let Some((_, below)) = names.iter().find(|(above, _)| above == name) else { continue };
                let below = self.sums.get(&((*below).to_owned(), model.clone())).filter(|below| **below > 0.0);
                let labels = SampleLabels { model_name: model.clone(), ..SampleLabels::default() };
                samples.push((metric, Sample { labels, value: below.map(|below| above / below), at: 0.0 }));
            }
        }
        let own =
            |metric, sample: &Sample| Some((metric, value_of_pod(metric, index, pod, Certainty::OwnAddress, sample)?));
        let mut values = Vec::new();
        for (metric, sample) in samples {
            let Some(value) = own(metric, &sample) else { continue };
            values.push(value);
            if metric == PodMetric::Queue {
                values.extend(own(PodMetric::Waiting, &sample));
            }
            if matches!(metric, PodMetric::Kv | PodMetric::Queue) {
                // The value is from now, whatever the age of other samples.
                values.extend(own(PodMetric::Age, &Sample { value: Some(0.0), ..sample }));
            }
        }
        values
    }
}
