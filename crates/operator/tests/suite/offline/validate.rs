//! `steersman validate`. Another test applies the same manifests to a real API server; both must agree.

use std::path::Path;

use super::{CommandRun, NEW_STACK, OLD_STACK, Workspace, fixture_files, fixtures, run_on};

/// Manifests that are valid by their schema but refused by admission.
const REFUSED_BY_ADMISSION: [(&str, &str); 4] = [
    ("llamastack/valid/v1alpha1-empty-parts.yaml", "spec.server.distribution: one of name or image must be specified."),
    ("llamastack/valid/v1alpha2-empty-parts.yaml", "spec.providers.safety[0].id: id must not be empty if specified."),
    (
        "v1alpha1-budget-in-numbers.yaml",
        "spec.server.podDisruptionBudget: it has both minAvailable and maxUnavailable.",
    ),
    (
        "v1alpha2-external-providers.yaml",
        "spec.externalProviders.agents[0]: the server of this distribution has no API",
    ),
];

/// The lines of both streams about one file of the validated folder.
fn lines_about(run: &CommandRun, file: &Path) -> String {
    let prefix = format!("{}: ", file.display());
    run.err
        .lines()
        .chain(run.out.lines())
        .filter(|line| line.starts_with(&prefix))
        .map(|line| format!("{line}\n"))
        .collect()
}

fn validate_folder(folder: &str) -> CommandRun {
    Workspace::with_files(&[]).run(&["validate", "-f", fixtures(folder).to_str().unwrap()])
}

#[test]
fn valid_manifests_are_accepted() {
    for folder in ["llamastack/valid", "dynamo/valid", "variant/valid"] {
        let run = validate_folder(folder);
        for file in fixture_files(folder) {
            let lines = lines_about(&run, &file);
            match REFUSED_BY_ADMISSION.iter().find(|(path, _)| file.ends_with(path)) {
                Some((_, refused)) => assert!(lines.contains(refused) && !lines.contains(" is valid"), "{lines}"),
                None => assert!(lines.ends_with(" is valid\n"), "{}: {lines}", file.display()),
            }
        }
    }
}

#[test]
fn invalid_manifests_are_refused_with_the_path() {
    for folder in ["llamastack/invalid", "dynamo/invalid", "variant/invalid"] {
        let run = validate_folder(folder);
        assert_eq!((run.status, run.out.as_str()), (Some(1), ""));
        for file in fixture_files(folder) {
            let text = std::fs::read_to_string(&file).unwrap();
            let refused = text.lines().next().unwrap().strip_prefix("# refused: ").unwrap();
            // Compare the path if the API server names one, else its message.
            let wanted = refused.split([' ', ':', '"']).find(|word| word.starts_with("spec")).unwrap_or(refused);
            // For a reference with two forms the API server names a part of it, and we the whole.
            let wanted = match wanted {
                "spec.providers.inference.apiKey.key" => "spec.providers.inference.apiKey",
                other => other,
            };
            let lines = lines_about(&run, &file);
            assert!(lines.to_lowercase().contains(&wanted.to_lowercase()), "{}: {wanted:?}: {lines}", file.display());
        }
    }
}

const REQUEST: &str = "\
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeploymentRequest
metadata:
  name: qwen
spec:
  model: Qwen/Qwen3-0.6B
";

#[test]
fn dynamo_requests_follow_admission_rules() {
    assert_eq!(run_on(REQUEST, &["validate"]).assert_success().err, "");
    run_on(&format!("{REQUEST}  searchStrategy: thorough\n"), &["validate"]).assert_refused(
        1,
        "cr.yaml: document 1: spec.searchStrategy: Invalid value: \"thorough\": is incompatible with spec.backend \"auto\"; \
         set spec.backend to a specific backend (sglang, trtllm, or vllm). Or set spec.searchStrategy to rapid.",
    );
    let long = REQUEST.replace("qwen\n", &format!("{}\n", "a".repeat(60)));
    run_on(&long, &["validate"]).assert_refused(1, "metadata.name: Invalid value: \"aaa");
    let warned = run_on(&format!("{REQUEST}  sla: {{e2eLatency: 5, ttft: 1}}\n"), &["validate"]);
    let expected =
        "cr.yaml: document 1: warning: spec.sla: SLA must specify either (ttft and itl) or e2eLatency, not both.";
    assert!(warned.assert_success().err.contains(expected), "{}", warned.err);
    let old = REQUEST.replace("v1beta1", "v1alpha1");
    let old = format!("{old}  backend: vllm\n  profilingConfig:\n    profilerImage: profiler:latest\n");
    run_on(&old, &["validate"]).assert_refused(
        1,
        "spec.runtimeVersionOverride: Required value: is required when spec.profilingConfig.profilerImage has no parseable \
         semantic-version tag.",
    );
}

