//! `cargo xtask test`: runs everything that CI checks, step by step, and prints a summary: the outcome of each step, the
//! skipped tests and the test runner's closing lines.

mod session;
mod steps;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use steersman_testkit::cache::{self, RunFolder};

use crate::go_programs;
use crate::progress::elapsed;
use session::{Session, StepOutcome};
use steps::{ON_DEMAND, STEPS, TestStep};

pub use steps::test_command;

#[derive(Args)]
pub struct Test {
    /// Run only this step; may be given several times
    #[arg(long = "suite", value_name = "NAME", value_parser = steps::names())]
    suites: Vec<String>,
}

impl Test {
    pub fn run(self) -> Result<()> {
        let named = |step: &&TestStep| self.suites.iter().any(|name| name == step.name);
        let usual = STEPS.iter().filter(|step| self.suites.is_empty() || named(step));
        let chosen: Vec<&TestStep> = usual.chain(ON_DEMAND.iter().filter(named)).collect();
        if chosen.iter().any(|step| step.on_cluster) {
            let alternative = "steps without the cluster can still run, such as `cargo xtask test --suite unit`";
            go_programs::check().map_err(|missing| anyhow!("{missing}; {alternative}"))?;
        }
        let run = RunFolder::create(&cache::runs_folder()?)?;
        let mut session = Session::new(run.path());
        let started = Instant::now();
        let mut outcomes = Vec::new();
        for steps in chosen.chunk_by(|one, next| one.concurrent && next.concurrent) {
            match steps {
                [step] => outcomes.push(session.run(step)),
                steps => outcomes.extend(session.run_concurrently(steps)),
            }
        }
        let took = started.elapsed();
        let closing = std::mem::take(&mut session.closing_lines);
        let skipped = read_skipped(&session.skip_list())?;
        // Stops the clusters, whose output would otherwise follow the summary.
        drop(session);
        summarise(&outcomes, took, &skipped);
        for line in &closing {
            println!("{line}");
        }
        let failed: Vec<_> =
            outcomes.iter().filter(|ended| ended.result.is_err()).map(|ended| ended.step.name).collect();
        if !failed.is_empty() {
            bail!(
                "failed: {}; run a single step again with `cargo xtask test --suite {}`",
                failed.join(", "),
                failed[0]
            );
        }
        Ok(())
    }
}

fn read_skipped(list: &Path) -> Result<Vec<String>> {
    match std::fs::read_to_string(list) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", list.display())),
    }
}

fn summarise(outcomes: &[StepOutcome<'_>], took: Duration, skipped: &[String]) {
    println!("\n=== summary");
    for StepOutcome { step, took, result } in outcomes {
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        println!("{:<15} {:>7}  {verdict}", step.name, elapsed(*took));
    }
    println!("{:<15} {:>7}", "total", elapsed(took));
    for line in skipped {
        println!("skipped: {line}");
    }
}
