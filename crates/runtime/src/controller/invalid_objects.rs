//! Objects that do not fit their schema, for example because another version stored them. They are not reconciled. An event
//! and a log line report each version of such an object once, and repeat from time to time. There is no status to report
//! in: it may not fit its schema either.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use steersman_reconcile::{DecodeError, Event, NamespacedName, path};

use crate::apply::{Owner, Recorder};
use crate::resource::CustomResource;

/// Events expire after an hour. The report repeats before, so that an event is always there to be found.
const REPEAT_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// Interval at which the object is decoded again, because its event may have failed.
pub const RECHECK_INTERVAL: Duration = Duration::from_secs(5 * 60);

#[derive(Default)]
pub struct InvalidObjects {
    reports: Mutex<HashMap<NamespacedName, InvalidObjectReport>>,
}

struct InvalidObjectReport {
    version: String,
    at: Instant,
    event_written: bool,
}

impl InvalidObjectReport {
    /// A report without its event is repeated sooner, but not at every reconcile: the cause of the failed event may
    /// persist.
    fn is_current(&self, version: &str) -> bool {
        let valid = if self.event_written { REPEAT_INTERVAL } else { RECHECK_INTERVAL / 2 };
        self.version == version && self.at.elapsed() < valid
    }
}

impl InvalidObjects {
    pub async fn report(
        &self,
        recorder: &Recorder,
        resource: &CustomResource,
        owner: &Owner,
        version: &str,
        error: &DecodeError,
    ) {
        let Owner { namespace, name, .. } = owner;
        let object = NamespacedName::new(namespace, name);
        if self.reports().get(&object).is_some_and(|report| report.is_current(version)) {
            return;
        }
        let kind = resource.kind;
        tracing::warn!(namespace, name, cause = %error, "cannot decode a {kind}; it is not reconciled");
        let report =
            |event_written| InvalidObjectReport { version: version.to_owned(), at: Instant::now(), event_written };
        // Before the event: a reconcile that is dropped while it waits for the event has made its attempt.
        self.reports().insert(object.clone(), report(false));
        if recorder.publish(owner, &event(resource, error)).await {
            self.reports().insert(object, report(true));
        }
    }

    /// The object is gone, or valid.
    pub fn forget(&self, object: &NamespacedName) {
        self.reports().remove(object);
    }

    /// All other objects are gone, or valid.
    pub fn retain(&self, is_invalid: impl Fn(&NamespacedName) -> bool) {
        self.reports().retain(|object, _| is_invalid(object));
    }

    fn reports(&self) -> MutexGuard<'_, HashMap<NamespacedName, InvalidObjectReport>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn event(resource: &CustomResource, error: &DecodeError) -> Event {
    let of_status = error.path.below(&path!(status)).is_some();
    let (part, reason) = if of_status { ("status", "StatusUnreadable") } else { ("spec", "SpecUnreadable") };
    // `kubectl edit` alone does not change a status.
    let how = if of_status { " with `kubectl edit --subresource=status`" } else { "" };
    let message = format!(
        "Cannot decode {error}. The object is not reconciled until this is fixed{how}; see `kubectl explain \
         {resource}.{part}`."
    );
    Event::warning(reason, message)
}

#[cfg(test)]
mod tests {
    use steersman_reconcile::FieldPath;

    use super::*;

    #[test]
    fn event_names_invalid_part_and_remedy() {
        let resource = CustomResource {
            short_name: "wgt",
            group: "example.com",
            version: "v1",
            kind: "Widget",
            plural: "widgets",
            crd_name: "widgets.example.com",
        };
        let of = |path: FieldPath| DecodeError { path, cause: "missing field `x`".to_owned() };
        let published = event(&resource, &of(path!(spec.sla)));
        let text = "Cannot decode spec.sla: missing field `x`. The object is not reconciled until this is fixed; see `kubectl explain \
                    wgt.spec`.";
        assert_eq!((published.reason, published.message.as_str()), ("SpecUnreadable", text));
        let published = event(&resource, &of(path!(status.phase)));
        let text = "Cannot decode status.phase: missing field `x`. The object is not reconciled until this is fixed with `kubectl \
                    edit --subresource=status`; see `kubectl explain wgt.status`.";
        assert_eq!((published.reason, published.message.as_str()), ("StatusUnreadable", text));
    }
}
