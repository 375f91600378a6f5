//! Watches that restart after a failure. Each new cause is logged once, and so is its end.

use kube::runtime::watcher::{self, Event};

use crate::client;

/// The state of a watch, as last logged.
pub struct Watching {
    kind: String,
    trouble: Option<String>,
}

impl Watching {
    pub fn new(kind: &str) -> Self {
        Self { kind: kind.to_owned(), trouble: None }
    }

    /// Handles an event of a watch. The start of a list does not end a failure.
    pub fn receive_event<K>(&mut self, brought: watcher::Result<Event<K>>) -> Option<Event<K>> {
        match brought {
            // The start of a list does not yet show that the watch works.
            Ok(Event::Init) => Some(Event::Init),
            brought => self.receive(brought),
        }
    }

    /// Logs a failure only if its cause is new, because a broken watch restarts about once a second.
    pub fn receive<T>(&mut self, brought: watcher::Result<T>) -> Option<T> {
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
