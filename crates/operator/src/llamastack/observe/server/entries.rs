//! Schedules the polls of servers and keeps their last answers.

use std::collections::BTreeMap;

use steersman_plan::llamastack::ObservedServer;
use steersman_plan::llamastack::server::Question;
use steersman_reconcile::NamespacedName;
use tokio::time::Instant;

use super::Rhythm;
use crate::polling::backoff;

/// One entry per object whose server is polled.
#[derive(Default)]
pub struct Entries(BTreeMap<NamespacedName, Entry>);

struct Entry {
    question: Question,
    seen: ObservedServer,
    failures: u32,
    due: Instant,
    asking: bool,
}

/// A poll in progress.
pub struct Job {
    pub place: NamespacedName,
    pub question: Question,
}

impl Entries {
    /// Returns the last answer, and whether a poll is due now. A new question discards the last answer and the poll in
    /// progress.
    pub fn want(&mut self, place: &NamespacedName, question: Question, now: Instant) -> (ObservedServer, bool) {
        if let Some(known) = self.0.get(place).filter(|known| known.question == question) {
            return (known.seen.clone(), false);
        }
        // A server is never polled twice at the same time.
        let asking = self.0.get(place).is_some_and(|known| known.asking);
        let entry = Entry { question, seen: ObservedServer::Awaited, failures: 0, due: now, asking };
        self.0.insert(place.clone(), entry);
        (ObservedServer::Awaited, !asking)
    }

    pub fn forget(&mut self, place: &NamespacedName) {
        self.0.remove(place);
    }

    /// Starts the polls that are due, the longest overdue first, within the limits; and returns when the next is due. None:
    /// not before a poll in progress has ended.
    pub fn take_due(&mut self, now: Instant, rhythm: &Rhythm) -> (Vec<Job>, Option<Instant>) {
        let asking = |silent: bool| self.0.values().filter(|entry| entry.asking && entry.is_silent() == silent).count();
        let (mut answering, mut silent) = (asking(false), asking(true));
        let mut waiting: Vec<(&NamespacedName, &mut Entry)> =
            self.0.iter_mut().filter(|(_, entry)| !entry.asking).collect();
        waiting.sort_by_key(|(_, entry)| entry.due);
        let (mut jobs, mut next) = (Vec::new(), None);
        for (place, entry) in waiting {
            let room = answering + silent < rhythm.at_once.max(1);
            let room = room && (!entry.is_silent() || silent < rhythm.silent_at_once.max(1));
            if !room {
                continue;
            }
            if entry.due > now {
                next = Some(entry.due);
                break;
            }
            *(if entry.is_silent() { &mut silent } else { &mut answering }) += 1;
            entry.asking = true;
            jobs.push(Job { place: place.clone(), question: entry.question.clone() });
        }
        (jobs, next)
    }

    /// Makes polls in progress due again, because their results are lost.
    pub fn interrupted(&mut self, now: Instant) {
        for entry in self.0.values_mut().filter(|entry| entry.asking) {
            (entry.asking, entry.due) = (false, now);
        }
    }

    /// Stores an answer. None: it is unchanged, or no longer wanted.
    pub fn answer(&mut self, job: &Job, said: ObservedServer, now: Instant, rhythm: &Rhythm) -> Option<ObservedServer> {
        let entry = self.0.get_mut(&job.place)?;
        entry.asking = false;
        if entry.question != job.question {
            entry.due = now;
            return None;
        }
        let silent = matches!(said, ObservedServer::Silent(_));
        let retry = backoff(rhythm.first_retry, entry.failures, rhythm.last_retry);
        entry.due = now + if silent { retry } else { rhythm.again };
        entry.failures = if silent { entry.failures.saturating_add(1) } else { 0 };
        let new = entry.seen != said;
        entry.seen = said.clone();
        new.then_some(said)
    }
}

