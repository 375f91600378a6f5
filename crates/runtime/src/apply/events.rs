//! Publishes events on the user's object. The name of an event follows from its text and the time window, so that a repeated
//! event raises a count even after a restart, and an event with another text is never lost.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event as KubeEvent, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use steersman_reconcile::Event;

use super::owner::Owner;
use crate::client::{CallError, Server};

/// Within this time the same text raises the count of its event.
const WINDOW: Duration = Duration::from_secs(600);
/// Most events of one object, and of all objects of one namespace, in a [`WINDOW`]. Each change of an object by its users may cause
/// one, and events take space in etcd for an hour.
const MAX_OBJECT_EVENTS: u32 = 100;
const MAX_NAMESPACE_EVENTS: u32 = 5_000;
/// The API server rejects a longer `note`.
const MAX_NOTE_BYTES: usize = 1024;
/// An event's name is a DNS subdomain of at most 253 characters; its hash takes 17.
const MAX_NAME_CHARS: usize = 253 - 17;

/// Writes events. One for each controller.
pub struct Recorder {
    server: Server,
    controller: String,
    instance: String,
    /// The events of this time window, with their counts.
    published: Mutex<PublishedEvents>,
}

#[derive(Default)]
struct PublishedEvents {
    window: i64,
    counts: HashMap<String, i32>,
    /// Written events by UID of their object.
    by_object: HashMap<String, u32>,
    by_namespace: HashMap<String, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Admitted,
    /// The first event beyond a limit.
    FirstRefused,
    Refused,
}

impl PublishedEvents {
    /// Counts an event that is about to be written, unless there were too many.
    fn admit(&mut self, owner: &Owner) -> Admission {
        let of_object = self.by_object.entry(owner.uid.clone()).or_default();
        let in_namespace = self.by_namespace.entry(owner.namespace.clone()).or_default();
        let first = *of_object == MAX_OBJECT_EVENTS || *in_namespace == MAX_NAMESPACE_EVENTS;
        let has_room = *of_object < MAX_OBJECT_EVENTS && *in_namespace < MAX_NAMESPACE_EVENTS;
        if has_room || first {
            *of_object += 1;
            *in_namespace += 1;
        }
        match (has_room, first) {
            (true, _) => Admission::Admitted,
            (false, true) => Admission::FirstRefused,
            (false, false) => Admission::Refused,
        }
    }
}

impl Recorder {
    /// `controller` as in `steersman/llsd`; `instance` is the pod's name.
    pub fn new(server: Server, controller: impl Into<String>, instance: impl Into<String>) -> Self {
        Self { server, controller: controller.into(), instance: instance.into(), published: Mutex::default() }
    }

    /// Publishes an event on the owner. One that cannot be written is logged: no reconcile fails for it. Beyond the limits of the
    /// time window, events are dropped.
    pub async fn publish(&self, owner: &Owner, event: &Event) -> bool {
        let now = Timestamp::now();
        let admission = self.published(window(now)).admit(owner);
        if admission == Admission::FirstRefused {
            let object = owner.id();
            tracing::warn!(%object, "too many events: no more are written for some minutes; see the object's conditions");
        }
        if admission != Admission::Admitted {
            return false;
        }
        let written = self.write(owner, event, now).await;
        if let Err(error) = &written {
            let (object, reason, message) = (owner.id(), event.reason, &event.message);
            tracing::warn!(%error, %object, reason, message, "cannot write an event");
        }
        written.is_ok()
    }

    async fn write(&self, owner: &Owner, event: &Event, now: Timestamp) -> Result<(), CallError> {
        let events: Api<KubeEvent> = Api::namespaced(self.server.client.clone(), &owner.namespace);
        let window = window(now);
        let name = name(owner, event, window);
        let known = self.published(window).counts.get(&name).copied();
        let count = match known {
            Some(count) => self.raise(&events, &name, count, now).await?,
            None => None,
        };
        let count = match count {
            Some(count) => count,
            None => self.create(&events, self.event(owner, event, &name, now), now).await?,
        };
        self.published(window).counts.insert(name, count);
        Ok(())
    }

    /// The new count. The event may exist already: this process may have published it before a restart.
    async fn create(&self, events: &Api<KubeEvent>, event: KubeEvent, now: Timestamp) -> Result<i32, CallError> {
        match self.server.call(events.create(&PostParams::default(), &event)).await {
            Ok(_) => Ok(1),
            Err(CallError::Answered { code: 409, .. }) => {
                let name = event.metadata.name.unwrap_or_default();
                let there = self.server.call(events.get(&name)).await?;
                let count = there.series.map_or(1, |series| series.count);
                Ok(self.raise(events, &name, count, now).await?.unwrap_or(1))
            }
            Err(error) => Err(error),
        }
    }

