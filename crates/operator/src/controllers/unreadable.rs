//! Objects that cannot be read, such as those of another version, and are left alone.
//! Comes in: which one, and what of it cannot be read; goes out: an event on it and a line in the log, once for each version
//! of it and now and then. It has no status that we could write: what is in it is not known either.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use steersman_api::Family as Api;
use steersman_reconcile::{DecodeError, Event, EventType};

use super::wakes::Place;
use crate::apply::{Owner, Recorder};

/// Events are forgotten after an hour; who looks at the object later has to find one, too.
const AGAIN: Duration = Duration::from_secs(30 * 60);

/// How soon it is looked at again, as its event may not have been written.
pub const RECHECK: Duration = Duration::from_secs(5 * 60);

/// What was told of each such object.
#[derive(Default)]
pub struct LeftAlone {
    told: Mutex<HashMap<Place, Told>>,
}

struct Told {
    version: String,
    at: Instant,
    /// Its event was written, too.
    written: bool,
}

impl Told {
    /// Soon enough where the event is missing, but not with every look: what refuses it may last.
    fn holds(&self, version: &str) -> bool {
        self.version == version && self.at.elapsed() < if self.written { AGAIN } else { RECHECK / 2 }
    }
}

impl LeftAlone {
    /// Nothing else is known of such an object that could change but its version.
    pub async fn tell(&self, recorder: &Recorder, api: Api, owner: &Owner, version: &str, unreadable: &DecodeError) {
        let Owner { namespace, name, .. } = owner;
        let place = (namespace.clone(), name.clone());
        if self.told().get(&place).is_some_and(|told| told.holds(version)) {
            return;
        }
        let kind = api.kind();
        tracing::warn!(namespace, name, cause = %unreadable, "a {kind} cannot be read and is left alone");
        let told = |written| Told { version: version.to_owned(), at: Instant::now(), written };
        // Before the event: whoever waits no longer for it has tried all the same, and others have their turn.
        self.told().insert(place.clone(), told(false));
        if recorder.tell(owner, &note(api, unreadable)).await {
            self.told().insert(place, told(true));
        }
    }

    /// It is gone, or can be read.
    pub fn forget(&self, place: &Place) {
        self.told().remove(place);
    }

    /// All others are gone, or can be read.
    pub fn keep(&self, is_unreadable: impl Fn(&Place) -> bool) {
        self.told().retain(|place, _| is_unreadable(place));
    }

    fn told(&self) -> MutexGuard<'_, HashMap<Place, Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn note(api: Api, unreadable: &DecodeError) -> Event {
    let of_status = unreadable.path.starts_with("status");
    let (part, reason) = if of_status { ("status", "StatusUnreadable") } else { ("spec", "SpecUnreadable") };
    // `kubectl edit` alone does not touch it.
    let how = if of_status { " by kubectl edit --subresource=status" } else { "" };
    let message = format!(
        "The {part} cannot be read, so that nothing is done: {unreadable}. Correct that field{how}; `kubectl explain \
         {api}.{part}` says what it takes"
    );
    Event { type_: EventType::Warning, reason, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_that_cannot_be_read_is_named_and_how_to_correct_it() {
        let of = |path: &str| DecodeError { path: path.to_owned(), cause: "missing field `x`".to_owned() };
        let told = note(Api::Dgdr, &of("spec.sla"));
        let text = "The spec cannot be read, so that nothing is done: spec.sla: missing field `x`. Correct that field; `kubectl \
                    explain dgdr.spec` says what it takes";
        assert_eq!((told.reason, told.message.as_str()), ("SpecUnreadable", text));
        let told = note(Api::Llsd, &of("status.phase"));
        let text = "The status cannot be read, so that nothing is done: status.phase: missing field `x`. Correct that field by \
                    kubectl edit --subresource=status; `kubectl explain llsd.status` says what it takes";
        assert_eq!((told.reason, told.message.as_str()), ("StatusUnreadable", text));
    }
}
