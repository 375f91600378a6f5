//! What `-f` means, shown with `validate`.

use super::{Desk, NEW, OLD, SERVICE, on};
use crate::command::steersman;

#[test]
fn files_are_read_in_their_order_and_documents_in_theirs() {
    let desk = Desk::with(&[("b.yaml", &format!("{OLD}---\n{NEW}")), ("a.yaml", NEW)]);
    let ran = desk.run(&["validate", "-f", "b.yaml", "-f", "a.yaml"]);
    assert_eq!(
        ran.fine().out,
        "b.yaml: document 1: LlamaStackDistribution old is valid\n\
         b.yaml: document 2: LlamaStackDistribution team-a/new is valid\n\
         a.yaml: document 1: LlamaStackDistribution team-a/new is valid\n"
    );
}

#[test]
fn a_folder_stands_for_its_manifests_in_the_order_of_their_names() {
    let json = r#"{"apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling", "metadata": {"name": "v"}}"#;
    let desk = Desk::with(&[
        ("all/b.yml", OLD),
        ("all/a.json", json),
        ("all/c.yaml", NEW),
        ("all/README.md", "not: [a manifest"),
        ("all/deeper/d.yaml", OLD),
    ]);
    let flat = desk.run(&["validate", "-f", "all"]);
    let lines: Vec<&str> = flat.fine().out.lines().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(lines, ["all/a.json", "all/b.yml", "all/c.yaml"]);
    let deep = desk.run(&["validate", "-R", "-f", "all"]);
    assert_eq!(deep.fine().out.lines().count(), 4);
    assert!(deep.out.contains("all/deeper/d.yaml: document 1"), "{}", deep.out);
}

#[test]
fn a_dash_is_standard_input() {
    let ran = Desk::with(&[]).fed(&["validate", "-f", "-"], OLD);
    assert_eq!(ran.fine().out, "standard input: document 1: LlamaStackDistribution old is valid\n");
    Desk::with(&[]).fed(&["validate", "-f", "-", "-f", "-"], OLD).refused(2, "standard input can be read once");
}

#[test]
fn items_of_a_list_are_objects_of_their_own() {
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{}", ["", "x"].map(|_| indented(OLD)).concat());
    let ran = on(&list, &["validate"]);
    assert_eq!(
        ran.fine().out,
        "cr.yaml: document 1: items[0]: LlamaStackDistribution old is valid\n\
         cr.yaml: document 1: items[1]: LlamaStackDistribution old is valid\n"
    );
}

fn indented(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("  {line}\n")).collect();
    format!("- {}", lines.concat().trim_start())
}

#[test]
fn a_file_that_is_not_there_is_wrong_usage() {
    let desk = Desk::with(&[("empty/README.md", ""), ("good.yaml", OLD)]);
    for command in ["convert", "validate", "render"] {
        desk.run(&[command]).refused(2, "--filename <FILE>");
        desk.run(&[command, "-f", "good.yaml", "-f", "gone.yaml"]).refused(2, "gone.yaml: No such file or directory");
        desk.run(&[command, "-f", "empty"]).refused(2, "empty: no file in it ends in .yaml, .yml or .json; -R looks");
    }
}

#[test]
fn a_document_that_cannot_be_read_is_invalid_and_the_others_are_still_told() {
    let broken = format!("{OLD}---\nkind: 'Secret\npassword: hunter2\n---\njust a text\n---\n{NEW}");
    let ran = on(&broken, &["validate"]);
    assert_eq!(ran.status, Some(1));
    assert!(ran.err.contains("cr.yaml: document 2: not valid YAML at line "), "{}", ran.err);
    assert!(ran.err.contains("cr.yaml: document 3: not a Kubernetes object: apiVersion and kind"), "{}", ran.err);
    assert!(!ran.err.contains("hunter2"), "{}", ran.err);
    assert_eq!(ran.out.lines().count(), 2, "{}", ran.out);
    let desk = Desk::with(&[]);
    std::fs::write(desk.folder.path().join("latin.yaml"), b"kind: \xe9").unwrap();
    desk.run(&["validate", "-f", "latin.yaml"]).refused(1, "latin.yaml: document 1: not a text in UTF-8");
}

#[test]
fn other_kinds_are_passed_over_unless_there_is_nothing_else() {
    let ran = on(&format!("{SERVICE}---\n{OLD}"), &["validate"]);
    assert_eq!(ran.fine().err, "cr.yaml: document 1: Service beside is passed over: it is none of Steersman's kinds\n");
    for command in ["convert", "validate", "render"] {
        on(SERVICE, &[command]).refused(1, &format!("there is nothing to {command}"));
        on("", &[command]).refused(1, &format!("there is nothing to {command}"));
    }
}

#[test]
fn manifests_as_large_as_a_crd_are_read() {
    let desk = Desk::with(&[("old.yaml", OLD)]);
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds");
    let ran = desk.run(&["validate", "-f", crds, "-f", "old.yaml"]);
    assert_eq!(ran.fine().err.matches("CustomResourceDefinition").count(), 3, "{}", ran.err);
}

#[test]
fn what_is_nested_without_end_is_refused() {
    for open in ["[", "{a: ", "- ", "{\"a\":"] {
        on(&open.repeat(100_000), &["validate"]).refused(1, "cr.yaml: document 1: not valid YAML at line 1, column ");
    }
}

#[test]
fn names_from_files_cannot_begin_lines_of_their_own() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: \"x\\nforged: all is well\"}\n";
    let ran = on(&format!("{text}---\n{OLD}"), &["validate"]);
    assert_eq!(ran.fine().err.lines().count(), 1, "{}", ran.err);
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    use std::process::Stdio;
    let many = [NEW; 60].join("---\n");
    let desk = Desk::with(&[("many.yaml", &many)]);
    for command in ["convert", "render"] {
        let mut child = steersman(&[command, "-f", "many.yaml"])
            .current_dir(desk.folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(!said.contains("pipe"), "{said}");
    }
}
