//! Finds decisions that read prose: code that searches, splits or compares the text of a message. Texts are for people and
//! may be reworded, so a decision compares codes and fields. Only `legacy_texts.rs` may read stored texts, those of earlier
//! operators.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use regex::Regex;

/// The file of each family that may read stored texts.
const ADAPTER: &str = "legacy_texts.rs";

const CRATES: [&str; 4] = ["crates/plan/src", "crates/operator/src", "crates/runtime/src", "crates/reconcile/src"];

/// Expressions that may read a text, each with its reason: most of these texts come from other programs, without a code.
const ALLOWED: [(&str, &str); 7] = [
    (
        r#"message.contains("you can't delete")"#,
        "OwnerReferencesPermissionEnforcement answers 403 like any other refusal; only the remedy depends on it",
    ),
    (
        r#"message.rsplit_once(", expected ")"#,
        "serde quotes the input in its messages, where it may be a secret; the quote is removed, nothing is decided",
    ),
    (
        r#"match (message.find('"'), message.rfind('"'))"#,
        "the same for messages of our own `Deserialize` implementations",
    ),
    (
        r#"message.strip_prefix("Back-off pulling image ")"#,
        "the kubelet repeats the cause of a failed pull in a text alone; it is shown, nothing is decided",
    ),
    (r#"message.split(" preemption:")"#, "the scheduler appends what preemption would do; that part is not shown"),
    (
        r#"message.contains("not found") => Unschedulable::ClaimMissing"#,
        "the scheduler names a missing claim in its text alone; only the remedy depends on it",
    ),
    (
        r#"message.contains("User \"") && message.contains("\" cannot ")"#,
        "RBAC, quotas and policies all answer 403 Forbidden; only RBAC names the account",
    ),
];

/// A line of code that decides by a text.
#[derive(Debug, PartialEq, Eq)]
struct CodeLine {
    file: PathBuf,
    line: usize,
    code: String,
}

pub fn check(root: &Path) -> Result<()> {
    let mut places = Vec::new();
    for folder in CRATES {
        let folder = root.join(folder);
        if folder.is_dir() {
            scan(&folder, &mut places)?;
        }
    }
    if places.is_empty() {
        return Ok(());
    }
    let shown = |place: &CodeLine| {
        let file = place.file.strip_prefix(root).unwrap_or(&place.file);
        format!("  {}:{}: {}", file.display(), place.line, place.code)
    };
    bail!(
        "code decides by the text of a message:\n{}\nCompare a code or a field instead; read stored texts of earlier \
         versions in {ADAPTER}",
        places.iter().map(shown).collect::<Vec<_>>().join("\n")
    )
}

fn scan(folder: &Path, places: &mut Vec<CodeLine>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if name != "tests" {
                scan(&path, places)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") && ![ADAPTER, "tests.rs"].contains(&name)
        {
            let source = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let found = decisions(&source)?.into_iter();
            places.extend(found.map(|(line, code)| CodeLine { file: path.clone(), line, code }));
        }
    }
    Ok(())
}

/// Line and code of each decision in the source of a file. Names like `message`, and fields named `text`, count as prose; a
/// variable `text` does not, because parsers call their input so.
fn decisions(source: &str) -> Result<Vec<(usize, String)>> {
    let noun = r"(?:\b\w*(?:message|note|hold|story|said|told|words|sentence|signal|limit|why|reason)\w*|\.text)";
    let between = r"(?:\(\))?\??(?:\s*\.(?:as_str|as_deref|as_ref|clone|to_string|to_lowercase|trim|trim_end)\(\))*";
    let verb =
        "contains|starts_with|ends_with|strip_prefix|strip_suffix|split|split_once|rsplit_once|find|rfind|matches";
    let search = Regex::new(&format!(r"{noun}{between}\s*\.(?:{verb})\("))?;
    let compare =
        Regex::new(r"(?:\.message|\.text|\bhold)\b(?:\(\))?\s*[=!]=|[=!]=\s*&?\w+(?:\.\w+)*\.(?:message|text)\b")?;
    let source = without_tests_and_comments(source)?;
    let mut found = Vec::new();
    for expression in [search, compare] {
        for hit in expression.find_iter(&source) {
            let line = source[..hit.start()].matches('\n').count() + 1;
            let rest: String = source[hit.start()..].chars().take(120).collect();
            let statement = source[..hit.end()].rsplit('\n').next().unwrap_or_default().len();
            let code = source[hit.end() - statement..].lines().next().unwrap_or_default().trim();
            if !ALLOWED.iter().any(|(allowed, _)| code.contains(allowed) || rest.contains(allowed)) {
                found.push((line, code.to_owned()));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Keeps the number of lines, so that line numbers stay correct.
fn without_tests_and_comments(source: &str) -> Result<String> {
    let tests = Regex::new(r"(?m)^#\[cfg\(test\)\]\s*\n(?:#\[.*\]\s*\n)*(?:pub )?mod \w+ \{")?;
    let product = tests.find(source).map_or(source, |tests| &source[..tests.start()]);
    let code = product.lines().map(|line| if line.trim_start().starts_with("//") { "" } else { line });
    Ok(code.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision_count(source: &str) -> usize {
        decisions(source).unwrap().len()
    }

    #[test]
    fn planted_decision_is_found() {
        for source in [
            "if condition.message.contains(\"not found\") {}",
            "let job = message.starts_with(\"Job \");",
            "let rest = finding.message\n    .strip_prefix(\"ConfigMap \")?;",
            "let unmoved = limits.iter().any(|limit| limit.starts_with(UNMOVED));",
            "story.hold.as_deref().is_some_and(|hold| hold.starts_with(\"an earlier\"))",
            "let same = known.message == statement.message;",
            "let other = explanation.text.split_once(',');",
            "let begin = hold_text()?.trim().ends_with('.');",
        ] {
            assert_eq!(decision_count(source), 1, "{source}");
        }
    }

    #[test]
    fn codes_inputs_tests_and_comments_are_ignored() {
        for source in [
            "known.reason == \"NamespaceExcluded\"",
            "text.strip_prefix('-')",
            "// message.contains(\"x\")",
            "let message = format!(\"{name} not found\");",
            "#[cfg(test)]\nmod tests {\n    assert!(message.contains(\"x\"));\n}",
            "let asks = message.contains(\"you can't delete\");",
        ] {
            assert_eq!(decision_count(source), 0, "{source}");
        }
    }

    #[test]
    fn planted_file_fails_the_check() {
        let root = tempfile::tempdir().unwrap();
        let family = root.path().join("crates/operator/src/variant/tests");
        fs::create_dir_all(&family).unwrap();
        let code = "fn f(message: &str) -> bool {\n    message.contains(\"x\")\n}\n";
        for allowed in ["legacy_texts.rs", "tests.rs", "tests/pods.rs"] {
            fs::write(root.path().join("crates/operator/src/variant").join(allowed), code).unwrap();
        }
        check(root.path()).unwrap();
        fs::write(root.path().join("crates/operator/src/variant/pods.rs"), code).unwrap();
        let error = check(root.path()).unwrap_err().to_string();
        assert!(error.contains("crates/operator/src/variant/pods.rs:2: message.contains(\"x\")"), "{error}");
    }

    #[test]
    fn every_exception_is_used_and_has_a_reason() {
        let root = crate::root();
        let mut sources = String::new();
        for folder in CRATES.iter().map(|folder| root.join(folder)).filter(|folder| folder.is_dir()) {
            collect(&folder, &mut sources);
        }
        for (code, reason) in ALLOWED {
            assert!(
                sources.contains(code) && !reason.is_empty(),
                "this exception is not needed any more, or has no reason: {code}"
            );
        }
    }

    fn collect(folder: &Path, sources: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, sources);
            } else {
                *sources += &fs::read_to_string(path).unwrap();
            }
        }
    }
}
