//! What each variant gets, and the story of it.

use std::sync::Arc;

use steersman_api::variant::v1alpha1::MAX_MODEL_ID_LENGTH;
use steersman_plan::variant::SchedulerQueue;
use steersman_plan::variant::{
    DecidedBy, DecisionKind, Explanation, Factor, FactorCode, FactorSubject, FleetSnapshot, MetricsError, MetricsState,
    ModelMetrics, ObservedTarget, ObservedVariant, TargetName, event, plan,
};
use steersman_reconcile::Lookup;

use super::{
    a_fleet, a_variant, ago, by_tokens, decided, decision, incomplete, now, pods, replicas, spec, stored, the_model,
};

#[test]
fn a_saturated_model_grows_by_one_on_its_cheapest_variant() {
    let seen = a_fleet(vec![a_variant("dear", "20", 2), a_variant("cheap", "5", 2)], 0.75, 2.0);
    let cheap = decision(&seen, "cheap");
    assert_eq!((cheap.replicas, replicas(&seen, "dear")), (Some(3), 2));
    assert_eq!(cheap.kind, DecisionKind::Decided);
    assert_eq!(cheap.trace.decided_by, DecidedBy::Solver);
    assert_eq!(cheap.reason, "saturation-only mode: scale-up: KV spare Saturation low (0.050 < 0.100)");
    assert_eq!(
        cheap.trace.to_string(),
        "signal: 0 of 4 replicas saturated, spare KV 0.050, spare queue 3.0; \
         need: one more replica: KV spare Saturation low (0.050 < 0.100); \
         solver: saturation-only mode: scale-up: KV spare Saturation low (0.050 < 0.100); \
         wanted 3, granted 3, decided by solver"
    );
}

#[test]
fn an_upper_bound_sends_the_replica_to_the_next_variant_and_the_wish_is_told() {
    let mut seen = a_fleet(vec![a_variant("dear", "20", 2), a_variant("cheap", "5", 2)], 0.75, 2.0);
    spec(&mut seen.variants[1]).max_replicas = Some(2);
    let cheap = decision(&seen, "cheap");
    assert_eq!((cheap.replicas, cheap.trace.wanted, cheap.trace.decided_by), (Some(2), 3, DecidedBy::Limits));
    assert_eq!(cheap.trace.limit_texts(), ["maxReplicas=2"]);
    assert!(cheap.reason.ends_with("; wanted 3, limited by maxReplicas=2"), "{}", cheap.reason);
    let dear = decision(&seen, "dear");
    assert_eq!((dear.replicas, dear.trace.decided_by), (Some(3), DecidedBy::Limits));
    assert!(dear.reason.ends_with("(0.050 < 0.100); takes over from a variant that cannot grow"), "{}", dear.reason);
}

#[test]
fn an_idle_model_shrinks_by_one_on_its_dearest_variant_but_not_below_its_minimum() {
    let mut seen = a_fleet(vec![a_variant("dear", "20", 2), a_variant("cheap", "5", 2)], 0.1, 0.0);
    assert_eq!((replicas(&seen, "dear"), replicas(&seen, "cheap")), (1, 2));
    spec(&mut seen.variants[0]).min_replicas = 2;
    assert_eq!((replicas(&seen, "dear"), replicas(&seen, "cheap")), (2, 1));
}

#[test]
fn bounds_hold_for_what_already_runs() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 5)], 0.5, 1.0);
    spec(&mut seen.variants[0]).max_replicas = Some(3);
    assert_eq!(replicas(&seen, "v"), 3);
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    assert_eq!(replicas(&seen, "v"), 3);
}

type Harm = fn(&mut ModelMetrics);

#[test]
fn what_is_not_known_keeps_every_number_and_says_why() {
    let good = a_fleet(vec![a_variant("a", "20", 3), a_variant("b", "5", 3)], 0.0, 0.0);
    assert_eq!(replicas(&good, "a"), 2, "with metrics it would shrink");
    let cases: [(&str, Harm); 6] = [
        ("no metrics found", |model| model.pods = Err(MetricsError::NotFound)),
        ("no metrics found", |model| model.pods = Err(MetricsError::ModelNameMismatch(vec!["other".into()]))),
        ("the newest metrics are 7m0s old", |model| model.pods = Err(MetricsError::Stale("7m0s".into()))),
        ("the query of Prometheus failed: timeout", |model| {
            model.pods = Err(MetricsError::QueryFailed("timeout".into()))
        }),
        ("pod a-decode-0 has no queue length", |model| model.pods.as_mut().unwrap()[0].queue = Some(f64::NAN)),
        ("2 of 3 ready replicas of variant a have metrics", |model| drop(model.pods.as_mut().unwrap().remove(0))),
    ];
    for tokens in [false, true] {
        for (why, harm) in &cases {
            let mut seen = good.clone();
            if tokens {
                by_tokens(&mut seen);
            }
            harm(the_model(&mut seen));
            for name in ["a", "b"] {
                let held = decision(&seen, name);
                assert_eq!((held.replicas, held.kind), (Some(3), DecisionKind::Held), "{why}");
                assert_eq!(held.trace.decided_by, DecidedBy::Hold, "{why}");
                assert_eq!(held.trace.hold_text(), Some(*why));
            }
        }
    }
}

