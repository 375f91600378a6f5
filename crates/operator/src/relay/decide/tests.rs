use proptest::prelude::*;

use super::*;
use crate::relay::pod::ProfilerContainer;

const BEGAN: &str = "2026-11-16T06:00:00Z";

fn life(ended: Option<(i32, &str)>, lasting: bool) -> ProfilerState {
    let ended = ended.map(|(code, reason)| ContainerEnd { code, reason: reason.into() });
    ProfilerState::Observed(ProfilerContainer { started: Some(BEGAN.parse().unwrap()), ended, lasting })
}

fn files(status: &str, results: &[(&'static str, FileContent)]) -> Files {
    Files { status: FileContent::Read(status.into()), results: results.iter().cloned().collect() }
}

fn decide_with(files: &Files, profiler: &ProfilerState, over_for: u64, stopping: bool) -> RelayDecision {
    let (over_for, patience) = (Duration::from_secs(over_for), Duration::from_secs(5));
    decide(&Observation { files, profiler, over_for, patience, stopping, folder: "/data" })
}

fn data(pairs: &[(&str, &str)]) -> Option<Data> {
    Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

const DONE: &str = "{status: success, phase: Done, message: all good}";
const FAILED: &str = "{status: failed, phase: SweepingDecode, message: m, error: no GPU}";
const AT_WORK: &str = "{status: running, phase: SweepingPrefill, message: Sweeping}";

#[test]
fn running_profiler_progress_is_relayed() {
    let at_work = files(AT_WORK, &[]);
    let progress = data(&[("phase", "SweepingPrefill"), ("message", "Sweeping")]);
    let running = life(None, false);
    assert_eq!(
        decide_with(&at_work, &running, 0, false),
        RelayDecision { data: progress.clone(), next: NextStep::Continue }
    );
    // A stopping relay reports progress and no end.
    let end = NextStep::End(Ending::NoVerdict);
    assert_eq!(decide_with(&at_work, &running, 0, true), RelayDecision { data: progress, next: end });
    for nothing in ["", "status: running", "a: [", "[]"] {
        assert_eq!(
            decide_with(&files(nothing, &[]), &running, 0, false),
            RelayDecision { data: None, next: NextStep::Continue }
        );
    }
    assert_eq!(decide_with(&Files::default(), &running, 0, true), RelayDecision { data: None, next: end });
}

#[test]
fn verdict_is_delivered_before_profiler_ends() {
    let failed = data(&[
        ("phase", "SweepingDecode"),
        ("message", "m"),
        ("profiler_status", "failed"),
        ("profiler_error", "no GPU"),
        ("profiler_status.yaml", FAILED),
    ]);
    let done = data(&[
        ("phase", "Done"),
        ("message", "all good"),
        ("profiler_status", "success"),
        ("profiler_status.yaml", DONE),
        ("final_config.yaml", "kind: X"),
    ]);
    let results = [(FINAL, FileContent::Read("kind: X".into()))];
    for (files, wanted) in [(files(FAILED, &[]), failed), (files(DONE, &results), done)] {
        for (profiler, stopping, next) in [
            (life(None, false), false, NextStep::Continue),
            (life(None, false), true, NextStep::End(Ending::Verdict)),
            (life(Some((0, "Completed")), false), false, NextStep::End(Ending::Verdict)),
            (life(Some((1, "Error")), false), true, NextStep::End(Ending::Verdict)),
            (ProfilerState::Hidden, false, NextStep::End(Ending::Verdict)),
        ] {
            assert_eq!(
                decide_with(&files, &profiler, 0, stopping),
                RelayDecision { data: wanted.clone(), next },
                "{profiler:?}"
            );
        }
    }
    let silent = decide_with(
        &files("{status: failed, message: Config validation failed}", &[]),
        &ProfilerState::Hidden,
        0,
        false,
    );
    assert_eq!(silent.data.unwrap()["profiler_error"], "Config validation failed");
}

#[test]
fn missing_verdict_is_reported_after_patience() {
    let unusable = Files { status: FileContent::Unusable("is a link".into()), ..Files::default() };
    let killed = life(Some((137, "OOMKilled")), false);
    let how = "the profiler ended with exit code 137 (OOMKilled) without a result: ";
    for (files, left) in [
        (files(AT_WORK, &[]), r#"profiler_status.yaml still has status "running" in SweepingPrefill"#),
        (files("status: succ", &[]), r#"profiler_status.yaml still has status "succ""#),
        (files("message: m", &[]), "profiler_status.yaml has no status"),
        (files("status: 'succ", &[]), "profiler_status.yaml in /data cannot be read as YAML"),
        (Files::default(), "there is no profiler_status.yaml in /data"),
        (unusable, "profiler_status.yaml in /data is a link"),
    ] {
        let early = decide_with(&files, &killed, 4, false);
        assert_eq!(
            (early.next, early.data.is_some_and(|data| data.contains_key("profiler_status"))),
            (NextStep::Continue, false)
        );
        let late = decide_with(&files, &killed, 5, false);
        assert_eq!(late.next, NextStep::End(Ending::NoVerdict));
        let said = late.data.unwrap();
        assert_eq!(
            (said["profiler_status"].as_str(), said["profiler_error"].clone()),
            ("failed", format!("{how}{left}; see its log"))
        );
        // A stopping relay does not know how the profiler ends: the profiler is being stopped as well.
        let stopped = decide_with(&files, &killed, 5, true);
        assert!(!stopped.data.is_some_and(|data| data.contains_key("profiler_status")));
    }
    let plain = decide_with(&Files::default(), &life(Some((0, "")), false), 5, false).data.unwrap();
    assert!(plain["profiler_error"].starts_with("the profiler ended with exit code 0 without a result: "));
    // Without a view of the pod, a missing status is not an end.
    assert_eq!(decide_with(&Files::default(), &ProfilerState::Hidden, 99, false).next, NextStep::Continue);
}

#[test]
fn status_of_earlier_profiler_is_ignored() {
    let old = files(
        "{status: success, phase: Done, timestamp: '2026-11-16T05:59:54Z'}",
        &[(FINAL, FileContent::Read("x".into()))],
    );
    let new = files(
        "{status: success, phase: Done, timestamp: '2026-11-16T05:59:55Z'}",
        &[(FINAL, FileContent::Read("x".into()))],
    );
    let none = RelayDecision { data: None, next: NextStep::Continue };
    assert_eq!(decide_with(&old, &life(None, true), 0, false), none);
    assert!(
        decide_with(&old, &life(None, false), 0, false).data.is_some(),
        "a folder that only this pod uses has no files of an earlier profiler"
    );
    assert!(decide_with(&new, &life(None, true), 0, false).data.is_some());
    assert_eq!(decide_with(&new, &ProfilerState::Unknown, 0, false), none);
    let waiting = ProfilerState::Observed(ProfilerContainer { started: None, ended: None, lasting: true });
    assert_eq!(decide_with(&new, &waiting, 0, false), none);
    let said = decide_with(&old, &life(Some((1, "Error")), true), 5, false).data.unwrap();
    assert!(
        said["profiler_error"].contains("profiler_status.yaml in /data was written by an earlier profiler"),
        "{said:?}"
    );
    assert_eq!(said.get("profiler_status.yaml"), None);
}

#[test]
fn earlier_protocol_names_are_all_delivered() {
    let read = |text: &str| FileContent::Read(text.into());
    let both = files(DONE, &[(EARLIER[0], read("mocked")), (EARLIER[1], read("real"))]);
    let said = decide_with(&both, &life(Some((0, "")), false), 0, false).data.unwrap();
    assert_eq!(
        (said["mocker_config_with_planner.yaml"].as_str(), said["config_with_planner.yaml"].as_str()),
        ("mocked", "real")
    );
    let new = files(DONE, &[(FINAL, read("new")), (EARLIER[1], read("left over")), (PARETO, read("[]"))]);
    let said = decide_with(&new, &life(Some((0, "")), false), 0, false).data.unwrap();
    assert_eq!(
        (said["final_config.yaml"].as_str(), said.get("config_with_planner.yaml"), said["pareto.yaml"].as_str()),
        ("new", None, "[]")
    );
}

#[test]
fn undeliverable_results_are_reported_as_failure() {
    let ended = life(Some((0, "Completed")), false);
    let large = || FileContent::Read("x".repeat(LIMIT / 2 + 1));
    for (results, said, ending) in [
        (
            vec![],
            "the profiler reports success, but there is no final_config.yaml in /data; see its log",
            Ending::NoVerdict,
        ),
        (
            vec![(FINAL, FileContent::TooLarge(2_097_152))],
            "final_config.yaml in /data has 2097152 bytes, more than the 1048576 that a ConfigMap can hold; leave out \
             spec.features.planner, or shorten spec.overrides.dgd",
            Ending::Verdict,
        ),
        (
            vec![(FINAL, FileContent::Read("x".repeat(LIMIT)))],
            "final_config.yaml in /data: 1048576 bytes, more than the 1048576 that a ConfigMap can hold; leave out \
             spec.features.planner, or shorten spec.overrides.dgd",
            Ending::Verdict,
        ),
        (
            vec![(EARLIER[0], large()), (EARLIER[1], large())],
            "mocker_config_with_planner.yaml and config_with_planner.yaml in /data: 1048578 bytes, more than the 1048576 \
             that a ConfigMap can hold; leave out spec.features.planner, or shorten spec.overrides.dgd",
            Ending::Verdict,
        ),
        (
            vec![(EARLIER[1], FileContent::Unusable("is a link".into()))],
            "config_with_planner.yaml in /data is a link; see the profiler's log",
            Ending::Verdict,
        ),
    ] {
        let files = files(DONE, &results);
        let early = decide_with(&files, &ended, 0, false);
        assert_eq!(
            early,
            RelayDecision { data: data(&[("phase", "Done"), ("message", "all good")]), next: NextStep::Continue }
        );
        let late = decide_with(&files, &ended, 5, false);
        assert_eq!((late.next, late.data.unwrap()["profiler_error"].as_str()), (NextStep::End(ending), said));
    }
}

#[test]
fn optional_files_are_dropped_first() {
    let room = LIMIT - "Done".len() - "all good".len() - "success".len();
    let results = [(FINAL, FileContent::Read("x".repeat(room))), (PARETO, FileContent::Read("[]".into()))];
    let said = decide_with(&files(DONE, &results), &life(Some((0, "")), false), 0, false).data.unwrap();
    assert_eq!(said["final_config.yaml"].len(), room);
    assert_eq!((said.get("pareto.yaml"), said.get("profiler_status.yaml"), total(&said)), (None, None, LIMIT));
}

#[test]
fn relayed_texts_hold_no_credentials() {
    let failed =
        files("{status: failed, phase: Initializing, message: hf_abcdefghij, error: 'Bearer abcdefghijkl'}", &[]);
    let said = decide_with(&failed, &ProfilerState::Hidden, 0, false).data.unwrap();
    assert!(said.values().all(|text| !text.contains("abcdefghij")), "{said:?}");
    assert!(said.contains_key("profiler_status.yaml"));
}

fn texts() -> impl Strategy<Value = FileContent> {
    let words = ["running", "success", "failed", "done", "'", "[", "null", "\\x"];
    let times = ["2026-11-16T06:00:00Z", "9999-12-31T23:59:59Z", "-009999-01-02T01:59:59Z", "soon"];
    let built = (prop::sample::select(words.to_vec()), prop::sample::select(times.to_vec()), ".{0,40}", 0..60usize)
        .prop_map(|(word, time, more, end)| {
            let text = format!("status: {word}\ntimestamp: '{time}'\nphase: {more}\nerror: {more}\n");
            // The text is cut at times, like a file that is still being written.
            text.chars().take(text.len().saturating_sub(end)).collect::<String>()
        });
    let large = (0..3usize).prop_map(|size| "y".repeat(size * LIMIT / 2));
    prop_oneof![
        Just(FileContent::Absent),
        ".{0,200}".prop_map(FileContent::Unusable),
        any::<u64>().prop_map(FileContent::TooLarge),
        ".{0,200}".prop_map(FileContent::Read),
        built.prop_map(FileContent::Read),
        large.prop_map(FileContent::Read),
    ]
}

fn profilers() -> impl Strategy<Value = ProfilerState> {
    let life = (any::<bool>(), prop::option::of((any::<i32>(), ".{0,20}")), any::<bool>()).prop_map(
        |(started, ended, lasting)| {
            let started = started.then(|| BEGAN.parse().unwrap());
            ProfilerState::Observed(ProfilerContainer {
                started,
                ended: ended.map(|(code, reason)| ContainerEnd { code, reason }),
                lasting,
            })
        },
    );
    prop_oneof![Just(ProfilerState::Unknown), Just(ProfilerState::Hidden), life]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Any folder: no panic, no data that the API server would refuse, and the relay ends.
    #[test]
    fn any_folder_yields_writable_data(
        status in texts(), results in prop::collection::vec(texts(), 4), profiler in profilers(),
        stopping: bool, over_for in 0..10u64,
    ) {
        let names = [FINAL, EARLIER[0], EARLIER[1], PARETO];
        let files = Files { status, results: names.into_iter().zip(results).collect() };
        let decision = decide_with(&files, &profiler, over_for, stopping);
        if let Some(data) = &decision.data {
            prop_assert!(total(data) <= LIMIT);
            let known = ["phase", "message", "profiler_status", "profiler_error", status::FILE];
            prop_assert!(data.keys().all(|key| known.contains(&key.as_str()) || names.contains(&key.as_str())));
            let verdict = data.get("profiler_status").map(String::as_str);
            prop_assert_eq!(verdict == Some("success"), names[..3].iter().any(|name| data.contains_key(*name)));
        }
        if stopping || (profiler.ended().is_some() && over_for >= 5) {
            prop_assert!(matches!(decision.next, NextStep::End(_)));
        }
        if decision.next == NextStep::End(Ending::Verdict) {
            prop_assert!(decision.data.is_some_and(|data| data.contains_key("profiler_status")));
        }
    }
}

#[test]
fn missing_right_is_awaited_within_limit() {
    let (limit, none) = (Duration::from_secs(900), None);
    let after = |seconds| Some(Duration::from_secs(seconds));
    let works = ProfilerState::Observed(ProfilerContainer::default());
    for (denied, over, profiler, hopeless) in [
        (none, after(9000), &works, false),
        (after(9000), none, &works, false),
        (after(9000), none, &ProfilerState::Unknown, false),
        (after(9000), after(899), &works, false),
        (after(9000), after(900), &works, true),
        (after(899), after(9000), &works, false),
        (after(899), none, &ProfilerState::Hidden, false),
        (after(86_399), none, &ProfilerState::Hidden, false),
        (after(86_400), none, &ProfilerState::Hidden, true),
        (after(86_400), after(900), &ProfilerState::Hidden, true),
        (after(9000), after(899), &ProfilerState::Hidden, false),
    ] {
        assert_eq!(is_hopeless(denied, over, profiler, limit), hopeless, "{denied:?} {over:?} {profiler:?}");
    }
}
