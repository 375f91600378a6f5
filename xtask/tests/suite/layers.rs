//! The layers of the workspace have no cycle, and CONTRIBUTING.md shows them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::graph::{LAYERED, contributing, crates, cycle, modules};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn modules_import_without_cycles() {
    for name in LAYERED {
        let graph = modules(&root(), name).unwrap();
        assert!(graph.values().any(|used| !used.is_empty()), "no import was found in {name}");
        if let Some(cycle) = cycle(&graph) {
            panic!("the modules of {name} import each other: {}", cycle.join(" -> "));
        }
    }
}

#[test]
fn crates_depend_only_on_lower_layers() {
    let graph = crates(&root()).unwrap();
    assert_eq!(cycle(&graph), None);
    assert!(graph["operator"].contains("runtime") && !graph["runtime"].contains("plan"), "{graph:?}");
}

#[test]
fn contributing_shows_the_current_graph() {
    let page = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let wanted = contributing(&root()).unwrap();
    assert_eq!(page, wanted, "run `cargo xtask check --write`");
}
