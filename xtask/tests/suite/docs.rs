//! Every block of commands on a page is run by a test, or the list states why it is not.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// How the commands of a block were tried.
enum Trial {
    /// A test runs the text of the page: its file, and its name.
    RunBy(&'static str, &'static str),
    /// No test runs the text, for this reason. Tests that do the same in another way are named.
    NotRun(&'static str),
}

use Trial::{NotRun, RunBy};

const DOCS: &str = "crates/operator/tests/suite/docs.rs";
const ONE_FILE: Trial = RunBy(DOCS, "commands_of_one_file_installation_work");
const HELM: Trial = RunBy(DOCS, "commands_of_helm_installation_work");
const KUSTOMIZE: Trial = RunBy(DOCS, "commands_of_kustomize_installation_work");
const ROLLOUT: Trial = RunBy("crates/operator/tests/suite/rollout.rs", "every_command_of_the_rollout_page_works");

/// Each block by its page and the beginning of its first line.
const BLOCKS: [(&str, &str, Trial); 43] = [
    ("README.md", "cargo xtask up", RunBy("xtask/tests/suite/demo.rs", "up_runs_examples_of_every_family")),
    ("README.md", "cargo xtask test", NotRun("CI runs this command, and with it this test")),
    (
        "docs/dynamo-guide.md",
        "kubectl create secret",
        NotRun("a watch does not end; `every_example_is_accepted_and_creates_job`"),
    ),
    (
        "docs/dynamo-guide.md",
        "kubectl logs -f job/profile-<name>",
        NotRun("the name is a placeholder, and simulated pods have no log"),
    ),
    (
        "docs/dynamo-guide.md",
        "kubectl wait dgdr/review",
        NotRun("takes an hour of profiling; `disabled_auto_apply_stops_at_ready`"),
    ),
    (
        "docs/dynamo-guide.md",
        "kubectl get dgdr review -o",
        NotRun("`disabled_auto_apply_stops_at_ready` reads the same annotation"),
    ),
    (
        "docs/dynamo-guide.md",
        "kubectl patch dgdr review",
        NotRun("`deploying_request_without_auto_apply_returns_to_ready` patches the same field"),
    ),
    (
        "docs/dynamo-guide.md",
        "kubectl annotate dgdr qwen",
        NotRun("`failed_request_is_retried_by_annotation` sets the same annotation"),
    ),
    ("docs/dynamo-guide.md", "kubectl get dgdr qwen -o yaml", NotRun("the reader edits the file between two commands")),
    (
        "docs/image.md",
        "cargo xtask image",
        NotRun("a release build takes minutes; `image_of_operator_is_reproducible_and_runs` packs the debug build"),
    ),
    (
        "docs/image.md",
        "cargo xtask image --push",
        RunBy("xtask/tests/suite/image.rs", "pushed_image_is_complete_in_registry"),
    ),
    (
        "docs/install.md",
        "cargo build --release",
        NotRun("a release build takes minutes; all tests run the debug build"),
    ),
    ("docs/install.md", "docker run", NotRun("needs a container engine; `image_of_operator_is_reproducible_and_runs`")),
    ("docs/install.md", "sed 's|steersman:0.1.0|", ONE_FILE),
    ("docs/install.md", "helm install", HELM),
    ("docs/install.md", "kubectl apply --server-side -k", KUSTOMIZE),
    ("docs/install.md", "sed 's|steersman:0.1.0|", ONE_FILE),
    ("docs/install.md", "helm upgrade", HELM),
    ("docs/install.md", "helm rollback", HELM),
    ("docs/install.md", "kubectl -n steersman-system rollout undo", ONE_FILE),
    ("docs/install.md", "helm uninstall", HELM),
    ("docs/install.md", "kubectl delete crd", ONE_FILE),
    ("docs/install.md", "steersman crds --detach", ONE_FILE),
    (
        "docs/llamastack-guide.md",
        "kubectl apply -f examples",
        NotRun("waits for a real server; `up_runs_examples_of_every_family`"),
    ),
    ("docs/llamastack-guide.md", "docker build", NotRun("needs a container engine")),
    ("docs/llamastack-guide.md", "kubectl get llsd NAME", NotRun("the name is a placeholder")),
    ("docs/rollout.md", "kubectl apply --server-side", ROLLOUT),
    ("docs/rollout.md", "kubectl get crd", ROLLOUT),
    ("docs/rollout.md", "kubectl set image", ROLLOUT),
    ("docs/rollout.md", "kubectl apply -f examples/variant/test-invalid", ROLLOUT),
    ("docs/rollout.md", "kubectl apply -f examples/variant/test-different", ROLLOUT),
    ("docs/rollout.md", "kubectl create configmap", ROLLOUT),
    ("docs/rollout.md", "kubectl delete -f", ROLLOUT),
    ("docs/troubleshooting.md", "steersman preflight", ONE_FILE),
    ("docs/troubleshooting.md", "kubectl get pods,jobs", ONE_FILE),
    ("docs/troubleshooting.md", "kubectl annotate secret", ONE_FILE),
    (
        "docs/troubleshooting.md",
        "kubectl get --raw",
        NotRun("simulated pods serve no port; tests read /readyz of the process"),
    ),
    ("docs/troubleshooting.md", "kubectl get lease", ONE_FILE),
    ("docs/troubleshooting.md", "steersman rbac | kubectl apply", ONE_FILE),
    ("docs/troubleshooting.md", "steersman webhooks --remove", ONE_FILE),
    ("docs/variant-guide.md", "kubectl get va llama", NotRun("the object is one of the reader")),
    (
        "docs/variant-guide.md",
        "kubectl get va llama -o jsonpath",
        NotRun("the object is one of the reader; `wva_28_replicas_meet_latency_targets` reads the same fields"),
    ),
    ("docs/variant-guide.md", "kubectl patch configmap", ROLLOUT_OF_SETTINGS),
];

/// The page of the rollout has the same three steps for its own ConfigMap.
const ROLLOUT_OF_SETTINGS: Trial =
    NotRun("`every_command_of_the_rollout_page_works` patches the ConfigMap of another name");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All pages with commands for users, relative to the root.
fn pages() -> BTreeSet<String> {
    let docs =
        fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let docs = docs.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}"));
    docs.chain(["README.md".to_owned(), "cluster/README.md".to_owned()]).collect()
}

