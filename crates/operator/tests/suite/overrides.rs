//! `dgd-apply-overrides`, which the profiler runs for every graph: its installation, its input and its output.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use clap::Parser;
use serde_json::{Value, json};
use steersman::cli::{self, Cli};
use steersman::overrides;
use steersman_plan::dynamo::profile_job;

use crate::relay::env::profiling_request;

fn run(program: &Path, args: &[&str], input: &str) -> Output {
    let mut command = Command::new(program);
    command.args(args).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that refuses its input early closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn steersman(args: &[&str], input: &str) -> Output {
    let args = [&["dgd-apply-overrides"], args].concat();
    run(Path::new(env!("CARGO_BIN_EXE_steersman")), &args, input)
}

fn texts(output: &Output) -> (Option<i32>, &str, &str) {
    let text = |bytes| std::str::from_utf8(bytes).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn graph(version: &str, spec: Value) -> Value {
    json!({ "apiVersion": format!("nvidia.com/{version}"), "kind": "DynamoGraphDeployment",
        "metadata": { "name": "vllm-agg" }, "spec": spec })
}

fn blueprint() -> Value {
    let container = json!({ "name": "main", "image": "w:1", "args": ["--x"] });
    let worker = json!({ "name": "Worker", "replicas": 1, "podTemplate": { "spec": { "containers": [container] } } });
    graph("v1beta1", json!({ "components": [{ "name": "Frontend" }, worker] }))
}

#[test]
fn job_installs_binary_under_its_command_name() {
    let mut snapshot = profiling_request("team-a", json!({}));
    let overrides = json!({ "dgd": graph("v1beta1", json!({})) });
    snapshot.object.spec.overrides = Some(serde_json::from_value(overrides).unwrap());
    let job = profile_job::job(&snapshot, "planner:1.4.0");
    let installer = &job["spec"]["template"]["spec"]["initContainers"][0];
    assert_eq!(installer["name"], profile_job::INSTALLER);
    let words = [installer["command"].as_array().unwrap().clone(), installer["args"].as_array().unwrap().clone()];
    let words: Vec<String> = words.concat().iter().map(|word| word.as_str().unwrap().to_owned()).collect();
    let cli::Command::DgdApplyOverrides(args) = Cli::try_parse_from(&words).unwrap().command else {
        panic!("{words:?}")
    };
    let path = args.install_to.unwrap();
    let arguments = overrides::with_command_name(vec![path.clone().into_os_string(), "--protocol-version".into()]);
    assert_eq!(arguments, ["steersman", "dgd-apply-overrides", "--protocol-version"]);
    let env = job["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    let binary = env.iter().find(|entry| entry["name"] == "DYNAMO_DGD_APPLY_OVERRIDES_BIN").unwrap();
    assert_eq!(binary["value"].as_str(), path.to_str());
}

#[test]
fn installed_binary_merges_overrides() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dgd-apply-overrides");
    fs::write(folder.path().join(".dgd-apply-overrides.part"), "half").unwrap();
    // A restarted pod finds the file of the first run.
    for _ in 0..2 {
        let output = steersman(&["--install-to", path.to_str().unwrap()], "");
        assert_eq!(texts(&output), (Some(0), "", ""));
    }
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");
    assert_eq!(texts(&run(&path, &["--protocol-version"], "")), (Some(0), "1\n", ""));

    let container = json!({ "name": "main", "$patch": { "args": "append" }, "args": ["--y"] });
    let worker = json!({ "name": "Worker", "replicas": 3, "podTemplate": { "spec": { "containers": [container] } } });
    let mut wanted = graph("v1beta1", json!({ "components": [worker, { "name": "Nobody", "replicas": 1 }] }));
    wanted["metadata"]["labels"] = json!({ "team": "a" });
    let output = run(&path, &[], &json!({ "blueprint": blueprint(), "override": wanted }).to_string());
    let (code, out, warnings) = texts(&output);
    assert_eq!(
        (code, warnings),
        (
            Some(0),
            "warning: metadata: ignored identity/runtime fields: name\nwarning: spec.components[Nobody]: ignored because the \
             generated blueprint has no such component\n"
        )
    );
    let mut merged = blueprint();
    merged["metadata"]["labels"] = json!({ "team": "a" });
    merged["spec"]["components"][1]["replicas"] = json!(3);
    merged["spec"]["components"][1]["podTemplate"]["spec"]["containers"][0]["args"] = json!(["--x", "--y"]);
    assert_eq!(serde_json::from_str::<Value>(out).unwrap(), merged);
}

#[test]
fn invalid_input_is_one_error_line() {
    let request = |blueprint: Value, wanted: Value| json!({ "blueprint": blueprint, "override": wanted }).to_string();
    let mut with_status = graph("v1beta1", json!({}));
    with_status["status"] = json!({});
    let decode = "decode request JSON: ";
    let merge = "apply DGD override: ";
    let good = request(blueprint(), graph("v1beta1", json!({})));
    for (input, wanted) in [
        (String::new(), format!("{decode}standard input is empty")),
        ("[]".to_owned(), format!("{decode}invalid length 0")),
        ("{\"blueprint\": {".to_owned(), format!("{decode}EOF while parsing")),
        (json!({ "blueprint": blueprint() }).to_string(), "request override is required".to_owned()),
        (json!({ "blueprint": null, "override": {} }).to_string(), "request blueprint is required".to_owned()),
        (json!({ "blueprint": {}, "override": {}, "more": 1 }).to_string(), format!("{decode}unknown field `more`")),
        (json!({ "blueprint": 1, "override": {} }).to_string(), format!("{decode}invalid type: integer")),
        (format!("{good} {{}}"), format!("{decode}multiple JSON values are not allowed")),
        (
            request(json!({ "kind": "Deployment" }), graph("v1beta1", json!({}))),
            format!(
                "{merge}blueprint must be a DynamoGraphDeployment of nvidia.com/v1alpha1 or nvidia.com/v1beta1, not \
                 \"Deployment\" of \"\""
            ),
        ),
        (request(blueprint(), with_status), format!("{merge}override status is not supported")),
        (
            request(blueprint(), graph("v1beta1", json!({ "env": null }))),
            format!("{merge}override spec.env must not be null; field deletion is not supported"),
        ),
        (request(blueprint(), graph("v2", json!({}))), format!("{merge}override must be a DynamoGraphDeployment of")),
    ] {
        let output = steersman(&[], &input);
        let (code, out, stderr) = texts(&output);
        assert_eq!((code, out), (Some(1), ""), "{input}");
        assert!(
            stderr.starts_with(&format!("dgd-apply-overrides: {wanted}")) && stderr.lines().count() == 1,
            "{stderr}"
        );
    }
}

#[test]
fn oversized_input_is_refused() {
    let output = steersman(&[], &" ".repeat(17 << 20));
    let wanted = "dgd-apply-overrides: the request on standard input has more than 16777216 bytes\n";
    assert_eq!(texts(&output), (Some(1), "", wanted));
}

#[test]
fn failed_installation_names_the_path() {
    let output = steersman(&["--install-to", "/nowhere/tool"], "");
    let (code, _, stderr) = texts(&output);
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("dgd-apply-overrides: install dgd-apply-overrides to \"/nowhere/tool\": "), "{stderr}");
    assert_eq!(steersman(&["--install-to", "/x", "--protocol-version"], "").status.code(), Some(2));
}
