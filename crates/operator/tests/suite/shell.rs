//! Runs the commands of a page or of a printed note in a shell, as an administrator of the cluster does at a terminal.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use steersman_testkit::Cluster;
use steersman_testkit::binaries::{Binaries, HELM};

use crate::command::{CommandOutput, run};

/// The root folder of the repository, in which the commands of pages run.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A home folder, and a `PATH` with `kubectl`, `steersman`, and `helm` if it is built. All use the cluster.
pub struct Shell {
    home: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Shell {
    /// `log` is the log of the operator, which `kubectl logs` prints: pods are simulated and have none.
    pub fn new(cluster: &Cluster, log: &Path) -> Self {
        let home = tempfile::tempdir().unwrap();
        let bin = home.path().join("bin");
        fs::create_dir_all(&bin).unwrap();
        let kubectl = Binaries::find().unwrap().unwrap().path("kubectl");
        let script = format!(
            "#!/bin/bash\nfor word in \"$@\"; do if [ \"$word\" = logs ]; then exec cat {}; fi; done\nexec {} \"$@\"\n",
            log.display(),
            kubectl.display(),
        );
        let program = bin.join("kubectl");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        symlink(env!("CARGO_BIN_EXE_steersman"), bin.join("steersman")).unwrap();
        if let Some(binaries) = HELM.find().unwrap() {
            symlink(binaries.path("helm"), bin.join("helm")).unwrap();
        }
        Self { home, kubeconfig: cluster.admin_kubeconfig() }
    }

    fn command(&self, options: &[&str], commands: &str) -> Command {
        let mut shell = Command::new("bash");
        shell.args(options).args(["-c", commands]).current_dir(root()).env_clear();
        shell.env("PATH", format!("{}:/usr/bin:/bin", self.home.path().join("bin").display()));
        shell.env("HOME", self.home.path()).env("KUBECONFIG", &self.kubeconfig);
        shell
    }

    /// Runs the commands until the first that fails.
    pub async fn run(&self, commands: &str) -> CommandOutput {
        run(self.command(&["-e", "-o", "pipefail"], commands)).await
    }

    /// Runs all commands, even if some fail.
    pub async fn run_all(&self, commands: &str) -> CommandOutput {
        run(self.command(&[], commands)).await
    }
}

/// A block of code on a page.
#[derive(Debug)]
pub struct CodeBlock {
    /// The heading above it.
    pub heading: String,
    pub language: String,
    pub text: String,
}

/// The blocks of code of `docs/NAME.md`, without the indentation of lists.
pub fn code_blocks(name: &str) -> Vec<CodeBlock> {
    let page = fs::read_to_string(root().join(format!("docs/{name}.md"))).unwrap();
    let (mut blocks, mut heading) = (Vec::<CodeBlock>::new(), String::new());
    let mut open: Option<(usize, CodeBlock)> = None;
    for line in page.lines() {
        let words = line.trim_start();
        match (&mut open, words.strip_prefix("```")) {
            (None, Some(language)) => {
                let block = CodeBlock { heading: heading.clone(), language: language.into(), text: String::new() };
                open = Some((line.len() - words.len(), block));
            }
            (Some(_), Some("")) => blocks.extend(open.take().map(|(_, block)| block)),
            (Some((indent, block)), _) => {
                block.text.push_str(line.get(*indent..).unwrap_or_default());
                block.text.push('\n');
            }
            (None, None) => {
                if let Some(title) = words.strip_prefix('#') {
                    heading = title.trim_start_matches('#').trim().to_owned();
                }
            }
        }
    }
    blocks
}

/// The text of the only block of this language under the heading.
#[track_caller]
pub fn code_under(blocks: &[CodeBlock], heading: &str, language: &str) -> String {
    let found: Vec<_> = blocks.iter().filter(|block| block.heading == heading && block.language == language).collect();
    assert_eq!(found.len(), 1, "blocks of {language} under {heading}: {blocks:?}");
    found[0].text.clone()
}
