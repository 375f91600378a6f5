//! Every watch lists its objects again from time to time, so that it does not stay silent after etcd was restored.

use std::fs;
use std::path::{Path, PathBuf};

/// Files with watches that are not restarted after an interval, and the reason.
const EXCEPTIONS: [(&str, &str); 2] = [
    ("operator/src/certs/follow.rs", "the objects are read again after each check interval"),
    ("runtime/src/leader/mod.rs", "the Lease is read again if it cannot be taken"),
];

/// Calls that start a watch, and the call that restarts it.
const STARTS: [&str; 5] = ["watcher(", "watch_object(", "metadata_watcher(", "watch(api", ".watch("];
const RESTART: &str = "with_restarts(";

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    found.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// The text of a file without comments and tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect()
}

#[test]
fn every_watch_is_listed_again() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut watches = 0;
    for path in ["runtime/src", "operator/src"].iter().flat_map(|folder| sources(&crates.join(folder))) {
        let name = path.strip_prefix(&crates).unwrap().to_str().unwrap();
        let code = code(&path);
        let started: usize = STARTS.iter().map(|start| code.matches(start).count()).sum();
        watches += started;
        if EXCEPTIONS.iter().any(|(file, _)| *file == name) {
            assert!(started > 0, "{name} has no watch; remove the exception");
            continue;
        }
        let restarted = code.matches(RESTART).count();
        assert!(
            started <= restarted,
            "{name} starts {started} watches, and restarts {restarted} of them; use `watch_with_relists` or `{RESTART}…)`"
        );
    }
    assert!(watches >= 5, "{watches} watches were found");
}
