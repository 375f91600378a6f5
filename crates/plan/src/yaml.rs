//! Parses YAML that tenants wrote. One [`Budget`] holds for everything in one source, so that neither many documents nor
//! many keys multiply the cost.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde_saphyr::budget::{BudgetBreach, BudgetReport};

use crate::content_hash;

// Limits of one source: an annotation, a ConfigMap or a file.

/// Larger than the largest ConfigMap, which has 1 MiB.
pub const MAX_TEXT_BYTES: usize = 2 * 1024 * 1024;
/// Documents of a text with several documents. Each may become an object in the cluster.
pub const MAX_DOCUMENTS: usize = 100;
/// Keys of a ConfigMap whose values are YAML.
pub const MAX_KEYS: usize = 2_000;
/// Mappings, lists and scalars. The nodes behind an alias count each time that it is used.
pub const MAX_NODES: usize = 100_000;
/// Bytes of all scalars, counted like nodes.
pub const MAX_SCALAR_BYTES: usize = 4 * 1024 * 1024;
/// Generators such as PyYAML write an alias for each value that they meet again.
pub const MAX_ALIASES: usize = 1_000;
pub const MAX_DEPTH: usize = 64;

/// A limit that a source exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    TextBytes,
    Documents,
    Keys,
    Nodes,
    ScalarBytes,
    Aliases,
    Depth,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TextBytes => write!(f, "more than {MAX_TEXT_BYTES} bytes of YAML"),
            Self::Documents => write!(f, "more than {MAX_DOCUMENTS} YAML documents"),
            Self::Keys => write!(f, "more than {MAX_KEYS} keys with YAML"),
            Self::Nodes => write!(f, "more than {MAX_NODES} YAML nodes after aliases are expanded"),
            Self::ScalarBytes => {
                write!(f, "more than {MAX_SCALAR_BYTES} bytes of YAML scalars after aliases are expanded")
            }
            Self::Aliases => write!(f, "more than {MAX_ALIASES} YAML anchors or aliases"),
            Self::Depth => write!(f, "YAML that is nested more than {MAX_DEPTH} levels deep"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum YamlError {
    /// The source has too much; the rest of it is not parsed.
    Limit(Limit),
    Invalid {
        /// Line and column.
        location: Option<(u64, u64)>,
        /// The library's text, which may quote keys and values.
        cause: String,
    },
}

impl YamlError {
    /// A text that quotes nothing of the YAML, which may hold secrets: the limit, or `problem` and its position.
    pub fn without_content(&self, problem: &str) -> String {
        match self {
            Self::Limit(limit) => format!("it has {limit}"),
            Self::Invalid { location: Some((line, column)), .. } => {
                format!("{problem} at line {line}, column {column}")
            }
            Self::Invalid { location: None, .. } => problem.to_owned(),
        }
    }
}

/// The words that are booleans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Booleans {
    /// Those of YAML 1.1, such as `yes` and `off`.
    #[default]
    Yaml11,
    /// `true` and `false` only.
    TrueAndFalse,
}

/// The rest of what one source may have.
#[derive(Clone, Debug)]
pub struct Budget {
    booleans: Booleans,
    text_bytes: usize,
    keys: usize,
    nodes: usize,
    scalar_bytes: usize,
    aliases: usize,
    exceeded: Option<Limit>,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(Booleans::default())
    }
}

impl Budget {
    pub fn new(booleans: Booleans) -> Self {
        Self {
            booleans,
            text_bytes: MAX_TEXT_BYTES,
            keys: MAX_KEYS,
            nodes: MAX_NODES,
            scalar_bytes: MAX_SCALAR_BYTES,
            aliases: MAX_ALIASES,
            exceeded: None,
        }
    }

    /// Number of nodes parsed so far.
    pub fn used_nodes(&self) -> usize {
        MAX_NODES - self.nodes
    }

