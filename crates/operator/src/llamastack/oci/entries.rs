//! Schedules the reads of images and keeps their last labels.

use std::collections::{BTreeMap, BTreeSet};

use steersman_plan::oci::ObservedLabels;
use tokio::time::Instant;

use super::{ImageRequest, NamespacedName, ReadSchedule};
use crate::llamastack::oci::registry::ImageLabels;
use crate::polling::backoff;

/// Namespace and image: labels that one namespace may read are not shown to another.
type Key = (String, String);

/// Images that objects want. An image that no object wants is removed, so that there are never more entries than objects.
#[derive(Default)]
pub struct Entries {
    images: BTreeMap<Key, ImageEntry>,
    /// Number of the last read of each namespace. A new namespace starts at the end of the queue, so that recreated objects
    /// do not get ahead of others.
    turns: BTreeMap<String, u64>,
    reads: u64,
    /// Namespaces with a read in progress, even of an image that no object wants any more.
    busy: BTreeSet<String>,
}

struct ImageEntry {
    /// The want of the object that asked last.
    want: ImageRequest,
    objects: BTreeSet<String>,
    last: Option<ImageLabels>,
    /// Error of the last read.
    failure: Option<String>,
    failures: u32,
    /// Time of the next read. None: never.
    due: Option<Instant>,
    reading: bool,
}

/// A changed result, and the objects to requeue.
pub struct Changed {
    pub objects: Vec<NamespacedName>,
    pub failure: Option<String>,
    pub digest: Option<String>,
}

impl Entries {
    /// Returns the last result for a want, and whether a read is due now.
    pub fn want(&mut self, want: &ImageRequest, now: Instant) -> (ObservedLabels, bool) {
        self.release(&want.namespace, &want.name, Some(&want.image));
        self.turns.entry(want.namespace.clone()).or_insert(self.reads);
        let entry = self.images.entry((want.namespace.clone(), want.image.clone())).or_insert_with(|| ImageEntry {
            want: want.clone(),
            objects: BTreeSet::new(),
            last: None,
            failure: None,
            failures: 0,
            due: Some(now),
            reading: false,
        });
        entry.objects.insert(want.name.clone());
        let other_credentials = !entry.want.has_credentials_of(want);
        entry.want = want.clone();
        if other_credentials && entry.failure.is_some() {
            entry.due = Some(now);
        }
        (entry.observed(), !entry.reading && entry.due.is_some_and(|due| due <= now))
    }

    /// Removes the object from the images of its namespace, except `save`.
    pub fn release(&mut self, namespace: &str, name: &str, save: Option<&str>) {
        self.images.retain(|(place, image), entry| {
            let kept = place != namespace || Some(image.as_str()) == save;
            kept || !entry.objects.remove(name) || !entry.objects.is_empty()
        });
        // `save` names the image that the caller adds next.
        if save.is_none() && !self.images.keys().any(|(place, _)| place == namespace) {
            self.turns.remove(namespace);
        }
    }

    /// Starts up to `most` reads that are due, and returns when the next is due. A namespace has one read at a time, its
    /// longest overdue image, and namespaces take turns: a slow registry delays the images of its own namespace alone.
    pub fn take_due(&mut self, now: Instant, most: usize) -> (Vec<ImageRequest>, Option<Instant>) {
        let mut first_due: BTreeMap<&str, (Instant, &Key)> = BTreeMap::new();
        for (key, entry) in self.images.iter().filter(|((namespace, _), _)| !self.busy.contains(namespace)) {
            let Some(due) = entry.due else { continue };
            let first = first_due.entry(&key.0).or_insert((due, key));
            *first = (*first).min((due, key));
        }
        let (mut waiting, later): (Vec<_>, Vec<_>) = first_due.into_values().partition(|(due, _)| *due <= now);
        waiting.sort_by_key(|(due, (namespace, _))| (self.turns.get(namespace).copied().unwrap_or_default(), *due));
        // The end of a read makes the next image of its namespace due, so that busy namespaces do not count here.
        let untaken = waiting.iter().skip(most).chain(&later).map(|(due, _)| *due).min();
        let taken: Vec<Key> = waiting.into_iter().take(most).map(|(_, key)| key.clone()).collect();
        let mut jobs = Vec::new();
        for key in taken {
            let Some(entry) = self.images.get_mut(&key) else { continue };
            entry.reading = true;
            jobs.push(entry.want.clone());
            self.reads += 1;
            self.turns.insert(key.0.clone(), self.reads);
            self.busy.insert(key.0);
        }
        (jobs, untaken)
    }

