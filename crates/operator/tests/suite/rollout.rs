//! Runs every command of docs/rollout.md, and compares what it prints with the page. Pods are simulated: the operator is a
//! process of the test, and `kubectl logs` prints its log.

use std::fs;
use std::path::Path;

use steersman::install;
use steersman::installation::{NAME, NAMESPACE};
use steersman::rbac::RbacArgs;
use steersman_testkit::{OperatorAccount, OperatorCommand, wait};

use crate::command::{CommandOutput, kubectl, output_of};
use crate::private_cluster::private_cluster;
use crate::shell::{Shell, code_blocks};

/// Commands that one block of the page has, and the lines that they print.
struct Step {
    commands: String,
    expected: Vec<String>,
}

/// The blocks of the page: each `sh` block is followed by a `text` block with its output.
fn steps() -> Vec<Step> {
    let mut steps = Vec::new();
    for block in code_blocks("rollout") {
        match block.language.as_str() {
            "sh" => steps.push(Step { commands: block.text, expected: Vec::new() }),
            "text" => {
                let expected = block.text.lines().map(|line| line.trim().to_owned()).collect();
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
    let steps = steps();
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

    let shell = Shell::new(cluster, operator.log().path());
    for step in &steps {
        let all_expected = |output: &CommandOutput| {
            let text = format!("{}{}", output.stdout, output.stderr);
            step.expected.iter().find(|line| !text.contains(*line)).cloned()
        };
        // The page has a command that must fail.
        let mut output = shell.run_all(&step.commands).await;
        // Lines of the log follow the command that causes them by a moment.
        if let Some(logs) = step.commands.lines().find(|line| line.starts_with("kubectl logs")) {
            let found = async || Some(shell.run(logs).await).filter(CommandOutput::is_ok);
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
