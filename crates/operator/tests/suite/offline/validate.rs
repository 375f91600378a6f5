//! `steersman validate`. The refused manifests are those that a real API server refuses in another test, so both must agree.

use std::path::Path;

use super::{Desk, NEW, OLD, Ran, files_of, fixtures, on};

/// Valid by their schema; admission refuses them.
const REFUSED_BY_ADMISSION: [(&str, &str); 3] = [
    ("llamastack/valid/v1alpha1-empty-parts.yaml", "spec.server.distribution: one of name or image must be specified."),
    ("llamastack/valid/v1alpha2-empty-parts.yaml", "spec.providers.safety[0].id: id must not be empty if specified."),
    (
        "v1alpha2-external-providers.yaml",
        "spec.externalProviders.agents[0]: the server of this distribution has no API",
    ),
];

/// What was said of one file, both streams, when its whole folder was validated.
fn said_of(ran: &Ran, file: &Path) -> String {
    let prefix = format!("{}: ", file.display());
    ran.err
        .lines()
        .chain(ran.out.lines())
        .filter(|line| line.starts_with(&prefix))
        .map(|line| format!("{line}\n"))
        .collect()
}

fn validated(folder: &str) -> Ran {
    Desk::with(&[]).run(&["validate", "-f", fixtures(folder).to_str().unwrap()])
}

#[test]
fn what_the_api_server_accepts_is_accepted() {
    for folder in ["llamastack/valid", "dynamo/valid", "variant/valid"] {
        let ran = validated(folder);
        for file in files_of(folder) {
            let said = said_of(&ran, &file);
            match REFUSED_BY_ADMISSION.iter().find(|(path, _)| file.ends_with(path)) {
                Some((_, refused)) => assert!(said.contains(refused) && !said.contains(" is valid"), "{said}"),
                None => assert!(said.ends_with(" is valid\n"), "{}: {said}", file.display()),
            }
        }
    }
}

