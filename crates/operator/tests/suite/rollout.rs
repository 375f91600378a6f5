//! Runs every command of docs/rollout.md, and compares what it prints with the page. Pods are simulated: the operator is a
//! process of the test, and `kubectl logs` prints its log.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use steersman::install;
use steersman::installation::{NAME, NAMESPACE};
use steersman::rbac::RbacArgs;
use steersman_testkit::binaries::Binaries;
use steersman_testkit::{OperatorAccount, OperatorCommand, wait};

use crate::command::{CommandOutput, kubectl, output_of};
use crate::private_cluster::private_cluster;

/// Commands that one block of the page has, and the lines that they print.
struct Step {
    commands: String,
    expected: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The blocks of the page: each `sh` block is followed by a `text` block with its output.
fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut blocks = page.split("\n```").skip(1);
    while let (Some(open), Some(_)) = (blocks.next(), blocks.next()) {
        let (language, body) = open.split_once('\n').unwrap();
        match language {
            "sh" => steps.push(Step { commands: body.to_owned(), expected: Vec::new() }),
            "text" => {
                let expected = body.lines().map(|line| line.trim().to_owned()).collect();
                steps.last_mut().unwrap().expected = expected;
            }
            other => panic!("a block of {other} in docs/rollout.md"),
        }
    }
    steps
}

#[tokio::test]
async fn every_command_of_the_rollout_page_works() {
    let Some(env) = private_cluster().await else { return };
    let cluster = env.cluster;
    let page = fs::read_to_string(root().join("docs/rollout.md")).unwrap();
    let steps = steps(&page);
    assert_eq!(steps.len(), 7);
    assert!(steps.iter().all(|step| !step.expected.is_empty()), "each block of commands states its output");

    // The page begins with an installation of the shipped file. Webhooks are left out: no process here serves them for other
    // families, and VariantAutoscalings have none.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("install.yaml");
    let text = install::file().unwrap();
    let documents = text.split("---\n").filter(|document| !document.contains("WebhookConfiguration\n"));
    fs::write(&file, documents.collect::<Vec<_>>().join("---\n")).unwrap();
    output_of(&mut kubectl(cluster, &["apply", "--server-side", "--force-conflicts", "-f", file.to_str().unwrap()]))
        .ok();
    let account = OperatorAccount::install_with(cluster, &RbacArgs::default().manifests().unwrap()).await.unwrap();
    assert_eq!((account.namespace.as_str(), account.name.as_str()), (NAMESPACE, NAME));
    let program = Path::new(env!("CARGO_BIN_EXE_steersman"));
    let operator = OperatorCommand::new(program, &account.kubeconfig, "rollout").start(folder.path()).unwrap();
    let ready = async || operator.log().text().contains(r#""controller started","controller":"va""#).then_some(());
    let started = wait::eventually("the controller of VariantAutoscalings starts", ready).await;
    started.unwrap_or_else(|error| panic!("{error}\n{}", operator.log().text()));

    let path = programs(folder.path(), &cluster.admin_kubeconfig(), operator.log().path());
    for step in &steps {
        // Lines of the log follow the command that causes them by a moment.
        let run = || {
            let mut shell = Command::new("bash");
            shell.args(["-c", &step.commands]).current_dir(root()).env_clear();
            shell.env("PATH", format!("{}:/usr/bin:/bin", path.display())).env("HOME", folder.path());
            output_of(&mut shell)
        };
        let all_expected = |output: &CommandOutput| {
            let text = format!("{}{}", output.stdout, output.stderr);
            step.expected.iter().find(|line| !text.contains(*line)).cloned()
        };
        let mut output = run();
        if let Some(logs) = step.commands.lines().find(|line| line.starts_with("kubectl logs")) {
            let found = async || {
                let mut shell = Command::new("bash");
                shell.args(["-c", logs]).env_clear().env("PATH", format!("{}:/usr/bin:/bin", path.display()));
                Some(output_of(&mut shell)).filter(CommandOutput::is_ok)
            };
            let logged = wait::eventually(logs, found).await.unwrap();
            output.stdout.push_str(&logged.stdout);
        }
        let missing = all_expected(&output);
        assert_eq!(missing, None, "{}\nprinted:\n{}{}", step.commands, output.stdout, output.stderr);
    }
    let cleanup = ["delete", "configmap", "variantautoscaling-config", "-n", NAMESPACE];
    output_of(&mut kubectl(cluster, &cleanup)).ok();
    drop(operator);
    output_of(&mut kubectl(cluster, &["delete", "-f", file.to_str().unwrap(), "--timeout=60s"])).ok();
}

/// A folder with `kubectl`, which uses the cluster's kubeconfig, and prints the log of the operator for `kubectl logs`.
fn programs(folder: &Path, kubeconfig: &Path, log: &Path) -> PathBuf {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let kubectl = Binaries::find().unwrap().unwrap().path("kubectl");
    let script = format!(
        "#!/bin/bash\nif [ \"$1\" = logs ]; then exec cat {}; fi\nexec {} --kubeconfig {} \"$@\"\n",
        log.display(),
        kubectl.display(),
        kubeconfig.display()
    );
    let program = bin.join("kubectl");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    bin
}