#[test]
fn errors_name_file_document_and_path() {
    let wrong =
        NEW_STACK.replace("models: [llama]", "models: [llama, {name: m, provider: nobody}]\n  networking: {port: 80}");
    let run = run_on(&format!("{OLD_STACK}---\n{wrong}"), &["validate"]);
    assert_eq!(run.status, Some(1));
    assert_eq!(run.out, "cr.yaml: document 1: LlamaStackDistribution old is valid\n");
    for line in [
        "cr.yaml: document 2: spec.networking.port: the port is 80, but the server refuses ports below 1024",
        "cr.yaml: document 2: spec.resources.models[1].provider: ",
    ] {
        assert!(run.err.contains(line), "{line:?} is not in:\n{}", run.err);
    }
}

#[test]
fn errors_use_paths_of_the_given_version() {
    let run = run_on(&OLD_STACK.replace("9000", "70000").replace("starter", "unheard-of"), &["validate"]);
    run.assert_refused(
        1,
        "cr.yaml: document 1: spec.server.containerSpec.port: 70000 is not a valid port. Set the port to a number",
    );
    run.assert_refused(1, "cr.yaml: document 1: spec.server.distribution.name: Unknown distribution \"unheard-of\".");
    assert!(!run.err.contains("networking"), "{}", run.err);
    let annotation = r#"  annotations:
    llamastack.io/v1alpha2-fields: '{"spec":{"providers":{"inference":[{"id":"a","provider":"vllm"},{"id":"a","provider":"vllm"}]}}}'
spec:"#;
    run_on(&OLD_STACK.replace("spec:", annotation), &["validate"])
        .assert_refused(1, "spec.providers.inference[1].id (of v1alpha2): ");
}

#[test]
fn schema_rule_is_reported_with_remedy() {
    let both = NEW_STACK.replace("  resources:", "  overrideConfig: {configMapName: mine}\n  resources:");
    let run = run_on(&both, &["validate"]);
    let lines: Vec<&str> = run.err.lines().filter(|line| line.contains("mutually exclusive")).collect();
    assert_eq!(lines.len(), 2, "{}", run.err);
    assert!(
        lines[0].contains("spec.providers: providers and overrideConfig are mutually exclusive. Remove one"),
        "{lines:?}"
    );
}

#[test]
fn unknown_field_suggests_the_correct_name() {
    run_on(&NEW_STACK.replace("  providers:", "  provders:"), &["validate"])
        .assert_refused(1, "cr.yaml: document 1: spec.provders: unknown field: did you mean providers?");
    run_on(&format!("{OLD_STACK}  zebra: 1\n"), &["validate"])
        .assert_refused(1, "spec.zebra: unknown field: remove it; the API server drops it");
    run_on(&format!("{OLD_STACK}sepc: {{}}\n"), &["validate"])
        .assert_refused(1, "document 1: sepc: unknown field: did you mean spec?");
}

#[test]
fn names_invalid_for_children_are_refused() {
    run_on(&OLD_STACK.replace("name: old", "name: a.b"), &["validate"])
        .assert_refused(1, "metadata.name: failed to make valid prefixed name: failed to validate name \"a.b-pvc\"");
    run_on(&OLD_STACK.replace("name: old", "labels: {a: 1}"), &["validate"])
        .assert_refused(1, "metadata.name: Required value");
    run_on(&OLD_STACK.replace("name: old", "labels: {a: 1}"), &["validate"])
        .assert_refused(1, "metadata.labels[a]: Invalid value");
    run_on(&OLD_STACK.replace("name: old", "generateName: old-"), &["validate"]).assert_success();
}

#[test]
fn unknown_version_lists_existing_versions() {
    run_on(&NEW_STACK.replace("v1alpha2", "v1"), &["validate"])
        .assert_refused(1, "apiVersion: LlamaStackDistribution has no version v1; use v1alpha1, v1alpha2");
}

#[test]
fn unchecked_references_are_noted_once() {
    let run = run_on(&format!("{NEW_STACK}---\n{NEW_STACK}"), &["validate"]);
    let expected = "not checked without a cluster: whether the referenced Secrets and ConfigMaps exist\n";
    assert_eq!(run.assert_success().err, expected);
    assert_eq!(run_on(OLD_STACK, &["validate"]).assert_success().err, "");
}

#[test]
fn misplaced_secret_is_not_quoted() {
    for key in ["apiKey: hunter2", "apiKey: {hunter2: x}", "apiKey: [hunter2]", "settings: hunter2", "id: {hunter2: 1}"]
    {
        let text = NEW_STACK.replace("apiKey:\n        secretKeyRef: {name: vllm, key: token}", key);
        let run = run_on(&text, &["validate"]);
        assert_eq!(run.status, Some(1), "{key}: {}", run.err);
        // A field name may be quoted, a value may not.
        assert!(!run.err.contains("hunter2") || run.err.contains(".hunter2: unknown field"), "{key}: {}", run.err);
    }
}

#[test]
fn warnings_exit_with_status_0() {
    let run = run_on(
        &NEW_STACK.replace("  resources:", "  storage: {kv: {type: sqlite, endpoint: x}}\n  resources:"),
        &["validate"],
    );
    assert!(
        run.assert_success()
            .err
            .contains("cr.yaml: document 1: warning: spec.storage.kv.endpoint: endpoint is only valid when"),
        "{}",
        run.err
    );
}
