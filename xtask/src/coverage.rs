//! `cargo xtask coverage`: measures which lines of the configuration engine the tests of `plan` execute.

mod llvm;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;
use steersman_testkit::cache::{self, RunFolder};

use crate::command::{run, show};
use crate::test::test_command;
use llvm::LlvmTools;

/// The configuration engine of LlamaStackDistributions, to which requirement 5.1 applies.
const MEASURED: &str = "crates/plan/src/llamastack/config";

/// Smallest share of executed lines, in per cent.
const MIN_PERCENT: f64 = 80.0;

/// Test binaries that run the engine.
const TESTS: [&str; 4] = ["--test", "plan", "--test", "vectors"];

#[derive(Args)]
pub struct Coverage {
    /// List each file
    #[arg(long)]
    files: bool,
}

impl Coverage {
    pub fn run(self) -> Result<()> {
        let tools = llvm::find()?;
        let folder = RunFolder::create(&cache::runs_folder()?)?;
        let compiler = instrumenting_compiler()?;
        let mut tests = instrumented(&compiler);
        tests.env("LLVM_PROFILE_FILE", folder.path().join("%p-%m.profraw"));
        run(&tests)?;
        let report = report(&tools, &compiler, folder.path())?;
        if self.files {
            for file in report["files"].as_array().into_iter().flatten() {
                println!("{:>6.1} %  {}", percent(file), file["filename"].as_str().map_or("", relative));
            }
        }
        let (covered, count) = (&report["totals"]["lines"]["covered"], &report["totals"]["lines"]["count"]);
        let total = report["totals"]["lines"]["percent"].as_f64().unwrap_or_default();
        println!("{total:.1} % of the lines of {MEASURED} are executed by tests ({covered} of {count})");
        ensure!(total >= MIN_PERCENT, "the tests execute less than {MIN_PERCENT} % of {MEASURED}; add tests");
        Ok(())
    }
}

fn percent(file: &Value) -> f64 {
    file["summary"]["lines"]["percent"].as_f64().unwrap_or_default()
}

fn relative(file: &str) -> &str {
    file.split_once(MEASURED).map_or(file, |(_, name)| name.trim_start_matches('/'))
}

/// A wrapper of the compiler. Cargo uses it for the crates of the workspace alone, so that dependencies are not compiled again.
fn instrumenting_compiler() -> Result<PathBuf> {
    let folder = crate::target_folder().join("coverage");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let path = folder.join("rustc");
    let write = || {
        fs::write(&path, "#!/bin/sh\nexec \"$@\" -C instrument-coverage\n")?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn instrumented(compiler: &Path) -> Command {
    let mut command = test_command();
    command.args(TESTS).env("RUSTC_WORKSPACE_WRAPPER", compiler);
    command
}

/// The coverage of the measured folder.
fn report(tools: &LlvmTools, compiler: &Path, folder: &Path) -> Result<Value> {
    let mut profiles = Vec::new();
    for entry in fs::read_dir(folder)? {
        profiles.push(entry?.path());
    }
    profiles.retain(|path| path.extension().is_some_and(|extension| extension == "profraw"));
    ensure!(!profiles.is_empty(), "the tests wrote no profile");
    let merged = folder.join("merged.profdata");
    let mut merge = tools.command("llvm-profdata");
    merge.args(["merge", "--sparse", "--output"]).arg(&merged).args(&profiles);
    run(&merge)?;
    let mut export = tools.command("llvm-cov");
    export.args(["export", "--summary-only", "--instr-profile"]).arg(&merged);
    for program in test_programs(compiler)? {
        export.arg("--object").arg(program);
    }
    export.arg("--sources").arg(crate::root().join(MEASURED));
    let mut report: Value = serde_json::from_str(&output(&mut export)?).context("llvm-cov wrote no JSON")?;
    Ok(report["data"][0].take())
}

fn test_programs(compiler: &Path) -> Result<Vec<PathBuf>> {
    let mut build = instrumented(compiler);
    build.args(["--no-run", "--message-format", "json"]);
    let messages = output(&mut build)?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let programs = messages.filter(|message| message["profile"]["test"] == true);
    let programs = programs.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    Ok(programs.collect())
}

fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command.output().with_context(|| format!("cannot run `{shown}`"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{shown}` failed: {}", text.trim());
    Ok(String::from_utf8(output.stdout)?)
}