    /// The new count; `None` if the event has expired meanwhile.
    async fn raise(
        &self,
        events: &Api<KubeEvent>,
        name: &str,
        count: i32,
        now: Timestamp,
    ) -> Result<Option<i32>, CallError> {
        let count = count.saturating_add(1);
        let series = EventSeries { count, last_observed_time: MicroTime(now) };
        let patch = Patch::Merge(json!({ "series": series }));
        match self.server.call(events.patch(name, &PatchParams::default(), &patch)).await {
            Ok(_) => Ok(Some(count)),
            Err(CallError::Answered { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn event(&self, owner: &Owner, event: &Event, name: &str, now: Timestamp) -> KubeEvent {
        KubeEvent {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(owner.namespace.clone()),
                ..ObjectMeta::default()
            },
            type_: Some(event.type_.as_str().to_owned()),
            reason: Some(event.reason.to_owned()),
            action: Some("Reconcile".to_owned()),
            note: Some(bounded(&event.message)),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            regarding: Some(ObjectReference {
                api_version: Some(owner.kind.api_version()),
                kind: Some(owner.kind.kind.clone()),
                namespace: Some(owner.namespace.clone()),
                name: Some(owner.name.clone()),
                uid: Some(owner.uid.clone()),
                ..ObjectReference::default()
            }),
            ..KubeEvent::default()
        }
    }

    /// The counts of this window. Those of earlier ones are forgotten.
    fn published(&self, window: i64) -> MutexGuard<'_, PublishedEvents> {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        if published.window != window {
            *published = PublishedEvents { window, ..PublishedEvents::default() };
        }
        published
    }
}

fn window(now: Timestamp) -> i64 {
    now.as_second() / WINDOW.as_secs() as i64
}

fn name(owner: &Owner, event: &Event, window: i64) -> String {
    let mut hasher = DefaultHasher::new();
    (&owner.uid, event.type_.as_str(), event.reason, &event.message, window).hash(&mut hasher);
    let start: String = owner.name.chars().take(MAX_NAME_CHARS).collect();
    format!("{}.{:016x}", start.trim_end_matches(['.', '-']), hasher.finish())
}

/// The start of a long note, cut between characters.
fn bounded(note: &str) -> String {
    const MORE: &str = "…";
    if note.len() <= MAX_NOTE_BYTES {
        return note.to_owned();
    }
    let end = note.floor_char_boundary(MAX_NOTE_BYTES - MORE.len());
    format!("{}{MORE}", &note[..end])
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;

    use super::*;

    fn owner(name: &str) -> Owner {
        Owner {
            kind: GroupVersionKind::gvk("llamastack.io", "v1alpha1", "LlamaStackDistribution"),
            namespace: "team-a".into(),
            name: name.into(),
            uid: "uid-1".into(),
            legacy: None,
        }
    }

    fn note(message: &str) -> Event {
        Event::warning("ImageUnknown", message)
    }

    #[test]
    fn event_name_depends_on_note_and_time() {
        let first = name(&owner("starter"), &note("no image a"), 1);
        assert!(first.starts_with("starter."), "{first}");
        assert_eq!(first, name(&owner("starter"), &note("no image a"), 1));
        assert_ne!(first, name(&owner("starter"), &note("no image b"), 1), "a changed note is never lost");
        assert_ne!(first, name(&owner("starter"), &note("no image a"), 2));
        assert!(name(&owner(&"x".repeat(253)), &note("a"), 1).len() <= 253);
    }

    #[test]
    fn events_of_one_object_and_namespace_are_limited() {
        let mut published = PublishedEvents::default();
        let of = |namespace: &str, uid: usize| Owner {
            namespace: namespace.into(),
            uid: format!("{namespace}-{uid}"),
            ..owner("starter")
        };
        let mut admitted = |owner: &Owner, tries: usize| {
            let results: Vec<Admission> = (0..tries).map(|_| published.admit(owner)).collect();
            let count = |wanted: Admission| results.iter().filter(|result| **result == wanted).count();
            (count(Admission::Admitted), count(Admission::FirstRefused))
        };
        assert_eq!(admitted(&of("attacker", 0), 1_000), (100, 1));
        assert_eq!(admitted(&of("attacker", 1), 10), (10, 0), "another object of the namespace");
        let more: usize = (2..200).map(|number| admitted(&of("attacker", number), 60).0).sum();
        assert!((4_800..5_000).contains(&more), "{more}");
        assert_eq!(admitted(&of("victim", 0), 10), (10, 0));
        assert!(published.by_object.len() < 300);
    }

    #[test]
    fn long_note_is_cut_between_characters() {
        assert_eq!(bounded("short"), "short");
        for letter in ["a", "ä", "€", "🦀"] {
            let cut = bounded(&letter.repeat(2000));
            assert!(
                cut.len() <= MAX_NOTE_BYTES && cut.len() > MAX_NOTE_BYTES - 8 && cut.ends_with('…'),
                "{}",
                cut.len()
            );
        }
        assert_eq!(bounded(&"a".repeat(MAX_NOTE_BYTES)).len(), MAX_NOTE_BYTES);
    }
}
