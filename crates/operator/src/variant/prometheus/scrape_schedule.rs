//! Chooses the pods of a scrape. Namespaces take turns, and pods that use up the time of a scrape delay the next ones only
//! once a minute, however many of them a namespace has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::FleetPod;
use crate::variant::turns::by_turns;

/// Namespace and name.
type PodKey = (Arc<str>, Arc<str>);

fn key(pod: &FleetPod) -> PodKey {
    (pod.namespace.clone(), pod.name.clone())
}

/// Result of the scrape of one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodResult {
    Answered,
    /// It failed at once, for example because no server listens.
    Failed,
    /// It took too long or sent too much.
    Excessive,
}

#[derive(Default)]
pub struct ScrapeSchedule {
    /// No scrape before this time.
    paused_until: Option<Timestamp>,
    /// Pods that answered the last scrape.
    answered: BTreeSet<PodKey>,
    /// Namespaces with an excessive pod. Until this time, only pods that answered the last scrape are scraped there.
    excessive_until: BTreeMap<Arc<str>, Timestamp>,
    /// Pods that answered this scrape.
    answering: BTreeSet<PodKey>,
    /// Pods that are excessive in this scrape, or in progress.
    unfinished: BTreeSet<PodKey>,
}

impl ScrapeSchedule {
    /// The pods to scrape now, with their indices: the first of each namespace, then the second of each, and so on.
    pub fn begin<'a>(
        &mut self,
        pods: Vec<(usize, &'a FleetPod)>,
        now: Timestamp,
        max_pods: usize,
    ) -> Vec<(usize, &'a FleetPod)> {
        if self.paused_until.is_some_and(|until| now < until) {
            return Vec::new();
        }
        self.excessive_until.retain(|_, until| now < *until);
        let is_tried = |(_, pod): &(usize, &FleetPod)| {
            !self.excessive_until.contains_key(&pod.namespace) || self.answered.contains(&key(pod))
        };
        let tried = pods.into_iter().filter(is_tried);
        by_turns(tried, |(_, pod)| pod.namespace.clone()).into_iter().take(max_pods).collect()
    }

    pub fn pod_begins(&mut self, pod: &FleetPod) {
        self.unfinished.insert(key(pod));
    }

    pub fn pod_ends(&mut self, pod: &FleetPod, result: PodResult) {
        if result != PodResult::Excessive {
            self.unfinished.remove(&key(pod));
        }
        if result == PodResult::Answered {
            self.answering.insert(key(pod));
        }
    }

    /// Ends the scrape that began at `now`. If no pod answered, nothing is scraped for the time of the pause.
    pub fn end(&mut self, now: Timestamp, pause: SignedDuration) {
        let until = now.checked_add(pause).ok();
        self.answered = std::mem::take(&mut self.answering);
        self.paused_until = until.filter(|_| self.answered.is_empty());
        let excessive = std::mem::take(&mut self.unfinished).into_iter();
        self.excessive_until.extend(excessive.filter_map(|(namespace, _)| Some((namespace, until?))));
    }
}

#[cfg(test)]
mod tests {
    use steersman_plan::variant::TargetName;

    use super::*;

    const PAUSE: SignedDuration = SignedDuration::from_mins(1);

    fn pods(names: &[(&str, &str)]) -> Vec<FleetPod> {
        let target = Arc::new(TargetName { kind: "Deployment".into(), name: "t".into(), ..TargetName::default() });
        let pod = |(namespace, name): &(&str, &str)| FleetPod {
            namespace: (*namespace).into(),
            name: (*name).into(),
            target: target.clone(),
            ip: None,
            ready: true,
            ready_since: None,
            started: None,
            gpus: 0,
            worker: false,
        };
        names.iter().map(pod).collect()
    }

    fn begin(schedule: &mut ScrapeSchedule, pods: &[FleetPod], now: Timestamp, max_pods: usize) -> Vec<String> {
        let tried = schedule.begin(pods.iter().enumerate().collect(), now, max_pods);
        tried.iter().map(|(_, pod)| format!("{}/{}", pod.namespace, pod.name)).collect()
    }

    #[test]
    fn namespaces_take_turns() {
        let pods = pods(&[("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("b", "2")]);
        let (mut schedule, now) = (ScrapeSchedule::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(begin(&mut schedule, &pods, now, 9), ["a/1", "b/1", "a/2", "b/2", "a/3"]);
        assert_eq!(begin(&mut schedule, &pods, now, 3), ["a/1", "b/1", "a/2"]);
    }

    #[test]
    fn excessive_pods_pause_untried_pods_of_their_namespace() {
        let pods =
            pods(&[("a", "cut-off"), ("a", "good"), ("a", "slow"), ("a", "untried"), ("b", "failed"), ("b", "new")]);
        let (mut schedule, now) = (ScrapeSchedule::default(), Timestamp::UNIX_EPOCH);
        begin(&mut schedule, &pods, now, 9);
        for pod in [&pods[0], &pods[1], &pods[2], &pods[4]] {
            schedule.pod_begins(pod);
        }
        schedule.pod_ends(&pods[1], PodResult::Answered);
        schedule.pod_ends(&pods[2], PodResult::Excessive);
        schedule.pod_ends(&pods[4], PodResult::Failed);
        schedule.end(now, PAUSE);
        let later = now + SignedDuration::from_secs(59);
        assert_eq!(begin(&mut schedule, &pods, later, 9), ["a/good", "b/failed", "b/new"]);
        assert_eq!(begin(&mut schedule, &pods, now + PAUSE, 9).len(), pods.len());
    }

    #[test]
    fn scrape_without_answer_pauses_all() {
        let pods = pods(&[("a", "1")]);
        let (mut schedule, now) = (ScrapeSchedule::default(), Timestamp::UNIX_EPOCH);
        schedule.end(now, PAUSE);
        assert_eq!(begin(&mut schedule, &pods, now + SignedDuration::from_secs(59), 9), [] as [&str; 0]);
        assert_eq!(begin(&mut schedule, &pods, now + PAUSE, 9), ["a/1"]);
    }
}
