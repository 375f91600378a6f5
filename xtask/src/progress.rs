//! Prints the progress of long steps: one line that is updated on a terminal, otherwise a new line every 20 seconds.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Interval of the lines if the output is not a terminal, as in CI.
const PLAIN_INTERVAL: Duration = Duration::from_secs(20);
const TERMINAL_INTERVAL: Duration = Duration::from_millis(200);

pub struct Progress {
    what: String,
    started: Instant,
    last_update: Option<Instant>,
    terminal: bool,
}

impl Progress {
    pub fn start(what: &str) -> Self {
        let progress = Self {
            what: what.to_owned(),
            started: Instant::now(),
            last_update: None,
            terminal: std::io::stderr().is_terminal(),
        };
        eprintln!("{what} ...");
        progress
    }

    /// Shows the current activity, at most once per interval.
    pub fn update(&mut self, detail: &str) {
        let every = if self.terminal { TERMINAL_INTERVAL } else { PLAIN_INTERVAL };
        if self.last_update.unwrap_or(self.started).elapsed() < every {
            return;
        }
        self.last_update = Some(Instant::now());
        let line = format!("  {} {detail}", elapsed(self.started.elapsed()));
        if self.terminal {
            // A longer line could wrap, and only the last part of a wrapped line would be replaced.
            let cut: String = line.chars().take(100).collect();
            eprint!("\r\x1b[K{cut}");
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{line}");
        }
    }

    /// Prints that the step is done, and its duration.
    pub fn done(self) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        eprintln!("{clear}{}: done in {}", self.what, elapsed(self.started.elapsed()));
    }
}

/// A duration such as `48s` or `6m05s`.
pub fn elapsed(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{:02}s", seconds / 60, seconds % 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_has_minutes_and_seconds() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (60, "1m00s"), (365, "6m05s"), (4000, "66m40s")] {
            assert_eq!(elapsed(Duration::from_secs(seconds)), text);
        }
    }
}