    /// Makes reads in progress due again, because their results are lost.
    pub fn interrupted(&mut self, now: Instant) {
        self.busy.clear();
        for entry in self.images.values_mut().filter(|entry| entry.reading) {
            (entry.reading, entry.due) = (false, Some(now));
        }
    }

    /// Stores the result of a read. None: it is unchanged, or no longer wanted.
    pub fn answer(
        &mut self,
        want: &ImageRequest,
        answer: Result<ImageLabels, String>,
        now: Instant,
        schedule: &ReadSchedule,
    ) -> Option<Changed> {
        self.busy.remove(&want.namespace);
        let entry = self.images.get_mut(&(want.namespace.clone(), want.image.clone()))?;
        let before = entry.observed();
        entry.reading = false;
        match answer {
            Ok(labelled) => {
                let pinned = want.image.contains('@');
                entry.due = (!pinned).then(|| now + schedule.tag_interval);
                entry.last = Some(labelled);
                (entry.failure, entry.failures) = (None, 0);
            }
            Err(failure) => {
                entry.due = Some(now + backoff(schedule.first_retry, entry.failures, schedule.last_retry));
                entry.failures = entry.failures.saturating_add(1);
                entry.failure = Some(failure);
            }
        }
        // A failure with credentials that changed during the read does not count.
        if entry.failure.is_some() && !entry.want.has_credentials_of(want) {
            entry.due = Some(now);
        }
        let place = |name: &String| NamespacedName::new(want.namespace.clone(), name);
        (entry.observed() != before).then(|| Changed {
            objects: entry.objects.iter().map(place).collect(),
            failure: entry.failure.clone(),
            digest: entry.last.as_ref().map(|last| last.digest.clone()),
        })
    }
}

