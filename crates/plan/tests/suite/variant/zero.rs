//! To zero, and not further than allowed.

use jiff::SignedDuration;
use steersman_plan::variant::SchedulerQueue;
use steersman_plan::variant::analyze::engine_args::Container;
use steersman_plan::variant::config::zero::Level;
use steersman_plan::variant::{DecisionKind, FleetSnapshot, MetricsError, MetricsState};
use steersman_reconcile::Lookup;

use super::{a_fleet, a_variant, ago, by_tokens, decided, decision, replicas, spec, the_model};

/// Idle for an hour, and allowed to sleep after ten minutes.
fn an_idle_fleet() -> FleetSnapshot {
    let mut seen = a_fleet(vec![a_variant("dear", "20", 1), a_variant("cheap", "5", 2)], 0.0, 0.0);
    seen.config.zero.defaults = Level { enabled: Some(true), retention: Some(SignedDuration::from_mins(10)) };
    the_model(&mut seen).requests = Lookup::Known(0.0);
    seen
}

fn both(seen: &FleetSnapshot) -> (i32, i32) {
    (replicas(seen, "dear"), replicas(seen, "cheap"))
}

#[test]
fn an_idle_model_that_may_sleep_goes_to_zero_with_either_engine() {
    let mut seen = an_idle_fleet();
    assert_eq!(both(&seen), (0, 0));
    assert_eq!(decision(&seen, "dear").reason, "Scale to zero: no request for 10m0s");
    by_tokens(&mut seen);
    assert_eq!(both(&seen), (0, 0));
}

#[test]
fn a_model_that_was_put_to_sleep_is_not_woken_because_nobody_has_followed_yet() {
    let mut seen = an_idle_fleet();
    seen.variants.iter_mut().for_each(|variant| variant.status = Some(decided(0, "Scale to zero", ago(1))));
    assert_eq!(both(&seen), (0, 0), "an HPA or KEDA may take longer than the next pass");
    the_model(&mut seen).requests = Lookup::Known(1.0);
    assert_eq!(both(&seen), (1, 1), "after a request, only what is to spare goes");
    // Another variant that was just asked for has had no time to be used.
    let mut seen = an_idle_fleet();
    seen.variants[0].status = Some(decided(0, "Scale to zero", ago(1)));
    seen.variants[1].status = Some(decided(2, "Woken", ago(1)));
    assert_eq!(both(&seen), (1, 1));
}

type Wake = fn(&mut FleetSnapshot);

#[test]
fn whatever_speaks_against_sleep_keeps_the_model_awake() {
    let cases: [(&str, Wake); 6] = [
        ("requests came", |seen| the_model(seen).requests = Lookup::Known(1.0)),
        ("nobody knows whether requests came", |seen| the_model(seen).requests = Lookup::Unknown("timeout".into())),
        ("not a number", |seen| the_model(seen).requests = Lookup::Known(f64::NAN)),
        ("a long answer is still being written", |seen| the_model(seen).pods.as_mut().unwrap()[0].kv = Some(0.01)),
        ("requests wait before the replicas", |seen| {
            the_model(seen).queue = Lookup::Known(Some(SchedulerQueue { requests: 1.0, bytes: 10.0 }));
        }),
        ("the number is young", |seen| seen.variants[0].status = Some(decided(1, "Earlier", ago(9)))),
    ];
    for (why, wake) in cases {
        let mut seen = an_idle_fleet();
        wake(&mut seen);
        let (dear, cheap) = both(&seen);
        assert!(dear + cheap >= 1, "{why}: {dear} and {cheap}");
    }
}

#[test]
fn what_keeps_a_model_awake_that_gets_no_requests_is_told() {
    let cases: [(&str, Wake); 5] = [
        ("requests are queued at the endpoint picker", |seen| {
            the_model(seen).queue = Lookup::Known(Some(SchedulerQueue { requests: 1.0, bytes: 10.0 }));
        }),
        ("requests are queued at pod dear-decode-0", |seen| {
            the_model(seen).pods.as_mut().unwrap()[0].queue = Some(1.0);
        }),
        ("25.00 % of the KV cache of pod cheap-decode-1 is in use", |seen| {
            the_model(seen).pods.as_mut().unwrap()[2].kv = Some(0.25);
        }),
        ("the number of replicas changed less than 10m0s ago", |seen| {
            seen.variants[0].status = Some(decided(1, "Earlier", ago(9)));
        }),
        ("the number of requests is unknown: timeout", |seen| {
            the_model(seen).requests = Lookup::Unknown("timeout".into())
        }),
    ];
    for (why, wake) in cases {
        let mut seen = an_idle_fleet();
        wake(&mut seen);
        let hold = decision(&seen, "cheap").trace.hold.map(|hold| hold.text);
        assert_eq!(hold.as_deref(), Some(format!("scale to zero blocked: {why}").as_str()));
    }
    let mut seen = an_idle_fleet();
    the_model(&mut seen).requests = Lookup::Known(1.0);
    assert_eq!(decision(&seen, "cheap").trace.hold, None, "requests came: that is no obstacle");
}

