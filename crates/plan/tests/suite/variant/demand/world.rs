//! Closed loop: simulated fleet, scraped metrics, `plan`, and a scale target that follows at once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use steersman_plan::variant::analyze::engine_args::Container;
use steersman_plan::variant::config::Config;
use steersman_plan::variant::{
    Decision, FleetSnapshot, MetricsError, ObservedTarget, PodMetrics, ReadyPod, SchedulerQueue, TargetName, plan,
    status,
};
use steersman_reconcile::Lookup;
use steersman_sim::Millis;
use steersman_sim::fleet::{Fleet, Routing};
use steersman_sim::load::{Load, Rate};
use steersman_sim::server::{RequestShape, Speed};

use super::super::{a_fleet, a_variant, spec, target, the_model};

pub const SECOND: Millis = 1_000;
pub const MINUTE: Millis = 60 * SECOND;
const SCRAPE: Millis = 15 * SECOND;
/// Scrapes are not at the time of a reconcile.
const SCRAPE_OFFSET: Millis = 3 * SECOND;
const NEVER: Millis = 1_000_000 * MINUTE;

#[derive(Clone, Copy, Debug)]
pub struct Server {
    pub name: &'static str,
    pub shape: RequestShape,
    pub speed: Speed,
    /// Requests per second.
    pub capacity: f64,
}

/// Bound by sequences or by the KV cache; requests of 5 s or of 95 s.
pub fn servers() -> [Server; 4] {
    let short = RequestShape { input: 100, output: 90, cached: 0 };
    let long = RequestShape { input: 1_000, output: 1_900, cached: 0 };
    let speed = Speed { start: 0, prefill: 500, decode: 50, sequences: 0, blocks: 1_000_000, block_size: 16 };
    let sequences = |sequences: u32| Speed { sequences, ..speed };
    let cache = |tokens: u32| Speed { blocks: tokens.div_ceil(16), sequences: 256, ..speed };
    [
        Server { name: "seq-short", shape: short, speed: sequences(4), capacity: 2.0 },
        Server { name: "seq-long", shape: long, speed: sequences(10), capacity: 0.25 },
        Server { name: "kv-short", shape: short, speed: cache(4 * 190), capacity: 2.0 },
        Server { name: "kv-long", shape: long, speed: cache(10 * 2_900), capacity: 0.25 },
    ]
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Millis,
    completed: u64,
    waiting: u64,
    running: u64,
    kv: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub at: Millis,
    pub from: i32,
    pub to: i32,
}

pub struct World {
    pub fleet: Fleet,
    pub server: Server,
    interval: Millis,
    start: Millis,
    pub snapshot: FleetSnapshot,
    pub current: i32,
    pub changes: Vec<Change>,
    /// Times at which the status changed.
    pub writes: Vec<Millis>,
    pub most_waiting: u64,
    pub all_hidden: bool,
    /// The engine arguments are visible.
    pub limit_known: bool,
    /// The scale target follows decisions.
    pub follows: bool,
    /// Decided numbers, without repetitions.
    pub numbers: Vec<i32>,
    /// Each reconcile is printed.
    pub verbose: bool,
    pub never_ready: Option<usize>,
    pub last: Option<Decision>,
    samples: BTreeMap<String, VecDeque<Sample>>,
    /// By name of the living pods.
    created: BTreeMap<String, Millis>,
    ready_since: BTreeMap<String, Millis>,
    next_pod: usize,
}

pub fn rate(server: &Server, replicas: f64) -> Load {
    Load::Constant(Rate((server.capacity * replicas * 1000.0).round() as u32))
}

fn stamp(at: Millis) -> Timestamp {
    Timestamp::from_millisecond(1_700_000_000_000 + at as i64).unwrap()
}

