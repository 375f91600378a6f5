//! Running other programs: bound to this process, with nothing on their input, which is the worker's lifeline.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use steersman_testkit::process::spawn_bound;

/// The cargo that runs us.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(crate::root());
    command
}

/// Runs a command with its output on ours and fails if it does.
pub fn run(mut command: Command) -> Result<()> {
    command.stdin(Stdio::null());
    let shown = show(&command);
    let status =
        spawn_bound(command).and_then(|mut child| child.wait()).with_context(|| format!("cannot run `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs a command, giving each line of its output (both kinds) to `line`.
pub fn run_lines(mut command: Command, mut line: impl FnMut(&str)) -> Result<ExitStatus> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let shown = show(&command);
    let mut child = spawn_bound(command).with_context(|| format!("cannot run `{shown}`"))?;
    let (sender, lines) = std::sync::mpsc::channel::<String>();
    let stdout = child.stdout.take().context("the output is a pipe")?;
    let stderr = child.stderr.take().context("the output is a pipe")?;
    let other = sender.clone();
    let readers = [thread::spawn(move || relay(stdout, &sender)), thread::spawn(move || relay(stderr, &other))];
    for text in lines {
        line(&text);
    }
    for reader in readers {
        let _ = reader.join();
    }
    child.wait().with_context(|| format!("cannot wait for `{shown}`"))
}

fn relay(output: impl std::io::Read, lines: &std::sync::mpsc::Sender<String>) {
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
