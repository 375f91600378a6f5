//! Schedules the polls of servers and keeps their last answers.

use std::collections::BTreeMap;

use steersman_plan::llamastack::ObservedServer;
use steersman_plan::llamastack::server::PollTarget;
use steersman_reconcile::NamespacedName;
use tokio::time::Instant;

use super::PollSchedule;
use crate::polling::backoff;

/// One entry per object whose server is polled.
#[derive(Default)]
pub struct Entries(BTreeMap<NamespacedName, ServerEntry>);

struct ServerEntry {
    target: PollTarget,
    observed: ObservedServer,
    failures: u32,
    due: Instant,
    polling: bool,
}

/// A poll in progress.
pub struct Job {
    pub place: NamespacedName,
    pub target: PollTarget,
}

impl Entries {
    /// Returns the last answer, and whether a poll is due now. A new target discards the last answer and the poll in
    /// progress.
    pub fn want(&mut self, place: &NamespacedName, target: PollTarget, now: Instant) -> (ObservedServer, bool) {
        if let Some(known) = self.0.get(place).filter(|known| known.target == target) {
            return (known.observed.clone(), false);
        }
        // A server is never polled twice at the same time.
        let polling = self.0.get(place).is_some_and(|known| known.polling);
        let entry = ServerEntry { target, observed: ObservedServer::Pending, failures: 0, due: now, polling };
        self.0.insert(place.clone(), entry);
        (ObservedServer::Pending, !polling)
    }

    pub fn forget(&mut self, place: &NamespacedName) {
        self.0.remove(place);
    }

    /// Starts the polls that are due, the longest overdue first, within the limits; and returns when the next is due. None:
    /// not before a poll in progress has ended.
    pub fn take_due(&mut self, now: Instant, schedule: &PollSchedule) -> (Vec<Job>, Option<Instant>) {
        let polling =
            |silent: bool| self.0.values().filter(|entry| entry.polling && entry.is_silent() == silent).count();
        let (mut answering, mut silent) = (polling(false), polling(true));
        let mut waiting: Vec<(&NamespacedName, &mut ServerEntry)> =
            self.0.iter_mut().filter(|(_, entry)| !entry.polling).collect();
        waiting.sort_by_key(|(_, entry)| entry.due);
        let (mut jobs, mut next) = (Vec::new(), None);
        for (place, entry) in waiting {
            let room = answering + silent < schedule.max_concurrent.max(1);
            let room = room && (!entry.is_silent() || silent < schedule.max_concurrent_failing.max(1));
            if !room {
                continue;
            }
            if entry.due > now {
                next = Some(entry.due);
                break;
            }
            *(if entry.is_silent() { &mut silent } else { &mut answering }) += 1;
            entry.polling = true;
            jobs.push(Job { place: place.clone(), target: entry.target.clone() });
        }
        (jobs, next)
    }

    /// Makes polls in progress due again, because their results are lost.
    pub fn interrupted(&mut self, now: Instant) {
        for entry in self.0.values_mut().filter(|entry| entry.polling) {
            (entry.polling, entry.due) = (false, now);
        }
    }

    /// Stores an answer. None: it is unchanged, or no longer wanted.
    pub fn answer(
        &mut self,
        job: &Job,
        observed: ObservedServer,
        now: Instant,
        schedule: &PollSchedule,
    ) -> Option<ObservedServer> {
        let entry = self.0.get_mut(&job.place)?;
        entry.polling = false;
        if entry.target != job.target {
            entry.due = now;
            return None;
        }
        let silent = matches!(observed, ObservedServer::Failed(_) | ObservedServer::Unhealthy(_));
        let retry = backoff(schedule.first_retry, entry.failures, schedule.last_retry);
        entry.due = now + if silent { retry } else { schedule.interval };
        entry.failures = if silent { entry.failures.saturating_add(1) } else { 0 };
        let new = entry.observed != observed;
        entry.observed = observed.clone();
        new.then_some(observed)
    }
}

impl ServerEntry {
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

    fn target(generation: i64) -> PollTarget {
        PollTarget { url: "http://x".to_owned(), generation: Some(generation) }
    }

    fn names(jobs: &[Job]) -> Vec<&str> {
        jobs.iter().map(|job| job.place.name.as_str()).collect()
    }

    fn silent(why: &str) -> ObservedServer {
        ObservedServer::Failed(why.to_owned())
    }

    fn answered() -> ObservedServer {
        ObservedServer::Answered { version: None, providers: Some(vec![]) }
    }

    /// Polls the server of one object with this answer.
    fn answer_poll(
        entries: &mut Entries,
        name: &str,
        observed: ObservedServer,
        now: Instant,
    ) -> Option<ObservedServer> {
        let (jobs, _) = entries.take_due(now, &PollSchedule::default());
        let job = jobs.iter().find(|job| job.place.name == name).unwrap();
        entries.answer(job, observed, now, &PollSchedule::default())
    }

