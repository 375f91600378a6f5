//! The steps of `cargo xtask test`, in the order in which they run: quick ones first.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use clap::builder::{PossibleValue, PossibleValuesParser};
use steersman_testkit::binaries::REGISTRY;
use steersman_testkit::real_node::PARTS_VARIABLE;

use super::session::Session;
use crate::command::{cargo, run};
use crate::{check, go_programs, llamastack_real as real_packages, python, real};

pub struct TestStep {
    /// Name of the step, and of its test binary if it has one.
    pub name: &'static str,
    pub about: &'static str,
    /// Whether the step needs the programs of the local cluster.
    pub on_cluster: bool,
    /// Whether the step mostly waits, on its own cluster. Neighbouring steps of this kind run at the same time.
    pub concurrent: bool,
    pub run: Run,
}

type Run = fn(&mut Session) -> Result<()>;

impl TestStep {
    const fn new(name: &'static str, about: &'static str, run: Run) -> Self {
        Self { name, about, on_cluster: false, concurrent: false, run }
    }

    const fn on_cluster(name: &'static str, about: &'static str, run: Run) -> Self {
        Self { on_cluster: true, ..Self::new(name, about, run) }
    }

    const fn concurrent(name: &'static str, about: &'static str, run: Run) -> Self {
        Self { concurrent: true, ..Self::on_cluster(name, about, run) }
    }
}

pub const STEPS: [TestStep; 14] = [
    TestStep::new("format", "formatting of the code", format),
    TestStep::new("clippy", "lints", clippy),
    TestStep::new("deny", "dependencies: licences, sources, banned crates", deny),
    TestStep::new("drift", "generated files and other rules of `cargo xtask check`", |_| check::Check::default().run()),
    TestStep::new("unit", "unit and property tests", unit),
    TestStep::new("fuzz", "a short run of every fuzz target", fuzz_targets),
    TestStep::new("llamastack-real", "generated configurations, checked by the real Llama Stack", llamastack_real),
    TestStep::on_cluster("cluster", "the local cluster itself", |session| session.run_suite("cluster", &[])),
    TestStep::on_cluster("operator", "the operator on the local cluster", |session| {
        go_programs::helm()?;
        session.run_suite("operator", MANY_THREADS)
    }),
    TestStep::concurrent("llamastack", "user scenarios of LlamaStackDistributions", |session| {
        run_scenarios(session, "llamastack", MANY_THREADS)
    }),
    TestStep::concurrent("dynamo", "user scenarios of DynamoGraphDeploymentRequests", |session| {
        run_scenarios(session, "dynamo", MANY_THREADS)
    }),
    TestStep::concurrent("variant", "user scenarios of VariantAutoscalings", |session| {
        run_scenarios(session, "variant", MANY_THREADS)
    }),
    TestStep::on_cluster("hostile", "attacks of one tenant while another is served", |session| {
        run_scenarios(session, "hostile", FEW_THREADS)
    }),
    TestStep::on_cluster(
        "commands",
        "the commands of `cargo xtask`, and the rules for crates, modules and requirement pages",
        |session| {
            go_programs::build_once(&REGISTRY, &[])?;
            run_scenarios(session, "commands", FEW_THREADS)
        },
    ),
];

/// Steps that run only if they are named: they need large downloads and much time.
pub const ON_DEMAND: [TestStep; 2] = [
    TestStep::on_cluster("dynamo-real", "DynamoGraphDeploymentRequests with the real profiler", dynamo_real),
    TestStep::on_cluster(
        "real",
        "the operator, its servers and Dynamo's profiler in containers (skipped without root)",
        real_node,
    ),
];

pub fn names() -> PossibleValuesParser {
    let value = |step: &TestStep, note: &str| PossibleValue::new(step.name).help(format!("{}{note}", step.about));
    let usual = STEPS.iter().map(|step| value(step, ""));
    PossibleValuesParser::new(usual.chain(ON_DEMAND.iter().map(|step| value(step, " (runs only if named)"))))
}

