//! `steersman convert`.

use serde_json::{Value, json};

use super::{Desk, NEW, OLD, SERVICE, files_of, fixtures, on};

#[test]
fn without_a_version_the_stored_one_is_meant() {
    let ran = on(OLD, &["convert"]);
    let documents = ran.fine().documents();
    assert_eq!(documents.len(), 1);
    assert_eq!(documents[0]["apiVersion"], "llamastack.io/v1alpha2");
    assert_eq!(documents[0]["spec"]["workload"], json!({"replicas": 2}));
    assert_eq!(documents[0]["spec"]["networking"], json!({"port": 9000}));
    assert_eq!(documents[0]["metadata"]["name"], "old");
    assert_eq!(ran.err, "");
}

#[test]
fn a_version_may_be_named_with_or_without_its_group() {
    for to in ["v1alpha1", "llamastack.io/v1alpha1"] {
        let ran = on(NEW, &["convert", "--to", to]);
        assert_eq!(ran.fine().documents()[0]["apiVersion"], "llamastack.io/v1alpha1");
    }
    let known = "there are nvidia.com/v1alpha1, nvidia.com/v1beta1, llamastack.io/v1alpha1, llamastack.io/v1alpha2";
    for to in ["v2", "llamastack.io/v1beta1", "example.com/v1alpha1", ""] {
        on(NEW, &["convert", "--to", to]).refused(2, known);
    }
}

#[test]
fn documents_keep_their_order_and_other_kinds_stay_as_they_are() {
    let ran = on(&format!("{SERVICE}---\n{OLD}---\n{NEW}"), &["convert", "--to", "v1alpha2"]);
    let documents = ran.fine().documents();
    let kinds: Vec<&str> = documents.iter().map(|one| one["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["beside", "old", "new"]);
    assert_eq!(documents[0]["spec"], json!({"clusterIP": "None"}));
    assert!(ran.err.contains("cr.yaml: document 1: Service beside is left as it is"), "{}", ran.err);
}

#[test]
fn what_has_no_such_version_stays_as_it_is() {
    let va = "apiVersion: llmd.ai/v1alpha1\nkind: VariantAutoscaling\nmetadata: {name: v}\n";
    let ran = on(&format!("{va}---\n{OLD}"), &["convert", "--to", "v1alpha2"]);
    let versions: Vec<Value> = ran.fine().documents().iter().map(|one| one["apiVersion"].clone()).collect();
    assert_eq!(versions, ["llmd.ai/v1alpha1", "llamastack.io/v1alpha2"]);
    assert!(
        ran.err.contains("document 1: VariantAutoscaling v is left as it is: its API has no such version"),
        "{}",
        ran.err
    );
}

#[test]
fn json_is_one_object_or_a_list() {
    let one = on(OLD, &["convert", "-o", "json"]);
    assert_eq!(one.fine().json()["kind"], "LlamaStackDistribution");
    let two = on(&format!("{OLD}---\n{NEW}"), &["convert", "-o", "json"]).fine().json();
    assert_eq!((&two["kind"], two["items"].as_array().unwrap().len()), (&json!("List"), 2));
}

#[test]
fn each_loss_is_one_line_with_file_document_and_path() {
    // Without metadata there is no annotation that could keep what v1alpha1 cannot say.
    let bare = NEW.replace("metadata:\n  name: new\n  namespace: team-a\n", "");
    let ran = on(&format!("{OLD}---\n{bare}"), &["convert", "--to", "v1alpha1"]);
    let lines: Vec<&str> = ran.fine().err.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("cr.yaml: document 2: spec.providers: v1alpha1 cannot say this"), "{lines:?}");
    assert!(lines[1].starts_with("cr.yaml: document 2: spec.resources: v1alpha1 cannot say this"), "{lines:?}");
}

#[test]
fn a_document_in_an_unknown_version_leaves_nothing_printed() {
    let unknown = OLD.replace("v1alpha1", "v1alpha7");
    let ran = on(&format!("{OLD}---\n{unknown}"), &["convert"]);
    ran.refused(
        1,
        "cr.yaml: document 2: LlamaStackDistribution has no version \"llamastack.io/v1alpha7\"; its versions are",
    );
}

#[test]
fn texts_that_look_like_something_else_stay_texts() {
    let text = OLD.replace("name: mine", "name: mine\n      env: [{name: A, value: 'yes'}, {name: B, value: '0123'}]");
    let ran = on(&text, &["convert"]);
    assert!(ran.fine().out.contains("value: \"yes\"") || ran.out.contains("value: 'yes'"), "{}", ran.out);
    assert_eq!(ran.documents()[0]["spec"]["workload"]["overrides"]["env"][1]["value"], "0123");
}

#[test]
fn every_manifest_comes_back_from_the_other_version() {
    for file in files_of("llamastack/valid") {
        let text = std::fs::read_to_string(&file).unwrap();
        let given: Value = serde_saphyr::from_str(&text).unwrap();
        let version = given["apiVersion"].as_str().unwrap();
        let other = if version.ends_with("1") { "v1alpha2" } else { "v1alpha1" };
        let there = on(&text, &["convert", "--to", other]);
        assert_eq!(there.fine().err, "", "{}", file.display());
        let back = on(&there.out, &["convert", "--to", version]);
        assert_eq!(back.fine().documents(), [given], "{}", file.display());
    }
}

#[test]
fn what_is_converted_is_valid() {
    let desk = Desk::with(&[("old.yaml", OLD)]);
    let converted = desk.run(&["convert", "-f", "old.yaml"]);
    desk.fed(&["validate", "-f", "-"], &converted.out).fine();
}

#[test]
fn requests_of_dynamo_are_converted_too() {
    let folder = fixtures("dynamo/valid");
    let file = folder.join("v1alpha1-required-only.yaml");
    let ran = Desk::with(&[]).run(&["convert", "-f", file.to_str().unwrap()]);
    let documents = ran.fine().documents();
    assert_eq!(documents[0]["apiVersion"], "nvidia.com/v1beta1");
    let given: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(documents[0]["spec"]["model"], given["spec"]["model"]);
}
