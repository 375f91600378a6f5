//! Watches that restart after a failure. Each new cause is logged once, and so is its end.

use kube::runtime::watcher::{self, Event};

use crate::client;

/// The state of a watch, as last logged.
pub struct Watching {
    kind: String,
    failure: Option<String>,
}

impl Watching {
    pub fn new(kind: &str) -> Self {
        Self { kind: kind.to_owned(), failure: None }
    }

    /// Handles an event of a watch. The start of a list does not end a failure.
    pub fn receive_event<K>(&mut self, event: watcher::Result<Event<K>>) -> Option<Event<K>> {
        match event {
            // The start of a list does not yet show that the watch works.
            Ok(Event::Init) => Some(Event::Init),
            event => self.receive(event),
        }
    }

    /// Logs a failure only if its cause is new, because a broken watch restarts about once a second.
    pub fn receive<T>(&mut self, event: watcher::Result<T>) -> Option<T> {
        match event {
            Ok(event) => {
                if self.failure.take().is_some() {
                    tracing::info!(kind = self.kind, "watch works again");
                }
                Some(event)
            }
            Err(error) => {
                let cause = client::watch_error_cause(&error);
                if self.failure.as_ref() != Some(&cause) {
                    tracing::warn!(kind = self.kind, cause, "watch failed; it is restarted until it works");
                    self.failure = Some(cause);
                }
                None
            }
        }
    }
}
