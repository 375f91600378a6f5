//! Runs all queries for the fleet, and scrapes the pods that Prometheus does not have.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use steersman_plan::variant::ModelSeen;
use steersman_reconcile::NamespacedName;
use tokio::time::Instant;

use super::answer::Sample;
use super::ask::ask;
use super::batches::{batches, periods};
use super::figures::{Figure, Figures, STALE, What, figure};
use super::found::{Counts, Found, Strangers, waiting};
use super::places::Places;
use super::queries::{self, HITS, INPUT, KV, OUTPUT, QUEUE, Within};
use super::scrape::Scraper;
use super::way::{Pass, Way};
use super::{ModelAsked, PodPlace};

/// Time for all queries together.
pub const LIMIT: Duration = Duration::from_secs(30);
const AT_ONCE: usize = 4;

/// Queries about pods. Without the first three, nothing is known about a pod; the others are optional.
const OF_PODS: [What; 7] = [What::Kv, What::Queue, What::Age, What::Capacity, What::Input, What::Output, What::Hits];
const NEEDED: [What; 3] = [What::Kv, What::Queue, What::Age];

pub struct Look<'a> {
    pub models: &'a [ModelAsked],
    pub places: Places<'a>,
    pub now: Timestamp,
    /// The queried period for each requested one.
    periods: BTreeMap<SignedDuration, SignedDuration>,
    namespaces: BTreeSet<&'a str>,
    deadline: Instant,
}

/// The answer to one query.
enum Told {
    Pods(usize, What, Result<Vec<Figure>, String>),
    /// Includes models that no object has.
    LastHeard(Vec<Figure>, Strangers),
    Requests(usize, SignedDuration, Result<Arc<Counts>, String>),
    Waiting(Result<Vec<Sample>, String>),
}

/// All answers about the pods of one batch.
type Answers = Vec<(What, Result<Vec<Figure>, String>)>;

impl<'a> Look<'a> {
    pub fn new(models: &'a [ModelAsked], pods: &'a [impl Borrow<PodPlace>], now: Timestamp) -> Self {
        Self {
            models,
            places: Places::new(models, pods),
            now,
            periods: periods(&models.iter().map(|model| model.retention).collect()),
            namespaces: models.iter().map(|model| model.key.namespace.as_str()).collect(),
            deadline: Instant::now() + LIMIT,
        }
    }

    pub async fn look(
        self,
        way: &Way,
        most_series: u64,
        scraper: Option<&Scraper>,
    ) -> BTreeMap<NamespacedName, ModelSeen> {
        let mut found = match self.prometheus(way, most_series).await {
            Ok(found) => found,
            Err(cause) => self.nothing(&cause),
        };
        if let Some(scraper) = scraper {
            for (what, figure) in scraper.ask(&self.places, self.unheard(&found.figures), self.now).await {
                found.uncounted(&figure, &self.places.pods);
                found.figures.add(what, figure);
            }
        }
        // The rest of the snapshot can be dropped.
        let Self { models, places: Places { pods, .. }, periods, now, .. } = self;
        found.tell(models, &pods, &periods, now)
    }

    async fn prometheus(&self, way: &Way, most_series: u64) -> Result<Found, String> {
        let mut pass = way.pass()?;
        let everywhere = Within::new(self.namespaces.iter().copied(), true);
        // This query is cheap, and the first to fail if Prometheus does not answer.
        let count = queries::count(&everywhere);
        let counted = self.ask(&pass, &count, Some).await?;
        // All further queries are evaluated at the same time, because values of different times would not fit together.
        pass.at = counted.first().map(|sample| sample.at);
        let pass = &pass;
        let series = counted.into_iter().filter_map(|sample| Some((sample.labels.namespace, sample.value? as u64)));
        let batches = batches(&self.namespaces, &series.collect(), most_series);
        let within = |number: usize| Within::new(batches[number].iter().copied(), number == 0);
        let withins: Vec<Within> = (0..batches.len()).map(within).collect();
        // Requests without a namespace may belong to a model of any batch.
        let counted: Vec<Within> = batches.iter().map(|batch| Within::new(batch.iter().copied(), true)).collect();
        let mut found = self.found(&batches, self.queries(pass, &withins, &counted, &everywhere)).await;
        self.listen_for_the_silent(pass, &batches, &withins, &mut found).await;
        Ok(found)
    }