#[test]
fn where_no_replica_is_ready_nobody_is_sent_to_look_for_metrics() {
    let mut seen = a_fleet(vec![a_variant("a", "20", 2), a_variant("b", "5", 0)], 0.5, 1.0);
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    assert_eq!(decision(&seen, "a").metrics, MetricsState::Unavailable(MetricsError::NotFound));
    let starting =
        ObservedTarget { replicas: Some(2), status_replicas: Some(2), ready: 0, gpus: 1, ..ObservedTarget::default() };
    seen.variants[0].target = Lookup::Known(Some(starting));
    let held = decision(&seen, "a");
    let words = "no replica is ready (variant a: 0 of 2); check the pods";
    assert_eq!((held.replicas, held.metrics), (Some(2), incomplete(FactorCode::NoReplicaReady, "a", words)));
    assert_eq!(held.trace.hold_text(), Some(words));
}

#[test]
fn the_token_engine_waits_for_a_capacity_that_nobody_knows() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.0, 0.0);
    by_tokens(&mut seen);
    assert_eq!(replicas(&seen, "v"), 1);
    the_model(&mut seen).pods.as_mut().unwrap()[1].total_kv = None;
    let held = decision(&seen, "v");
    assert_eq!(held.replicas, Some(2));
    let factor = Factor::about(FactorCode::PodCapacityUnknown, FactorSubject::Pod("v-decode-1".into()));
    let text = "the KV cache size of pod v-decode-1 is unknown";
    assert_eq!(held.metrics, MetricsState::Incomplete(Explanation::of(factor, text)));
}

#[test]
fn a_capacity_that_was_once_measured_is_remembered() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.0, 0.0);
    by_tokens(&mut seen);
    seen.memory = steersman_plan::variant::plan(&seen).memory;
    the_model(&mut seen).pods.as_mut().unwrap()[1].total_kv = None;
    assert_eq!(replicas(&seen, "v"), 1);
}

#[test]
fn the_token_engine_adds_all_that_is_missing_at_once() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 1.0, 0.0);
    by_tokens(&mut seen);
    // 32,000 tokens in use ask for 37,647; a replica serves 12,800 of its 16,000.
    let grown = decision(&seen, "v");
    assert_eq!(grown.replicas, Some(3));
    assert_eq!(grown.reason, "V2 scale-up (optimizer: cost-aware, required: 12047)");
    the_model(&mut seen).queue = Lookup::Known(Some(SchedulerQueue { requests: 100.0, bytes: 0.0 }));
    assert_eq!(replicas(&seen, "v"), 5, "what waits before the replicas counts too");
}

#[test]
fn what_waits_at_the_endpoint_picker_counts_as_if_it_waited_at_the_replicas() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 3)], 0.1, 0.0);
    assert_eq!(replicas(&seen, "v"), 2, "nothing waits");
    for (requests, expected) in [(0.0, 2), (3.0, 2), (6.0, 3), (500.0, 4)] {
        the_model(&mut seen).queue = Lookup::Known(Some(SchedulerQueue { requests, bytes: 0.0 }));
        let decided = decision(&seen, "v");
        assert_eq!(decided.replicas, Some(expected), "{requests}: {}", decided.trace);
        let told = format!(", {requests} requests queued at the endpoint picker");
        assert!(decided.trace.signal.text.ends_with(&told), "{}", decided.trace);
    }
    the_model(&mut seen).queue = Lookup::Unknown("timeout".into());
    let held = decision(&seen, "v");
    assert_eq!((held.replicas, held.trace.decided_by), (Some(3), DecidedBy::Hold), "{}", held.trace);
    let words = "scale-down blocked: the queue of the endpoint picker is unknown (timeout); check that Prometheus scrapes its \
                 metrics";
    assert_eq!(held.trace.hold_text(), Some(words));
    the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.9, 9.0));
    assert_eq!(replicas(&seen, "v"), 4, "it grows by what is known");
}

