//! Developer commands. `cargo xtask up` runs a local cluster, `cargo xtask test` runs everything that CI checks.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool prints to its user")]

mod api_reference;
mod bench;
mod chart_values;
mod check;
mod command;
mod coverage;
mod fields;
mod fuzz;
mod go_programs;
mod guard;
mod image;
mod layers;
mod llamastack_real;
mod operator;
mod progress;
mod python;
mod real;
mod security;
mod terminal;
mod test;
mod up;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Developer commands of Steersman.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
pub struct Arguments {
    /// Set by the guard on its worker process.
    #[arg(long, hide = true)]
    worker: bool,
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Start a local cluster with simulated GPU nodes, apply the examples and show their state; Ctrl-C ends it
    Up(up::Up),
    /// Run what CI runs: format, lints, dependencies, generated files, unit and property tests, suites on the local cluster
    Test(test::Test),
    /// Run the fuzz targets of `fuzz/` for a longer time; `cargo xtask test --suite fuzz` runs each for seconds
    Fuzz(fuzz::Fuzz),
    /// Measure how many lines of the configuration engine are executed by tests; fails below 80 %
    Coverage(coverage::Coverage),
    /// Run one benchmark, in release mode; it fails if a value exceeds its goal; `variant` only prints its goals
    Bench(bench::Bench),
    /// Write a container image of the operator, without a container engine: the same sources give the same digest
    Image(image::ImageCommand),
    /// Fail if a generated file is out of date, if code makes a decision by the text of a message, or if the sources exceed
    /// the limits for plain wording
    Check(check::Check),
}

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == guard::KEEPER_FLAG) {
        return guard::run_as_keeper(words);
    }
    let arguments = Arguments::parse();
    let guarded = !matches!(arguments.command, Task::Check(_));
    let outcome = match (guarded, arguments.worker) {
        (true, false) => return guard::run_as_guard(),
        (true, true) => guard::watch_lifeline().and_then(|()| run(arguments.command)),
        (false, _) => run(arguments.command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // While everything is being ended, a program that has ended is no error.
            guard::block_while_stopping();
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Up(up) => up.run(),
        Task::Test(test) => test.run(),
        Task::Fuzz(fuzz) => fuzz.run(),
        Task::Coverage(coverage) => coverage.run(),
        Task::Bench(bench) => bench.run(),
        Task::Image(image) => image.run(),
        Task::Check(check) => check.run(),
    }
}

/// The root of the clone that this program was built from.
fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

/// The folder in which cargo builds, unless a configuration file of cargo sets another one.
fn target_folder() -> PathBuf {
    let set = std::env::var_os("CARGO_TARGET_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    set.map_or_else(|| root().join("target"), |folder| root().join(folder))
}