    fn queries<'b>(
        &'b self,
        pass: &'b Pass,
        withins: &[Within],
        counted: &[Within],
        everywhere: &Within,
    ) -> Vec<BoxFuture<'b, Told>> {
        let mut queries: Vec<BoxFuture<'b, Told>> = Vec::new();
        let waiting = queries::waiting(everywhere);
        queries.push(async move { Told::Waiting(self.ask(pass, &waiting, Some).await) }.boxed());
        for (batch, (within, counted)) in withins.iter().zip(counted).enumerate() {
            for what in OF_PODS {
                queries.push(self.of_pods(pass, batch, what, query(what, within)).boxed());
            }
            for period in self.periods.values().copied().collect::<BTreeSet<_>>() {
                let query = queries::requests(period, counted);
                let count = |sample: Sample| Some(((sample.labels.namespace, sample.labels.model_name), sample.value));
                let ask = async move {
                    let counts = self.ask(pass, &query, count).await;
                    Told::Requests(batch, period, counts.map(|counts| Arc::new(counts.into_iter().collect())))
                };
                queries.push(ask.boxed());
            }
        }
        queries
    }

    async fn of_pods(&self, pass: &Pass, batch: usize, what: What, query: String) -> Told {
        Told::Pods(batch, what, self.ask(pass, &query, |sample| figure(what, &self.places, &sample)).await)
    }

    async fn ask<T>(&self, pass: &Pass, query: &str, take: impl FnMut(Sample) -> Option<T>) -> Result<Vec<T>, String> {
        let late = || Err(format!("all queries together took longer than {LIMIT:?}; Prometheus is overloaded"));
        tokio::time::timeout_at(self.deadline, ask(pass, query, take)).await.unwrap_or_else(|_| late())
    }

    async fn all(&self, queries: Vec<BoxFuture<'_, Told>>) -> Vec<Told> {
        stream::iter(queries).buffer_unordered(AT_ONCE).collect().await
    }

    async fn found(&self, batches: &[BTreeSet<&str>], queries: Vec<BoxFuture<'_, Told>>) -> Found {
        let mut found = self.nothing("");
        found.failed.clear();
        let mut open: BTreeMap<usize, Answers> = BTreeMap::new();
        let mut told = stream::iter(queries).buffer_unordered(AT_ONCE);
        while let Some(one) = told.next().await {
            match one {
                Told::Waiting(samples) => found.waiting = samples.map(waiting),
                Told::Requests(batch, period, counts) => {
                    for namespace in &batches[batch] {
                        found.requests.insert((period, (*namespace).to_owned()), counts.clone());
                    }
                }
                Told::Pods(batch, what, answer) => {
                    let answers = open.entry(batch).or_default();
                    answers.push((what, answer));
                    // Complete batches are merged at once, because the answers take more space than the result.
                    if answers.len() == OF_PODS.len() {
                        found.take_in(&batches[batch], open.remove(&batch).unwrap_or_default());
                    }
                }
                Told::LastHeard(..) => {}
            }
        }
        found
    }

    /// Finds out whether a model without metrics had some within the last hour.
    async fn listen_for_the_silent(
        &self,
        pass: &Pass,
        batches: &[BTreeSet<&str>],
        withins: &[Within],
        found: &mut Found,
    ) {
        let (known, _) = found.figures.heard(&self.places.pods, self.now);
        let silent = |(number, model): &(usize, &ModelAsked)| {
            !known.contains(number) && !found.failed.contains_key(&model.key.namespace)
        };
        let silent = self.models.iter().enumerate().filter(silent);
        let silent: BTreeSet<&str> = silent.map(|(_, model)| model.key.namespace.as_str()).collect();
        let populated: BTreeSet<&str> = self.places.pods.iter().map(|pod| &*pod.namespace).collect();
        let silent: BTreeSet<&str> = silent.intersection(&populated).copied().collect();
        let concerned = batches.iter().enumerate().filter(|(_, batch)| !batch.is_disjoint(&silent));
        let queries = concerned.map(|(batch, _)| self.last_heard(pass, queries::last_heard(&withins[batch])).boxed());
        let mut heard = Figures::default();
        for told in self.all(queries.collect()).await {
            if let Told::LastHeard(figures, strangers) = told {
                figures.into_iter().for_each(|figure| heard.add(What::Age, figure));
                for (namespace, names) in strangers {
                    found.strangers.entry(namespace).or_default().extend(names);
                }
            }
        }
        found.last_heard = heard.last_heard(&self.places.pods, self.now);
    }

    /// A failed query counts as no answer.
    async fn last_heard(&self, pass: &Pass, query: String) -> Told {
        let mut strangers = Strangers::new();
        let figures = self.ask(pass, &query, |sample| {
            let fresh = sample.value.is_some_and(|age| age <= STALE.as_secs_f64());
            if let Some((pod, name)) = self.places.stranger(&sample.labels).filter(|_| fresh) {
                strangers.entry(pod.namespace.to_string()).or_default().insert(name.to_owned());
            }
            figure(What::Age, &self.places, &sample)
        });
        Told::LastHeard(figures.await.unwrap_or_default(), strangers)
    }

    /// Ready pods without fresh metrics.
    fn unheard(&self, figures: &Figures) -> Vec<(usize, &'a PodPlace)> {
        let (_, heard) = figures.heard(&self.places.pods, self.now);
        let unheard = |(number, pod): &(usize, &PodPlace)| {
            let asked = self.namespaces.contains(&*pod.namespace);
            asked && pod.ready && pod.ip.is_some() && !heard.contains(number)
        };
        self.places.pods.iter().copied().enumerate().filter(unheard).collect()
    }

    /// The result without any answer.
    fn nothing(&self, cause: &str) -> Found {
        let periods: BTreeSet<SignedDuration> = self.periods.values().copied().collect();
        let each = |namespace: &&str| {
            let namespace = (*namespace).to_owned();
            periods.iter().map(move |period| (*period, namespace.clone())).collect::<Vec<_>>()
        };
        Found {
            figures: Figures::of(self.places.pods.len()),
            failed: self.namespaces.iter().map(|one| ((*one).to_owned(), cause.to_owned())).collect(),
            last_heard: BTreeMap::new(),
            strangers: Strangers::new(),
            uncounted: BTreeMap::new(),
            requests: self.namespaces.iter().flat_map(each).map(|key| (key, Err(cause.to_owned()))).collect(),
            waiting: Err(cause.to_owned()),
        }
    }
}

