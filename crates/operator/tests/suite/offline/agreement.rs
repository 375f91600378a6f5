//! Admission, `steersman validate` and `steersman render`, which runs the controller's plan, accept the same objects.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use steersman_testkit::llamastack_specs::{BUNDLE_KEYS, Part, groups, names, needs_labels, object};

use super::{CommandRun, Workspace};
use crate::admission::validator::review;

const GENERATED: usize = 120;

/// Combinations of parts, the same ones in every run.
fn generated_objects() -> Vec<Value> {
    let mut runner = TestRunner::deterministic();
    let parts = groups().into_iter().map(prop::sample::select).collect::<Vec<_>>();
    let kept = prop::collection::vec(prop::bool::weighted(0.25), groups().len());
    let combined = (parts, kept, prop::sample::select(names().to_vec())).prop_map(|(parts, kept, (name, _))| {
        let parts: Vec<Part> = parts.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(part, _)| part).collect();
        object(&name, &parts)
    });
    let draws = std::iter::repeat_with(|| combined.new_tree(&mut runner).unwrap().current());
    draws.filter(|object| !needs_labels(object)).take(GENERATED).collect()
}

/// Whether a command on the folder `objects` reported an error about this file.
fn refused(run: &CommandRun, file: &str) -> bool {
    let prefix = format!("objects/{file}: document 1: ");
    let lines = run.err.lines().filter_map(|line| line.strip_prefix(prefix.as_str()));
    lines.into_iter().any(|text| !text.starts_with("warning: ") && !text.starts_with("note: "))
}

/// The verdicts of admission, `validate` and `render` about each object, with what they printed.
async fn judgements(objects: &[Value]) -> Vec<([bool; 3], String)> {
    let name = |place: usize| format!("{place:03}.json");
    let files: Vec<(String, String)> = objects
        .iter()
        .enumerate()
        .map(|(place, object)| (format!("objects/{}", name(place)), object.to_string()))
        .collect();
    // The ConfigMap with CA certificates, which the controller reads.
    let certificate = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap().cert.pem();
    let bundle = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "ca", "namespace": "team-a" },
        "data": { BUNDLE_KEYS[0]: certificate } })
    .to_string();
    let files = files.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let files: Vec<(&str, &str)> = files.chain([("objects/bundle.json", bundle.as_str())]).collect();
    let workspace = Workspace::with_files(&files);
    let runs = ["validate", "render"].map(|command| workspace.run(&[command, "-f", "objects"]));
    let mut found = Vec::new();
    for (place, object) in objects.iter().enumerate() {
        let file = name(place);
        let admitted = review("CREATE", object.clone(), Value::Null).await;
        let [validated, rendered] = [0, 1].map(|run| !refused(&runs[run], &file));
        let says_valid = runs[0].out.contains(&format!("objects/{file}: "));
        assert_eq!(says_valid, validated, "{object:#}\n{}", runs[0].err);
        let lines =
            |run: &CommandRun| run.err.lines().filter(|line| line.contains(&file)).collect::<Vec<_>>().join("\n");
        let texts = format!("{object:#}\n{admitted:#}\n{}\n{}", lines(&runs[0]), lines(&runs[1]));
        found.push(([admitted["allowed"] == true, validated, rendered], texts));
    }
    found
}

#[tokio::test]
async fn admission_and_commands_judge_each_part_alike() {
    let parts = groups().concat();
    let mut objects: Vec<Value> = parts.iter().map(|part| object("stack", [part])).collect();
    objects.extend(names().map(|(name, _)| object(&name, [])));
    let valid: Vec<bool> = parts.iter().map(|part| part.valid).chain(names().map(|(_, valid)| valid)).collect();
    for ((found, texts), valid) in judgements(&objects).await.into_iter().zip(valid) {
        assert_eq!(found, [valid; 3], "{texts}");
    }
}

#[tokio::test]
async fn admission_and_commands_judge_generated_objects_alike() {
    let (mut accepted, mut refused) = (0, 0);
    for (found, texts) in judgements(&generated_objects()).await {
        assert!(found.iter().all(|one| *one == found[0]), "{found:?}\n{texts}");
        *(if found[0] { &mut accepted } else { &mut refused }) += 1;
    }
    assert!(accepted >= 10 && refused >= 10, "{accepted} accepted, {refused} refused");
}

#[test]
fn render_prints_each_warning_once() {
    let fields = json!({ "storage": { "kv": { "type": "sqlite", "endpoint": "x" } },
                         "workload": { "autoscaling": { "maxReplicas": 0 } } });
    let object = object("stack", [&Part { fields, valid: true }]);
    let run = Workspace::with_files(&[("cr.json", &object.to_string())]).run(&["render", "-f", "cr.json"]);
    run.assert_success();
    let warnings: Vec<&str> = run.err.lines().filter(|line| line.contains("warning: ")).collect();
    let [autoscaling, storage] = &warnings[..] else { panic!("{}", run.err) };
    assert!(
        autoscaling.contains("maxReplicas is 0, so no HorizontalPodAutoscaler is created. Set it"),
        "{autoscaling}"
    );
    assert!(storage.contains("endpoint is only valid when type is redis") && storage.contains(". "), "{storage}");
}