    #[test]
    fn unchanged_answer_is_reported_once() {
        let (mut entries, mut now) = (Entries::default(), Instant::now());
        assert_eq!(entries.want(&place("a"), target(1), now), (ObservedServer::Pending, true));
        assert_eq!(entries.want(&place("a"), target(1), now), (ObservedServer::Pending, false));
        assert_eq!(answer_poll(&mut entries, "a", answered(), now), Some(answered()));
        for _ in 0..3 {
            let (jobs, next) = entries.take_due(now, &PollSchedule::default());
            assert_eq!((jobs.len(), next), (0, Some(now + Duration::from_secs(300))));
            now += Duration::from_secs(300);
            assert_eq!(answer_poll(&mut entries, "a", answered(), now), None, "an unchanged answer enqueues nothing");
        }
        assert_eq!(entries.want(&place("a"), target(1), now), (answered(), false));
    }

    #[test]
    fn silent_server_backs_off_and_reports_once() {
        let (mut entries, mut now) = (Entries::default(), Instant::now());
        entries.want(&place("a"), target(1), now);
        let mut reports = 0;
        for seconds in [10, 20, 40, 80, 160, 300, 300] {
            reports += usize::from(answer_poll(&mut entries, "a", silent("down"), now).is_some());
            let (jobs, next) = entries.take_due(now, &PollSchedule::default());
            assert_eq!((jobs.len(), next), (0, Some(now + Duration::from_secs(seconds))));
            now += Duration::from_secs(seconds);
        }
        assert_eq!(reports, 1);
        assert_eq!(answer_poll(&mut entries, "a", answered(), now), Some(answered()));
        now += Duration::from_secs(300);
        assert_eq!(answer_poll(&mut entries, "a", silent("down"), now), Some(silent("down")));
        assert_eq!(
            entries.take_due(now, &PollSchedule::default()).1,
            Some(now + Duration::from_secs(10)),
            "the count starts again"
        );
    }

    #[test]
    fn new_question_voids_answer_in_progress() {
        let (mut entries, now) = (Entries::default(), Instant::now());
        entries.want(&place("a"), target(1), now);
        let (jobs, _) = entries.take_due(now, &PollSchedule::default());
        assert_eq!(entries.want(&place("a"), target(2), now), (ObservedServer::Pending, false));
        assert!(entries.take_due(now, &PollSchedule::default()).0.is_empty(), "never two at the same time");
        assert_eq!(entries.answer(&jobs[0], answered(), now, &PollSchedule::default()), None);
        assert_eq!(entries.want(&place("a"), target(2), now).0, ObservedServer::Pending);
        assert_eq!(answer_poll(&mut entries, "a", answered(), now), Some(answered()));
    }

    #[test]
    fn forgotten_server_is_not_polled() {
        let (mut entries, now) = (Entries::default(), Instant::now());
        entries.want(&place("a"), target(1), now);
        let (jobs, _) = entries.take_due(now, &PollSchedule::default());
        entries.forget(&place("a"));
        assert_eq!(entries.answer(&jobs[0], answered(), now, &PollSchedule::default()), None);
        assert_eq!(entries.take_due(now, &PollSchedule::default()).1, None);
        assert!(entries.0.is_empty());
    }

    #[test]
    fn interrupted_question_is_due_again() {
        let (mut entries, now) = (Entries::default(), Instant::now());
        entries.want(&place("a"), target(1), now);
        assert_eq!(entries.take_due(now, &PollSchedule::default()).0.len(), 1);
        entries.interrupted(now);
        assert_eq!(names(&entries.take_due(now, &PollSchedule::default()).0), ["a"]);
    }

    #[test]
    fn silent_servers_do_not_block_others() {
        let schedule = PollSchedule { max_concurrent: 4, max_concurrent_failing: 2, ..PollSchedule::default() };
        let (mut entries, mut now) = (Entries::default(), Instant::now());
        for name in ["s1", "s2", "s3", "s4", "s5"] {
            entries.want(&place(name), target(1), now);
        }
        for _ in 0..2 {
            let (jobs, _) = entries.take_due(now, &schedule);
            for job in &jobs {
                entries.answer(job, silent("down"), now, &schedule);
            }
        }
        now += Duration::from_secs(60);
        assert_eq!(names(&entries.take_due(now, &schedule).0), ["s1", "s2"], "no more of these at the same time");
        assert_eq!(entries.take_due(now, &schedule).1, None, "until one of them has ended");
        entries.want(&place("a"), target(1), now);
        entries.want(&place("b"), target(1), now + Duration::from_secs(1));
        let (jobs, next) = entries.take_due(now, &schedule);
        assert_eq!((names(&jobs), next), (vec!["a"], Some(now + Duration::from_secs(1))));
        now += Duration::from_secs(1);
        entries.want(&place("c"), target(1), now);
        let (jobs, next) = entries.take_due(now, &schedule);
        assert_eq!((names(&jobs), next), (vec!["b"], None), "the longest overdue first, as far as there is room");
    }
}
