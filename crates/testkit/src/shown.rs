//! What a person sees of an object at a terminal.
//! Comes in: what kubectl printed; goes out: its columns, and whether the description says the same at more length.

use std::path::PathBuf;

use anyhow::Result;

/// Names a folder in which to keep what was shown, for people to read.
const KEEP: &str = "STEERSMAN_SHOWN";

/// Keeps what was shown in this situation, where somebody wants to read it.
pub fn keep(situation: &str, text: &str) -> Result<()> {
    if let Some(folder) = std::env::var_os(KEEP).map(PathBuf::from) {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(format!("{situation}.txt")), text)?;
    }
    Ok(())
}

/// `kubectl get` and `kubectl describe` of one object in one situation.
pub struct Shown {
    table: String,
    pub description: String,
}

impl Shown {
    /// `short` is what kubectl calls the kind.
    pub fn new(situation: &str, short: &str, table: String, description: String) -> Result<Self> {
        keep(situation, &format!("$ kubectl get {short}\n{table}\n$ kubectl describe {short}\n{description}"))?;
        Ok(Self { table, description })
    }

    /// A value by the head of its column.
    #[track_caller]
    #[allow(clippy::panic, reason = "a test that looks for a column that is not there has failed")]
    pub fn column(&self, name: &str) -> &str {
        self.find(name).unwrap_or_else(|| panic!("no column {name}:\n{}", self.table))
    }

    /// kubectl aligns a value under the head of its column.
    fn find(&self, name: &str) -> Option<&str> {
        let (head, rest) = self.table.split_once('\n')?;
        let row = rest.lines().next()?;
        let start = format!(" {head} ").find(&format!(" {name} "))?;
        let gap = head[start..].find(' ').map_or(head.len(), |gap| start + gap);
        let end = head[gap..].find(|letter| letter != ' ').map_or(row.len(), |next| gap + next);
        Some(row.get(start..end.min(row.len()))?.trim_end())
    }

    /// Phase and reason, and all of these in the message; the description says it too, and which events there were.
    #[track_caller]
    pub fn assert(&self, phase: &str, reason: &str, says: &[&str], events: &[&str]) {
        assert_eq!((self.column("PHASE"), self.column("REASON")), (phase, reason), "{}", self.table);
        let message = self.column("MESSAGE");
        for part in says {
            assert!(message.contains(part), "{part:?} is in: {message}");
        }
        assert!(self.description.contains(message), "it is described:\n{}", self.description);
        let (_, told) = self.description.split_once("Events:").unwrap_or_default();
        for event in events {
            assert!(told.contains(event), "{event} is among the events:\n{}", self.description);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_what_stands_under_its_head() {
        let table = "NAME   PHASE     REASON   MESSAGE       AGE\nqwen   Pending            not yet, no   5s\n";
        let shown = Shown { table: table.into(), description: String::new() };
        let columns = ["PHASE", "REASON", "MESSAGE", "AGE"].map(|name| shown.column(name));
        assert_eq!(columns, ["Pending", "", "not yet, no", "5s"]);
        assert_eq!(shown.find("STATE"), None);
    }
}
