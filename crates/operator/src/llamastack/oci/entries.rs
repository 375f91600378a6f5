//! What is known of each image, for whom, and when to ask again.
//! Comes in: wishes, answers and the time; goes out: what is known, what to ask next, and whom an answer concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use steersman_plan::oci::LabelsSeen;
use tokio::time::Instant;

use super::{NamespacedName, Rhythm, Want};
use crate::llamastack::oci::registry::Labelled;

/// Namespace and image: what one namespace was allowed to read is not shown to another.
type Key = (String, String);

/// The images that objects want; an image that none wants is forgotten, so there are never more than objects.
#[derive(Default)]
pub struct Entries(BTreeMap<Key, Entry>);

struct Entry {
    /// As the last object wanted it.
    want: Want,
    objects: BTreeSet<String>,
    last: Option<Labelled>,
    /// Why there is nothing newer.
    trouble: Option<String>,
    failures: u32,
    /// None: not again.
    due: Option<Instant>,
    reading: bool,
}

/// One question, taken out to be asked.
pub struct Job {
    pub want: Want,
}

/// What is new, and for whom.
pub struct Told {
    pub objects: Vec<NamespacedName>,
    pub trouble: Option<String>,
    pub digest: Option<String>,
}

impl Entries {
    /// What is known for a wish, and whether it has to be asked now.
    pub fn want(&mut self, want: &Want, now: Instant) -> (LabelsSeen, bool) {
        self.release(&want.namespace, &want.name, Some(&want.image));
        let entry = self.0.entry((want.namespace.clone(), want.image.clone())).or_insert_with(|| Entry {
            want: want.clone(),
            objects: BTreeSet::new(),
            last: None,
            trouble: None,
            failures: 0,
            due: Some(now),
            reading: false,
        });
        entry.objects.insert(want.name.clone());
        let named_anew =
            entry.want.service_account != want.service_account || entry.want.pull_secrets != want.pull_secrets;
        entry.want = want.clone();
        if named_anew && entry.trouble.is_some() {
            entry.due = Some(now);
        }
        (entry.seen(), !entry.reading && entry.due.is_some_and(|due| due <= now))
    }

    /// The object wants none of the images of its namespace any more, save one.
    pub fn release(&mut self, namespace: &str, name: &str, save: Option<&str>) {
        self.0.retain(|(place, image), entry| {
            let kept = place != namespace || Some(image.as_str()) == save;
            kept || !entry.objects.remove(name) || !entry.objects.is_empty()
        });
    }

    /// Up to `most` questions that are due, the longest overdue first, and when the next one will be.
    pub fn take_due(&mut self, now: Instant, most: usize) -> (Vec<Job>, Option<Instant>) {
        let mut waiting: Vec<(Instant, &mut Entry)> =
            self.0.values_mut().filter(|entry| !entry.reading).filter_map(|entry| Some((entry.due?, entry))).collect();
        waiting.sort_by_key(|(due, _)| *due);
        let mut jobs = Vec::new();
        let mut next = None;
        for (due, entry) in waiting {
            if due > now || jobs.len() == most {
                next = Some(due);
                break;
            }
            entry.reading = true;
            jobs.push(Job { want: entry.want.clone() });
        }
        (jobs, next)
    }

    /// Nobody will bring the answers to the questions that were taken out: they are due again.
    pub fn interrupted(&mut self, now: Instant) {
        for entry in self.0.values_mut().filter(|entry| entry.reading) {
            (entry.reading, entry.due) = (false, Some(now));
        }
    }

