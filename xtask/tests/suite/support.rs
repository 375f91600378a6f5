//! Starts the command under test and reads its output.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use steersman_testkit::binaries::Binaries;
use steersman_testkit::{CLUSTERS_VARIABLE, process_tree, skip};

/// Long, because the command may have to link first on a machine without caches.
const TIMEOUT: Duration = Duration::from_secs(300);

pub fn xtask() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    // The command under test must not use the clusters of the run that tests it.
    command.env_remove(CLUSTERS_VARIABLE).stdin(Stdio::null());
    command
}

/// Whether the programs of the cluster are built. If not, the test is listed as skipped.
pub fn cluster_is_built() -> bool {
    let built = Binaries::find().unwrap().is_some();
    if !built {
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        skip::skip(&test, "the local cluster is not built; `cargo xtask test` builds it");
    }
    built
}

/// A running command. Drop ends it, so that a failed test leaves no process either.
pub struct Running {
    pub child: Child,
    lines: Receiver<String>,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        // All output is read, even what no test looks at: a full pipe would block the command.
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    /// Waits for a line that contains `text`.
    pub fn wait_for_line(&mut self, text: &str) {
        let deadline = Instant::now() + TIMEOUT;
        let mut all = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if line.contains(text) {
                return;
            }
            all.push(line);
        }
        panic!("no line contains {text:?}; output:\n{}", all.join("\n"));
    }

    /// Waits for lines that contain these words, each line all words of its entry. The lines may come in any order. Returns all
    /// lines so far.
    pub fn wait_for_lines(&mut self, wanted: &[&[&str]]) -> Vec<String> {
        // Some of the lines are consequences of others, so they take longer together.
        let deadline = Instant::now() + 2 * TIMEOUT;
        let (mut missing, mut all) = (wanted.to_vec(), Vec::new());
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            missing.retain(|words| !words.iter().all(|word| line.contains(word)));
            all.push(line);
            if missing.is_empty() {
                return all;
            }
        }
        panic!("no line contains {missing:?}; output:\n{}", all.join("\n"));
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ids of the process and its descendants.
    pub fn processes(&self) -> Vec<u32> {
        let mut ids = process_tree::descendants(self.id());
        ids.push(self.id());
        ids
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        process_tree::end_descendants(self.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls until `holds` is true.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < TIMEOUT, "did not happen in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