    /// Parses one document. After a limit was exceeded, nothing more of the source is parsed.
    pub fn parse<T: DeserializeOwned>(&mut self, text: &str) -> Result<T, YamlError> {
        if let Some(limit) = self.exceeded {
            return Err(YamlError::Limit(limit));
        }
        for (rest, used, limit) in
            [(&mut self.text_bytes, text.len(), Limit::TextBytes), (&mut self.keys, 1, Limit::Keys)]
        {
            let Some(left) = rest.checked_sub(used) else {
                self.exceeded = Some(limit);
                return Err(YamlError::Limit(limit));
            };
            *rest = left;
        }
        let report: Rc<RefCell<Option<BudgetReport>>> = Rc::default();
        let limits = serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            // Above `max_depth`, whose breach is reported as a limit; this one is a syntax error.
            flow_nesting_limit: MAX_DEPTH * 2,
            max_nodes: self.nodes,
            max_recorded_anchor_events: self.nodes,
            max_total_scalar_bytes: self.scalar_bytes,
            max_recorded_anchor_bytes: self.scalar_bytes,
            max_aliases: self.aliases,
            max_anchors: self.aliases,
            // The number of aliases is limited instead.
            enforce_alias_anchor_ratio: false,
        };
        let options = serde_saphyr::options! {
            budget: limits,
            strict_booleans: self.booleans == Booleans::TrueAndFalse,
            with_snippet: false,
        };
        let keep = report.clone();
        let options = options.with_budget_report(move |counted| *keep.borrow_mut() = Some(counted));
        let parsed = serde_saphyr::from_str_with_options(text, options);
        if let Some(counted) = report.borrow_mut().take() {
            self.charge(&counted);
        }
        parsed.map_err(|error| self.error(&error))
    }

    /// The copies of anchored nodes count like nodes.
    fn charge(&mut self, counted: &BudgetReport) {
        self.nodes = self.nodes.saturating_sub(counted.nodes + counted.recorded_anchor_events);
        self.scalar_bytes =
            self.scalar_bytes.saturating_sub(counted.total_scalar_bytes + counted.recorded_anchor_bytes);
        self.aliases = self.aliases.saturating_sub(counted.aliases + counted.anchors);
        let Some(breach) = &counted.breached else { return };
        self.exceeded = Some(match breach {
            BudgetBreach::Aliases { .. } | BudgetBreach::Anchors { .. } => Limit::Aliases,
            BudgetBreach::ScalarBytes { .. } | BudgetBreach::RecordedAnchorBytes { .. } => Limit::ScalarBytes,
            BudgetBreach::Depth { .. } => Limit::Depth,
            BudgetBreach::Documents { .. } => Limit::Documents,
            _ => Limit::Nodes,
        });
    }

    fn error(&mut self, error: &serde_saphyr::Error) -> YamlError {
        // The library has limits of its own for the uses of one anchor, which its report does not contain.
        let repeated_anchor = matches!(
            error,
            serde_saphyr::Error::AliasExpansionLimitExceeded { .. }
                | serde_saphyr::Error::AliasReplayLimitExceeded { .. }
        );
        if repeated_anchor {
            self.exceeded = Some(Limit::Aliases);
        }
        match self.exceeded {
            Some(limit) => YamlError::Limit(limit),
            None => YamlError::Invalid {
                location: error.location().map(|at| (at.line(), at.column())),
                // The lines after the first quote the text.
                cause: error.to_string().lines().next().unwrap_or_default().trim_end_matches(':').to_owned(),
            },
        }
    }
}

/// Splits a text at lines that begin a document, so that an invalid document does not discard the others.
pub fn split_documents(text: &str) -> Result<Vec<String>, Limit> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        match line.strip_prefix("---") {
            Some(rest) if rest.is_empty() || rest.starts_with([' ', '\t']) => {
                if documents.len() > MAX_DOCUMENTS {
                    return Err(Limit::Documents);
                }
                documents.push(format!("{}\n", rest.trim()));
            }
            _ => {
                if let Some(last) = documents.last_mut() {
                    last.push_str(line);
                    last.push('\n');
                }
            }
        }
    }
    Ok(documents)
}

/// Most results of a [`Memo`].
const MAX_MEMO_ENTRIES: usize = 2_000;
/// Most nodes of all results of a [`Memo`]: about 30 MiB.
const MAX_MEMO_NODES: usize = 2 * MAX_NODES;

/// Results of parsing by the hash of the text, so that the reconciles of a settled object do not parse it again. The
/// oldest results make room for new ones.
pub struct Memo<T>(Mutex<MemoEntries<T>>);

struct MemoEntries<T> {
    /// By hash, with the number of nodes.
    results: BTreeMap<String, (T, usize)>,
    /// The oldest first.
    order: VecDeque<String>,
    nodes: usize,
}

impl<T: Clone> Default for Memo<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone> Memo<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(MemoEntries { results: BTreeMap::new(), order: VecDeque::new(), nodes: 0 }))
    }

    /// The result for a text. `parse` returns it with its number of nodes.
    pub fn get(&self, text: &str, parse: impl FnOnce() -> (T, usize)) -> T {
        let hash = content_hash::hex(text);
        if let Some((known, _)) = self.0.lock().unwrap_or_else(PoisonError::into_inner).results.get(&hash) {
            return known.clone();
        }
        // Other texts are not blocked meanwhile.
        let (result, nodes) = parse();
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.insert(hash, result.clone(), nodes + 1);
        result
    }
}

