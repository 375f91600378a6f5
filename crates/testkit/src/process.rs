//! Child processes that cannot outlive this process. A child ends when its handle is dropped. A parent-death signal ends it
//! even if this process is killed with `kill -9`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;

use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal, setsid};

/// `GOGC`, the growth of the heap in percent that triggers a collection of garbage; the default is 100. The cluster's
/// programs are short-lived and bound by the processor, so they trade memory for time.
const GC_PERCENT: &str = "300";

/// A running program with its output in a log file. Dropping it kills the program.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// The file with the standard error, unless that goes to the log.
    stderr: Option<PathBuf>,
}

impl Process {
    /// Starts `program` with `home` as its home folder and its output going to `log`.
    pub fn start<S: AsRef<OsStr>>(
        name: &str,
        program: &Path,
        arguments: &[S],
        home: &Path,
        log: PathBuf,
    ) -> Result<Self> {
        let output = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut command = Command::new(program);
        // Some programs read settings from the environment or the home folder; those of the user must not apply.
        command.env_clear().env("HOME", home).env("PATH", "/usr/local/bin:/usr/bin:/bin").env("GOGC", GC_PERCENT);
        command.args(arguments).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        Self::spawn(name, command, log, None)
    }

    /// Starts a command. Its standard output goes to `log`, and its standard error to `stderr` if given.
    pub fn spawn(name: &str, command: Command, log: PathBuf, stderr: Option<PathBuf>) -> Result<Self> {
        let program = command.get_program().to_owned();
        let started = spawn_child_bound_to_parent(command);
        let child = started.with_context(|| format!("cannot start {name} ({})", Path::new(&program).display()))?;
        Ok(Self { name: name.to_owned(), child, log, stderr })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Fails with the last lines of the log if the process has ended.
    pub fn ensure_running(&mut self) -> Result<()> {
        match self.exit_status()? {
            None => Ok(()),
            Some(status) => Err(self.exit_error(status)),
        }
    }

    /// The exit status, if the process has ended.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// The standard error, unless that goes to the log.
    pub fn stderr(&self) -> String {
        self.stderr.as_ref().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
    }

    fn exit_error(&self, status: ExitStatus) -> anyhow::Error {
        let (name, log_end) = (&self.name, self.log_end());
        if log_end.contains("no space left on device") {
            let log = self.log.display();
            return anyhow!("the disk is full: {name} cannot write next to {log}; free some space and run this again");
        }
        anyhow!("{name} ended by itself ({status}); its log ends with:\n{log_end}")
    }

    /// The last lines of the log, and the standard error.
    pub fn log_end(&self) -> String {
        const MAX_LOG_END_BYTES: u64 = 3000;
        let read = || -> io::Result<String> {
            let mut file = File::open(&self.log)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(MAX_LOG_END_BYTES)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let whole_lines =
                if length > MAX_LOG_END_BYTES { text.split_once('\n').map(|(_, rest)| rest.to_owned()) } else { None };
            Ok(whole_lines.unwrap_or(text))
        };
        read().unwrap_or_else(|error| format!("({}: {error})", self.log.display())) + &self.stderr()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Killed without a graceful stop: the data is discarded, and a graceful stop of some programs takes seconds.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a command that is killed when this process ends for any reason.
pub fn spawn_child_bound_to_parent(mut command: Command) -> io::Result<Child> {
    die_with_parent(&mut command);
    let (answer, result) = mpsc::channel();
    SPAWNER.send((command, answer)).map_err(|_| io::Error::other("the thread that starts processes is gone"))?;
    result.recv().map_err(|_| io::Error::other("the thread that starts processes is gone"))?
}

type SpawnRequest = (Command, mpsc::Sender<io::Result<Child>>);

/// The kernel sends the parent-death signal when the *thread* that forked ends. Test threads are short-lived, so one
/// permanent thread starts all children.
static SPAWNER: LazyLock<mpsc::Sender<SpawnRequest>> = LazyLock::new(|| {
    let (requests, received) = mpsc::channel::<SpawnRequest>();
    thread::spawn(move || {
        for (mut command, answer) in received {
            let _ = answer.send(command.spawn());
        }
    });
    requests
});

/// Runs the command in a session of its own, so that it neither receives signals to our process group nor is stopped by the
/// terminal when it writes in the background.
#[allow(unsafe_code, reason = "pre_exec is the only way to call setsid between fork and exec")]
pub fn detach(command: &mut Command) {
    // SAFETY: setsid is async-signal-safe, and the closure calls nothing else.
    unsafe {
        command.pre_exec(|| setsid().map(|_| ()).map_err(Into::into));
    }
}

#[allow(unsafe_code, reason = "pre_exec is the only way to set the parent-death signal between fork and exec")]
fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    // SAFETY: between fork and exec only async-signal-safe calls are made: prctl, getppid and the building of an errno.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the call above; then no signal would be sent.
            if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(3)) }
        });
    }
}

/// Whether a process with this id is running. A zombie is not.
pub fn is_running(id: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/stat"))
        .ok()
        .and_then(|stat| stat.rsplit(')').next().map(|rest| !rest.trim_start().starts_with(['Z', 'X'])))
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn dropped_process_ends_even_ignoring_sigterm() {
        let folder = tempfile::tempdir().unwrap();
        let script = ["-c", "trap '' TERM; echo started; while :; do sleep 0.05; done"];
        let process =
            Process::start("stubborn", Path::new("/bin/sh"), &script, folder.path(), folder.path().join("log"))
                .unwrap();
        let id = process.id();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !process.log_end().contains("started") {
            assert!(Instant::now() < deadline, "the process does not start");
            thread::sleep(Duration::from_millis(5));
        }
        assert!(is_running(id));
        drop(process);
        assert!(!is_running(id));
    }

    #[test]
    fn early_exit_is_reported_with_log() {
        let folder = tempfile::tempdir().unwrap();
        let script = ["-c", "echo port 6443 busy; exit 3"];
        let mut process =
            Process::start("loser", Path::new("/bin/sh"), &script, folder.path(), folder.path().join("log")).unwrap();
        process.child.wait().unwrap();
        let message = process.ensure_running().unwrap_err().to_string();
        assert!(message.contains("loser ended by itself") && message.contains("port 6443 busy"), "{message}");
    }

    #[test]
    fn full_disk_error_omits_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let script = ["-c", "echo a long trace; echo 'wal: write: no space left on device'; exit 2"];
        let mut process =
            Process::start("etcd", Path::new("/bin/sh"), &script, folder.path(), folder.path().join("log")).unwrap();
        process.child.wait().unwrap();
        let message = process.ensure_running().unwrap_err().to_string();
        assert!(message.starts_with("the disk is full: etcd cannot write") && !message.contains("trace"), "{message}");
    }

    #[test]
    fn child_outlives_the_thread_that_started_it() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_owned();
        let start =
            move || Process::start("sleeper", Path::new("/bin/sleep"), &["60"], &home, home.join("log")).unwrap();
        let mut process = thread::spawn(start).join().unwrap();
        process.ensure_running().unwrap();
        assert!(is_running(process.id()));
    }
}
