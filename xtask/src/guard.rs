//! Nothing outlives a command. The process that the user starts is a thin guard; the work is done by a second process that
//! holds a pipe to it. Whichever of the two ends, in whatever way, the other ends everything that was started.
//!
//! - Guard ends (Ctrl-C, `kill -9`, a closed terminal): the pipe closes, the worker ends its descendants and itself.
//! - Worker ends (done, failed, killed): its orphans become the guard's, which ends them.
//! - Both are killed at once: the programs of the cluster carry a parent-death signal.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Result};
use rustix::process::set_child_subreaper;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use steersman_testkit::{cache, tree};

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
    // The worker had no chance to clear its folder if it was stopped or killed.
    cache::clear_stale_runs()?;
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
    let arguments = std::env::args_os().skip(1);
    Command::new("/proc/self/exe")
        // Under another name and in a group of its own, it survives `pkill xtask` and a signal to the whole group, and
        // can clean up after the guard.
        .arg0("steersman-worker")
        .process_group(0)
        .arg("--kept")
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
}

/// A first signal closes the pipe, so that the worker stops in order; a second one ends everything at once.
fn watch_signals(worker: u32, lifeline: Arc<Mutex<Option<ChildStdin>>>, seen: Arc<Mutex<Option<i32>>>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT]).context("cannot listen for signals")?;
    thread::spawn(move || {
        for (count, signal) in signals.forever().enumerate() {
            if let Ok(mut seen) = seen.lock() {
                seen.get_or_insert(signal);
            }
            if count == 0 {
                if let Ok(mut lifeline) = lifeline.lock() {
                    lifeline.take();
                }
            } else if let Some(pid) = i32::try_from(worker).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    });
    Ok(())
}

/// In the worker: ends everything and this process when the guard is gone.
pub fn watch_lifeline() -> Result<()> {
    adopt_orphans()?;
    thread::Builder::new().name("lifeline".into()).spawn(|| {
        let mut nothing = Vec::new();
        // The guard never writes: the read returns when the pipe closes.
        let _ = io::stdin().lock().read_to_end(&mut nothing);
        tree::end_descendants(std::process::id());
        std::process::exit(130);
    })?;
    Ok(())
}

/// Orphans below this process become its own children instead of init's, so that they are found.
fn adopt_orphans() -> Result<()> {
    set_child_subreaper(Some(rustix::process::getpid())).context("cannot become the parent of orphaned processes")
}
