//! `steersman convert`.

use serde_json::{Value, json};

use super::{NEW_STACK, OLD_STACK, OTHER_KIND, Workspace, fixture_files, fixtures, run_on};

#[test]
fn convert_defaults_to_the_storage_version() {
    let run = run_on(OLD_STACK, &["convert"]);
    let documents = run.assert_success().documents();
    assert_eq!(documents.len(), 1);
    assert_eq!(documents[0]["apiVersion"], "llamastack.io/v1alpha2");
    assert_eq!(documents[0]["spec"]["workload"], json!({"replicas": 2}));
    assert_eq!(documents[0]["spec"]["networking"], json!({"port": 9000}));
    assert_eq!(documents[0]["metadata"]["name"], "old");
    assert_eq!(run.err, "");
}

#[test]
fn convert_accepts_versions_with_or_without_group() {
    for to in ["v1alpha1", "llamastack.io/v1alpha1"] {
        let run = run_on(NEW_STACK, &["convert", "--to", to]);
        assert_eq!(run.assert_success().documents()[0]["apiVersion"], "llamastack.io/v1alpha1");
    }
    let known = "use one of nvidia.com/v1alpha1, nvidia.com/v1beta1, llamastack.io/v1alpha1, llamastack.io/v1alpha2";
    for to in ["v2", "llamastack.io/v1beta1", "example.com/v1alpha1", ""] {
        run_on(NEW_STACK, &["convert", "--to", to]).assert_refused(2, known);
    }
}

#[test]
fn convert_keeps_order_and_other_kinds() {
    let run = run_on(&format!("{OTHER_KIND}---\n{OLD_STACK}---\n{NEW_STACK}"), &["convert", "--to", "v1alpha2"]);
    let documents = run.assert_success().documents();
    let kinds: Vec<&str> = documents.iter().map(|document| document["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["beside", "old", "new"]);
    assert_eq!(documents[0]["spec"], json!({"clusterIP": "None"}));
    assert!(run.err.contains("cr.yaml: document 1: Service beside is not converted"), "{}", run.err);
}

#[test]
fn convert_keeps_objects_without_that_version() {
    let va = "apiVersion: llmd.ai/v1alpha1\nkind: VariantAutoscaling\nmetadata: {name: v}\n";
    let run = run_on(&format!("{va}---\n{OLD_STACK}"), &["convert", "--to", "v1alpha2"]);
    let versions: Vec<Value> =
        run.assert_success().documents().iter().map(|document| document["apiVersion"].clone()).collect();
    assert_eq!(versions, ["llmd.ai/v1alpha1", "llamastack.io/v1alpha2"]);
    assert!(
        run.err.contains("document 1: VariantAutoscaling v is not converted: its API has no such version"),
        "{}",
        run.err
    );
}

#[test]
fn convert_json_is_an_object_or_list() {
    let object = run_on(OLD_STACK, &["convert", "-o", "json"]);
    assert_eq!(object.assert_success().json()["kind"], "LlamaStackDistribution");
    let list = run_on(&format!("{OLD_STACK}---\n{NEW_STACK}"), &["convert", "-o", "json"]).assert_success().json();
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&json!("List"), 2));
}

#[test]
fn lost_fields_are_reported_with_their_path() {
    // Without metadata there is no annotation that could keep the fields that v1alpha1 does not have.
    let bare = NEW_STACK.replace("metadata:\n  name: new\n  namespace: team-a\n", "");
    let run = run_on(&format!("{OLD_STACK}---\n{bare}"), &["convert", "--to", "v1alpha1"]);
    let lines: Vec<&str> = run.assert_success().err.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].starts_with("cr.yaml: document 2: spec.providers: v1alpha1 has no field for this value"),
        "{lines:?}"
    );
    assert!(
        lines[1].starts_with("cr.yaml: document 2: spec.resources: v1alpha1 has no field for this value"),
        "{lines:?}"
    );
}

#[test]
fn unknown_version_prints_no_document() {
    let unknown = OLD_STACK.replace("v1alpha1", "v1alpha7");
    let run = run_on(&format!("{OLD_STACK}---\n{unknown}"), &["convert"]);
    run.assert_refused(
        1,
        "cr.yaml: document 2: LlamaStackDistribution has no version \"llamastack.io/v1alpha7\"; its versions are",
    );
}

#[test]
fn ambiguous_strings_stay_strings() {
    let text =
        OLD_STACK.replace("name: mine", "name: mine\n      env: [{name: A, value: 'yes'}, {name: B, value: '0123'}]");
    let run = run_on(&text, &["convert"]);
    assert!(run.assert_success().out.contains("value: \"yes\"") || run.out.contains("value: 'yes'"), "{}", run.out);
    assert_eq!(run.documents()[0]["spec"]["workload"]["overrides"]["env"][1]["value"], "0123");
}

#[test]
fn every_valid_manifest_round_trips() {
    for file in fixture_files("llamastack/valid") {
        let text = std::fs::read_to_string(&file).unwrap();
        let original: Value = serde_saphyr::from_str(&text).unwrap();
        let version = original["apiVersion"].as_str().unwrap();
        let other = if version.ends_with("1") { "v1alpha2" } else { "v1alpha1" };
        let converted = run_on(&text, &["convert", "--to", other]);
        assert_eq!(converted.assert_success().err, "", "{}", file.display());
        let back = run_on(&converted.out, &["convert", "--to", version]);
        assert_eq!(back.assert_success().documents(), [original], "{}", file.display());
    }
}

#[test]
fn converted_objects_are_valid() {
    let workspace = Workspace::with_files(&[("old.yaml", OLD_STACK)]);
    let converted = workspace.run(&["convert", "-f", "old.yaml"]);
    workspace.run_with_input(&["validate", "-f", "-"], &converted.out).assert_success();
}

#[test]
fn dynamo_requests_are_converted() {
    let folder = fixtures("dynamo/valid");
    let file = folder.join("v1alpha1-required-only.yaml");
    let run = Workspace::with_files(&[]).run(&["convert", "-f", file.to_str().unwrap()]);
    let documents = run.assert_success().documents();
    assert_eq!(documents[0]["apiVersion"], "nvidia.com/v1beta1");
    let original: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(documents[0]["spec"]["model"], original["spec"]["model"]);
}