#[test]
fn a_variant_that_is_still_starting_blocks_another_scale_up() {
    let mut seen = a_fleet(vec![a_variant("a", "20", 2), a_variant("b", "5", 1)], 0.79, 4.0);
    let starting =
        ObservedTarget { replicas: Some(1), status_replicas: Some(1), ready: 0, gpus: 1, ..ObservedTarget::default() };
    seen.variants[1].target = Lookup::Known(Some(starting));
    the_model(&mut seen).pods.as_mut().unwrap().retain(|pod| pod.target.name == "a-decode");
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (2, 1));
    let words = "waiting for an earlier decision to be carried out: variant b has 1 replicas, 0 have metrics";
    assert_eq!(decision(&seen, "a").trace.hold_text(), Some(words));
}

#[test]
fn the_first_number_of_an_object_is_what_runs() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 4)], 0.0, 0.0);
    seen.variants[0].status = None;
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    let first = decision(&seen, "v");
    assert_eq!(first.replicas, Some(4));
    assert_eq!(first.reason, "Last resort: first run, using max(minReplicas=0, current=4) = 4");
}

#[test]
fn a_lower_number_that_is_not_followed_yet_gives_way_to_what_runs_where_nothing_is_known() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 5)], 0.5, 1.0);
    seen.variants[0].status = Some(decided(4, "Earlier", ago(1)));
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    let kept = decision(&seen, "v");
    let words = "Scale-down blocked, metrics are incomplete: keeping 5 replicas, the last decision was 4";
    assert_eq!((kept.replicas, kept.reason.as_str()), (Some(5), words));
    spec(&mut seen.variants[0]).max_replicas = Some(3);
    assert_eq!(
        (replicas(&seen, "v"), decision(&seen, "v").reason.as_str()),
        (3, "Earlier (clamped from 4 to 3 for bounds)")
    );
}

#[test]
fn a_number_belongs_to_the_workload_that_it_was_decided_for() {
    let mut before = a_fleet(vec![a_variant("v", "5", 1)], 0.5, 1.0);
    before.variants[0].status = Some(decided(1, "Earlier", ago(1)));
    let told = stored(&before).into_values().next().unwrap();
    // The object now names a workload that is in use by four replicas.
    let mut seen = a_fleet(vec![a_variant("v", "5", 4)], 0.6, 1.0);
    seen.variants[0].status = Some(told.clone());
    assert_eq!(replicas(&seen, "v"), 1, "the same workload has not followed yet");
    spec(&mut seen.variants[0]).scale_target_ref.as_mut().unwrap().name = "green".into();
    let green = Arc::new(TargetName::new("apps", "Deployment", "green"));
    the_model(&mut seen).pods.as_mut().unwrap().iter_mut().for_each(|pod| pod.target = green.clone());
    assert_eq!(replicas(&seen, "v"), 4);
    let now = stored(&seen).into_values().next().unwrap();
    let change = now.desired_optimized_alloc.clone().unwrap().last_update.unwrap().num_replicas_changed;
    assert_eq!(change, Some(4), "the first number of this workload");
    assert_eq!(event(&seen.variants[0], &decision(&seen, "v"), &now), None, "nothing was scaled");
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    assert_eq!(replicas(&seen, "v"), 4);
    // One that is not there gets no number at all, and none is left over for when it comes.
    seen.variants[0].target = Lookup::Known(None);
    assert_eq!(decision(&seen, "v").replicas, None);
    let awaited = stored(&seen).into_values().next().unwrap();
    assert_eq!(awaited.desired_optimized_alloc, None);
    seen.variants[0].status = Some(awaited);
    assert_eq!(decision(&seen, "v").replicas, None);
    // A name that only begins like the other is another.
    seen.variants[0].status = Some(told);
    for (name, moved) in [("v-decode", false), ("v-decode-2", true), ("v", true)] {
        spec(&mut seen.variants[0]).scale_target_ref.as_mut().unwrap().name = name.into();
        assert_eq!(seen.variants[0].is_retargeted(), moved, "{name}");
    }
}