#[test]
fn what_the_api_server_refuses_is_refused_at_the_same_place() {
    for folder in ["llamastack/invalid", "dynamo/invalid", "variant/invalid"] {
        let ran = validated(folder);
        assert_eq!((ran.status, ran.out.as_str()), (Some(1), ""));
        for file in files_of(folder) {
            let text = std::fs::read_to_string(&file).unwrap();
            let refused = text.lines().next().unwrap().strip_prefix("# refused: ").unwrap();
            // The path where the API server says one, else its words.
            let wanted = refused.split([' ', ':', '"']).find(|word| word.starts_with("spec")).unwrap_or(refused);
            // Of a reference with two forms the API server blames a part, we the whole.
            let wanted = match wanted {
                "spec.providers.inference.apiKey.key" => "spec.providers.inference.apiKey",
                other => other,
            };
            let said = said_of(&ran, &file);
            assert!(said.to_lowercase().contains(&wanted.to_lowercase()), "{}: {wanted:?}: {said}", file.display());
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
fn requests_are_judged_by_the_rules_of_their_admission() {
    assert_eq!(on(REQUEST, &["validate"]).fine().err, "");
    on(&format!("{REQUEST}  searchStrategy: thorough\n"), &["validate"]).refused(
        1,
        "cr.yaml: document 1: spec.searchStrategy: Invalid value: \"thorough\": is incompatible with spec.backend \"auto\"; \
         set spec.backend to a specific backend (sglang, trtllm, or vllm). Or set spec.searchStrategy to rapid.",
    );
    let long = REQUEST.replace("qwen\n", &format!("{}\n", "a".repeat(60)));
    on(&long, &["validate"]).refused(1, "metadata.name: Invalid value: \"aaa");
    let warned = on(&format!("{REQUEST}  sla: {{e2eLatency: 5, ttft: 1}}\n"), &["validate"]);
    let said =
        "cr.yaml: document 1: warning: spec.sla: SLA must specify either (ttft and itl) or e2eLatency, not both.";
    assert!(warned.fine().err.contains(said), "{}", warned.err);
    let old = REQUEST.replace("v1beta1", "v1alpha1");
    let old = format!("{old}  backend: vllm\n  profilingConfig:\n    profilerImage: profiler:latest\n");
    on(&old, &["validate"]).refused(
        1,
        "spec.runtimeVersionOverride: Required value: is required when spec.profilingConfig.profilerImage has no parseable \
         semantic-version tag.",
    );
}

#[test]
fn all_errors_are_told_with_file_document_and_path() {
    let wrong =
        NEW.replace("models: [llama]", "models: [llama, {name: m, provider: nobody}]\n  networking: {port: 80}");
    let ran = on(&format!("{OLD}---\n{wrong}"), &["validate"]);
    assert_eq!(ran.status, Some(1));
    assert_eq!(ran.out, "cr.yaml: document 1: LlamaStackDistribution old is valid\n");
    for said in [
        "cr.yaml: document 2: spec.networking.port: the server refuses ports below 1024",
        "cr.yaml: document 2: spec.resources.models[1].provider: ",
    ] {
        assert!(ran.err.contains(said), "{said:?} is not in:\n{}", ran.err);
    }
}

#[test]
fn errors_of_an_old_object_have_the_paths_of_its_version() {
    let ran = on(&OLD.replace("9000", "70000").replace("starter", "unheard-of"), &["validate"]);
    ran.refused(1, "cr.yaml: document 1: spec.server.containerSpec.port: 70000 is not a port. Use a number");
    ran.refused(1, "cr.yaml: document 1: spec.server.distribution.name: Unknown distribution \"unheard-of\".");
    assert!(!ran.err.contains("networking"), "{}", ran.err);
    let kept = r#"  annotations:
    llamastack.io/v1alpha2-fields: '{"spec":{"providers":{"inference":[{"id":"a","provider":"vllm"},{"id":"a","provider":"vllm"}]}}}'
spec:"#;
    on(&OLD.replace("spec:", kept), &["validate"]).refused(1, "spec.providers.inference[1].id (of v1alpha2): ");
}

#[test]
fn a_rule_of_the_schema_is_told_once_and_with_a_way_out() {
    let both = NEW.replace("  resources:", "  overrideConfig: {configMapName: mine}\n  resources:");
    let ran = on(&both, &["validate"]);
    let told: Vec<&str> = ran.err.lines().filter(|line| line.contains("mutually exclusive")).collect();
    assert_eq!(told.len(), 2, "{}", ran.err);
    assert!(
        told[0].contains("spec.providers: providers and overrideConfig are mutually exclusive. Remove one"),
        "{told:?}"
    );
}

#[test]
fn an_unknown_field_is_an_error_that_names_the_field_that_was_meant() {
    on(&NEW.replace("  providers:", "  provders:"), &["validate"])
        .refused(1, "cr.yaml: document 1: spec.provders: unknown field: did you mean providers?");
    on(&format!("{OLD}  zebra: 1\n"), &["validate"])
        .refused(1, "spec.zebra: unknown field: remove it, the API server does not keep it");
    on(&format!("{OLD}sepc: {{}}\n"), &["validate"]).refused(1, "document 1: sepc: unknown field: did you mean spec?");
}

#[test]
fn names_that_the_children_could_not_have_are_refused() {
    on(&OLD.replace("name: old", "name: a.b"), &["validate"])
        .refused(1, "metadata.name: failed to make valid prefixed name: failed to validate name \"a.b-pvc\"");
    on(&OLD.replace("name: old", "labels: {a: 1}"), &["validate"]).refused(1, "metadata.name: Required value");
    on(&OLD.replace("name: old", "labels: {a: 1}"), &["validate"]).refused(1, "metadata.labels[a]: Invalid value");
    on(&OLD.replace("name: old", "generateName: old-"), &["validate"]).fine();
}

#[test]
fn a_version_that_does_not_exist_is_refused_with_those_that_do() {
    on(&NEW.replace("v1alpha2", "v1"), &["validate"])
        .refused(1, "apiVersion: there is no version v1 of LlamaStackDistribution; use v1alpha1, v1alpha2");
}

#[test]
fn references_are_not_checked_and_that_is_said_once() {
    let ran = on(&format!("{NEW}---\n{NEW}"), &["validate"]);
    let said = "without a cluster it was not checked that the Secrets and ConfigMaps that are referred to exist\n";
    assert_eq!(ran.fine().err, said);
    assert_eq!(on(OLD, &["validate"]).fine().err, "");
}

#[test]
fn a_secret_in_the_wrong_place_is_not_quoted() {
    for key in ["apiKey: hunter2", "apiKey: {hunter2: x}", "apiKey: [hunter2]", "settings: hunter2", "id: {hunter2: 1}"]
    {
        let text = NEW.replace("apiKey:\n        secretKeyRef: {name: vllm, key: token}", key);
        let ran = on(&text, &["validate"]);
        assert_eq!(ran.status, Some(1), "{key}: {}", ran.err);
        // The name of a field is no value.
        assert!(!ran.err.contains("hunter2") || ran.err.contains(".hunter2: unknown field"), "{key}: {}", ran.err);
    }
}

#[test]
fn warnings_leave_the_status_at_0() {
    let ran =
        on(&NEW.replace("  resources:", "  storage: {kv: {type: sqlite, endpoint: x}}\n  resources:"), &["validate"]);
    assert!(
        ran.fine().err.contains("cr.yaml: document 1: warning: spec.storage.kv.endpoint: endpoint is only valid when"),
        "{}",
        ran.err
    );
}
