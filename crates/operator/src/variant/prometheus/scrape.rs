//! Scrapes pods directly if Prometheus does not have them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use http::Uri;
use jiff::{SignedDuration, Timestamp};
use steersman_runtime::http::{Http, HttpRequest, HttpSettings};

use super::PodPlace;
use super::answer::{Labels, Sample};
use super::figures::{Figure, What, figure_of};
use super::places::{Places, Sure};
use super::queries::{CAPACITY, HITS, INPUT, KV, OUTPUT, QUEUE, Ratio};
use super::text::Lines;

/// Limit of an answer; a server with a hundred adapters writes a tenth of it.
const LONGEST: usize = 8 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scraping {
    /// Ports of the servers, tried in this order.
    pub ports: Vec<u16>,
    pub at_once: usize,
    /// Limit of pods per reconcile.
    pub most: usize,
    /// Time for one pod.
    pub answer: Duration,
    /// Time for all pods.
    pub limit: Duration,
    /// Pause after a scrape in which no pod answered.
    pub rest: SignedDuration,
}

impl Default for Scraping {
    fn default() -> Self {
        Self {
            // vLLM and SGLang.
            ports: vec![8000, 30_000],
            at_once: 16,
            most: 1_000,
            answer: Duration::from_secs(2),
            limit: Duration::from_secs(5),
            rest: SignedDuration::from_mins(1),
        }
    }
}

pub struct Scraper {
    settings: Scraping,
    http: Http,
    /// No scrape before this time.
    resting: Mutex<Option<Timestamp>>,
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

    pub fn new(settings: Scraping) -> Result<Self, String> {
        let reached = HttpSettings {
            connect: Duration::from_secs(1),
            answer: settings.answer,
            plain: true,
            idle: Duration::ZERO,
            ..HttpSettings::default()
        };
        let http = Http::new(reached).map_err(|error| format!("pods cannot be asked for metrics: {error}"))?;
        Ok(Self { settings, http, resting: Mutex::default() })
    }

    /// `pods` with their indices.
    pub async fn ask(&self, places: &Places<'_>, pods: Vec<(usize, &PodPlace)>, now: Timestamp) -> Vec<(What, Figure)> {
        let resting = *self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        if pods.is_empty() || resting.is_some_and(|until| now < until) {
            return Vec::new();
        }
        // A list instead of a closure, for which the compiler cannot prove that its futures are `Send`.
        let mut asked = Vec::new();
        for (number, pod) in pods.into_iter().take(self.settings.most) {
            asked.push(self.pod(places, number, pod));
        }
        let mut answers = stream::iter(asked).buffer_unordered(self.settings.at_once);
        let mut figures = Vec::new();
        let all = async {
            while let Some(one) = answers.next().await {
                figures.extend(one);
            }
        };
        // Answers until then are used.
        let _ = tokio::time::timeout(self.settings.limit, all).await;
        let until = now.checked_add(self.settings.rest).ok().filter(|_| figures.is_empty());
        *self.resting.lock().unwrap_or_else(PoisonError::into_inner) = until;
        figures
    }

    async fn pod(&self, places: &Places<'_>, number: usize, pod: &PodPlace) -> Vec<(What, Figure)> {
        for port in &self.settings.ports {
            let figures = match pod.ip.and_then(|ip| address(ip, *port)) {
                Some(url) => self.read(url).await.figures(places, number),
                None => continue,
            };
            if !figures.is_empty() {
                return figures;
            }
        }
        Vec::new()
    }

    async fn read(&self, url: Uri) -> Told {
        let (mut lines, mut told) = (Lines::default(), Told::default());
        let ask = HttpRequest::get(url, LONGEST);
        let sent = self.http.stream(&ask, |status, piece| {
            if status.is_success() {
                lines.read(piece, |sample| told.hear(sample));
            }
        });
        match sent.await {
            Ok(_) => lines.finish(|sample| told.hear(sample)),
            // A partial answer may lack important values.
            Err(_) => told = Told::default(),
        }
        told
    }
}

fn address(ip: IpAddr, port: u16) -> Option<Uri> {
    format!("http://{}/metrics", SocketAddr::new(ip, port)).parse().ok()
}

/// Metrics of one server.
#[derive(Default)]
struct Told {
    values: Vec<(What, Sample)>,
    /// Dividends and divisors, by metric and model.
    sums: BTreeMap<(String, String), f64>,
}

impl Told {
    fn hear(&mut self, sample: Sample) {
        let metric = sample.labels.metric.as_str();
        let direct = [(What::Kv, KV.as_slice()), (What::Queue, &QUEUE), (What::Capacity, &CAPACITY)];
        if let Some((what, _)) = direct.into_iter().find(|(_, names)| names.contains(&metric)) {
            self.values.push((what, sample));
            return;
        }
        let part = |(above, below): &Ratio| metric == *above || metric == *below;
        if let Some(value) = sample.value.filter(|_| [INPUT.as_slice(), &OUTPUT, &HITS].into_iter().flatten().any(part))
        {
            let key = (metric.to_owned(), sample.labels.model_name);
            *self.sums.entry(key).or_default() += value;
        }
    }

    /// Averages cover the server's lifetime, because a single scrape knows no other period.
    fn figures(self, places: &Places<'_>, pod: usize) -> Vec<(What, Figure)> {
        let mut values = self.values;
        let ratios = [(What::Input, INPUT.as_slice()), (What::Output, &OUTPUT), (What::Hits, &HITS)];
        for (what, names) in ratios {
            for ((metric, model), above) in &self.sums {
                let Some((_, below)) = names.iter().find(|(name, _)| name == metric) else { continue };
                let below = self.sums.get(&((*below).to_owned(), model.clone())).filter(|below| **below > 0.0);
                let labels = Labels { model_name: model.clone(), ..Labels::default() };
                values.push((what, Sample { labels, value: below.map(|below| above / below), at: 0.0 }));
            }
        }
        let own = |what, sample: &Sample| Some((what, figure_of(what, places, pod, Sure::Addressed, sample)?));
        let mut figures = Vec::new();
        for (what, sample) in values {
            let Some(figure) = own(what, &sample) else { continue };
            figures.push(figure);
            if matches!(what, What::Kv | What::Queue) {
                // The value is from now, whatever the age of other samples.
                figures.extend(own(What::Age, &Sample { value: Some(0.0), ..sample }));
            }
        }
        figures
    }
}
