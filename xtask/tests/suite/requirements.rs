//! Checks the pages of requirements: every id is listed, and every test that they name exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

type Ids = fn() -> BTreeSet<String>;

/// The pages, each with the ids that it must list.
const PAGES: [(&str, Ids); 3] = [
    ("docs/requirements-llamastack.md", llamastack_ids),
    ("docs/requirements-dynamo.md", dynamo_ids),
    ("docs/requirements-variant.md", variant_ids),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

struct Row {
    id: String,
    shown_by: Vec<String>,
    open: String,
}

fn rows(page: &str) -> Vec<Row> {
    let page = fs::read_to_string(root().join(page)).unwrap();
    let cells = page
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>());
    let rows = cells.filter(|cells| cells[0] != "id").map(|cells| {
        let [id, _, shown_by, open] = &cells[..] else { panic!("a row must have four cells: {cells:?}") };
        let shown_by = shown_by.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Row { id: id.clone(), shown_by, open: open.clone() }
    });
    rows.collect()
}

/// The ids of document 002: requirements with their letters, and the tasks of each chapter.
fn llamastack_ids() -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for (numbers, letters) in [
        (1..=14, ""),
        (20..=29, ""),
        (30..=36, ""),
        (40..=44, ""),
        (50..=53, ""),
        (60..=66, ""),
        (70..=79, ""),
        (80..=83, ""),
        (90..=92, ""),
        (95..=101, ""),
        (20..=20, "abc"),
        (25..=25, "a"),
        (27..=27, "abcdefghij"),
        (35..=35, "a"),
        (50..=50, "ab"),
        (51..=51, "a"),
        (79..=79, "abcd"),
    ] {
        for number in numbers {
            let id = format!("FR-{number:03}");
            ids.extend(letters.chars().map(|letter| format!("{id}{letter}")));
            ids.insert(id);
        }
    }
    ids.insert("FR-027a1".to_owned());
    ids.extend((1..=7).map(|number| format!("NFR-{number:03}")));
    ids.extend((1..=8).map(|number| format!("US{number}")));
    for (chapter, tasks) in [(1, 8), (2, 8), (3, 12), (4, 4), (5, 6)] {
        ids.extend((1..=tasks).map(|task| format!("{chapter}.{task}")));
    }
    ids
}

/// The items of documents 001 and 000, and the rows of their tables.
fn dynamo_ids() -> BTreeSet<String> {
    let items = (1..=10).map(|item| format!("2.{item}")).chain((1..=7).map(|item| format!("4.{item}")));
    let phases = ["Pending", "Profiling", "Ready", "Deploying", "Deployed", "Failed"];
    let moves = ["Deploying to Ready", "Deploying to Deployed", "Deployed to Deploying", "to Failed", "column"];
    let mapped = [
        "profilerImage",
        "config",
        "prepareProfilingConfig",
        "--profile-config",
        "profile_sla",
        "resources",
        "tolerations",
        "nodeSelector",
        "configMapRef",
        "outputPVC",
        "workersImage",
        "useMocker",
    ];
    let constants = [
        "AnnotationConfigMapRef",
        "AnnotationOutputPVC",
        "VolumeNameProfilingConfig",
        "ProfilingConfigMountPath",
        "ProfilingConfigDefaultKey",
    ];
    let succeeded = phases.iter().chain(&moves).map(|row| format!("2.8 {row}"));
    let sub_phase = ["set", "success", "failure", "relay"].map(|row| format!("2.9 {row}"));
    let fields = mapped.map(|row| format!("4.1 {row}"));
    let documents = (1..=8).map(|number| format!("phase {number}"));
    let all = items.chain(succeeded).chain(sub_phase).chain(fields).chain(documents);
    all.chain(constants.map(str::to_owned)).collect()
}

/// The requirements of documents 003 and 004.
fn variant_ids() -> BTreeSet<String> {
    [1..=17, 20..=34, 40..=53].into_iter().flatten().map(|number| format!("WVA-{number:02}")).collect()
}

/// The source of a module, from its file or from `mod.rs` of its folder.
fn module(suite: &Path, path: &[&str]) -> Option<String> {
    let path: PathBuf = path.iter().collect();
    let files = [suite.join(&path).with_extension("rs"), suite.join(&path).join("mod.rs")];
    files.iter().find_map(|file| fs::read_to_string(file).ok())
}

/// Whether a file has a function of this name with the attribute of a test.
fn has_test(text: &str, name: &str) -> bool {
    let mut marked = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        } else if line.contains("fn ") {
            if marked && line.contains(&format!("fn {name}(")) {
                return true;
            }
            marked = false;
        }
    }
    false
}

fn test_exists(name: &str) -> bool {
    let parts: Vec<&str> = name.split("::").collect();
    match &parts[..] {
        ["real", case] => {
            root().join("crates/plan/tests/fixtures/llamastack/config").join(case).join("config.yaml").exists()
        }
        ["bench", name] => {
            ["api", "plan"].iter().any(|crate_| root().join("crates").join(crate_).join("benches").join(name).is_dir())
        }
        [binary, modules @ .., test] => {
            let suite = match *binary {
                "commands" => root().join("xtask/tests/suite"),
                "vectors" => root().join("crates/plan/tests/vectors"),
                family @ ("llamastack" | "dynamo" | "variant") => root().join("crates/operator/tests").join(family),
                other => root().join("crates").join(other).join("tests/suite"),
            };
            module(&suite, modules).is_some_and(|text| has_test(&text, test))
        }
        _ => false,
    }
}

#[test]
fn requirement_pages_list_all_ids_and_existing_tests() {
    for (page, ids) in PAGES {
        let rows = rows(page);
        let listed: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let missing: Vec<String> = ids().into_iter().filter(|id| !listed.contains(&id.as_str())).collect();
        assert!(missing.is_empty(), "{page} does not list {missing:?}");
        let once: BTreeSet<&str> = listed.iter().copied().collect();
        assert_eq!(once.len(), listed.len(), "{page} lists an id twice");
        for row in &rows {
            assert!(
                !row.shown_by.is_empty() || !row.open.is_empty(),
                "{}: no test is named, and the requirement is not marked as open",
                row.id
            );
            for name in &row.shown_by {
                assert!(test_exists(name), "{page}, {}: test {name} does not exist", row.id);
            }
        }
    }
}

/// Shows that the check above would find a wrong name.
#[test]
fn unknown_test_name_is_rejected() {
    assert!(test_exists("commands::requirements::unknown_test_name_is_rejected"));
    for wrong in [
        "commands::requirements::unknown_test_name",
        "commands::requirements::test_exists",
        "plan::nowhere::fr_030_names_become_types",
        "plan::llamastack_config::fr_030_names_become_types",
        "real::nothing",
        "bench::nothing",
        "fr_030_names_become_types",
    ] {
        assert!(!test_exists(wrong), "{wrong}");
    }
}