impl Found {
    /// Merges the answers about one batch. If a required one is missing, none is used.
    fn take_in(&mut self, namespaces: &BTreeSet<&str>, answers: Answers) {
        // Searched in a fixed order, not in the order of arrival, so that the same error gives the same message.
        let failed = |needed: &What| {
            let answer = answers.iter().find(|(what, _)| what == needed);
            answer.and_then(|(_, answer)| answer.as_ref().err().cloned())
        };
        if let Some(cause) = NEEDED.iter().find_map(failed) {
            self.failed.extend(namespaces.iter().map(|namespace| ((*namespace).to_owned(), cause.clone())));
            return;
        }
        for (what, answer) in answers {
            match answer {
                Ok(figures) => figures.into_iter().for_each(|figure| self.figures.add(what, figure)),
                Err(cause) => tracing::debug!(cause, "Prometheus does not tell {what:?} of pods"),
            }
        }
    }
}

fn query(what: What, within: &Within) -> String {
    match what {
        What::Kv => queries::peak(&KV, within),
        What::Queue => queries::peak(&QUEUE, within),
        What::Age => queries::age(within),
        What::Capacity => queries::capacity(within),
        What::Input => queries::ratio(&INPUT, within),
        What::Output => queries::ratio(&OUTPUT, within),
        What::Hits => queries::ratio(&HITS, within),
    }
}