impl ImageEntry {
    fn observed(&self) -> ObservedLabels {
        match (&self.last, &self.failure) {
            (Some(ImageLabels { digest, base }), failure) => {
                ObservedLabels::Found { digest: digest.clone(), base: base.clone(), remark: failure.clone() }
            }
            (None, Some(failure)) => ObservedLabels::Unavailable { remark: failure.clone() },
            (None, None) => ObservedLabels::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const IMAGE: &str = "quay.io/a/b:1";

    fn want(namespace: &str, name: &str, image: &str) -> ImageRequest {
        ImageRequest {
            namespace: namespace.into(),
            name: name.into(),
            image: image.into(),
            service_account: String::new(),
            pull_secrets: vec![],
        }
    }

    fn labelled(digest: &str) -> ImageLabels {
        ImageLabels { digest: digest.into(), base: Ok(None) }
    }

    fn images(jobs: &[ImageRequest]) -> Vec<(&str, &str)> {
        jobs.iter().map(|job| (job.namespace.as_str(), job.image.as_str())).collect()
    }

    #[test]
    fn objects_with_one_image_share_a_read() {
        let (mut entries, now) = (Entries::default(), Instant::now());
        assert_eq!(entries.want(&want("ns", "one", IMAGE), now), (ObservedLabels::Pending, true));
        entries.want(&want("ns", "two", IMAGE), now);
        entries.want(&want("other", "one", IMAGE), now);
        let (jobs, next) = entries.take_due(now, 9);
        assert_eq!((images(&jobs), next), (vec![("ns", IMAGE), ("other", IMAGE)], None));
        assert_eq!(entries.want(&want("ns", "three", IMAGE), now), (ObservedLabels::Pending, false));
        assert!(entries.take_due(now, 9).0.is_empty());

        let schedule = ReadSchedule::default();
        let changed = entries.answer(&jobs[0], Ok(labelled("d")), now, &schedule).unwrap();
        let place = |name: &str| NamespacedName::new("ns", name);
        assert_eq!(changed.objects, [place("one"), place("three"), place("two")]);
        let found = ObservedLabels::Found { digest: "d".into(), base: Ok(None), remark: None };
        assert_eq!(entries.want(&want("ns", "one", IMAGE), now), (found, false));
        assert_eq!(
            entries.want(&want("other", "one", IMAGE), now).0,
            ObservedLabels::Pending,
            "its own read is pending"
        );
        assert_eq!(entries.take_due(now, 9).1, Some(now + schedule.tag_interval));
    }

    #[test]
    fn digest_is_read_once_and_unchanged_result_ignored() {
        let (mut entries, now, schedule) = (Entries::default(), Instant::now(), ReadSchedule::default());
        for (namespace, image) in [("ns", IMAGE), ("pinned", "quay.io/a/b@sha256:0")] {
            entries.want(&want(namespace, "one", image), now);
        }
        let (jobs, _) = entries.take_due(now, 9);
        assert!(jobs.iter().all(|job| entries.answer(job, Ok(labelled("d")), now, &schedule).is_some()));
        let later = now + schedule.tag_interval;
        let (jobs, next) = entries.take_due(later, 9);
        assert_eq!((images(&jobs), next), (vec![("ns", IMAGE)], None));
        assert!(entries.answer(&jobs[0], Ok(labelled("d")), later, &schedule).is_none());
        let (jobs, _) = entries.take_due(later + schedule.tag_interval, 9);
        let changed = entries.answer(&jobs[0], Ok(labelled("e")), later, &schedule).unwrap();
        assert_eq!(changed.digest.as_deref(), Some("e"));
    }

    #[test]
    fn failure_keeps_last_result_and_backs_off() {
        let (mut entries, mut now, schedule) = (Entries::default(), Instant::now(), ReadSchedule::default());
        entries.want(&want("ns", "one", IMAGE), now);
        let (jobs, _) = entries.take_due(now, 9);
        entries.answer(&jobs[0], Ok(labelled("d")), now, &schedule);
        now += schedule.tag_interval;
        for seconds in [5, 10, 20, 40, 80, 160, 300, 300] {
            let (jobs, _) = entries.take_due(now, 9);
            entries.answer(&jobs[0], Err("down".into()), now, &schedule);
            let found = ObservedLabels::Found { digest: "d".into(), base: Ok(None), remark: Some("down".into()) };
            assert_eq!(entries.want(&want("ns", "one", IMAGE), now), (found, false));
            let (none, next) = entries.take_due(now, 9);
            assert_eq!((none.len(), next), (0, Some(now + Duration::from_secs(seconds))));
            now += Duration::from_secs(seconds);
        }
    }

    #[test]
    fn changed_credentials_end_the_backoff() {
        let (mut entries, now, schedule) = (Entries::default(), Instant::now(), ReadSchedule::default());
        let plain = want("ns", "one", IMAGE);
        let with_secret = ImageRequest { pull_secrets: vec!["pull".into()], ..plain.clone() };
        entries.want(&plain, now);
        let (jobs, _) = entries.take_due(now, 9);
        entries.want(&with_secret, now);
        entries.answer(&jobs[0], Err("401".into()), now, &schedule);
        let (jobs, _) = entries.take_due(now, 9);
        assert_eq!(jobs[0], with_secret, "changed while the question was under way");
        entries.answer(&jobs[0], Err("401".into()), now, &schedule);
        assert!(entries.take_due(now, 9).0.is_empty());
        assert!(entries.want(&plain, now).1, "changed while waiting");
    }

    #[test]
    fn another_object_does_not_end_the_backoff() {
        let (mut entries, now, schedule) = (Entries::default(), Instant::now(), ReadSchedule::default());
        entries.want(&want("ns", "one", IMAGE), now);
        let (jobs, _) = entries.take_due(now, 9);
        entries.want(&want("ns", "two", IMAGE), now);
        entries.answer(&jobs[0], Err("down".into()), now, &schedule);
        assert_eq!(entries.take_due(now, 9).1, Some(now + schedule.first_retry));
    }

    #[test]
    fn unwanted_image_is_removed() {
        let (mut entries, now, schedule) = (Entries::default(), Instant::now(), ReadSchedule::default());
        entries.want(&want("ns", "one", IMAGE), now);
        entries.want(&want("ns", "two", IMAGE), now);
        let (jobs, _) = entries.take_due(now, 9);
        entries.want(&want("ns", "one", "quay.io/a/b:2"), now);
        assert_eq!(entries.images.len(), 2);
        entries.release("other", "two", None);
        assert_eq!(entries.images.len(), 2);
        entries.release("ns", "two", None);
        assert_eq!(entries.images.len(), 1);
        assert!(entries.answer(&jobs[0], Ok(labelled("d")), now, &schedule).is_none());
        entries.release("ns", "one", None);
        assert!(entries.images.is_empty());
    }

    #[test]
    fn interrupted_question_is_due_again() {
        let (mut entries, now) = (Entries::default(), Instant::now());
        entries.want(&want("ns", "one", IMAGE), now);
        assert_eq!(entries.take_due(now, 9).0.len(), 1);
        assert!(entries.take_due(now, 9).0.is_empty());
        entries.interrupted(now);
        assert_eq!(images(&entries.take_due(now, 9).0), [("ns", IMAGE)]);
    }

    #[test]
    fn oldest_due_reads_start_within_limit() {
        let (mut entries, now) = (Entries::default(), Instant::now());
        for (number, namespace) in ["c", "a", "b"].into_iter().enumerate() {
            entries.want(&want(namespace, "one", IMAGE), now + Duration::from_secs(number as u64));
        }
        let later = now + Duration::from_secs(9);
        let (jobs, next) = entries.take_due(later, 2);
        assert_eq!(images(&jobs), [("c", IMAGE), ("a", IMAGE)]);
        assert_eq!(next, Some(now + Duration::from_secs(2)));
    }

    #[test]
    fn namespace_with_many_images_has_one_read() {
        let (mut entries, now, schedule) = (Entries::default(), Instant::now(), ReadSchedule::default());
        for number in 0..100 {
            entries.want(&want("greedy", &format!("{number:02}"), &format!("slow.test/{number:02}:1")), now);
        }
        let (jobs, next) = entries.take_due(now, 4);
        assert_eq!((images(&jobs), next), (vec![("greedy", "slow.test/00:1")], None), "the end of the read is awaited");
        entries.want(&want("other", "one", IMAGE), now + Duration::from_secs(1));
        let later = now + Duration::from_secs(2);
        let (others, _) = entries.take_due(later, 3);
        assert_eq!(images(&others), [("other", IMAGE)], "it does not wait for the images before it");

        // With a single free read, namespaces take turns, even if the images of one were due first.
        entries.want(&want("other", "two", "quay.io/a/b:2"), later);
        entries.answer(&jobs[0], Err("slow".into()), later, &schedule);
        entries.answer(&others[0], Ok(labelled("d")), later, &schedule);
        let (jobs, _) = entries.take_due(later, 1);
        assert_eq!(images(&jobs), [("greedy", "slow.test/01:1")]);
        entries.answer(&jobs[0], Err("slow".into()), later, &schedule);
        assert_eq!(images(&entries.take_due(later, 1).0), [("other", "quay.io/a/b:2")]);
    }

    #[test]
    fn recreated_objects_wait_for_their_turn() {
        let (mut entries, now, schedule) = (Entries::default(), Instant::now(), ReadSchedule::default());
        entries.want(&want("patient", "one", IMAGE), now + Duration::from_secs(1));
        for round in 0..3 {
            entries.want(&want("greedy", "one", IMAGE), now);
            let (jobs, _) = entries.take_due(now, 1);
            assert_eq!(images(&jobs), [("greedy", IMAGE)], "round {round}: the other image is not due yet");
            entries.release("greedy", "one", None);
            assert!(!entries.turns.contains_key("greedy"));
            entries.want(&want("greedy", "one", IMAGE), now);
            assert!(entries.take_due(now, 1).0.is_empty(), "the read of the deleted object is in progress");
            entries.release("greedy", "one", None);
            entries.answer(&jobs[0], Err("slow".into()), now, &schedule);
        }
        entries.want(&want("greedy", "one", IMAGE), now);
        let (jobs, _) = entries.take_due(now + Duration::from_secs(1), 1);
        assert_eq!(images(&jobs), [("patient", IMAGE)]);
    }
}
