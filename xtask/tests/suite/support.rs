//! Starting the command under test and reading what it prints.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use steersman_testkit::binaries::Binaries;
use steersman_testkit::{SHARED_CLUSTERS, skip, tree};

/// Long, because it only matters when something is broken; a cold machine may have to link first.
const LIMIT: Duration = Duration::from_secs(300);

pub fn xtask() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    // The command under test is a run of its own, not a part of the run that tests it.
    command.env_remove(SHARED_CLUSTERS).stdin(Stdio::null());
    command
}

/// Whether the cluster's programs are built; says so where they are not.
pub fn cluster_is_built() -> bool {
    let built = Binaries::find().unwrap().is_some();
    if !built {
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        skip::skip(&test, "the local cluster is not built; `cargo xtask test` builds it");
    }
    built
}

/// A running command. Dropping it ends it, so that a failed test leaves nothing behind either.
pub struct Running {
    pub child: Child,
    lines: Receiver<String>,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        // Read to the end whatever the test looks at: a full pipe would stop the command.
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    /// Waits for a line that contains `text`.
    pub fn until(&mut self, text: &str) {
        let deadline = Instant::now() + LIMIT;
        let mut all = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if line.contains(text) {
                return;
            }
            all.push(line);
        }
        panic!("it did not say {text:?}, but:\n{}", all.join("\n"));
    }

    /// Waits for lines that contain all of these words, in whatever order the lines come.
    pub fn until_all(&mut self, wanted: &[&[&str]]) {
        // Some of them come one after the other.
        let deadline = Instant::now() + 2 * LIMIT;
        let (mut missing, mut all) = (wanted.to_vec(), Vec::new());
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            missing.retain(|words| !words.iter().all(|word| line.contains(word)));
            if missing.is_empty() {
                return;
            }
            all.push(line);
        }
        panic!("it did not say {missing:?}, but:\n{}", all.join("\n"));
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The process and everything below it.
    pub fn family(&self) -> Vec<u32> {
        let mut ids = tree::descendants(self.id());
        ids.push(self.id());
        ids
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        tree::end_descendants(self.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `holds`, which something outside this process brings about.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "not seen: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