impl World {
    pub fn new(server: Server, interval: Millis, start: Millis, routing: Routing) -> Self {
        let mut variant = a_variant("v", "10", 1);
        variant.status = None;
        variant.created = stamp(0);
        spec(&mut variant).min_replicas = 1;
        let mut snapshot = a_fleet(vec![variant], 0.0, 0.0);
        snapshot.config = Config::default();
        let mut world = Self {
            fleet: Fleet::new(server.shape, Load::Constant(Rate(0))).with_routing(routing),
            server,
            interval,
            start,
            snapshot,
            current: 0,
            changes: vec![],
            writes: vec![],
            most_waiting: 0,
            all_hidden: false,
            limit_known: true,
            follows: true,
            numbers: vec![],
            verbose: false,
            never_ready: None,
            last: None,
            samples: BTreeMap::new(),
            created: BTreeMap::new(),
            ready_since: BTreeMap::new(),
            next_pod: 0,
        };
        world.start_replicas(1);
        world
    }

    /// Replicas that are ready at once.
    pub fn start_replicas(&mut self, replicas: i32) {
        let start = std::mem::replace(&mut self.start, 0);
        self.scale_to(replicas);
        self.start = start;
    }

    pub fn load(&mut self, replicas: f64, minutes: u64) {
        self.fleet.set_load(rate(&self.server, replicas));
        self.run_for(minutes * MINUTE);
    }

    fn scale_to(&mut self, replicas: i32) {
        while (self.created.len() as i32) < replicas {
            let name = format!("pod-{:04}", self.next_pod);
            let start = if self.never_ready == Some(self.next_pod) { NEVER } else { self.start };
            self.next_pod += 1;
            self.fleet.add(&name, Speed { start, ..self.server.speed });
            self.created.insert(name, self.fleet.now());
        }
        while (self.created.len() as i32) > replicas {
            // Pods that are not ready go first, then the newest.
            let unready = self.created.keys().rev().find(|name| !self.fleet.pods()[*name].ready).cloned();
            let name = unready.unwrap_or_else(|| self.created.keys().next_back().unwrap().clone());
            self.created.remove(&name);
            self.ready_since.remove(&name);
            self.samples.remove(&name);
            self.fleet.remove(&name);
        }
        self.current = replicas;
    }

    pub fn run_for(&mut self, time: Millis) {
        let end = self.fleet.now() + time;
        while self.fleet.now() < end {
            let now = self.fleet.now();
            let scrape = (now + SCRAPE - SCRAPE_OFFSET) / SCRAPE * SCRAPE + SCRAPE_OFFSET;
            let reconcile = (now / self.interval + 1) * self.interval;
            let next = scrape.min(reconcile).min(end);
            self.fleet.run_until(next);
            self.most_waiting = self.most_waiting.max(self.fleet.waiting());
            for (name, pod) in self.fleet.pods() {
                if pod.ready {
                    self.ready_since.entry(name.clone()).or_insert(next);
                }
            }
            if next == scrape {
                self.scrape();
            }
            if next == reconcile {
                self.reconcile();
            }
        }
    }

    fn scrape(&mut self) {
        let at = self.fleet.now();
        for (name, pod) in self.fleet.pods().iter().filter(|(_, pod)| pod.ready && !pod.metrics_hidden) {
            let sample = Sample {
                at,
                completed: pod.counters.requests,
                waiting: self.fleet.waiting_at(name),
                running: pod.running() as u64,
                kv: pod.kv_tokens(self.fleet.shape(), at) as f64 / pod.speed.capacity() as f64,
            };
            let samples = self.samples.entry(name.clone()).or_default();
            samples.push_back(sample);
            while samples.front().is_some_and(|first| first.at + 2 * MINUTE < at) {
                samples.pop_front();
            }
        }
    }

    /// Completed requests per second in the last minute, extrapolated to its borders.
    fn completion_rate(&self, name: &str) -> Option<f64> {
        let now = self.fleet.now();
        let inside: Vec<&Sample> = self.samples.get(name)?.iter().filter(|sample| sample.at + MINUTE > now).collect();
        let (first, last) = (inside.first()?, inside.last()?);
        let sampled = (last.at - first.at) as f64;
        (sampled > 0.0).then(|| (last.completed - first.completed) as f64 / sampled * 1000.0)
    }