    /// Keeps an answer. None: it says nothing new, or nobody wants it any more.
    pub fn answer(
        &mut self,
        job: &Job,
        answer: Result<Labelled, String>,
        now: Instant,
        rhythm: &Rhythm,
    ) -> Option<Told> {
        let entry = self.0.get_mut(&(job.want.namespace.clone(), job.want.image.clone()))?;
        let before = entry.seen();
        entry.reading = false;
        match answer {
            Ok(labelled) => {
                let pinned = job.want.image.contains('@');
                entry.due = (!pinned).then(|| now + rhythm.moved);
                entry.last = Some(labelled);
                (entry.trouble, entry.failures) = (None, 0);
            }
            Err(trouble) => {
                entry.due = Some(now + retry(entry.failures, rhythm));
                entry.failures = entry.failures.saturating_add(1);
                entry.trouble = Some(trouble);
            }
        }
        // Named anew while the question was under way: what it was asked with no longer counts.
        if entry.trouble.is_some() && entry.want != job.want {
            entry.due = Some(now);
        }
        let place = |name: &String| NamespacedName::new(job.want.namespace.clone(), name);
        (entry.seen() != before).then(|| Told {
            objects: entry.objects.iter().map(place).collect(),
            trouble: entry.trouble.clone(),
            digest: entry.last.as_ref().map(|last| last.digest.clone()),
        })
    }
}

impl Entry {
    fn seen(&self) -> LabelsSeen {
        match (&self.last, &self.trouble) {
            (Some(Labelled { digest, base }), trouble) => {
                LabelsSeen::Found { digest: digest.clone(), base: base.clone(), remark: trouble.clone() }
            }
            (None, Some(trouble)) => LabelsSeen::Silent { remark: trouble.clone() },
            (None, None) => LabelsSeen::Awaited,
        }
    }
}