#[test]
fn one_block_that_is_always_in_use_is_nothing_to_stay_awake_for() {
    let asleep = |kv: f64, total: Option<i64>, command: &[&str]| {
        let mut seen = an_idle_fleet();
        for pod in the_model(&mut seen).pods.as_mut().unwrap() {
            (pod.kv, pod.total_kv) = (Some(kv), total);
        }
        for variant in &mut seen.variants {
            let Lookup::Known(Some(target)) = &mut variant.target else { panic!("it has a workload") };
            let command = command.iter().map(ToString::to_string).collect();
            target.containers = vec![Container { command, ..Container::default() }];
        }
        both(&seen) == (0, 0)
    };
    let serve = ["vllm", "serve", "m"];
    // One of a thousand blocks of 16 tokens, as the server rounds it, and two of them.
    assert!(asleep(1.0 - 999.0 / 1000.0, Some(16_000), &serve));
    assert!(!asleep(0.002, Some(16_000), &serve));
    let large = ["vllm", "serve", "m", "--block-size", "128"];
    assert!(asleep(0.008, Some(16_000), &large) && !asleep(0.016, Some(16_000), &large));
    assert!(asleep(0.001, None, &serve) && !asleep(0.002, None, &serve), "where nobody knows the size");
}

#[test]
fn metrics_that_are_missing_are_not_idleness() {
    let mut seen = an_idle_fleet();
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    assert_eq!(both(&seen), (1, 2));
    assert_eq!(decision(&seen, "cheap").trace.hold_text(), Some("no metrics found"));
}

#[test]
fn requests_that_nobody_counted_are_told_as_what_keeps_the_model_awake() {
    let mut seen = an_idle_fleet();
    the_model(&mut seen).requests = Lookup::Unknown("timeout".into());
    let hold = decision(&seen, "cheap").trace.hold.map(|hold| hold.text);
    assert_eq!(hold.as_deref(), Some("scale to zero blocked: the number of requests is unknown: timeout"));
}

#[test]
fn an_entry_that_nobody_can_read_puts_no_model_to_sleep() {
    let mut seen = an_idle_fleet();
    seen.config.zero.unread.insert("model.other".into(), Some("other".into()));
    assert_eq!(both(&seen), (0, 0));
    seen.config.zero.unread.insert("model.m".into(), None);
    assert_ne!(both(&seen), (0, 0));
    let hold = decision(&seen, "cheap").trace.hold.map(|hold| hold.text);
    let words = "scale to zero blocked: entry model.m of the scale-to-zero ConfigMap cannot be decoded";
    assert_eq!(hold.as_deref(), Some(words));
}

#[test]
fn a_minimum_is_kept_while_the_rest_of_the_model_sleeps() {
    let mut seen = an_idle_fleet();
    spec(&mut seen.variants[0]).min_replicas = 1;
    assert_eq!(both(&seen), (1, 0));
    let findings = decision(&seen, "dear").findings;
    assert_eq!(
        findings[0].message,
        "Scale to zero is enabled for model meta/llama, but spec.minReplicas=1 prevents it for this variant."
    );
    assert_eq!(decision(&seen, "cheap").findings, []);
}

#[test]
fn where_sleep_is_forbidden_the_cheapest_variant_keeps_one() {
    let mut seen = a_fleet(vec![a_variant("dear", "20", 0), a_variant("cheap", "5", 0)], 0.0, 0.0);
    let raised = decision(&seen, "cheap");
    assert_eq!((raised.replicas, raised.kind), (Some(1), DecisionKind::Decided));
    assert_eq!(raised.reason, "Scale to zero disabled: the cheapest variant keeps 1 replica");
    assert_eq!(replicas(&seen, "dear"), 0);
    seen.variants.iter_mut().for_each(|variant| variant.status = None);
    let first = decision(&seen, "cheap");
    assert_eq!(first.reason, "First run: bootstrapping with 1 replica for Prometheus discovery");
}

#[test]
fn a_sleeping_model_stays_asleep_without_metrics() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 0)], 0.0, 0.0);
    seen.config.zero.environment = true;
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    the_model(&mut seen).requests = Lookup::Unknown("no series".into());
    let asleep = decision(&seen, "v");
    assert_eq!((asleep.replicas, asleep.metrics), (Some(0), MetricsState::NoReplicas));
    seen.variants[0].status = Some(decided(1, "Woken", ago(0)));
    assert_eq!(replicas(&seen, "v"), 1, "a replica that was just asked for is not taken back");
}