impl<T> MemoEntries<T> {
    fn insert(&mut self, hash: String, result: T, nodes: usize) {
        if self.results.insert(hash.clone(), (result, nodes)).is_some() {
            return;
        }
        self.nodes += nodes;
        self.order.push_back(hash);
        while self.order.len() > MAX_MEMO_ENTRIES || self.nodes > MAX_MEMO_NODES {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some((_, nodes)) = self.results.remove(&oldest) {
                self.nodes -= nodes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Few bytes that expand to `width` to the power of `levels` nodes.
    fn alias_bomb(levels: usize, width: usize) -> String {
        let mut text = format!("a0: &a0 [{}]\n", vec!["x"; width].join(", "));
        for level in 1..levels {
            let below = vec![format!("*a{}", level - 1); width].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{below}]\n"));
        }
        text
    }

    fn limit_of(text: &str) -> Option<Limit> {
        match Budget::default().parse::<Value>(text) {
            Err(YamlError::Limit(limit)) => Some(limit),
            Ok(_) | Err(YamlError::Invalid { .. }) => None,
        }
    }

    #[test]
    fn each_limit_is_enforced() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let long = "x".repeat(1024 * 1024);
        for (text, limit) in [
            (alias_bomb(9, 9), Limit::Nodes),
            (format!("[{}]", "1,".repeat(MAX_NODES)), Limit::Nodes),
            (format!("a: &a {long}\nb: [*a, *a, *a, *a]"), Limit::ScalarBytes),
            (format!("a: &a x\nb: [{}]", "*a,".repeat(MAX_ALIASES + 1)), Limit::Aliases),
            (nested(MAX_DEPTH + 1), Limit::Depth),
            (" ".repeat(MAX_TEXT_BYTES + 1), Limit::TextBytes),
        ] {
            assert_eq!(limit_of(&text), Some(limit), "{}", &text[..text.len().min(80)]);
        }
        for text in [nested(MAX_DEPTH - 1), format!("[{}]", "1,".repeat(MAX_NODES / 2)), "a: &a {b: c}\nd: *a".into()] {
            assert_eq!(limit_of(&text), None, "{}", &text[..text.len().min(80)]);
        }
    }

    #[test]
    fn budget_spans_all_texts() {
        let bomb = alias_bomb(3, 9);
        let mut budget = Budget::default();
        let parsed = (0..10_000).take_while(|_| budget.parse::<Value>(&bomb).is_ok()).count();
        assert!((10..200).contains(&parsed), "{parsed}");
        assert!(matches!(budget.parse::<Value>("a: 1"), Err(YamlError::Limit(_))), "nothing more is parsed");
        let mut budget = Budget::default();
        let keys = (0..MAX_KEYS * 2).take_while(|_| budget.parse::<Value>("1").is_ok()).count();
        assert_eq!(keys, MAX_KEYS);
    }

    #[test]
    fn invalid_text_is_charged() {
        let broken = format!("{}b: [", alias_bomb(3, 9));
        let mut budget = Budget::default();
        assert!(matches!(budget.parse::<Value>(&broken), Err(YamlError::Invalid { location: Some(_), .. })));
        assert!(budget.used_nodes() > 800, "{}", budget.used_nodes());
    }

    #[test]
    fn documents_are_counted_before_parsing() {
        let text = |count: usize| vec!["a: 1"; count].join("\n---\n");
        assert_eq!(split_documents(&text(MAX_DOCUMENTS)).unwrap().len(), MAX_DOCUMENTS);
        assert_eq!(split_documents(&text(MAX_DOCUMENTS + 2)), Err(Limit::Documents));
    }

    #[test]
    fn memo_parses_text_once_within_bounds() {
        let memo: Memo<usize> = Memo::new();
        let mut parsed = 0;
        for _ in 0..3 {
            let result = memo.get("a", || {
                parsed += 1;
                (7, 10)
            });
            assert_eq!((result, parsed), (7, 1));
        }
        for text in 0..10 {
            memo.get(&format!("large {text}"), || (text, MAX_NODES / 2));
        }
        let entries = memo.0.lock().unwrap();
        assert!(entries.nodes <= MAX_MEMO_NODES && entries.results.len() == entries.order.len(), "{}", entries.nodes);
        assert!(!entries.results.contains_key(&content_hash::hex("a")), "the oldest result is gone");
    }
}
