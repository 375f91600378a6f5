//! The flag `-f` of all commands, tested with `validate`.

use super::{NEW_STACK, OLD_STACK, OTHER_KIND, Workspace, run_on};
use crate::command::steersman;

#[test]
fn files_and_documents_keep_their_order() {
    let workspace =
        Workspace::with_files(&[("b.yaml", &format!("{OLD_STACK}---\n{NEW_STACK}")), ("a.yaml", NEW_STACK)]);
    let run = workspace.run(&["validate", "-f", "b.yaml", "-f", "a.yaml"]);
    assert_eq!(
        run.assert_success().out,
        "b.yaml: document 1: LlamaStackDistribution old is valid\n\
         b.yaml: document 2: LlamaStackDistribution team-a/new is valid\n\
         a.yaml: document 1: LlamaStackDistribution team-a/new is valid\n"
    );
}

#[test]
fn folder_is_read_in_order_of_names() {
    let json = r#"{"apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling", "metadata": {"name": "v"}}"#;
    let workspace = Workspace::with_files(&[
        ("all/b.yml", OLD_STACK),
        ("all/a.json", json),
        ("all/c.yaml", NEW_STACK),
        ("all/README.md", "not: [a manifest"),
        ("all/deeper/d.yaml", OLD_STACK),
    ]);
    let flat = workspace.run(&["validate", "-f", "all"]);
    let lines: Vec<&str> = flat.assert_success().out.lines().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(lines, ["all/a.json", "all/b.yml", "all/c.yaml"]);
    let deep = workspace.run(&["validate", "-R", "-f", "all"]);
    assert_eq!(deep.assert_success().out.lines().count(), 4);
    assert!(deep.out.contains("all/deeper/d.yaml: document 1"), "{}", deep.out);
}

#[test]
fn dash_reads_standard_input() {
    let run = Workspace::with_files(&[]).run_with_input(&["validate", "-f", "-"], OLD_STACK);
    assert_eq!(run.assert_success().out, "standard input: document 1: LlamaStackDistribution old is valid\n");
    Workspace::with_files(&[])
        .run_with_input(&["validate", "-f", "-", "-f", "-"], OLD_STACK)
        .assert_refused(2, "standard input can be read only once");
}

#[test]
fn list_items_are_separate_objects() {
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{}", ["", "x"].map(|_| as_list_item(OLD_STACK)).concat());
    let run = run_on(&list, &["validate"]);
    assert_eq!(
        run.assert_success().out,
        "cr.yaml: document 1: items[0]: LlamaStackDistribution old is valid\n\
         cr.yaml: document 1: items[1]: LlamaStackDistribution old is valid\n"
    );
}

fn as_list_item(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("  {line}\n")).collect();
    format!("- {}", lines.concat().trim_start())
}

#[test]
fn missing_file_is_wrong_usage() {
    let workspace = Workspace::with_files(&[("empty/README.md", ""), ("good.yaml", OLD_STACK)]);
    for command in ["convert", "validate", "render"] {
        workspace.run(&[command]).assert_refused(2, "--filename <FILE>");
        workspace
            .run(&[command, "-f", "good.yaml", "-f", "gone.yaml"])
            .assert_refused(2, "gone.yaml: No such file or directory");
        workspace
            .run(&[command, "-f", "empty"])
            .assert_refused(2, "empty: the folder has no .yaml, .yml or .json file; -R includes");
    }
}

#[test]
fn unreadable_document_does_not_hide_the_others() {
    let broken = format!("{OLD_STACK}---\nkind: 'Secret\npassword: hunter2\n---\njust a text\n---\n{NEW_STACK}");
    let run = run_on(&broken, &["validate"]);
    assert_eq!(run.status, Some(1));
    assert!(run.err.contains("cr.yaml: document 2: not valid YAML at line "), "{}", run.err);
    assert!(run.err.contains("cr.yaml: document 3: not a Kubernetes object: set apiVersion and kind"), "{}", run.err);
    assert!(!run.err.contains("hunter2"), "{}", run.err);
    assert_eq!(run.out.lines().count(), 2, "{}", run.out);
    let workspace = Workspace::with_files(&[]);
    std::fs::write(workspace.folder.path().join("latin.yaml"), b"kind: \xe9").unwrap();
    workspace.run(&["validate", "-f", "latin.yaml"]).assert_refused(1, "latin.yaml: document 1: not UTF-8 text");
}

#[test]
fn other_kinds_are_skipped_unless_alone() {
    let run = run_on(&format!("{OTHER_KIND}---\n{OLD_STACK}"), &["validate"]);
    assert_eq!(
        run.assert_success().err,
        "cr.yaml: document 1: Service beside is skipped: it is not a kind of Steersman\n"
    );
    for command in ["convert", "validate", "render"] {
        run_on(OTHER_KIND, &[command]).assert_refused(1, &format!("there is nothing to {command}"));
        run_on("", &[command]).assert_refused(1, &format!("there is nothing to {command}"));
    }
}

#[test]
fn crd_sized_manifests_are_read() {
    let workspace = Workspace::with_files(&[("old.yaml", OLD_STACK)]);
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds");
    let run = workspace.run(&["validate", "-f", crds, "-f", "old.yaml"]);
    assert_eq!(run.assert_success().err.matches("CustomResourceDefinition").count(), 3, "{}", run.err);
}

#[test]
fn deeply_nested_documents_are_refused() {
    for open in ["[", "{a: ", "- ", "{\"a\":"] {
        run_on(&open.repeat(100_000), &["validate"])
            .assert_refused(1, "cr.yaml: document 1: not valid YAML at line 1, column ");
    }
}

#[test]
fn object_names_cannot_forge_output_lines() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: \"x\\nforged: all is well\"}\n";
    let run = run_on(&format!("{text}---\n{OLD_STACK}"), &["validate"]);
    assert_eq!(run.assert_success().err.lines().count(), 1, "{}", run.err);
}

#[test]
fn closed_output_pipe_is_no_error() {
    use std::process::Stdio;
    let many = [NEW_STACK; 60].join("---\n");
    let workspace = Workspace::with_files(&[("many.yaml", &many)]);
    for command in ["convert", "render"] {
        let mut child = steersman(&[command, "-f", "many.yaml"])
            .current_dir(workspace.folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(!stderr.contains("pipe"), "{stderr}");
    }
}
