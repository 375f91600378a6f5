//! One run of `cargo xtask test`: its folder, its clusters and what its steps have said.
//! Comes in: steps, one after the other or at the same time; goes out: how each ended, and the test runner's closing lines.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use steersman_testkit::skip::{self, SKIP_LIST};
use steersman_testkit::{Cluster, Flavour, Options, SHARED_CLUSTERS};

use super::steps::{Step, test_command};
use crate::command::{run, run_lines, show};
use crate::{local_cluster, progress};

/// How often it is said where the steps stand that run at the same time.
const STILL_THERE: Duration = Duration::from_secs(60);

/// How a step ended.
pub struct Outcome<'a> {
    pub step: &'a Step,
    pub took: Duration,
    pub result: Result<()>,
}

/// What the steps of one run share.
pub struct Session {
    pub folder: PathBuf,
    clusters: Vec<Cluster>,
    /// Lines that are yet to be printed, where others run at the same time.
    held: Option<Held>,
    /// The lines with which the test runner closed each of its runs.
    pub closing_lines: Vec<String>,
}

/// What a step has said so far, for itself and for who has to know where it stands.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<Vec<String>>>);

impl Held {
    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), clusters: Vec::new(), held: None, closing_lines: Vec::new() }
    }

    pub fn run<'a>(&mut self, step: &'a Step) -> Outcome<'a> {
        if self.held.is_none() {
            eprintln!("\n=== {}: {}", step.name, step.about);
        }
        let started = Instant::now();
        let result = (step.run)(self);
        if let (Err(error), None) = (&result, &self.held) {
            eprintln!("error: {error:#}");
        }
        Outcome { step, took: started.elapsed(), result }
    }

    /// All of them at the same time; each prints when it is done.
    pub fn run_at_once<'a>(&mut self, steps: &[&'a Step]) -> Vec<Outcome<'a>> {
        self.stop_clusters();
        let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
        eprintln!("\n=== {}: at the same time, each on a cluster of its own", names.join(", "));
        // In one go: they would wait for each other.
        let started = Instant::now();
        if let Err(error) = build(&names) {
            eprintln!("error: {error:#}");
            let failed = |step: &&'a Step| Outcome { step, took: started.elapsed(), result: Err(anyhow!("{error:#}")) };
            return steps.iter().map(failed).collect();
        }
        let (sender, ended) = mpsc::channel();
        let mut running: Vec<(&str, Held)> = names.iter().map(|name| (*name, Held::default())).collect();
        let mut outcomes = Vec::new();
        thread::scope(|scope| {
            for (step, (_, held)) in steps.iter().zip(&running) {
                let (sender, held) = (sender.clone(), Some(held.clone()));
                let mut beside = Self { held, ..Self::new(&self.folder) };
                scope.spawn(move || {
                    let outcome = beside.run(step);
                    // The other end is read until all have sent.
                    let _ = sender.send((outcome, beside));
                });
            }
            drop(sender);
            loop {
                let (outcome, beside): (Outcome<'a>, Self) = match ended.recv_timeout(STILL_THERE) {
                    Ok(ended) => ended,
                    Err(RecvTimeoutError::Timeout) => {
                        running.iter().for_each(|(name, held)| eprintln!("{}", stands(name, &held.lines())));
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                };
                running.retain(|(name, _)| *name != outcome.step.name);
                eprintln!("\n=== {}: {}", outcome.step.name, outcome.step.about);
                for line in beside.held.iter().flat_map(|held| held.lines().clone()) {
                    println!("{line}");
                }
                if let Err(error) = &outcome.result {
                    eprintln!("error: {error:#}");
                }
                self.closing_lines.extend(beside.closing_lines);
                outcomes.push(outcome);
            }
        });
        outcomes.sort_by_key(|ended| names.iter().position(|name| *name == ended.step.name));
        outcomes
    }

    pub fn skip_list(&self) -> PathBuf {
        self.folder.join("skipped")
    }

    /// Runs one suite on the run's clusters, as many of its tests at once as the test runner likes or `more` says.
    pub fn suite(&mut self, name: &str, more: &[&str]) -> Result<()> {
        // Compiled before the clusters start: their start would compete with the compiler.
        build(&[name])?;
        self.start_clusters()?;
        let mut command = test_command();
        command.args(["--test", name]).args(more).env(SHARED_CLUSTERS, &self.folder);
        self.cargo_test(command)
    }

    /// Ends both clusters: even idle ones take a share of the machine from whoever comes next.
    pub fn stop_clusters(&mut self) {
        self.clusters.clear();
    }

    /// Starts both clusters, unless they run.
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
    pub fn skip(&self, what: &str, why: &str) -> Result<()> {
        if skip::is_forbidden() {
            bail!("{what} would be skipped ({why}), and {} forbids that", skip::NO_SKIP);
        }
        eprintln!("skipped: {what}: {why}");
        let mut list = OpenOptions::new().create(true).append(true).open(self.skip_list())?;
        Ok(writeln!(list, "{what}: {why}")?)
    }

    /// Runs `cargo test`, keeping the runner's closing lines.
    pub fn cargo_test(&mut self, mut command: Command) -> Result<()> {
        command.env(SKIP_LIST, self.skip_list());
        self.test(&command)
    }

    /// Runs a command that closes as the test runner does.
    pub fn test(&mut self, command: &Command) -> Result<()> {
        let shown = show(command);
        let mut ran = 0;
        let Self { closing_lines, held, .. } = self;
        let status = run_lines(command, |line| {
            let Some(line) = line else { return };
            match held {
                Some(held) => held.lines().push(line.to_owned()),
                None => println!("{line}"),
            }
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

/// Compiles test binaries.
fn build(names: &[&str]) -> Result<()> {
    let mut command = test_command();
    command.arg("--no-run").args(names.iter().flat_map(|name| ["--test", name]));
    run(&command)
}

/// Where a step stands that has not ended, for whom it takes too long.
fn stands(name: &str, lines: &[String]) -> String {
    let tests: Vec<&str> =
        lines.iter().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... ")).map(|(test, _)| test).collect();
    match tests.last() {
        Some(last) => format!("  {name}: {} tests have ended, the last was {last}", tests.len()),
        None => format!("  {name}: no test has ended yet"),
    }
}

/// How many tests passed, if this is a closing line of the runner.
fn passed(line: &str) -> Option<usize> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    counts.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_step_stands_is_told_by_its_tests() {
        assert_eq!(stands("variant", &[]), "  variant: no test has ended yet");
        let lines = ["running 3 tests", "test loads::up ... ok", "test loads::down ... FAILED", ""].map(str::to_owned);
        assert_eq!(stands("variant", &lines), "  variant: 2 tests have ended, the last was loads::down");
    }
}
