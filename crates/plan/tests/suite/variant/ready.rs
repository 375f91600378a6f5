//! Replicas that serve, and replicas that do not yet.

use steersman_plan::variant::{DecidedBy, FactorCode, PodMetrics, TargetName};

use super::{a_fleet, a_variant, by_tokens, decision, incomplete, replicas, target, the_model};

/// A pod that takes the place of another: it is measured, and empty, and gets no requests yet.
fn coming(of: &str) -> PodMetrics {
    PodMetrics {
        name: format!("{of}-new").into(),
        target: TargetName::new("apps", "Deployment", of).into(),
        ready: false,
        kv: Some(0.0),
        queue: Some(0.0),
        total_kv: Some(16_000),
        ..PodMetrics::default()
    }
}

#[test]
fn nobody_gives_way_to_a_replica_that_is_still_starting() {
    for tokens in [false, true] {
        let mut seen = a_fleet(vec![a_variant("dear", "20", 3), a_variant("cheap", "5", 1)], 0.0, 0.0);
        if tokens {
            by_tokens(&mut seen);
        }
        assert_eq!(replicas(&seen, "cheap"), 1, "tokens {tokens}");
        target(&mut seen, 1).ready = 0;
        the_model(&mut seen).pods.as_mut().unwrap().retain(|pod| pod.target.name == "dear-decode");
        assert!(replicas(&seen, "dear") >= 1, "tokens {tokens}: {}", decision(&seen, "dear").trace);
        assert_eq!(replicas(&seen, "cheap"), 1, "tokens {tokens}: it comes to take over");
    }
}

#[test]
fn a_pod_that_hangs_and_is_empty_does_not_stand_against_growth() {
    for tokens in [false, true] {
        let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.9, 2.0);
        if tokens {
            by_tokens(&mut seen);
        }
        assert_eq!(replicas(&seen, "v"), 3, "tokens {tokens}");
        the_model(&mut seen).pods.as_mut().unwrap().push(coming("v-decode"));
        assert_eq!(replicas(&seen, "v"), 3, "tokens {tokens}: {}", decision(&seen, "v").trace);
    }
}

#[test]
fn a_pod_that_is_not_ready_does_not_stand_in_for_one_that_nobody_measures() {
    for tokens in [false, true] {
        let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.0, 0.0);
        if tokens {
            by_tokens(&mut seen);
        }
        assert_eq!(replicas(&seen, "v"), 1, "tokens {tokens}");
        let pods = the_model(&mut seen).pods.as_mut().unwrap();
        pods.pop();
        pods.push(coming("v-decode"));
        let held = decision(&seen, "v");
        let words = "1 of 2 ready replicas of variant v have metrics";
        assert_eq!(
            (held.replicas, held.metrics),
            (Some(2), incomplete(FactorCode::ReplicasWithoutMetrics, "v", words)),
            "tokens {tokens}"
        );
        // As soon as it is ready there are three who should be measured, whatever the workload says by then.
        the_model(&mut seen).pods.as_mut().unwrap()[1].ready = true;
        target(&mut seen, 0).ready_pods = 3;
        let words = "2 of 3 ready replicas of variant v have metrics";
        assert_eq!(
            decision(&seen, "v").metrics,
            incomplete(FactorCode::ReplicasWithoutMetrics, "v", words),
            "tokens {tokens}"
        );
    }
}

#[test]
fn a_rollout_that_hangs_does_not_freeze_the_model() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.79, 4.0);
    the_model(&mut seen).pods.as_mut().unwrap().push(coming("v-decode"));
    let grown = decision(&seen, "v");
    assert_eq!((grown.replicas, grown.trace.decided_by), (Some(3), DecidedBy::Solver), "{}", grown.trace);
}

#[test]
fn where_only_pods_that_are_not_ready_are_measured_somebody_is_sent_to_look_at_them() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.0, 0.0);
    target(&mut seen, 0).ready = 0;
    the_model(&mut seen).pods.as_mut().unwrap().iter_mut().for_each(|pod| pod.ready = false);
    let words = "no replica is ready (variant v: 0 of 2); check the pods";
    assert_eq!(decision(&seen, "v").metrics, incomplete(FactorCode::NoReplicaReady, "v", words));
}
