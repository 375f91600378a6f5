//! Orders the reconciles of a controller. Namespaces take turns, so that the objects of one namespace, however many and however
//! often they change, do not delay those of another.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::Stream;
use steersman_reconcile::NamespacedName;
use tokio::sync::Notify;

/// Objects that are passed on and whose reconcile has not ended. It is larger than the number of concurrent reconciles,
/// because objects are debounced first.
const MAX_STARTED: usize = 64;

/// Receives the numbers of waiting and of started objects.
type OnChange = Box<dyn Fn(usize, usize) + Send + Sync>;

pub struct FairQueue {
    entries: Mutex<Entries>,
    changed: Notify,
    on_change: OnChange,
}

#[derive(Default)]
struct Entries {
    /// Waiting objects by namespace, in the order of their arrival.
    waiting: BTreeMap<String, VecDeque<NamespacedName>>,
    /// The same objects, each of which waits once.
    known: HashSet<NamespacedName>,
    /// Namespaces with waiting objects, in the order of their turns.
    turns: VecDeque<String>,
    started: HashSet<NamespacedName>,
}

impl Drop for FairQueue {
    fn drop(&mut self) {
        (self.on_change)(0, 0);
    }
}

impl FairQueue {
    /// `on_change` gets the numbers of waiting and of started objects after each change, and zeros at the end.
    pub fn new(on_change: impl Fn(usize, usize) + Send + Sync + 'static) -> Self {
        Self { entries: Mutex::default(), changed: Notify::new(), on_change: Box::new(on_change) }
    }

    pub fn push(&self, object: NamespacedName) {
        self.change(|entries| entries.push(object));
        self.changed.notify_one();
    }

    /// The reconcile of the object has ended, or the object does not exist.
    pub fn end(&self, object: &NamespacedName) {
        self.change(|entries| entries.started.remove(object));
        self.changed.notify_one();
    }

    /// The objects in the order of their turns. There is one receiver.
    pub fn stream(self: Arc<Self>) -> impl Stream<Item = NamespacedName> + Send {
        futures::stream::unfold(self, async |queue| {
            loop {
                let next = queue.change(Entries::next);
                if let Some(object) = next {
                    return Some((object, queue));
                }
                queue.changed.notified().await;
            }
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Entries) -> T) -> T {
        let mut entries = self.entries();
        let result = change(&mut entries);
        (self.on_change)(entries.known.len(), entries.started.len());
        result
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn push(&mut self, object: NamespacedName) {
        if !self.known.insert(object.clone()) {
            return;
        }
        let waiting = self.waiting.entry(object.namespace.clone()).or_default();
        if waiting.is_empty() {
            self.turns.push_back(object.namespace.clone());
        }
        waiting.push_back(object);
    }

    fn next(&mut self) -> Option<NamespacedName> {
        if self.started.len() >= MAX_STARTED {
            return None;
        }
        let namespace = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&namespace)?;
        let object = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        self.known.remove(&object);
        self.started.insert(object.clone());
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};

    use super::*;

    fn object(namespace: &str, name: impl ToString) -> NamespacedName {
        NamespacedName::new(namespace, name.to_string())
    }

    #[tokio::test]
    async fn namespaces_take_turns() {
        let queue = Arc::new(FairQueue::new(|_, _| {}));
        let mut stream = Box::pin(queue.clone().stream());
        for number in 0..10_000 {
            queue.push(object("attacker", number));
        }
        let started: Vec<NamespacedName> =
            std::iter::from_fn(|| stream.next().now_or_never().flatten()).take(MAX_STARTED * 2).collect();
        assert_eq!(started.len(), MAX_STARTED, "no more than these are passed on");
        queue.push(object("victim", "a"));
        queue.push(object("victim", "b"));
        let mut next = Vec::new();
        for ended in &started[..4] {
            queue.end(ended);
            next.extend(stream.next().now_or_never().flatten());
        }
        let namespaces: Vec<&str> = next.iter().map(|object| object.namespace.as_str()).collect();
        assert_eq!(namespaces, ["attacker", "victim", "attacker", "victim"]);
    }

    #[tokio::test]
    async fn object_waits_once_and_again_after_its_start() {
        let queue = Arc::new(FairQueue::new(|_, _| {}));
        let mut stream = Box::pin(queue.clone().stream());
        let mut next = || stream.next().now_or_never().flatten();
        let one = object("a", "one");
        queue.push(one.clone());
        queue.push(one.clone());
        assert_eq!((next(), next()), (Some(one.clone()), None));
        queue.push(one.clone());
        assert_eq!(next(), Some(one.clone()), "a change during the reconcile causes another one");
        queue.end(&one);
        let entries = queue.entries();
        assert!(entries.waiting.is_empty() && entries.known.is_empty() && entries.turns.is_empty());
        assert!(entries.started.is_empty());
    }

    #[tokio::test]
    async fn numbers_follow_the_objects_of_the_queue() {
        let numbers = Arc::new(Mutex::new((0, 0)));
        let written = numbers.clone();
        let queue = Arc::new(FairQueue::new(move |waiting, started| *written.lock().unwrap() = (waiting, started)));
        let now = || *numbers.lock().unwrap();
        queue.push(object("a", "one"));
        queue.push(object("b", "two"));
        assert_eq!(now(), (2, 0));
        let mut stream = Box::pin(queue.clone().stream());
        let first = stream.next().await.unwrap();
        assert_eq!(now(), (1, 1));
        queue.end(&first);
        assert_eq!(now(), (1, 0));
        drop((stream, queue));
        assert_eq!(now(), (0, 0), "a controller that does not run has no queue");
    }

    #[tokio::test]
    async fn ended_reconcile_wakes_the_receiver() {
        let queue = Arc::new(FairQueue::new(|_, _| {}));
        (0..=MAX_STARTED).for_each(|number| queue.push(object("a", number)));
        let received = queue.clone().stream().take(MAX_STARTED + 1).count();
        let received = tokio::spawn(received);
        tokio::task::yield_now().await;
        queue.end(&object("a", 0));
        assert_eq!(received.await.unwrap(), MAX_STARTED + 1);
    }
}
