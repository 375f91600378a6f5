//! The parts of `cargo xtask test`, in the order they run: what is quick to fail comes first.

use std::process::Command;

use anyhow::{Context, Result};
use clap::builder::{PossibleValue, PossibleValuesParser};

use super::session::Session;
use crate::command::{cargo, run};
use crate::{check, llamastack_real as real, local_cluster, python};

pub struct Step {
    /// As the test binary is called, where it has one.
    pub name: &'static str,
    pub about: &'static str,
    /// Whether it needs the programs of the local cluster.
    pub on_cluster: bool,
    /// Whether it leaves the machine idle for the most part: then it runs beside its neighbours that do so, too.
    pub waits: bool,
    pub run: Run,
}

type Run = fn(&mut Session) -> Result<()>;

impl Step {
    const fn new(name: &'static str, about: &'static str, run: Run) -> Self {
        Self { name, about, on_cluster: false, waits: false, run }
    }

    const fn on_cluster(name: &'static str, about: &'static str, run: Run) -> Self {
        Self { on_cluster: true, ..Self::new(name, about, run) }
    }

    /// On a cluster of its own.
    const fn waiting(name: &'static str, about: &'static str, run: Run) -> Self {
        Self { waits: true, ..Self::on_cluster(name, about, run) }
    }
}

pub const STEPS: [Step; 12] = [
    Step::new("format", "the code is formatted", format),
    Step::new("clippy", "no lint warns", clippy),
    Step::new("deny", "dependencies: licences, sources, banned crates", deny),
    Step::new("drift", "generated files are what the code generates", |_| check::Check::default().run()),
    Step::new("unit", "unit and law tests", unit),
    Step::new("llamastack-real", "configurations of Llama Stack, by the real server", llamastack_real),
    Step::on_cluster("cluster", "the local cluster itself", |session| session.suite("cluster", &[])),
    Step::on_cluster("operator", "the operator on the local cluster", |session| {
        session.suite("operator", MANY_AT_ONCE)
    }),
    Step::waiting("llamastack", "servers of Llama Stack, as their users see them", |session| {
        scenarios(session, "llamastack", MANY_AT_ONCE)
    }),
    Step::waiting("dynamo", "requests for graphs of Dynamo, as their users see them", |session| {
        scenarios(session, "dynamo", MANY_AT_ONCE)
    }),
    Step::waiting("variant", "fleets of VariantAutoscalings, as those who run them see them", |session| {
        scenarios(session, "variant", MANY_AT_ONCE)
    }),
    Step::on_cluster("commands", "the two commands, and how they end", |session| {
        scenarios(session, "commands", SOME_AT_ONCE)
    }),
];

/// Run only where they are named: what they need is large, and takes long.
pub const ON_DEMAND: [Step; 1] =
    [Step::on_cluster("dynamo-real", "requests, by the real profiler of Dynamo", dynamo_real)];

pub fn names() -> PossibleValuesParser {
    let of = |step: &Step, when: &str| PossibleValue::new(step.name).help(format!("{}{when}", step.about));
    let usual = STEPS.iter().map(|step| of(step, ""));
    PossibleValuesParser::new(usual.chain(ON_DEMAND.iter().map(|step| of(step, " (only where it is named)"))))
}

/// `cargo test` over the whole workspace: choosing packages would change the features of shared dependencies and compile
/// them again.
pub fn test_command() -> Command {
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
    command.args(["--test", "operator", "--", "--ignored", "dynamo::real_profiler"]);
    command.env("STEERSMAN_DYNAMO_PYTHON", python.program()).env("STEERSMAN_DYNAMO_PACKAGES", packages);
    session.cargo_test(command)
}

/// More at once than there are processors: most of the time they wait for the cluster.
const MANY_AT_ONCE: &[&str] = &["--", "--test-threads", "10"];

/// Each has a whole cluster and an operator of its own.
const SOME_AT_ONCE: &[&str] = &["--", "--test-threads", "4"];

/// They have a cluster of their own, in which the CRDs stay.
fn scenarios(session: &mut Session, test: &str, at_once: &[&str]) -> Result<()> {
    local_cluster::programs()?;
    session.stop_clusters();
    let mut command = test_command();
    command.args(["--test", test]).args(at_once);
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
        let advice = "check that `cargo` reaches crates.io, and run this again";
        run(&install)
            .with_context(|| format!("cargo-deny cannot be installed, which checks dependencies: {advice}"))?;
    }
    let mut command = Command::new(program);
    command.current_dir(crate::root()).args(["--locked", "check", "bans", "licenses", "sources"]);
    run(&command)
}
