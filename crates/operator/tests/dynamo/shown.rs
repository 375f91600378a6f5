//! What a person sees of a request at a terminal.
//! Comes in: what kubectl printed; goes out: its columns, and whether the description says the same at more length.

use std::path::PathBuf;

/// Names a folder in which to keep what was shown, for people to read.
const KEEP: &str = "STEERSMAN_SHOWN";

/// `kubectl get` and `kubectl describe` of one request in one situation.
pub struct Shown {
    table: String,
    pub description: String,
}

impl Shown {
    pub fn new(situation: &str, table: String, description: String) -> Self {
        if let Some(folder) = std::env::var_os(KEEP).map(PathBuf::from) {
            std::fs::create_dir_all(&folder).unwrap();
            let text = format!("$ kubectl get dgdr\n{table}\n$ kubectl describe dgdr\n{description}");
            std::fs::write(folder.join(format!("{situation}.txt")), text).unwrap();
        }
        Self { table, description }
    }

    /// A value by the head of its column, under which kubectl aligns it.
    pub fn column(&self, name: &str) -> &str {
        let (head, rest) = self.table.split_once('\n').unwrap();
        let row = rest.lines().next().unwrap();
        let start = format!(" {head} ").find(&format!(" {name} "));
        let start = start.unwrap_or_else(|| panic!("no column {name}:\n{}", self.table));
        let gap = head[start..].find(' ').map_or(head.len(), |gap| start + gap);
        let end = head[gap..].find(|letter| letter != ' ').map_or(row.len(), |next| gap + next);
        row[start..end.min(row.len())].trim_end()
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
        let (_, told) = self.description.split_once("Events:").expect("events are described");
        for event in events {
            assert!(told.contains(event), "{event} is among the events:\n{told}");
        }
    }
}

#[test]
fn a_column_is_what_stands_under_its_head() {
    let table = "NAME   PHASE     REASON   MESSAGE       AGE\nqwen   Pending            not yet, no   5s\n";
    let shown = Shown { table: table.into(), description: String::new() };
    assert_eq!(
        ["PHASE", "REASON", "MESSAGE", "AGE"].map(|name| shown.column(name)),
        ["Pending", "", "not yet, no", "5s"]
    );
}
