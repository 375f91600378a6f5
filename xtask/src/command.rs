//! Running other programs, each below a keeper that ends it and all it started when this process ends.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::guard::{go_on, kept};

/// The cargo that runs us, with the environment in which it was called: what it tells us of our own package would make build
/// scripts that look at such variables run again, and all that depends on them be compiled again, in each direction.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| OF_OUR_PACKAGE.iter().any(|of| name.starts_with(of))) {
        command.env_remove(name);
    }
    command.current_dir(crate::root());
    command
}

/// How the names of variables begin that cargo sets for a program that it runs.
const OF_OUR_PACKAGE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// Runs a command with its output on ours and fails if it does.
pub fn run(command: &Command) -> Result<()> {
    let shown = show(command);
    let mut child = kept(command).spawn().with_context(|| format!("cannot run `{shown}`"))?;
    // Waiting would close the pipe that keeps the keeper at work.
    let _lifeline = child.stdin.take();
    let status = child.wait().with_context(|| format!("cannot run `{shown}`"))?;
    go_on();
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs a command, giving each line of its output (both kinds) to `line`, and `None` in every second without one.
pub fn run_lines(command: &Command, mut line: impl FnMut(Option<&str>)) -> Result<ExitStatus> {
    let shown = show(command);
    let mut kept = kept(command);
    kept.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = kept.spawn().with_context(|| format!("cannot run `{shown}`"))?;
    let _lifeline = child.stdin.take();
    let (sender, lines) = mpsc::channel::<String>();
    let stdout = child.stdout.take().context("the output is a pipe")?;
    let stderr = child.stderr.take().context("the output is a pipe")?;
    let other = sender.clone();
    thread::spawn(move || relay(stdout, &sender));
    thread::spawn(move || relay(stderr, &other));
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(text) => line(Some(&text)),
            Err(RecvTimeoutError::Timeout) => line(None),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait().with_context(|| format!("cannot wait for `{shown}`"))?;
    go_on();
    Ok(status)
}

fn relay(output: impl std::io::Read, lines: &mpsc::Sender<String>) {
    let mut reader = BufReader::new(output);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned();
        bytes.clear();
        if lines.send(text).is_err() {
            return;
        }
    }
}

/// A command as a person would type it.
pub fn show(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    std::iter::once(name)
        .chain(command.get_args().map(|argument| argument.to_string_lossy().into_owned()))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_not_told_of_our_own_package() {
        // As here: cargo runs this test.
        let told = ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"];
        assert!(told.iter().all(|name| std::env::var_os(name).is_some()), "run this by cargo");
        let command = cargo();
        let removed: Vec<_> = command.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        assert!(told.iter().all(|name| removed.contains(&std::ffi::OsStr::new(name))), "{removed:?}");
        assert!(!removed.iter().any(|name| *name == "CARGO_TARGET_DIR" || *name == "CARGO_HOME"));
    }
}
