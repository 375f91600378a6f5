//! Simulates all pods of one model and their requests. The result depends neither on the steps in which time passes nor
//! on the machine.

use std::collections::{BTreeMap, VecDeque};

use crate::Millis;
use crate::load::Load;
use crate::queue::Queue;
use crate::server::{ModelServer, QueuedRequest, RequestShape, RunningRequest, ServerCounters, Speed};

#[derive(Clone, Debug)]
enum Event {
    Started { pod: String },
    Finished { pod: String, number: u64 },
}

/// Where a request waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// All pods share one queue, as behind a router that spreads requests evenly: a pod with room takes the oldest
    /// request.
    #[default]
    SharedQueue,
    /// Each ready pod has its own queue, and requests go to the pods in turn. A routed request never moves.
    InTurn,
    /// Each ready pod has its own queue, and a request goes to the pod with the fewest requests.
    FewestRequests,
}

/// Requests that arrive while no pod is ready wait at the endpoint picker.
#[derive(Clone, Debug)]
pub struct Fleet {
    shape: RequestShape,
    load: Load,
    routing: Routing,
    next_pod: usize,
    /// Arrivals in addition to the load, in order.
    extra_arrivals: VecDeque<Millis>,
    now: Millis,
    events: Queue<Event>,
    pods: BTreeMap<String, ModelServer>,
    waiting: VecDeque<QueuedRequest>,
    next_number: u64,
    arrived: u64,
    served: u64,
}

impl Fleet {
    pub fn new(shape: RequestShape, load: Load) -> Self {
        Self {
            shape,
            load,
            routing: Routing::default(),
            next_pod: 0,
            extra_arrivals: VecDeque::new(),
            now: 0,
            events: Queue::default(),
            pods: BTreeMap::new(),
            waiting: VecDeque::new(),
            next_number: 0,
            arrived: 0,
            served: 0,
        }
    }

    #[must_use]
    pub fn with_routing(mut self, routing: Routing) -> Self {
        self.routing = routing;
        self
    }

    /// Adds requests to those of the load. The times are sorted, and none is in the past.
    pub fn add_arrivals(&mut self, arrivals: impl IntoIterator<Item = Millis>) {
        self.extra_arrivals.extend(arrivals);
    }

    pub fn now(&self) -> Millis {
        self.now
    }

    pub fn shape(&self) -> RequestShape {
        self.shape
    }

    pub fn pods(&self) -> &BTreeMap<String, ModelServer> {
        &self.pods
    }

    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    pub fn served(&self) -> u64 {
        self.served
    }

    pub fn running(&self) -> u64 {
        self.pods.values().map(|pod| pod.running() as u64).sum()
    }

