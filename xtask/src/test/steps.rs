//! The parts of `cargo xtask test`, in the order they run: what is quick to fail comes first.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::builder::PossibleValuesParser;
use steersman_testkit::skip::{self, SKIP_LIST};
use steersman_testkit::{Cluster, Flavour, Options, SHARED_CLUSTERS};

use crate::command::{cargo, run, run_lines, show};
use crate::{check, llamastack_real as real, local_cluster, progress, python};

pub struct Step {
    pub name: &'static str,
    pub about: &'static str,
    pub run: fn(&mut Session) -> Result<()>,
}

pub const STEPS: [Step; 12] = [
    Step { name: "format", about: "the code is formatted", run: format },
    Step { name: "clippy", about: "no lint warns", run: clippy },
    Step { name: "deny", about: "dependencies: licences, sources, banned crates", run: deny },
    Step {
        name: "drift",
        about: "generated files are what the code generates",
        run: |_| check::Check::default().run(),
    },
    Step { name: "unit", about: "unit and law tests", run: unit },
    Step { name: "llamastack-real", about: "configurations of Llama Stack, by the real server", run: llamastack_real },
    Step { name: "cluster", about: "the local cluster itself", run: |session| session.suite("cluster", &[]) },
    Step {
        name: "operator",
        about: "the operator on the local cluster",
        run: |session| session.suite("operator", MANY_AT_ONCE),
    },
    Step {
        name: "llamastack",
        about: "servers of Llama Stack, as their users see them",
        run: |session| scenarios(session, "llamastack"),
    },
    Step {
        name: "dynamo",
        about: "requests for graphs of Dynamo, as their users see them",
        run: |session| scenarios(session, "dynamo"),
    },
    Step {
        name: "variant",
        about: "fleets of VariantAutoscalings, as those who run them see them",
        run: |session| scenarios(session, "variant"),
    },
    Step {
        name: "commands",
        about: "the two commands, and how they end",
        run: |session| session.suite("commands", &[]),
    },
];

/// Run only where they are named: what they need is large, and takes long.
pub const ON_DEMAND: [Step; 1] =
    [Step { name: "dynamo-real", about: "requests, by the real profiler of Dynamo", run: dynamo_real }];

pub fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(STEPS.iter().chain(&ON_DEMAND).map(|step| step.name))
}

/// What the steps of one run share.
pub struct Session {
    folder: PathBuf,
    clusters: Vec<Cluster>,
    /// The lines with which the test runner closed each of its runs.
    pub closing_lines: Vec<String>,
}

impl Session {
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), clusters: Vec::new(), closing_lines: Vec::new() }
    }

    pub fn skip_list(&self) -> PathBuf {
        self.folder.join("skipped")
    }

    /// Runs one suite on the run's clusters, as many of its tests at once as the test runner likes or `more` says.
    fn suite(&mut self, name: &str, more: &[&str]) -> Result<()> {
        // Compiled before the clusters start: their start would compete with the compiler.
        let mut build = test_command();
        build.args(["--no-run", "--test", name]);
        run(&build)?;
        self.start_clusters()?;
        let mut command = test_command();
        command.args(["--test", name]).args(more).env(SHARED_CLUSTERS, &self.folder);
        self.cargo_test(command)
    }

    /// Starts both clusters, once per run.
    fn start_clusters(&mut self) -> Result<()> {
        if !self.clusters.is_empty() {
            return Ok(());
        }
        let binaries = local_cluster::programs()?;
        let started = Instant::now();
        let runtime = tokio::runtime::Runtime::new()?;
        let start = |flavour: Flavour| {
            let (binaries, folder) = (binaries.clone(), self.folder.join(flavour.folder_name()));
            async move { Cluster::start(&binaries, &folder, &Options::new(flavour)).await }
        };
        let (full, bare) = runtime.block_on(async { tokio::join!(start(Flavour::Full), start(Flavour::Bare)) });
        self.clusters =
            vec![full.context("cannot start the local cluster")?, bare.context("cannot start the bare cluster")?];
        eprintln!("two local clusters started in {}", progress::elapsed(started.elapsed()));
        Ok(())
    }

    /// Lists a step that cannot run here, or fails where skipping is not allowed.
    fn skip(&self, what: &str, why: &str) -> Result<()> {
        if skip::is_forbidden() {
            bail!("{what} would be skipped ({why}), and {} forbids that", skip::NO_SKIP);
        }
        eprintln!("skipped: {what}: {why}");
        let mut list = OpenOptions::new().create(true).append(true).open(self.skip_list())?;
        Ok(writeln!(list, "{what}: {why}")?)
    }

    /// Runs `cargo test`, keeping the runner's closing lines.
    fn cargo_test(&mut self, mut command: Command) -> Result<()> {
        command.env(SKIP_LIST, self.skip_list());
        self.test(&command)
    }

    /// Runs a command that closes as the test runner does.
    fn test(&mut self, command: &Command) -> Result<()> {
        let shown = show(command);
        let mut ran = 0;
        let closing_lines = &mut self.closing_lines;
        let status = run_lines(command, |line| {
            let Some(line) = line else { return };
            println!("{line}");
            if let Some(count) = passed(line) {
                ran += count;
                // Binaries without tests close with a line of zeros, which says nothing.
                if count > 0 || !line.contains("ok.") {
                    closing_lines.push(line.to_owned());
                }
            }
        })?;
        if !status.success() {
            bail!("`{shown}` failed ({status})");
        }
        if ran == 0 {
            bail!("`{shown}` ran no test");
        }
        Ok(())
    }
}

