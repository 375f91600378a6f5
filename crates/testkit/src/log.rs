//! The log of an operator or a relay: lines of JSON.
//! Comes in: the file that the process writes; goes out: what it has said, as soon as it has.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::wait;

/// Lines at the end of a log that tell why a test failed.
const LAST: usize = 40;

#[derive(Clone, Debug)]
pub struct Log {
    path: PathBuf,
}

impl Log {
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Empty before it says anything.
    pub fn text(&self) -> String {
        fs::read_to_string(&self.path).unwrap_or_default()
    }

    /// Those that are JSON: the last one may be under way.
    pub fn lines(&self) -> Vec<Value> {
        self.text().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    pub fn end(&self) -> String {
        let text = self.text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LAST)..].join("\n")
    }

    /// How many lines say this, of those that `counts`.
    pub fn times_said(&self, message: &str, counts: impl Fn(&Value) -> bool) -> usize {
        self.lines().iter().filter(|line| line["msg"] == message && counts(line)).count()
    }

    pub fn said(&self, message: &str) -> bool {
        self.times_said(message, |_| true) > 0
    }

    pub async fn until_said(&self, message: &str) -> Result<()> {
        wait::eventually(message, async || self.said(message).then_some(())).await.with_context(|| self.end())
    }

    /// Where this server of the operator listens, as a URL.
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
    fn a_log_is_read_while_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::at(&folder.path().join("log"));
        assert_eq!((log.text().as_str(), log.said("up"), log.address("health")), ("", false, None));
        let lines = "{\"msg\":\"up\",\"n\":1}\n{\"msg\":\"up\",\"n\":2}\n\
            {\"msg\":\"listening\",\"server\":\"health\",\"tls\":true,\"address\":\"0.0.0.0:81\"}\n{\"msg\":\"u";
        fs::write(&log.path, lines).unwrap();
        assert_eq!((log.lines().len(), log.times_said("up", |line| line["n"] == 2)), (3, 1));
        assert_eq!(log.address("health").as_deref(), Some("https://127.0.0.1:81"));
        assert!(log.end().ends_with("{\"msg\":\"u"));
    }
}
