//! `cargo xtask fuzz`: runs the targets of `fuzz/` with libFuzzer, which is compiled from the crate `libfuzzer-sys`. The pinned
//! stable compiler can instrument code for it; only sanitizers would need another compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use clap::builder::PossibleValuesParser;
use steersman_fuzz::{MAX_INPUT_BYTES, TARGETS, Target, seeds, target};
use steersman_testkit::cache::{self, RunFolder};

use crate::command::{cargo, run, run_lines};
use crate::progress::elapsed;

#[derive(Args)]
pub struct Fuzz {
    /// Minutes of fuzzing, divided equally among the targets
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,

    /// Run one input again, such as one that failed; needs TARGET
    #[arg(long, value_name = "FILE", requires = "target", conflicts_with = "minutes")]
    input: Option<PathBuf>,

    /// Target to run; default: all, one after the other
    #[arg(value_name = "TARGET", value_parser = PossibleValuesParser::new(TARGETS.map(|target| target.name)))]
    target: Option<String>,
}

/// Longest time for one input. A slower one is a finding: a tenant could delay others with it.
const MAX_INPUT_TIME: Duration = Duration::from_secs(10);

/// Memory of the process in MiB. An input that needs more is a finding.
const MAX_MEMORY_MIB: usize = 1024;

/// Instruments all crates for libFuzzer, as cargo-fuzz does without a sanitizer.
const FUZZER_FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

impl Fuzz {
    pub fn run(self) -> Result<()> {
        let selected = self.target.as_deref().and_then(target);
        if let (Some(input), Some(target)) = (&self.input, selected) {
            return check(target, input);
        }
        let targets = selected.map_or_else(|| TARGETS.to_vec(), |target| vec![target]);
        let programs = build()?;
        let time = Duration::from_secs(self.minutes * 60 / targets.len() as u64);
        run_targets(&targets, &programs, time)
    }
}

/// Runs one input in this process, which panics if the input breaks a law.
fn check(target: Target, input: &Path) -> Result<()> {
    let bytes = fs::read(input).with_context(|| format!("--input: cannot read {}", input.display()))?;
    (target.check)(&bytes);
    println!("{}: the input breaks no law", target.name);
    Ok(())
}

/// Whether the runtime of libFuzzer, which is written in C++, can be compiled.
fn has_compiler() -> bool {
    let name = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Compiles all targets and returns the folder of the programs.
fn build() -> Result<PathBuf> {
    ensure!(has_compiler(), "libFuzzer needs a C++ compiler; install `c++`, for example with the package g++");
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = cargo();
    // With a target, the flags do not apply to build scripts and macros.
    command.args(["build", "--profile", "fuzz", "--locked", "--package", "steersman-fuzz", "--features", "libfuzzer"]);
    command.args(["--bins", "--target", &host]);
    command.env("RUSTFLAGS", FUZZER_FLAGS).env("CARGO_TARGET_DIR", folder());
    eprintln!("compiling the fuzz targets (some minutes the first time)");
    run(&command)?;
    Ok(folder().join(host).join("fuzz"))
}

/// Separate from other builds, whose flags differ.
fn folder() -> PathBuf {
    crate::target_folder().join("fuzz")
}

fn run_targets(targets: &[Target], programs: &Path, time: Duration) -> Result<()> {
    // Found inputs are kept, so that the next run continues from them.
    let corpora = cache::folder()?.join("fuzz");
    let run_folder = RunFolder::create(&cache::runs_folder()?)?;
    let mut summary = Vec::new();
    for target in targets.iter().map(|target| target.name) {
        let seeds = run_folder.path().join("seeds").join(target);
        let count = seeds::write(target, &seeds)?;
        let started = Instant::now();
        let inputs = run_target(target, programs, time, &corpora.join(target), &seeds)?;
        summary.push(format!("{target:<20} {inputs:>10} inputs, {count} seeds, {}", elapsed(started.elapsed())));
    }
    println!("\n=== fuzz targets");
    summary.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// Runs one target and returns the number of inputs.
fn run_target(target: &str, programs: &Path, time: Duration, corpus: &Path, seeds: &Path) -> Result<u64> {
    let failures = folder().join("failures");
    for folder in [corpus, &failures] {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let mut command = Command::new(programs.join(target));
    command.current_dir(crate::root()).arg(format!("-max_total_time={}", time.as_secs()));
    let failure = failures.join(format!("{target}-"));
    command.arg(format!("-artifact_prefix={}", failure.display()));
    command.arg(format!("-max_len={MAX_INPUT_BYTES}")).arg(format!("-timeout={}", MAX_INPUT_TIME.as_secs()));
    command.arg(format!("-rss_limit_mb={MAX_MEMORY_MIB}")).args(["-print_final_stats=1", "-verbosity=1"]);
    command.arg(corpus).arg(seeds);
    let mut inputs = 0;
    let mut output = Vec::new();
    let status = run_lines(&command, |line| {
        let Some(line) = line else { return };
        if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            inputs = count.trim().parse().unwrap_or_default();
        }
        // Progress lines begin with a number.
        if !line.starts_with('#') {
            output.push(line.to_owned());
        }
    })?;
    if !status.success() {
        output.iter().for_each(|line| eprintln!("{line}"));
        bail!(
            "target {target} failed: its input is in {}; run it again with `cargo xtask fuzz {target} --input FILE`, and add \
             it to fuzz/seeds/{target} with the fix",
            failures.display()
        );
    }
    Ok(inputs)
}
