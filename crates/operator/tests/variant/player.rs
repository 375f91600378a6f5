//! Whoever serves a model, as Prometheus sees it.
//! Comes in: the pods that run on the cluster, and the load; goes out: their metrics, as a simulated fleet of just these
//! pods has them at this moment, scraped with the labels that real scrapes carry.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use steersman_sim::expose;
use steersman_sim::fleet::Fleet;
use steersman_sim::load::{Load, Rate};
use steersman_sim::server::{RequestShape, Speed};
use steersman_testkit::play::is_serving;
use steersman_testkit::{Pods, wait};
use tokio::task::JoinHandle;

use crate::scene::{MODEL_LABEL, Scene};
use crate::world::Meter;

/// Nearly all of a request's tokens are there from its beginning, so that the cache is as full as requests are many.
const SHAPE: RequestShape = RequestShape { input: 190, output: 10, cached: 0 };

/// A request takes two seconds. Of 40 that fit, each takes 0.024 of the cache.
const SPEED: Speed = Speed { start: 0, prefill: 19_000, decode: 5, sequences: 40, blocks: 500, block_size: 16 };

/// Requests that are being served at the same time, by all pods, once a load has lasted for two seconds.
fn load(requests: u32) -> Load {
    // Each takes 2.01 s.
    Load::Constant(Rate(requests * 100_000 / 201))
}

/// A part of every name.
const ALL: &str = "";

const OFTEN: Duration = Duration::from_millis(250);

/// The pods of one model. Dropping it ends them.
pub struct Player {
    stage: Arc<Mutex<Stage>>,
    task: JoinHandle<()>,
}

impl Drop for Player {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Stage {
    fleet: Fleet,
    /// What pods say instead of what is so, by a part of their names.
    words: BTreeMap<String, String>,
    /// Pods that say nothing, by a part of their names.
    silent: BTreeSet<String>,
}

impl Player {
    /// Nobody asks anything of them, and they say so.
    pub async fn idle(scene: &Scene, model: &str) -> Self {
        let player = Self::quiet(scene, model).await;
        player.silence(ALL, false);
        player
    }

    /// They say nothing before they `begin`.
    pub async fn quiet(scene: &Scene, model: &str) -> Self {
        Self::scraped_by(scene, model, &scene.world.meter).await
    }

    pub async fn scraped_by(scene: &Scene, model: &str, meter: &Meter) -> Self {
        let fleet = Fleet::new(SHAPE, load(0));
        let stage = Stage { fleet, words: BTreeMap::new(), silent: [ALL.to_owned()].into() };
        let stage = Arc::new(Mutex::new(stage));
        let part = Part {
            stage: stage.clone(),
            pods: scene.namespace.all(),
            namespace: scene.name().to_owned(),
            model: model.to_owned(),
            scraped: Pods::start().await.unwrap(),
            meter: meter.clone(),
        };
        Self { stage, task: tokio::spawn(part.play()) }
    }

    /// Once there are so many pods, so many requests are served at the same time. Only then do the pods speak: before the
    /// load is up they are idle, and whoever reads that may take one away.
    pub async fn begin(&self, pods: usize, requests: u32) -> Vec<String> {
        let pods = self.until_pods(pods).await;
        self.serve(requests);
        let what = format!("{requests} requests are served at the same time");
        // The next one comes as the oldest is done.
        let up = async || (self.stage().fleet.running() + 1 >= u64::from(requests)).then_some(());
        wait::eventually(&what, up).await.unwrap();
        self.silence(ALL, false);
        pods
    }

    /// From now on so many requests are served at the same time, by all pods together.
    pub fn serve(&self, requests: u32) {
        self.stage().fleet.set_load(load(requests));
    }

    /// The pods of this workload say this, whatever is so.
    pub fn say(&self, target: &str, words: Option<&str>) {
        let mut stage = self.stage();
        match words {
            Some(words) => drop(stage.words.insert(target.to_owned(), words.to_owned())),
            None => drop(stage.words.remove(target)),
        }
    }

    /// The pods whose names have this part serve, and say nothing of it.
    pub fn silence(&self, part: &str, silent: bool) {
        let mut stage = self.stage();
        stage.silent.retain(|known| known != part);
        stage.silent.extend(silent.then(|| part.to_owned()));
    }

    /// The server inside a pod begins anew: what it had counted is lost.
    pub fn restart(&self, pod: &str) {
        self.stage().fleet.restart(pod);
    }

    pub fn counted(&self, pod: &str) -> u64 {
        self.stage().fleet.counters(pod).requests
    }

    /// The pods that serve.
    pub fn pods(&self) -> Vec<String> {
        self.stage().fleet.pods().keys().cloned().collect()
    }

    pub async fn until_pods(&self, count: usize) -> Vec<String> {
        let what = format!("{count} pods serve");
        wait::eventually(&what, async || Some(self.pods()).filter(|pods| pods.len() == count)).await.unwrap()
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the task of a player works with.
struct Part {
    stage: Arc<Mutex<Stage>>,
    pods: Api<Pod>,
    namespace: String,
    model: String,
    scraped: Pods,
    meter: Meter,
}

impl Part {
    async fn play(self) {
        let began = Instant::now();
        let serves = format!("{MODEL_LABEL}={}", self.model);
        loop {
            if let Ok(listed) = self.pods.list(&ListParams::default().labels(&serves)).await {
                let ready: BTreeSet<String> =
                    listed.items.iter().filter(|pod| is_serving(pod)).map(|pod| pod.name_any()).collect();
                self.follow(&ready).await;
            }
            self.speak(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
            tokio::time::sleep(OFTEN).await;
        }
    }

    /// Who is new is scraped from now on, who has gone is no longer.
    async fn follow(&self, ready: &BTreeSet<String>) {
        let known: BTreeSet<String> = self.lock().fleet.pods().keys().cloned().collect();
        let meter = self.meter.lock().await;
        let place = |name: &str| format!("{}.{name}", self.namespace);
        for name in ready.difference(&known) {
            self.lock().fleet.add(name, SPEED);
            let labels = Pods::labels(&self.namespace, name);
            meter.scrape(&place(name), &self.scraped.address().to_string(), &labels).unwrap();
        }
        for name in known.difference(ready) {
            self.lock().fleet.remove(name);
            self.scraped.silence(&self.namespace, name);
            meter.forget(&place(name)).unwrap();
        }
    }

    fn speak(&self, now: u64) {
        let mut stage = self.lock();
        stage.fleet.run_until(now);
        for name in stage.fleet.pods().keys() {
            let words = stage.words.iter().find(|(target, _)| name.starts_with(&format!("{target}-")));
            let words = words.map(|(_, words)| words.clone()).or_else(|| expose::pod(&stage.fleet, name, &self.model));
            match words.filter(|_| !stage.silent.iter().any(|part| name.contains(part))) {
                Some(words) => self.scraped.say(&self.namespace, name, words),
                None => self.scraped.silence(&self.namespace, name),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
