//! Reports tests that cannot run on this machine. A skipped test prints the reason and is listed at the end of
//! `cargo xtask test`. It fails if [`NO_SKIP_VARIABLE`] is set, as in CI.

use std::fs::OpenOptions;
use std::io::Write;

/// Environment variable that makes skipped tests fail, unless it is empty or `0`.
pub const NO_SKIP_VARIABLE: &str = "STEERSMAN_NO_SKIP";

/// Environment variable with the path of the list of skipped tests, one per line.
pub const SKIP_LIST_VARIABLE: &str = "STEERSMAN_SKIP_LIST";

/// Whether [`NO_SKIP_VARIABLE`] is set.
pub fn is_forbidden() -> bool {
    std::env::var_os(NO_SKIP_VARIABLE).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Records that `what` was skipped because of `why`. Panics if skipping is forbidden.
#[track_caller]
#[allow(clippy::panic, reason = "a test fails by panicking")]
pub fn skip(what: &str, why: &str) {
    if is_forbidden() {
        panic!("{what} would be skipped ({why}), and {NO_SKIP_VARIABLE} forbids that");
    }
    record(what, why);
}

/// Records that `what` was skipped because this kind of machine cannot run it, such as one without root. No installation could
/// change that, so that it is permitted in CI too.
pub fn skip_on_this_machine(what: &str, why: &str) {
    record(what, why);
}

#[track_caller]
#[allow(clippy::panic, reason = "a test fails by panicking")]
fn record(what: &str, why: &str) {
    // Written directly to standard error, because the test runner captures the macros' output of passing tests.
    let _ = writeln!(std::io::stderr(), "skipped: {what}: {why}");
    if let Some(list) = std::env::var_os(SKIP_LIST_VARIABLE) {
        let written = OpenOptions::new().create(true).append(true).open(&list).and_then(|mut file| {
            // One write per line, because several test processes append to the file.
            file.write_all(format!("{what}: {why}\n").as_bytes())
        });
        if let Err(error) = written {
            panic!("cannot list the skipped test {what} in {}: {error}", list.display());
        }
    }
}
