//! What is said of a watch that breaks.
//! Comes in: what a watch brings; goes out: one line in the log for each new cause of trouble, and one when it is over.

use kube::runtime::watcher;

use crate::client;

/// The state of one watch, as far as it was told.
pub struct Watching {
    kind: String,
    trouble: Option<String>,
}

impl Watching {
    pub fn new(kind: &str) -> Self {
        Self { kind: kind.to_owned(), trouble: None }
    }

    /// The same again and again would only fill the log: a watch is begun anew every second or so.
    pub fn hear<T>(&mut self, brought: watcher::Result<T>) -> Option<T> {
        match brought {
            Ok(event) => {
                if self.trouble.take().is_some() {
                    tracing::info!(kind = self.kind, "the watch is back");
                }
                Some(event)
            }
            Err(error) => {
                let cause = client::watch_trouble(&error);
                if self.trouble.as_ref() != Some(&cause) {
                    tracing::warn!(kind = self.kind, cause, "a watch broke off and is begun again until it holds");
                    self.trouble = Some(cause);
                }
                None
            }
        }
    }
}