#[test]
fn a_number_is_lowered_only_after_it_has_settled() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 3)], 0.0, 0.0);
    seen.settings.settle = jiff::SignedDuration::from_mins(90);
    let held = decision(&seen, "v");
    assert_eq!((held.replicas, held.trace.decided_by), (Some(3), DecidedBy::Hold));
    assert_eq!(held.trace.wanted, 2);
    seen.settings.settle = jiff::SignedDuration::from_mins(30);
    assert_eq!(replicas(&seen, "v"), 2);
}

#[test]
fn an_object_that_cannot_be_worked_with_says_so_and_keeps_its_number() {
    let good = a_fleet(vec![a_variant("v", "5", 3)], 0.0, 0.0);
    let with = |harm: &dyn Fn(&mut steersman_plan::variant::ObservedVariant)| {
        let mut seen = good.clone();
        harm(&mut seen.variants[0]);
        let failed = decision(&seen, "v");
        assert_eq!(failed.replicas, Some(3));
        failed.kind
    };
    let failed = |code: FactorCode, why: &str| DecisionKind::Failed(Explanation::new(code, why));
    let empty = failed(FactorCode::ModelIDEmpty, "ModelID is empty - cannot optimize");
    assert_eq!(with(&|one| spec(one).model_id.clear()), empty);
    let long = with(&|one| spec(one).model_id = "ä".repeat(MAX_MODEL_ID_LENGTH + 1));
    let codes = |kind: DecisionKind| match kind {
        DecisionKind::Failed(why) => why.factors.iter().map(|factor| factor.code).collect::<Vec<_>>(),
        _ => Vec::new(),
    };
    assert_eq!(codes(long), [FactorCode::ModelIDTooLong]);
    let longest = with(&|one| spec(one).model_id = "ä".repeat(MAX_MODEL_ID_LENGTH));
    assert_eq!(codes(longest), []);
    let missing = failed(FactorCode::ScaleTargetNotFound, super::NO_WORKLOAD);
    assert_eq!(with(&|one| one.target = Lookup::Known(None)), missing);
    let unread = with(&|one| one.target = Lookup::Unknown("forbidden".into()));
    let text = "Scale target Deployment v-decode could not be read: forbidden";
    assert_eq!(unread, failed(FactorCode::ScaleTargetUnreadable, text));
}

#[test]
fn nothing_is_decided_for_an_object_that_is_being_deleted() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.5, 1.0);
    seen.variants[0].deleting = true;
    assert_eq!(steersman_plan::variant::plan(&seen).decisions.len(), 0);
    assert_eq!(seen.now, now());
}

/// Two variants with a replica that nobody measured: the same one is named, in whatever order they are listed.
#[test]
fn which_variant_is_named_does_not_depend_on_the_order_of_objects() {
    let mut seen = a_fleet(vec![a_variant("a", "5", 2), a_variant("b", "5", 2)], 0.5, 1.0);
    the_model(&mut seen).pods.as_mut().unwrap().retain(|pod| pod.name.ends_with("-1"));
    let first = plan(&seen);
    seen.variants.reverse();
    assert_eq!(plan(&seen), first);
    let why = format!("{:?}", decision(&seen, "b").metrics);
    assert!(why.contains("1 of 2 ready replicas of variant a have metrics"), "{why}");
}

#[test]
fn one_strange_figure_asks_for_twice_as_many_and_not_for_a_thousand() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 1)], 0.001, 50.0);
    by_tokens(&mut seen);
    let first = decision(&seen, "v");
    assert_eq!(first.replicas, Some(5), "{}", first.trace);
    assert!(first.trace.wanted > 100, "{}", first.trace);
    assert_eq!(first.trace.limit_texts(), ["growth per reconcile: at most 5 replicas"]);
    assert_eq!(first.trace.decided_by, DecidedBy::Limits);
    // Replicas that carry more than it had without a queue show that it was strange.
    for (kv, expected) in [(0.3, 3), (0.3, 2), (0.0, 1), (0.0, 1)] {
        let decided = plan(&seen);
        let status = stored(&seen).into_values().next();
        let followed = decided.decisions.values().next().unwrap().replicas.unwrap();
        let passed = a_fleet(vec![ObservedVariant { status, ..a_variant("v", "5", followed) }], kv, 0.0);
        seen = FleetSnapshot { memory: decided.memory, config: seen.config, ..passed };
        assert_eq!(replicas(&seen, "v"), expected, "{kv}: {}", decision(&seen, "v").trace);
    }
    let mut seen = a_fleet(vec![a_variant("v", "5", 9)], 0.001, 50.0);
    by_tokens(&mut seen);
    assert_eq!(replicas(&seen, "v"), 18);
}