    fn pod_metrics(&self, name: &str, target: &Arc<TargetName>) -> Option<PodMetrics> {
        let now = self.fleet.now();
        let pod = self.fleet.pods().get(name).filter(|pod| pod.ready && !pod.metrics_hidden)?;
        let last = self.samples.get(name)?.back().filter(|last| last.at + 20 * SECOND >= now)?;
        Some(PodMetrics {
            name: name.into(),
            target: target.clone(),
            ready: true,
            kv: Some(last.kv),
            queue: Some(last.waiting as f64),
            total_kv: Some(pod.speed.capacity() as i64),
            output: (last.completed > 0).then_some(f64::from(self.fleet.shape().output)),
            waiting: Some(last.waiting as f64),
            running: Some(last.running as f64),
            completed: Some(last.completed as f64),
            completed_per_second: self.completion_rate(name),
            ..PodMetrics::default()
        })
    }

    /// The snapshot of this moment.
    pub fn observe(&mut self) -> FleetSnapshot {
        let now = self.fleet.now();
        let mut snapshot = self.snapshot.clone();
        snapshot.now = stamp(now);
        let name = Arc::new(TargetName::from(snapshot.variants[0].spec.scale_target_ref.as_ref().unwrap()));
        let ready: Vec<&String> = self.fleet.pods().iter().filter(|(_, pod)| pod.ready).map(|(name, _)| name).collect();
        let limit = format!("--max-num-seqs={}", self.server.speed.sequences);
        let container =
            Container { command: vec!["vllm".into(), "serve".into(), "m".into(), limit], ..Container::default() };
        let count = i32::try_from(ready.len()).unwrap();
        *target(&mut snapshot, 0) = ObservedTarget {
            replicas: Some(self.current),
            status_replicas: Some(self.current),
            ready: count,
            ready_pods: count,
            pods: ready
                .iter()
                .map(|name| ReadyPod {
                    name: name.as_str().into(),
                    since: self.ready_since.get(*name).map(|at| stamp(*at)),
                })
                .collect(),
            gpus: 1,
            containers: self.limit_known.then_some(container).into_iter().collect(),
            ..ObservedTarget::default()
        };
        let pods: Vec<PodMetrics> = ready.iter().filter_map(|pod| self.pod_metrics(pod, &name)).collect();
        let model = the_model(&mut snapshot);
        model.pods = if self.all_hidden || pods.is_empty() { Err(MetricsError::NotFound) } else { Ok(pods) };
        let requests = self.fleet.waiting_at_picker() as f64;
        model.queue = Lookup::Known(Some(SchedulerQueue { requests, bytes: 0.0 }));
        snapshot
    }

    fn reconcile(&mut self) {
        let mut snapshot = self.observe();
        let planned = plan(&snapshot);
        let decision = planned.decisions.values().next().unwrap().clone();
        let variant = &mut snapshot.variants[0];
        let status = Some(Arc::new(status(variant, &decision, true, snapshot.now)));
        if status != variant.status {
            self.writes.push(self.fleet.now());
            variant.status = status;
        }
        snapshot.memory = planned.memory;
        self.snapshot = snapshot;
        let replicas = decision.replicas.unwrap();
        if self.verbose {
            println!("{:>6}s {} {} {}", self.fleet.now() / SECOND, self.current, self.fleet.waiting(), decision.trace);
        }
        if self.numbers.last() != Some(&replicas) {
            self.numbers.push(replicas);
        }
        if replicas != self.current && self.follows {
            self.changes.push(Change { at: self.fleet.now(), from: self.current, to: replicas });
            self.scale_to(replicas);
        }
        self.last = Some(decision);
    }
}

pub fn text(changes: &[Change]) -> String {
    changes.iter().map(|one| format!("{}s:{}→{} ", one.at / SECOND, one.from, one.to)).collect()
}