/// How many tests passed, if this is a closing line of the runner.
fn passed(line: &str) -> Option<usize> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    counts.split_whitespace().next()?.parse().ok()
}

/// `cargo test` over the whole workspace: choosing packages would change the features of shared dependencies and compile
/// them again.
fn test_command() -> Command {
    let mut command = cargo();
    command.args(["test", "--workspace", "--locked"]);
    command
}

fn format(_: &mut Session) -> Result<()> {
    let mut command = cargo();
    command.args(["fmt", "--all", "--", "--check"]);
    run(&command).context("run `cargo fmt --all`")
}

fn clippy(_: &mut Session) -> Result<()> {
    let mut command = cargo();
    command.args(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]);
    run(&command)
}

fn unit(session: &mut Session) -> Result<()> {
    let mut command = test_command();
    command.args(["--lib", "--bins"]);
    for pure in ["api", "plan", "vectors", "sim"] {
        command.args(["--test", pure]);
    }
    session.cargo_test(command)
}

fn llamastack_real(session: &mut Session) -> Result<()> {
    let Some(python) = python::find() else {
        return session.skip("llamastack-real", "no Python 3.12 was found; install it so that `python3.12` runs");
    };
    let packages = python.packages()?;
    let command = real::command(&python, &packages, &session.folder.join("llamastack-real"))?;
    session.test(&command)
}

fn dynamo_real(session: &mut Session) -> Result<()> {
    let Some(python) = python::find() else {
        return session.skip("dynamo-real", "no Python 3.12 was found; install it so that `python3.12` runs");
    };
    let packages = python.dynamo()?;
    local_cluster::programs()?;
    let mut command = test_command();
    command.args(["--test", "operator", "--", "--ignored", "dynamo::real"]);
    command.env("STEERSMAN_DYNAMO_PYTHON", python.program()).env("STEERSMAN_DYNAMO_PACKAGES", packages);
    session.cargo_test(command)
}

/// More at once than there are processors: most of the time they wait for the cluster.
const MANY_AT_ONCE: &[&str] = &["--", "--test-threads", "10"];

/// They have a cluster of their own, in which the CRDs stay.
fn scenarios(session: &mut Session, test: &str) -> Result<()> {
    local_cluster::programs()?;
    let mut command = test_command();
    command.args(["--test", test]).args(MANY_AT_ONCE);
    session.cargo_test(command)
}

/// The version of cargo-deny that reads our `deny.toml`.
const CARGO_DENY: &str = "0.20.2";

fn deny(_: &mut Session) -> Result<()> {
    let tools = steersman_testkit::cache::folder()?.join(format!("tools/cargo-deny-{CARGO_DENY}"));
    let program = tools.join("bin/cargo-deny");
    if !program.is_file() {
        eprintln!("installing cargo-deny {CARGO_DENY} (once; some minutes)");
        let mut install = cargo();
        install.args(["install", "--locked", "--no-default-features", "--version", CARGO_DENY, "--root"]).arg(&tools);
        install.arg("cargo-deny");
        run(&install)?;
    }
    let mut command = Command::new(program);
    command.current_dir(crate::root()).args(["--locked", "check", "bans", "licenses", "sources"]);
    run(&command)
}
