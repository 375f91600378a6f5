//! Measures how plainly the sources are written: comments that begin without a subject, words that only this project uses,
//! long test names, and type names with several meanings. Fails above the limits, with the worst examples.
//!
//! The limits are means over the workspace: a single exception is fine, a habit is not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;

/// The decisions on fleets are going to be rewritten, and their comments with them.
const EXEMPT: [&str; 2] = ["crates/plan/src/variant/", "crates/plan/tests/suite/variant/"];

/// Names that every crate may use for a type of its own.
const COMMON_TYPES: [&str; 16] = [
    "Args",
    "Config",
    "Err",
    "Error",
    "Future",
    "Item",
    "Options",
    "Output",
    "Parameters",
    "Response",
    "Service",
    "Settings",
    "Spec",
    "Status",
    "Strategy",
    "Target",
];

/// Modules that may define the same type name.
const MAX_MODULES: usize = 2;

/// Examples per limit in the error.
const MAX_EXAMPLES: usize = 12;

const LIMITS: Figures =
    Figures { without_subject_percent: 1.5, private_words_per_100: 0.5, test_name_words: 7.5, ambiguous_types: 10.0 };

#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    /// Of all comment blocks.
    without_subject_percent: f64,
    /// Per 100 lines of comments.
    private_words_per_100: f64,
    /// Mean length.
    test_name_words: f64,
    /// Type names that are defined in more than [`MAX_MODULES`] modules.
    ambiguous_types: f64,
}

/// The result for a set of files.
#[derive(Default)]
struct Measured {
    blocks: usize,
    lines: usize,
    without_subject: Vec<String>,
    private_words: Vec<String>,
    /// Length in words, and the name with its file.
    test_names: Vec<(usize, String)>,
    types: BTreeMap<String, BTreeSet<String>>,
}

struct Patterns {
    comment: Regex,
    no_subject: Regex,
    subject_after_all: Regex,
    private_word: Regex,
    test: Regex,
    property: Regex,
    type_name: Regex,
}

pub fn check(root: &Path) -> Result<()> {
    let patterns = Patterns::new()?;
    let mut measured = Measured::default();
    for file in tracked_sources(root)? {
        if EXEMPT.iter().any(|folder| file.starts_with(folder)) {
            continue;
        }
        let path = root.join(&file);
        // A file that git still tracks may be deleted in the working tree.
        if path.is_file() {
            let source = fs::read_to_string(&path).with_context(|| format!("cannot read {file}"))?;
            measured.add(&patterns, &file, &source);
        }
    }
    ensure!(measured.blocks > 0, "no comment was found in the sources that git tracks; run this in a clone");
    let report = measured.over(&LIMITS);
    if !report.is_empty() {
        bail!(
            "the sources are harder to read than the limits allow (see \"Names and comments\" in CONTRIBUTING.md):\n\
             {report}"
        );
    }
    Ok(())
}

