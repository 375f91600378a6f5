//! Ends every process that a command started, however the command ends. The process that the user starts is a thin guard; a
//! second process, the worker, does the work, and each program that the worker runs has a keeper as its parent. Each of
//! them holds a pipe to the one below it.
//!
//! - The guard ends (Ctrl-C, `kill -9`, a closed terminal): the pipe closes; the worker ends its descendants and itself.
//! - The worker ends (done, failed, killed): the guard restores the terminal, adopts the worker's orphans and ends them.
//! - Guard and worker are killed at once: the pipes of the keepers close, and each keeper ends its program. The programs of the
//!   cluster have no keeper; they have a parent-death signal.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process, set_child_subreaper};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use steersman_testkit::process::{detach, spawn_child_bound_to_parent};
use steersman_testkit::{cache, process_tree, real_node};

use crate::terminal::{self, SavedTerminal};

/// The worker is killed if it has not stopped after this time.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The first argument of a keeper.
pub const KEEPER_FLAG: &str = "--keep";

/// Set in the worker once the guard is gone, so that no new program is started.
static STOPPING: AtomicBool = AtomicBool::new(false);

/// Runs this command again as a worker and ends its leftovers.
pub fn run_as_guard() -> ExitCode {
    match run_worker() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_worker() -> Result<ExitCode> {
    adopt_orphans()?;
    let terminal = SavedTerminal::save();
    let mut worker = start_worker().context("cannot start the worker process")?;
    let lifeline = Arc::new(Mutex::new(worker.stdin.take()));
    let signal = Arc::new(Mutex::new(None));
    watch_signals(worker.id(), lifeline, signal.clone())?;
    let status = worker.wait().context("cannot wait for the worker process")?;
    if let Some(terminal) = terminal {
        terminal.restore_if_changed();
    }
    process_tree::end_descendants(std::process::id());
    // A worker that was stopped or killed has not removed its control group and its folder. An error is ignored: the next start
    // tries again and reports it.
    let _ = real_node::remove_abandoned();
    let _ = cache::clear_stale_runs();
    let received = signal.lock().ok().and_then(|signal| *signal);
    let code = match (received, status.signal()) {
        (Some(signal), _) => 128 + signal,
        (None, Some(signal)) => {
            eprintln!(
                "error: the worker process was killed by signal {signal}; all processes that it had started were ended"
            );
            128 + signal
        }
        (None, None) => status.code().unwrap_or(1),
    };
    Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from))
}

fn start_worker() -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    // With another name and its own session, the worker survives `pkill xtask`, a signal to the process group and a closed
    // terminal, and can clean up after the guard.
    command.arg0("steersman-worker").arg("--worker").args(std::env::args_os().skip(1)).stdin(Stdio::piped());
    detach(&mut command);
    command.spawn()
}

/// The first signal closes the pipe, so that the worker stops its programs in order. The second signal, or a worker that
/// does not stop in time, kills the worker.
fn watch_signals(
    worker: u32,
    lifeline: Arc<Mutex<Option<ChildStdin>>>,
    received: Arc<Mutex<Option<i32>>>,
) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT]).context("cannot listen for signals")?;
    thread::spawn(move || {
        for (count, signal) in signals.forever().enumerate() {
            if let Ok(mut received) = received.lock() {
                received.get_or_insert(signal);
            }
            if count > 0 {
                send(worker, Signal::KILL);
                continue;
            }
            if let Ok(mut lifeline) = lifeline.lock() {
                lifeline.take();
            }
            // A paused worker could not stop its programs.
            send(worker, Signal::CONT);
            thread::spawn(move || {
                thread::sleep(STOP_TIMEOUT);
                send(worker, Signal::KILL);
            });
        }
    });
    Ok(())
}

fn send(process: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Runs in the worker: ends its descendants and the worker itself when the guard is gone.
pub fn watch_lifeline() -> Result<()> {
    adopt_orphans()?;
    thread::Builder::new().name("lifeline".into()).spawn(|| {
        wait_for_end_of_input();
        STOPPING.store(true, Ordering::Release);
        terminal::leave();
        process_tree::end_descendants(std::process::id());
        // A killed guard cannot remove them after this process. An error is ignored: the next start tries again and reports it.
        let _ = real_node::remove_own();
        cache::remove_own_runs();
        std::process::exit(130);
    })?;
    Ok(())
}

/// Blocks for ever while everything is being ended, so that nothing more is printed or started.
pub fn block_while_stopping() {
    while STOPPING.load(Ordering::Acquire) {
        thread::park();
    }
}

/// Wraps the command in a keeper process.
pub fn with_keeper(command: &Command) -> Command {
    let mut keeper = Command::new("/proc/self/exe");
    keeper
        .arg0("steersman-keeper")
        .arg(KEEPER_FLAG)
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::piped());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => keeper.env(name, value),
            None => keeper.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        keeper.current_dir(folder);
    }
    detach(&mut keeper);
    keeper
}

/// Runs in a keeper: runs the program, and ends all descendants when the program or the worker has ended.
pub fn run_as_keeper(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let run = || -> Result<ExitStatus> {
        adopt_orphans()?;
        thread::spawn(|| {
            wait_for_end_of_input();
            process_tree::end_descendants(std::process::id());
            std::process::exit(130);
        });
        let mut command = Command::new(words.next().context("the keeper was started without a program")?);
        command.args(words).stdin(Stdio::null());
        let shown = command.get_program().to_owned();
        let child = spawn_child_bound_to_parent(command);
        child.and_then(|mut child| child.wait()).with_context(|| format!("cannot run {}", shown.display()))
    };
    let outcome = run();
    process_tree::end_descendants(std::process::id());
    match outcome {
        Ok(status) => {
            let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
            u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(127)
        }
    }
}

/// The other end of the pipe writes nothing, so the read returns when it is closed.
fn wait_for_end_of_input() {
    let _ = io::stdin().lock().read_to_end(&mut Vec::new());
}

/// Makes orphaned descendants children of this process instead of init, so that they can be found and ended.
fn adopt_orphans() -> Result<()> {
    set_child_subreaper(Some(rustix::process::getpid()))
        .context("cannot become the parent of orphaned processes (subreaper)")
}
