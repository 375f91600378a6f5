//! The status file of a profiler, and after a line `===` its result.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use steersman::relay::decide::{Ending, NextStep, Observation, decide};
use steersman::relay::files::{FileContent, Files, LIMIT};
use steersman::relay::pod::{ContainerEnd, ProfilerContainer, ProfilerState};
use steersman::relay::status::{Verdict, read, redacted};
use steersman_plan::dynamo::graph::FINAL;

/// A token as a library would print it.
const TOKEN: &str = "hf_PlantedPlantedPlanted";

pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (status, result) = crate::two_parts(text);
    check_redaction(status);
    let mut files = Files { status: FileContent::Read(status.to_owned()), results: BTreeMap::new() };
    let verdict = files.status().map(|status| status.verdict);
    if verdict == Some(Verdict::Success) {
        files.results.insert(FINAL, FileContent::Read(result.to_owned()));
    }
    if let Some(status) = files.status() {
        let chars = |text: &Option<String>| text.as_ref().map_or(0, |text| text.chars().count());
        let lengths = (chars(&status.phase), chars(&status.message), chars(&status.error));
        assert!(lengths.0 <= 64 && lengths.1 <= 1024 && lengths.2 <= 8192, "{lengths:?}");
    }
    for ended in [true, false] {
        check_decision(&files, verdict.as_ref(), ended);
    }
}

fn check_decision(files: &Files, verdict: Option<&Verdict>, ended: bool) {
    let end = ended.then(|| ContainerEnd { code: 1, reason: "Error".to_owned() });
    let profiler = ProfilerState::Observed(ProfilerContainer { ended: end, ..ProfilerContainer::default() });
    let hour = Duration::from_secs(3600);
    let decision = decide(&Observation {
        files,
        profiler: &profiler,
        over_for: if ended { hour } else { Duration::ZERO },
        patience: Duration::ZERO,
        stopping: false,
        folder: "/data",
    });
    let data = decision.data.unwrap_or_default();
    assert!(data.values().map(String::len).sum::<usize>() <= LIMIT, "a ConfigMap cannot hold the data");
    assert!(data.len() <= 8 && data.keys().all(|key| key.len() <= 64));
    let reported = data.get("profiler_status").map(String::as_str);
    assert!(reported != Some("success") || verdict == Some(&Verdict::Success), "success without a verdict");
    if ended {
        assert!(matches!(decision.next, NextStep::End(Ending::Verdict | Ending::NoVerdict)), "the relay never ends");
        assert!(reported.is_some(), "the profiler has ended, and its request is never told");
    } else {
        assert_eq!(decision.next, NextStep::Continue);
    }
}

/// A token anywhere in a text is removed, and what is redacted stays as it is.
fn check_redaction(text: &str) {
    let planted = format!("{text} {TOKEN} {text}");
    let shown = redacted(&planted);
    assert!(!shown.contains(TOKEN), "{shown}");
    assert_eq!(redacted(&shown), shown, "a redacted text is redacted again");
    let file = json!({ "status": "failed", "message": planted, "error": planted, "phase": planted }).to_string();
    if let Some(status) = read(&file) {
        let texts = [status.message, status.error, status.phase];
        assert!(!texts.iter().flatten().any(|text| text.contains(TOKEN)), "{texts:?}");
    }
}
