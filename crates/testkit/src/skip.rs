//! Tests that cannot run here say so. A skipped test prints why, is listed at the end of `cargo xtask test`, and is a
//! failure where [`NO_SKIP`] is set, as in CI.

use std::fs::OpenOptions;
use std::io::Write;

/// Set to anything but `0` or nothing: whatever would be skipped fails instead.
pub const NO_SKIP: &str = "STEERSMAN_NO_SKIP";

/// The file that skipped tests are written to, one line each.
pub const SKIP_LIST: &str = "STEERSMAN_SKIP_LIST";

/// Whether [`NO_SKIP`] is set.
pub fn is_forbidden() -> bool {
    std::env::var_os(NO_SKIP).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Records that `what` was skipped because of `why`. Returns normally so that the test can end; panics where skipping is
/// not allowed.
#[track_caller]
#[allow(clippy::panic, reason = "a test fails by panicking")]
pub fn skip(what: &str, why: &str) {
    if is_forbidden() {
        panic!("{what} would be skipped ({why}), and {NO_SKIP} forbids that");
    }
    // Straight to standard error: the test runner swallows what a passing test prints with the macros.
    let _ = writeln!(std::io::stderr(), "skipped: {what}: {why}");
    if let Some(list) = std::env::var_os(SKIP_LIST) {
        let written = OpenOptions::new().create(true).append(true).open(&list).and_then(|mut file| {
            // One write per line: several test processes append to the same file.
            file.write_all(format!("{what}: {why}\n").as_bytes())
        });
        if let Err(error) = written {
            panic!("cannot list the skipped test {what} in {}: {error}", list.display());
        }
    }
}
