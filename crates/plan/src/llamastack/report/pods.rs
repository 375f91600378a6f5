//! What holds the pods up.
//! Comes in: what the conditions say of the Deployment; goes out: the same, with the cause where one is known.

use crate::llamastack::seen::Seen;
use crate::llamastack::stored_status::condition;
use crate::llamastack::trouble;

/// A pod's own trouble comes first: what its Deployment knows is that there is some.
pub fn explained(seen: &Seen, type_: &str, message: String) -> String {
    let Some(pods) = &seen.pods else {
        // As after a start: what was said of the pods before stands until somebody has looked.
        let known = condition(seen, type_).filter(|known| known.message.starts_with(&format!("{message}: ")));
        return known.map(|known| known.message.clone()).unwrap_or_else(|| of_deployment(seen, message));
    };
    match trouble::find(pods) {
        Some(trouble) => format!("{message}: {}", trouble.sentence(&seen.object)),
        None => of_deployment(seen, message),
    }
}

fn of_deployment(seen: &Seen, message: String) -> String {
    match seen.deployment.as_ref().and_then(|live| live.trouble.as_ref()) {
        Some(trouble) => format!("{message}: {trouble}"),
        None => message,
    }
}
