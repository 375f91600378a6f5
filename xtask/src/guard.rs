//! Nothing outlives a command. The process that the user starts is a thin guard; the work is done by a second process, the
//! worker, and each program that the worker runs has a keeper. Each of them holds a pipe to the one below it; whichever
//! ends, in whatever way, what was started below it is ended by the others.
//!
//! - Guard ends (Ctrl-C, `kill -9`, a closed terminal): the pipe closes, the worker ends its descendants and itself.
//! - Worker ends (done, failed, killed): its orphans become the guard's, which ends them.
//! - Guard and worker are killed at once: the pipes of the keepers close, and each ends what it keeps. The programs of the
//!   cluster have no keeper; they carry a parent-death signal.

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
use steersman_testkit::process::{detach, spawn_bound};
use steersman_testkit::{cache, tree};

/// How long the worker may take to stop before it is killed; what it had started is ended by the guard then.
const GRACE: Duration = Duration::from_secs(10);

/// The first argument of a keeper.
pub const KEEP: &str = "--keep";

/// Set in the worker once the guard is gone: nothing new shall start.
static STOPPING: AtomicBool = AtomicBool::new(false);

/// Runs this command again as a worker and keeps watch over it.
pub fn keep() -> ExitCode {
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
    let mut worker = start_worker().context("cannot start the worker process")?;
    let lifeline = Arc::new(Mutex::new(worker.stdin.take()));
    let signal = Arc::new(Mutex::new(None));
    watch_signals(worker.id(), lifeline, signal.clone())?;
    let status = worker.wait().context("cannot wait for the worker process")?;
    tree::end_descendants(std::process::id());
    // The worker had no chance to clear its folder if it was stopped or killed; what cannot be cleared now is cleared by
    // the next start, which also says why it cannot.
    let _ = cache::clear_stale_runs();
    let received = signal.lock().ok().and_then(|signal| *signal);
    let code = match (received, status.signal()) {
        (Some(signal), _) => 128 + signal,
        (None, Some(signal)) => {
            eprintln!(
                "error: the worker process was killed by signal {signal}; everything it had started has been ended"
            );
            128 + signal
        }
        (None, None) => status.code().unwrap_or(1),
    };
    Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from))
}

fn start_worker() -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    // Under another name and in a session of its own, it survives `pkill xtask`, a signal to the whole group and a closed
    // terminal, and can clean up after the guard.
    command.arg0("steersman-worker").arg("--kept").args(std::env::args_os().skip(1)).stdin(Stdio::piped());
    detach(&mut command);
    command.spawn()
}

/// A first signal closes the pipe, so that the worker stops in order; a second one, or a worker that does not stop, ends
/// everything at once.
fn watch_signals(worker: u32, lifeline: Arc<Mutex<Option<ChildStdin>>>, seen: Arc<Mutex<Option<i32>>>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT]).context("cannot listen for signals")?;
    thread::spawn(move || {
        for (count, signal) in signals.forever().enumerate() {
            if let Ok(mut seen) = seen.lock() {
                seen.get_or_insert(signal);
            }
            if count > 0 {
                send(worker, Signal::KILL);
                continue;
            }
            if let Ok(mut lifeline) = lifeline.lock() {
                lifeline.take();
            }
            // A worker that was paused cannot stop in order.
            send(worker, Signal::CONT);
            thread::spawn(move || {
                thread::sleep(GRACE);
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

/// In the worker: ends everything and this process when the guard is gone.
pub fn watch_lifeline() -> Result<()> {
    adopt_orphans()?;
    thread::Builder::new().name("lifeline".into()).spawn(|| {
        wait_for_end_of_input();
        STOPPING.store(true, Ordering::Release);
        tree::end_descendants(std::process::id());
        std::process::exit(130);
    })?;
    Ok(())
}

/// Returns, unless everything is being ended: then nothing is said or started any more.
pub fn go_on() {
    while STOPPING.load(Ordering::Acquire) {
        thread::park();
    }
}

/// The same command, below a keeper of its own.
pub fn kept(command: &Command) -> Command {
    let mut kept = Command::new("/proc/self/exe");
    kept.arg0("steersman-keeper").arg(KEEP).arg(command.get_program()).args(command.get_args()).stdin(Stdio::piped());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => kept.env(name, value),
            None => kept.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        kept.current_dir(folder);
    }
    detach(&mut kept);
    kept
}

/// In a keeper: runs the program and ends everything below it when it is done or when the worker is gone.
pub fn keep_program(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let run = || -> Result<ExitStatus> {
        adopt_orphans()?;
        thread::spawn(|| {
            wait_for_end_of_input();
            tree::end_descendants(std::process::id());
            std::process::exit(130);
        });
        let mut command = Command::new(words.next().context("a keeper needs a program")?);
        command.args(words).stdin(Stdio::null());
        let shown = command.get_program().to_owned();
        let child = spawn_bound(command);
        child.and_then(|mut child| child.wait()).with_context(|| format!("cannot run {}", shown.display()))
    };
    let outcome = run();
    tree::end_descendants(std::process::id());
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

/// The other end of the pipe never writes: the read returns when it closes.
fn wait_for_end_of_input() {
    let _ = io::stdin().lock().read_to_end(&mut Vec::new());
}

/// Orphans below this process become its own children instead of init's, so that they are found.
fn adopt_orphans() -> Result<()> {
    set_child_subreaper(Some(rustix::process::getpid())).context("cannot become the parent of orphaned processes")
}