fn tracked_sources(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git").arg("-C").arg(root).args(["ls-files", "*.rs"]).output();
    let output = output.context("cannot run `git ls-files`; install git")?;
    ensure!(output.status.success(), "`git ls-files` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

impl Patterns {
    fn new() -> Result<Self> {
        Ok(Self {
            comment: Regex::new(r"^\s*//[/!]?\s?(.*)$")?,
            no_subject: Regex::new(concat!(
                r"^(?i:what|whatever|whoever|who|whom|whose|of|those|these|it|none|nobody|nothing|others|one|they|them|so|",
                r"such|how|as it|by whom|that)\b"
            ))?,
            subject_after_all: Regex::new(r"^(?i:none (?:if|when)\b|one \w+ per\b|of the form\b)")?,
            private_word: Regex::new(concat!(
                r"\b(?i:told|tells?|telling|said|says so|nobody|somebody|whoever|whom|anew|heard|beside|news|asleep|awake|",
                r"strangers?|lately|a word of|no word|stands? for|of its own accord)\b"
            ))?,
            test: Regex::new(r"#\[(?:tokio::)?test[^\]]*\](?:\s*#\[[^\]]*\])*\s*(?:async\s+)?fn\s+(\w+)")?,
            property: Regex::new(r"(?m)^\s{4,}fn\s+(\w+)\s*\([^)]*\bin\b")?,
            type_name: Regex::new(r"(?m)^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|type|union)\s+([A-Z]\w*)")?,
        })
    }
}

impl Measured {
    fn add(&mut self, patterns: &Patterns, file: &str, source: &str) {
        for (line, text, lines) in comment_blocks(patterns, source) {
            self.blocks += 1;
            self.lines += lines;
            let example = || format!("{file}:{line}: {}", text.chars().take(100).collect::<String>());
            let opening = text.trim_start_matches(['*', '_']);
            if patterns.no_subject.is_match(opening) && !patterns.subject_after_all.is_match(opening) {
                self.without_subject.push(example());
            }
            self.private_words.extend(patterns.private_word.find_iter(&text).map(|_| example()));
        }
        let properties = source.contains("proptest!").then(|| patterns.property.captures_iter(source));
        for name in patterns.test.captures_iter(source).chain(properties.into_iter().flatten()) {
            let name = &name[1];
            self.test_names.push((name.split('_').count(), format!("{name} ({file})")));
        }
        if !file.contains("/tests/") {
            for name in patterns.type_name.captures_iter(source) {
                if !COMMON_TYPES.contains(&&name[1]) {
                    self.types.entry(name[1].to_owned()).or_default().insert(file.to_owned());
                }
            }
        }
    }

    fn ambiguous_types(&self) -> Vec<String> {
        let ambiguous = self.types.iter().filter(|(_, files)| files.len() > MAX_MODULES);
        ambiguous
            .map(|(name, files)| format!("{name}: {}", files.iter().cloned().collect::<Vec<_>>().join(", ")))
            .collect()
    }

    fn figures(&self) -> Figures {
        let ratio = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
        let words = self.test_names.iter().map(|(words, _)| words).sum();
        Figures {
            without_subject_percent: 100.0 * ratio(self.without_subject.len(), self.blocks),
            private_words_per_100: 100.0 * ratio(self.private_words.len(), self.lines),
            test_name_words: ratio(words, self.test_names.len()),
            ambiguous_types: self.ambiguous_types().len() as f64,
        }
    }

    /// Describes each figure above its limit, with examples. Empty if there is none.
    fn over(&self, limits: &Figures) -> String {
        let figures = self.figures();
        let mut longest = self.test_names.clone();
        longest.sort_by(|one, other| other.cmp(one));
        let longest = longest.into_iter().map(|(words, name)| format!("{words} {name}")).collect();
        let rows = [
            (
                "comment blocks without a subject, in percent",
                figures.without_subject_percent,
                limits.without_subject_percent,
                self.without_subject.clone(),
            ),
            (
                "private words per 100 lines of comments",
                figures.private_words_per_100,
                limits.private_words_per_100,
                self.private_words.clone(),
            ),
            ("mean words of a test name", figures.test_name_words, limits.test_name_words, longest),
            (
                "type names defined in more than two modules",
                figures.ambiguous_types,
                limits.ambiguous_types,
                self.ambiguous_types(),
            ),
        ];
        let mut report = String::new();
        for (what, figure, limit, examples) in rows {
            if figure > limit {
                _ = writeln!(report, "{what}: {figure:.1}, at most {limit}; for example:");
                examples.iter().take(MAX_EXAMPLES).for_each(|example| _ = writeln!(report, "  {example}"));
            }
        }
        report
    }
}

/// First line, text and number of lines of each run of comment lines.
fn comment_blocks(patterns: &Patterns, source: &str) -> Vec<(usize, String, usize)> {
    let mut blocks: Vec<(usize, String, usize)> = Vec::new();
    let mut continues = false;
    for (number, line) in source.lines().enumerate() {
        let Some(comment) = patterns.comment.captures(line) else {
            continues = false;
            continue;
        };
        match blocks.last_mut().filter(|_| continues) {
            Some((_, text, lines)) => {
                *text = format!("{text} {}", &comment[1]);
                *lines += 1;
            }
            None => blocks.push((number + 1, comment[1].to_owned(), 1)),
        }
        continues = true;
    }
    blocks.iter_mut().for_each(|(_, text, _)| *text = text.trim().to_owned());
    blocks.retain(|(_, text, _)| !text.is_empty());
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(file: &str, source: &str) -> Measured {
        let mut measured = Measured::default();
        measured.add(&Patterns::new().unwrap(), file, source);
        measured
    }

    #[test]
    fn comment_without_subject_is_found() {
        let source = "// Whoever reads this\n// is lost.\nfn f() {}\n/// The reader is not.\nfn g() {}\n";
        let measured = measured("a.rs", source);
        assert_eq!((measured.blocks, measured.lines), (2, 3));
        assert_eq!(measured.without_subject, ["a.rs:1: Whoever reads this is lost."]);
        assert_eq!(measured.figures().without_subject_percent, 50.0);
        assert!(measured.figures().private_words_per_100 > 33.0);
    }

    #[test]
    fn plain_openings_are_accepted() {
        let source =
            "/// None if it is gone.\nfn f() {}\n// One entry per pod.\nfn g() {}\n// `that` of the API\nfn h() {}\n";
        assert_eq!(measured("a.rs", source).without_subject, Vec::<String>::new());
    }

    #[test]
    fn test_names_are_counted_in_words() {
        let source = "#[test]\nfn a_b_c() {}\n#[tokio::test(flavor = \"multi_thread\")]\nasync fn d() {}\n\
                      proptest! {\n    #[test]\n    fn law_holds(x in 0..3) {}\n}\n";
        let names = measured("a.rs", source).test_names;
        assert_eq!(names[..2], [(3, "a_b_c (a.rs)".to_owned()), (1, "d (a.rs)".to_owned())]);
        assert!(names.iter().any(|(words, _)| *words == 2), "properties count as well");
    }

    #[test]
    fn type_in_three_modules_is_ambiguous() {
        let mut all = Measured::default();
        let patterns = Patterns::new().unwrap();
        for file in ["a.rs", "b.rs", "c.rs", "x/tests/d.rs"] {
            all.add(&patterns, file, "pub struct Kept;\npub(crate) enum Error {}\n");
        }
        assert_eq!(all.ambiguous_types(), ["Kept: a.rs, b.rs, c.rs"]);
        assert_eq!(all.figures().ambiguous_types, 1.0);
    }

    #[test]
    fn exceeded_limits_name_examples() {
        let measured = measured("a.rs", "// Nobody knows.\nfn f() {}\n#[test]\nfn one_two() {}\n");
        let limits = Figures {
            without_subject_percent: 1.5,
            private_words_per_100: 0.5,
            test_name_words: 7.5,
            ambiguous_types: 10.0,
        };
        let report = measured.over(&limits);
        assert!(report.contains("without a subject, in percent: 100.0, at most 1.5"), "{report}");
        assert!(report.contains("  a.rs:1: Nobody knows."), "{report}");
        assert!(!report.contains("test name"), "{report}");
    }
}
