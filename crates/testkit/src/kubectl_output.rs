//! Checks the output of `kubectl get` and `kubectl describe` for one object.

use std::path::PathBuf;

use anyhow::Result;

/// Environment variable with a folder to which the output is written, for review.
const OUTPUT_FOLDER: &str = "STEERSMAN_SHOWN";

/// Writes the output of a situation to the folder of `STEERSMAN_SHOWN`, if that is set.
pub fn save_output(situation: &str, text: &str) -> Result<()> {
    if let Some(folder) = std::env::var_os(OUTPUT_FOLDER).map(PathBuf::from) {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(format!("{situation}.txt")), text)?;
    }
    Ok(())
}

/// `kubectl get` and `kubectl describe` of one object in one situation.
pub struct KubectlOutput {
    table: String,
    pub description: String,
}

impl KubectlOutput {
    /// `short` is the short name of the kind.
    pub fn new(situation: &str, short: &str, table: String, description: String) -> Result<Self> {
        save_output(situation, &format!("$ kubectl get {short}\n{table}\n$ kubectl describe {short}\n{description}"))?;
        Ok(Self { table, description })
    }

    /// The value of a column.
    #[track_caller]
    #[allow(clippy::panic, reason = "a test that looks for a column that is not there has failed")]
    pub fn column(&self, name: &str) -> &str {
        self.find(name).unwrap_or_else(|| panic!("no column {name}:\n{}", self.table))
    }

    /// kubectl aligns a value with the header of its column.
    fn find(&self, name: &str) -> Option<&str> {
        let (head, rest) = self.table.split_once('\n')?;
        let row = rest.lines().next()?;
        let start = format!(" {head} ").find(&format!(" {name} "))?;
        let gap = head[start..].find(' ').map_or(head.len(), |gap| start + gap);
        let end = head[gap..].find(|letter| letter != ' ').map_or(row.len(), |next| gap + next);
        // kubectl counts characters, and a value may have some of several bytes.
        let byte = |place: usize| row.char_indices().nth(place).map_or(row.len(), |(byte, _)| byte);
        Some(row.get(byte(start)..byte(end))?.trim_end())
    }

    /// Asserts the phase, the reason, parts of the messages in the described status, and the events. The description must
    /// contain the column with the short message too.
    #[track_caller]
    pub fn assert_status(&self, phase: &str, reason: &str, message_parts: &[&str], events: &[&str]) {
        assert_eq!((self.column("PHASE"), self.column("REASON")), (phase, reason), "{}", self.table);
        let message = self.column("MESSAGE");
        let (_, status) = self.description.split_once("\nStatus:").unwrap_or_default();
        let (status, shown_events) = status.split_once("\nEvents:").unwrap_or_default();
        for part in message_parts {
            assert!(status.contains(part), "the status must contain {part:?}:\n{}", self.description);
        }
        assert!(status.contains(message), "the status must contain the message {message}:\n{}", self.description);
        for event in events {
            assert!(shown_events.contains(event), "the events must contain {event}:\n{}", self.description);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_value_is_aligned_with_header() {
        let table = "NAME   PHASE     REASON   MESSAGE       AGE\nqwen   Pending            not yet, no   5s\n";
        let output = KubectlOutput { table: table.into(), description: String::new() };
        let columns = ["PHASE", "REASON", "MESSAGE", "AGE"].map(|name| output.column(name));
        assert_eq!(columns, ["Pending", "", "not yet, no", "5s"]);
        assert_eq!(output.find("STATE"), None);
        let table = "NAME   MESSAGE   AGE\nqwen   not y…    5s\n";
        let output = KubectlOutput { table: table.into(), description: String::new() };
        assert_eq!(["MESSAGE", "AGE"].map(|name| output.column(name)), ["not y…", "5s"]);
    }
}