fn retry(failures: u32, rhythm: &Rhythm) -> Duration {
    rhythm.first_retry.saturating_mul(2_u32.saturating_pow(failures)).min(rhythm.last_retry)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: &str = "quay.io/a/b:1";

    fn want(namespace: &str, name: &str, image: &str) -> Want {
        Want {
            namespace: namespace.into(),
            name: name.into(),
            image: image.into(),
            service_account: String::new(),
            pull_secrets: vec![],
        }
    }

    fn labelled(digest: &str) -> Labelled {
        Labelled { digest: digest.into(), base: Ok(None) }
    }

    fn images(jobs: &[Job]) -> Vec<(&str, &str)> {
        jobs.iter().map(|job| (job.want.namespace.as_str(), job.want.image.as_str())).collect()
    }

    #[test]
    fn any_number_of_objects_makes_one_question_and_hears_of_the_answer() {
        let (mut entries, now) = (Entries::default(), Instant::now());
        assert_eq!(entries.want(&want("ns", "one", IMAGE), now), (LabelsSeen::Awaited, true));
        entries.want(&want("ns", "two", IMAGE), now);
        entries.want(&want("other", "one", IMAGE), now);
        let (jobs, next) = entries.take_due(now, 9);
        assert_eq!((images(&jobs), next), (vec![("ns", IMAGE), ("other", IMAGE)], None));
        assert_eq!(entries.want(&want("ns", "three", IMAGE), now), (LabelsSeen::Awaited, false));
        assert!(entries.take_due(now, 9).0.is_empty());

        let rhythm = Rhythm::default();
        let told = entries.answer(&jobs[0], Ok(labelled("d")), now, &rhythm).unwrap();
        let place = |name: &str| NamespacedName::new("ns", name);
        assert_eq!(told.objects, [place("one"), place("three"), place("two")]);
        let found = LabelsSeen::Found { digest: "d".into(), base: Ok(None), remark: None };
        assert_eq!(entries.want(&want("ns", "one", IMAGE), now), (found, false));
        assert_eq!(entries.want(&want("other", "one", IMAGE), now).0, LabelsSeen::Awaited, "it has not asked yet");
        assert_eq!(entries.take_due(now, 9).1, Some(now + rhythm.moved));
    }

    #[test]
    fn a_digest_is_never_asked_for_again_and_the_same_answer_wakes_nobody() {
        let (mut entries, now, rhythm) = (Entries::default(), Instant::now(), Rhythm::default());
        for image in [IMAGE, "quay.io/a/b@sha256:0"] {
            entries.want(&want("ns", image, image), now);
        }
        let (jobs, _) = entries.take_due(now, 9);
        assert!(jobs.iter().all(|job| entries.answer(job, Ok(labelled("d")), now, &rhythm).is_some()));
        let later = now + rhythm.moved;
        let (jobs, next) = entries.take_due(later, 9);
        assert_eq!((images(&jobs), next), (vec![("ns", IMAGE)], None));
        assert!(entries.answer(&jobs[0], Ok(labelled("d")), later, &rhythm).is_none());
        let (jobs, _) = entries.take_due(later + rhythm.moved, 9);
        let told = entries.answer(&jobs[0], Ok(labelled("e")), later, &rhythm).unwrap();
        assert_eq!(told.digest.as_deref(), Some("e"));
    }

    #[test]
    fn a_failure_keeps_the_last_answer_and_is_retried_ever_more_rarely() {
        let (mut entries, mut now, rhythm) = (Entries::default(), Instant::now(), Rhythm::default());
        entries.want(&want("ns", "one", IMAGE), now);
        let (jobs, _) = entries.take_due(now, 9);
        entries.answer(&jobs[0], Ok(labelled("d")), now, &rhythm);
        now += rhythm.moved;
        for seconds in [5, 10, 20, 40, 80, 160, 300, 300] {
            let (jobs, _) = entries.take_due(now, 9);
            entries.answer(&jobs[0], Err("down".into()), now, &rhythm);
            let found = LabelsSeen::Found { digest: "d".into(), base: Ok(None), remark: Some("down".into()) };
            assert_eq!(entries.want(&want("ns", "one", IMAGE), now), (found, false));
            let (none, next) = entries.take_due(now, 9);
            assert_eq!((none.len(), next), (0, Some(now + Duration::from_secs(seconds))));
            now += Duration::from_secs(seconds);
        }
    }

    #[test]
    fn other_credentials_end_the_wait_after_a_failure() {
        let (mut entries, now, rhythm) = (Entries::default(), Instant::now(), Rhythm::default());
        let plain = want("ns", "one", IMAGE);
        let with_secret = Want { pull_secrets: vec!["pull".into()], ..plain.clone() };
        entries.want(&plain, now);
        let (jobs, _) = entries.take_due(now, 9);
        entries.want(&with_secret, now);
        entries.answer(&jobs[0], Err("401".into()), now, &rhythm);
        let (jobs, _) = entries.take_due(now, 9);
        assert_eq!(jobs[0].want, with_secret, "changed while the question was under way");
        entries.answer(&jobs[0], Err("401".into()), now, &rhythm);
        assert!(entries.take_due(now, 9).0.is_empty());
        assert!(entries.want(&plain, now).1, "changed while waiting");
    }

    #[test]
    fn an_image_that_nobody_wants_is_forgotten_with_its_answer() {
        let (mut entries, now, rhythm) = (Entries::default(), Instant::now(), Rhythm::default());
        entries.want(&want("ns", "one", IMAGE), now);
        entries.want(&want("ns", "two", IMAGE), now);
        let (jobs, _) = entries.take_due(now, 9);
        entries.want(&want("ns", "one", "quay.io/a/b:2"), now);
        assert_eq!(entries.0.len(), 2);
        entries.release("other", "two", None);
        assert_eq!(entries.0.len(), 2);
        entries.release("ns", "two", None);
        assert_eq!(entries.0.len(), 1);
        assert!(entries.answer(&jobs[0], Ok(labelled("d")), now, &rhythm).is_none());
        entries.release("ns", "one", None);
        assert!(entries.0.is_empty());
    }

    #[test]
    fn a_question_that_was_broken_off_is_asked_again() {
        let (mut entries, now) = (Entries::default(), Instant::now());
        entries.want(&want("ns", "one", IMAGE), now);
        assert_eq!(entries.take_due(now, 9).0.len(), 1);
        assert!(entries.take_due(now, 9).0.is_empty());
        entries.interrupted(now);
        assert_eq!(images(&entries.take_due(now, 9).0), [("ns", IMAGE)]);
    }

    #[test]
    fn no_more_is_taken_than_there_is_room_for_and_the_oldest_first() {
        let (mut entries, now) = (Entries::default(), Instant::now());
        for (number, image) in ["c", "a", "b"].into_iter().enumerate() {
            entries.want(&want("ns", image, image), now + Duration::from_secs(number as u64));
        }
        let later = now + Duration::from_secs(9);
        let (jobs, next) = entries.take_due(later, 2);
        assert_eq!(images(&jobs), [("ns", "c"), ("ns", "a")]);
        assert_eq!(next, Some(now + Duration::from_secs(2)));
    }
}