    /// Requests that have not been started.
    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64 + self.pods.values().map(|pod| pod.queued() as u64).sum::<u64>()
    }

    /// Share of the waiting requests at one pod; 0 if it is not ready.
    pub fn waiting_at(&self, name: &str) -> u64 {
        if self.routing != Routing::SharedQueue {
            return self.pods.get(name).map_or(0, |pod| pod.queued() as u64);
        }
        let ready = || self.pods.iter().filter(|(_, pod)| pod.ready);
        let (count, all) = (ready().count() as u64, self.waiting());
        let place = ready().position(|(other, _)| other == name).map(|place| place as u64);
        place.map_or(0, |place| all / count + u64::from(place < all % count))
    }

    /// Waiting requests if no pod is ready.
    pub fn waiting_at_picker(&self) -> u64 {
        if self.pods.values().any(|pod| pod.ready) { 0 } else { self.waiting() }
    }

    /// Replaces the load from now on.
    pub fn set_load(&mut self, load: Load) {
        self.load = load;
    }

    /// Creates a starting pod. A pod of this name restarts with the new speed.
    pub fn add(&mut self, name: &str, speed: Speed) {
        self.remove(name);
        let mut pod = ModelServer::new(speed);
        pod.start_ticket = Some(self.events.schedule(self.now + speed.start, Event::Started { pod: name.to_owned() }));
        self.pods.insert(name.to_owned(), pod);
    }

    /// Deletes a pod. Its unfinished requests start again elsewhere.
    pub fn remove(&mut self, name: &str) {
        let Some(pod) = self.pods.remove(name) else { return };
        if let Some(ticket) = pod.start_ticket {
            self.events.cancel(ticket);
        }
        // Unfinished requests return to the queue in the order of their arrival.
        for served in pod.running_requests.values().rev() {
            self.events.cancel(served.ticket);
            self.waiting.push_front(served.request);
        }
        self.waiting.extend(pod.queued_requests);
        self.waiting.make_contiguous().sort_by_key(|request| request.arrived);
        self.start_waiting_requests(self.now);
    }

    /// The pod loses its requests and counters. Whether it exposes metrics does not change.
    pub fn restart(&mut self, name: &str) {
        let Some((speed, hidden)) = self.pods.get(name).map(|pod| (pod.speed, pod.metrics_hidden)) else { return };
        self.add(name, speed);
        self.hide_metrics(name, hidden);
    }

    /// `hidden`: the pod serves requests and exposes no metrics.
    pub fn hide_metrics(&mut self, name: &str, hidden: bool) {
        if let Some(pod) = self.pods.get_mut(name) {
            pod.metrics_hidden = hidden;
        }
    }

    /// Counters of a pod since its start.
    pub fn counters(&self, name: &str) -> ServerCounters {
        self.pods.get(name).map(|pod| pod.counters).unwrap_or_default()
    }

    /// Runs all events up to `time`. A time in the past has no effect.
    pub fn run_until(&mut self, time: Millis) {
        let load = self.load.clone();
        let mut arrivals = load.arrivals(self.now, time).peekable();
        loop {
            let event = self.events.next_at().filter(|at| *at <= time);
            let own = arrivals.peek().copied();
            let extra = self.extra_arrivals.front().copied().filter(|at| *at <= time);
            let arrival = own.into_iter().chain(extra).min();
            let comes_first = match (event, &arrival) {
                (None, None) => break,
                // At the same time, a finished request makes room before a new one arrives.
                (Some(event), Some(arrival)) => *arrival < event,
                (event, _) => event.is_none(),
            };
            if !comes_first {
                self.run_next_event();
                continue;
            }
            let at = if own.is_none() || extra.is_some_and(|extra| Some(extra) < own) {
                self.extra_arrivals.pop_front()
            } else {
                arrivals.next()
            };
            let Some(at) = at else { break };
            self.arrived += 1;
            self.waiting.push_back(QueuedRequest { arrived: at });
            self.start_waiting_requests(at);
        }
        self.now = self.now.max(time);
    }

    fn run_next_event(&mut self) {
        let Some((at, event)) = self.events.pop() else { return };
        match event {
            Event::Started { pod } => {
                if let Some(pod) = self.pods.get_mut(&pod) {
                    (pod.ready, pod.start_ticket) = (true, None);
                }
            }
            Event::Finished { pod, number } => {
                if let Some(pod) = self.pods.get_mut(&pod) {
                    pod.finish(number, self.shape, at);
                    self.served += 1;
                }
                if self.routing != Routing::SharedQueue {
                    self.start_queued_requests(&pod, at);
                }
            }
        }
        self.start_waiting_requests(at);
    }

    /// Routes all requests that wait at the endpoint picker, if a pod is ready.
    fn route_waiting_requests(&mut self, at: Millis) {
        while !self.waiting.is_empty() {
            let ready: Vec<&String> = self.pods.iter().filter(|(_, pod)| pod.ready).map(|(name, _)| name).collect();
            let requests = |name: &&&String| self.pods.get(**name).map(|pod| pod.running() + pod.queued());
            let chosen = match self.routing {
                Routing::FewestRequests => ready.iter().min_by_key(requests),
                Routing::SharedQueue | Routing::InTurn => ready.get(self.next_pod % ready.len().max(1)),
            };
            let Some(name) = chosen.map(|name| (*name).clone()) else { return };
            self.next_pod = self.next_pod.wrapping_add(1);
            let (Some(request), Some(pod)) = (self.waiting.pop_front(), self.pods.get_mut(&name)) else { return };
            pod.queued_requests.push_back(request);
            self.start_queued_requests(&name, at);
        }
    }

    fn start_queued_requests(&mut self, name: &str, at: Millis) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        while pod.has_room(self.shape) {
            let Some(request) = pod.queued_requests.pop_front() else { return };
            let number = self.next_number;
            self.next_number += 1;
            let ends = at + pod.speed.prefill_time(self.shape) + pod.speed.decode_time(self.shape);
            let ticket = self.events.schedule(ends, Event::Finished { pod: name.to_owned(), number });
            pod.running_requests.insert(number, RunningRequest { request, began: at, ticket });
        }
    }

    /// Assigns the oldest requests to the pods with the fewest, as long as there is room.
    fn start_waiting_requests(&mut self, at: Millis) {
        if self.routing != Routing::SharedQueue {
            self.route_waiting_requests(at);
            return;
        }
        while !self.waiting.is_empty() {
            let free = self.pods.iter_mut().filter(|(_, pod)| pod.has_room(self.shape));
            let Some((name, pod)) = free.min_by_key(|(_, pod)| pod.running()) else { return };
            let Some(request) = self.waiting.pop_front() else { return };
            let number = self.next_number;
            self.next_number += 1;
            let ends = at + pod.speed.prefill_time(self.shape) + pod.speed.decode_time(self.shape);
            let ticket = self.events.schedule(ends, Event::Finished { pod: name.clone(), number });
            pod.running_requests.insert(number, RunningRequest { request, began: at, ticket });
        }
    }
}
