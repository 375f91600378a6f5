//! Reads the log of an operator or a relay, one JSON object per line, while the process writes it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::wait;

/// Lines at the end of a log that are shown when a test fails.
const MAX_END_LINES: usize = 40;

#[derive(Clone, Debug)]
pub struct Log {
    path: PathBuf,
}

impl Log {
    pub fn open(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole log. Empty if the file does not exist yet.
    pub fn text(&self) -> String {
        fs::read_to_string(&self.path).unwrap_or_default()
    }

    /// The lines that are valid JSON: the last line may be incomplete.
    pub fn lines(&self) -> Vec<Value> {
        self.text().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    pub fn last_lines(&self) -> String {
        let text = self.text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(MAX_END_LINES)..].join("\n")
    }

    /// Number of lines with this message for which `counts` returns true.
    pub fn count(&self, message: &str, counts: impl Fn(&Value) -> bool) -> usize {
        self.lines().iter().filter(|line| line["msg"] == message && counts(line)).count()
    }

    pub fn contains(&self, message: &str) -> bool {
        self.count(message, |_| true) > 0
    }

    pub async fn wait_for(&self, message: &str) -> Result<()> {
        wait::eventually(message, async || self.contains(message).then_some(()))
            .await
            .with_context(|| self.last_lines())
    }

    /// The URL at which this server of the operator listens.
    pub fn address(&self, server: &str) -> Option<String> {
        let listens = |line: &Value| line["msg"] == "listening" && line["server"] == server;
        let line = self.lines().into_iter().find(listens)?;
        let scheme = if line["tls"] == true { "https" } else { "http" };
        Some(format!("{scheme}://{}", line["address"].as_str()?.replace("0.0.0.0", "127.0.0.1")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_is_readable_while_written() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::open(&folder.path().join("log"));
        assert_eq!((log.text().as_str(), log.contains("up"), log.address("health")), ("", false, None));
        let lines = "{\"msg\":\"up\",\"n\":1}\n{\"msg\":\"up\",\"n\":2}\n\
            {\"msg\":\"listening\",\"server\":\"health\",\"tls\":true,\"address\":\"0.0.0.0:81\"}\n{\"msg\":\"u";
        fs::write(&log.path, lines).unwrap();
        assert_eq!((log.lines().len(), log.count("up", |line| line["n"] == 2)), (3, 1));
        assert_eq!(log.address("health").as_deref(), Some("https://127.0.0.1:81"));
        assert!(log.last_lines().ends_with("{\"msg\":\"u"));
    }
}
