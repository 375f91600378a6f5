//! Runs other programs, each under a keeper (see [`crate::guard`]) that ends it and its descendants when this process ends.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::guard::{block_while_stopping, with_keeper};

/// The cargo that runs this program, without the variables that it sets for our package: build scripts that depend on such
/// variables would run again, and everything that depends on them would be compiled again.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| PACKAGE_VARIABLE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))) {
        command.env_remove(name);
    }
    command.current_dir(crate::root());
    command
}

/// Prefixes of the variables that cargo sets for a program that it runs.
const PACKAGE_VARIABLE_PREFIXES: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// Runs a command with inherited output. Fails if the command fails.
pub fn run(command: &Command) -> Result<()> {
    let shown = show(command);
    let mut child = with_keeper(command).spawn().with_context(|| format!("cannot run `{shown}`"))?;
    // `wait` would close the pipe, and the keeper would end the program.
    let _lifeline = child.stdin.take();
    let status = child.wait().with_context(|| format!("cannot run `{shown}`"))?;
    block_while_stopping();
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs a command and passes each line of its stdout and stderr to `line`, or `None` after a second without output.
pub fn run_lines(command: &Command, mut line: impl FnMut(Option<&str>)) -> Result<ExitStatus> {
    let shown = show(command);
    let mut command = with_keeper(command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run `{shown}`"))?;
    let _lifeline = child.stdin.take();
    let (sender, lines) = mpsc::channel::<String>();
    let stdout = child.stdout.take().context("stdout is not a pipe")?;
    let stderr = child.stderr.take().context("stderr is not a pipe")?;
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
    block_while_stopping();
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

/// The command line, with the name of the program instead of its path.
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
    fn cargo_command_drops_package_variables() {
        // Cargo runs this test, so it has set them here.
        let variables = ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"];
        assert!(variables.iter().all(|name| std::env::var_os(name).is_some()), "run this test with cargo");
        let command = cargo();
        let removed: Vec<_> = command.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        assert!(variables.iter().all(|name| removed.contains(&std::ffi::OsStr::new(name))), "{removed:?}");
        assert!(!removed.iter().any(|name| *name == "CARGO_TARGET_DIR" || *name == "CARGO_HOME"));
    }
}