impl Entry {
    fn is_silent(&self) -> bool {
        self.failures > 0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn place(name: &str) -> NamespacedName {
        NamespacedName::new("ns", name)
    }

    fn question(generation: i64) -> Question {
        Question { url: "http://x".to_owned(), generation: Some(generation) }
    }

    fn names(jobs: &[Job]) -> Vec<&str> {
        jobs.iter().map(|job| job.place.name.as_str()).collect()
    }

    fn silent(why: &str) -> ObservedServer {
        ObservedServer::Silent(why.to_owned())
    }

    fn answered() -> ObservedServer {
        ObservedServer::Answered { version: None, providers: Some(vec![]) }
    }

    /// Polls the server of one object with this answer.
    fn told(entries: &mut Entries, name: &str, said: ObservedServer, now: Instant) -> Option<ObservedServer> {
        let (jobs, _) = entries.take_due(now, &Rhythm::default());
        let job = jobs.iter().find(|job| job.place.name == name).unwrap();
        entries.answer(job, said, now, &Rhythm::default())
    }

    #[test]
    fn unchanged_answer_is_reported_once() {
        let (mut entries, mut now) = (Entries::default(), Instant::now());
        assert_eq!(entries.want(&place("a"), question(1), now), (ObservedServer::Awaited, true));
        assert_eq!(entries.want(&place("a"), question(1), now), (ObservedServer::Awaited, false));
        assert_eq!(told(&mut entries, "a", answered(), now), Some(answered()));
        for _ in 0..3 {
            let (jobs, next) = entries.take_due(now, &Rhythm::default());
            assert_eq!((jobs.len(), next), (0, Some(now + Duration::from_secs(300))));
            now += Duration::from_secs(300);
            assert_eq!(told(&mut entries, "a", answered(), now), None, "the same wakes nobody");
        }
        assert_eq!(entries.want(&place("a"), question(1), now), (answered(), false));
    }

    #[test]
    fn silent_server_backs_off_and_reports_once() {
        let (mut entries, mut now) = (Entries::default(), Instant::now());
        entries.want(&place("a"), question(1), now);
        let mut news = 0;
        for seconds in [10, 20, 40, 80, 160, 300, 300] {
            news += usize::from(told(&mut entries, "a", silent("down"), now).is_some());
            let (jobs, next) = entries.take_due(now, &Rhythm::default());
            assert_eq!((jobs.len(), next), (0, Some(now + Duration::from_secs(seconds))));
            now += Duration::from_secs(seconds);
        }
        assert_eq!(news, 1);
        assert_eq!(told(&mut entries, "a", answered(), now), Some(answered()));
        now += Duration::from_secs(300);
        assert_eq!(told(&mut entries, "a", silent("down"), now), Some(silent("down")));
        assert_eq!(entries.take_due(now, &Rhythm::default()).1, Some(now + Duration::from_secs(10)), "counted anew");
    }

    #[test]
    fn new_question_voids_answer_in_progress() {
        let (mut entries, now) = (Entries::default(), Instant::now());
        entries.want(&place("a"), question(1), now);
        let (jobs, _) = entries.take_due(now, &Rhythm::default());
        assert_eq!(entries.want(&place("a"), question(2), now), (ObservedServer::Awaited, false));
        assert!(entries.take_due(now, &Rhythm::default()).0.is_empty(), "never two at the same time");
        assert_eq!(entries.answer(&jobs[0], answered(), now, &Rhythm::default()), None);
        assert_eq!(entries.want(&place("a"), question(2), now).0, ObservedServer::Awaited);
        assert_eq!(told(&mut entries, "a", answered(), now), Some(answered()));
    }

    #[test]
    fn forgotten_server_is_not_polled() {
        let (mut entries, now) = (Entries::default(), Instant::now());
        entries.want(&place("a"), question(1), now);
        let (jobs, _) = entries.take_due(now, &Rhythm::default());
        entries.forget(&place("a"));
        assert_eq!(entries.answer(&jobs[0], answered(), now, &Rhythm::default()), None);
        assert_eq!(entries.take_due(now, &Rhythm::default()).1, None);
        assert!(entries.0.is_empty());
    }

    #[test]
    fn interrupted_question_is_due_again() {
        let (mut entries, now) = (Entries::default(), Instant::now());
        entries.want(&place("a"), question(1), now);
        assert_eq!(entries.take_due(now, &Rhythm::default()).0.len(), 1);
        entries.interrupted(now);
        assert_eq!(names(&entries.take_due(now, &Rhythm::default()).0), ["a"]);
    }

    #[test]
    fn silent_servers_do_not_block_others() {
        let rhythm = Rhythm { at_once: 4, silent_at_once: 2, ..Rhythm::default() };
        let (mut entries, mut now) = (Entries::default(), Instant::now());
        for name in ["s1", "s2", "s3", "s4", "s5"] {
            entries.want(&place(name), question(1), now);
        }
        for _ in 0..2 {
            let (jobs, _) = entries.take_due(now, &rhythm);
            for job in &jobs {
                entries.answer(job, silent("down"), now, &rhythm);
            }
        }
        now += Duration::from_secs(60);
        assert_eq!(names(&entries.take_due(now, &rhythm).0), ["s1", "s2"], "no more of these at the same time");
        assert_eq!(entries.take_due(now, &rhythm).1, None, "until one of them has ended");
        entries.want(&place("a"), question(1), now);
        entries.want(&place("b"), question(1), now + Duration::from_secs(1));
        let (jobs, next) = entries.take_due(now, &rhythm);
        assert_eq!((names(&jobs), next), (vec!["a"], Some(now + Duration::from_secs(1))));
        now += Duration::from_secs(1);
        entries.want(&place("c"), question(1), now);
        let (jobs, next) = entries.take_due(now, &rhythm);
        assert_eq!((names(&jobs), next), (vec!["b"], None), "the longest overdue first, as far as there is room");
    }
}
