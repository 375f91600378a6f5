//! Runs the steps of one `cargo xtask test`, one after the other or concurrently, and owns their clusters and output.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use steersman_testkit::skip::{self, SKIP_LIST_VARIABLE};
use steersman_testkit::{CLUSTERS_VARIABLE, Cluster, Flavour, Options};

use super::steps::{TestStep, test_command};
use crate::command::{run, run_lines, show};
use crate::{go_programs, progress};

/// Interval at which the progress of concurrent steps is printed.
const STATUS_INTERVAL: Duration = Duration::from_secs(60);

pub struct StepOutcome<'a> {
    pub step: &'a TestStep,
    pub took: Duration,
    pub result: Result<()>,
}

/// State that the steps of one run share.
pub struct Session {
    pub folder: PathBuf,
    clusters: Vec<Cluster>,
    /// Output that is printed when the step has ended. None: the step runs alone and its output is printed at once.
    held_lines: Option<HeldLines>,
    /// The `test result:` lines of the test runner.
    pub closing_lines: Vec<String>,
}

/// Output of a step so far, shared with the thread that prints the progress.
#[derive(Clone, Default)]
struct HeldLines(Arc<Mutex<Vec<String>>>);

impl HeldLines {
    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), clusters: Vec::new(), held_lines: None, closing_lines: Vec::new() }
    }

    pub fn run<'a>(&mut self, step: &'a TestStep) -> StepOutcome<'a> {
        if self.held_lines.is_none() {
            eprintln!("\n=== {}: {}", step.name, step.about);
        }
        let started = Instant::now();
        let result = (step.run)(self);
        if let (Err(error), None) = (&result, &self.held_lines) {
            eprintln!("error: {error:#}");
        }
        StepOutcome { step, took: started.elapsed(), result }
    }

    /// Runs the steps at the same time. The output of each is printed when it has ended.
    pub fn run_concurrently<'a>(&mut self, steps: &[&'a TestStep]) -> Vec<StepOutcome<'a>> {
        self.stop_clusters();
        let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
        eprintln!("\n=== {}: concurrently, each on its own cluster", names.join(", "));
        // A single build for all steps: separate builds would wait for each other.
        let started = Instant::now();
        if let Err(error) = build(&names) {
            eprintln!("error: {error:#}");
            let failed =
                |step: &&'a TestStep| StepOutcome { step, took: started.elapsed(), result: Err(anyhow!("{error:#}")) };
            return steps.iter().map(failed).collect();
        }
        let (sender, ended) = mpsc::channel();
        let mut running: Vec<(&str, HeldLines)> = names.iter().map(|name| (*name, HeldLines::default())).collect();
        let mut outcomes = Vec::new();
        thread::scope(|scope| {
            for (step, (_, held_lines)) in steps.iter().zip(&running) {
                let (sender, held_lines) = (sender.clone(), Some(held_lines.clone()));
                let mut own_session = Self { held_lines, ..Self::new(&self.folder) };
                scope.spawn(move || {
                    let outcome = own_session.run(step);
                    // The receiver lives until all have sent.
                    let _ = sender.send((outcome, own_session));
                });
            }
            drop(sender);
            loop {
                let (outcome, own_session): (StepOutcome<'a>, Self) = match ended.recv_timeout(STATUS_INTERVAL) {
                    Ok(ended) => ended,
                    Err(RecvTimeoutError::Timeout) => {
                        running
                            .iter()
                            .for_each(|(name, held_lines)| eprintln!("{}", progress_line(name, &held_lines.lines())));
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                };
                running.retain(|(name, _)| *name != outcome.step.name);
                eprintln!("\n=== {}: {}", outcome.step.name, outcome.step.about);
                for line in own_session.held_lines.iter().flat_map(|held_lines| held_lines.lines().clone()) {
                    println!("{line}");
                }
                if let Err(error) = &outcome.result {
                    eprintln!("error: {error:#}");
                }
                self.closing_lines.extend(own_session.closing_lines);
                outcomes.push(outcome);
            }
        });
        outcomes.sort_by_key(|ended| names.iter().position(|name| *name == ended.step.name));
        outcomes
    }

    pub fn skip_list(&self) -> PathBuf {
        self.folder.join("skipped")
    }

    /// Runs one test binary on the clusters of this run, with additional arguments of `cargo test`.
    pub fn run_suite(&mut self, name: &str, more: &[&str]) -> Result<()> {
        // Compiles before the clusters start, which would compete with the compiler.
        build(&[name])?;
        self.start_clusters()?;
        let mut command = test_command();
        command.args(["--test", name]).args(more).env(CLUSTERS_VARIABLE, &self.folder);
        self.run_cargo_test(command)
    }

    /// Stops both clusters: even idle ones use CPU that the next step needs.
    pub fn stop_clusters(&mut self) {
        self.clusters.clear();
    }

    /// Starts both clusters unless they are running.
    fn start_clusters(&mut self) -> Result<()> {
        if !self.clusters.is_empty() {
            return Ok(());
        }
        let binaries = go_programs::cluster_programs()?;
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

    /// Records a step that cannot run because something is not installed. Fails if skipping is forbidden.
    pub fn skip(&self, what: &str, why: &str) -> Result<()> {
        if skip::is_forbidden() {
            bail!("{what} would be skipped ({why}), but {} forbids it", skip::NO_SKIP_VARIABLE);
        }
        self.skip_on_this_machine(what, why)
    }

    /// Records a step that cannot run on this kind of machine, such as one without root. No installation could change that, so
    /// it is permitted in CI too.
    pub fn skip_on_this_machine(&self, what: &str, why: &str) -> Result<()> {
        eprintln!("skipped: {what}: {why}");
        let mut list = OpenOptions::new().create(true).append(true).open(self.skip_list())?;
        Ok(writeln!(list, "{what}: {why}")?)
    }

    /// Runs `cargo test` and keeps the runner's closing lines.
    pub fn run_cargo_test(&mut self, mut command: Command) -> Result<()> {
        command.env(SKIP_LIST_VARIABLE, self.skip_list());
        self.run_test_command(&command)
    }

    /// Runs a command whose output ends with a line like that of the test runner.
    pub fn run_test_command(&mut self, command: &Command) -> Result<()> {
        let shown = show(command);
        let mut passed = 0;
        let Self { closing_lines, held_lines, .. } = self;
        let status = run_lines(command, |line| {
            let Some(line) = line else { return };
            match held_lines {
                Some(held_lines) => held_lines.lines().push(line.to_owned()),
                None => println!("{line}"),
            }
            if let Some(count) = passed_count(line) {
                passed += count;
                // The closing line of a binary without tests contains only zeros and is left out.
                if count > 0 || !line.contains("ok.") {
                    closing_lines.push(line.to_owned());
                }
            }
        })?;
        if !status.success() {
            bail!("`{shown}` failed ({status})");
        }
        if passed == 0 {
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

/// Progress of a step that has not ended.
fn progress_line(name: &str, lines: &[String]) -> String {
    let tests: Vec<&str> =
        lines.iter().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... ")).map(|(test, _)| test).collect();
    match tests.last() {
        Some(last) => format!("  {name}: {} tests have ended, the last was {last}", tests.len()),
        None => format!("  {name}: no test has ended yet"),
    }
}

/// Number of passed tests, if this is a closing line of the test runner.
fn passed_count(line: &str) -> Option<usize> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    counts.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_counts_ended_tests() {
        assert_eq!(progress_line("variant", &[]), "  variant: no test has ended yet");
        let lines = ["running 3 tests", "test loads::up ... ok", "test loads::down ... FAILED", ""].map(str::to_owned);
        assert_eq!(progress_line("variant", &lines), "  variant: 2 tests have ended, the last was loads::down");
    }
}