/// `cargo test` for the whole workspace: a selection of packages would change the features of shared dependencies, which
/// would be compiled again.
pub fn test_command() -> Command {
    let mut command = cargo();
    command.args(["test", "--workspace", "--locked"]);
    command
}

fn format(_: &mut Session) -> Result<()> {
    let mut command = cargo();
    command.args(["fmt", "--all", "--", "--check"]);
    run(&command).context("the code is not formatted; run `cargo fmt --all`")
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
    session.run_cargo_test(command)
}

fn fuzz_targets(session: &mut Session) -> Result<()> {
    let mut command = test_command();
    command.args(["--test", "fuzz"]);
    session.run_cargo_test(command)
}

fn llamastack_real(session: &mut Session) -> Result<()> {
    let Some(python) = python::find() else {
        return session.skip("llamastack-real", "Python 3.12 was not found; install it as `python3.12`");
    };
    let packages = python.packages()?;
    let command = real_packages::command(&python, &packages, &session.folder.join("llamastack-real"))?;
    session.run_test_command(&command)
}

fn dynamo_real(session: &mut Session) -> Result<()> {
    let Some(python) = python::find() else {
        return session.skip("dynamo-real", "Python 3.12 was not found; install it as `python3.12`");
    };
    let packages = python.dynamo()?;
    go_programs::cluster_programs()?;
    let mut command = test_command();
    command.args(["--test", "operator", "--", "--ignored", "dynamo::real_profiler"]);
    command.env("STEERSMAN_DYNAMO_PYTHON", python.program()).env("STEERSMAN_DYNAMO_PACKAGES", packages);
    session.run_cargo_test(command)
}

fn real_node(session: &mut Session) -> Result<()> {
    if let Some(why) = real::missing_requirement()? {
        return session.skip_on_this_machine("real", &why);
    }
    session.stop_clusters();
    let parts = real::prepare(false)?;
    let description = session.folder.join("real.json");
    fs::write(&description, serde_json::to_vec(&parts)?)
        .with_context(|| format!("cannot write {}", description.display()))?;
    let mut command = test_command();
    command.args(["--test", "real"]).args(FEW_THREADS).env(PARTS_VARIABLE, description);
    session.run_cargo_test(command)?;
    // The command that users run, with the programs and images that the suite has used.
    let mut command = test_command();
    command.args(["--test", "commands", "--", "--ignored", "--test-threads", "1", "real_node::"]);
    session.run_cargo_test(command)
}

/// For tests that mostly wait for the cluster: more threads than processors.
const MANY_THREADS: &[&str] = &["--", "--test-threads", "10"];

/// For tests that each start a cluster and an operator.
const FEW_THREADS: &[&str] = &["--", "--test-threads", "4"];

/// Runs a test binary that starts its own cluster.
fn run_scenarios(session: &mut Session, test: &str, arguments: &[&str]) -> Result<()> {
    go_programs::cluster_programs()?;
    session.stop_clusters();
    let mut command = test_command();
    command.args(["--test", test]).args(arguments);
    session.run_cargo_test(command)
}

/// Pinned, because the format of `deny.toml` changes between versions.
const CARGO_DENY: &str = "0.20.2";

fn deny(_: &mut Session) -> Result<()> {
    let tools = steersman_testkit::cache::folder()?.join(format!("tools/cargo-deny-{CARGO_DENY}"));
    let program = tools.join("bin/cargo-deny");
    if !program.is_file() {
        eprintln!("installing cargo-deny {CARGO_DENY} (once; some minutes)");
        let mut install = cargo();
        install.args(["install", "--locked", "--no-default-features", "--version", CARGO_DENY, "--root"]).arg(&tools);
        install.arg("cargo-deny");
        let advice = "check that `cargo` reaches crates.io, then run this again";
        run(&install).with_context(|| format!("cannot install cargo-deny, which checks the dependencies: {advice}"))?;
    }
    let mut command = Command::new(program);
    command.current_dir(crate::root()).args(["--locked", "check", "bans", "licenses", "sources"]);
    run(&command)
}
