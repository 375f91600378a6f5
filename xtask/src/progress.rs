//! Progress of long steps: one line that renews itself on a terminal, a line every few seconds elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often a line is printed where it cannot renew itself, as in CI.
const PLAIN_EVERY: Duration = Duration::from_secs(20);
const TERMINAL_EVERY: Duration = Duration::from_millis(200);

pub struct Progress {
    what: String,
    started: Instant,
    shown: Option<Instant>,
    terminal: bool,
}

impl Progress {
    pub fn start(what: &str) -> Self {
        let progress = Self {
            what: what.to_owned(),
            started: Instant::now(),
            shown: None,
            terminal: std::io::stderr().is_terminal(),
        };
        eprintln!("{what} ...");
        progress
    }

    /// Says where things stand, unless that was said a moment ago.
    pub fn say(&mut self, detail: &str) {
        let every = if self.terminal { TERMINAL_EVERY } else { PLAIN_EVERY };
        if self.shown.unwrap_or(self.started).elapsed() < every {
            return;
        }
        self.shown = Some(Instant::now());
        let line = format!("  {} {detail}", elapsed(self.started.elapsed()));
        if self.terminal {
            // Longer lines would wrap, and a wrapped line cannot be renewed.
            let cut: String = line.chars().take(100).collect();
            eprint!("\r\x1b[K{cut}");
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{line}");
        }
    }

    /// Says that the step is over, and how long it took.
    pub fn done(self) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        eprintln!("{clear}{}: done in {}", self.what, elapsed(self.started.elapsed()));
    }
}

/// A duration as people say it: `48s`, `6m05s`.
pub fn elapsed(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{:02}s", seconds / 60, seconds % 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (60, "1m00s"), (365, "6m05s"), (4000, "66m40s")] {
            assert_eq!(elapsed(Duration::from_secs(seconds)), text);
        }
    }
}