/// The first line of each block of shell commands.
fn blocks(page: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut lines = text.lines().map(str::trim_start);
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```").filter(|language| !language.is_empty()) {
            let first = lines.next().unwrap();
            assert!(
                !["bash", "shell", "console"].contains(&language),
                "{page}: blocks of commands have the language sh"
            );
            if language == "sh" {
                found.push(first.to_owned());
            }
            lines.by_ref().find(|line| *line == "```");
        }
    }
    found
}

#[test]
fn every_command_block_is_run_or_excused() {
    let mut listed = 0;
    for page in pages() {
        let of_page: Vec<_> = BLOCKS.iter().filter(|(of, _, _)| *of == page).collect();
        let found = blocks(&page);
        assert_eq!(found.len(), of_page.len(), "{page}: {found:?}");
        for (line, (_, start, _)) in found.iter().zip(&of_page) {
            assert!(line.starts_with(start), "{page}: {line} is listed as {start}");
        }
        listed += of_page.len();
    }
    assert_eq!(listed, BLOCKS.len(), "a page of the list does not exist");
}

#[test]
fn named_tests_of_commands_exist() {
    for (page, start, trial) in &BLOCKS {
        match trial {
            RunBy(file, test) => {
                let text = fs::read_to_string(root().join(file)).unwrap();
                assert!(text.contains(&format!("fn {test}()")), "{page}: {start}: {file} has no test {test}");
            }
            NotRun(why) => assert!(why.len() > 20, "{page}: {start}: {why}"),
        }
    }
}
