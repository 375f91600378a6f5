//! Serves `/healthz` and `/readyz`. Readiness does not depend on leadership: a standby replica is ready, too.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

/// Conditions that must be met before the process is ready. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    awaited: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl Readiness {
    /// Not ready until [`Readiness::has`] is called with the same words, which follow "waiting for".
    pub fn awaits(&self, what: &'static str) {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner).insert(what);
    }

    pub fn has(&self, what: &'static str) {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner).remove(what);
    }

    /// The status and text of `/readyz`.
    fn answer(&self) -> (StatusCode, String) {
        let awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        if awaited.is_empty() {
            return (StatusCode::OK, "ok\n".to_owned());
        }
        let lines: String = awaited.iter().map(|what| format!("waiting for {what}\n")).collect();
        (StatusCode::SERVICE_UNAVAILABLE, lines)
    }
}

/// `/healthz` and `/readyz`, and 404 for everything else.
pub fn routes(readiness: Readiness) -> Router {
    let missing = || async { (StatusCode::NOT_FOUND, "not found: this server has /healthz and /readyz\n") };
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(|State(readiness): State<Readiness>| async move { readiness.answer() }))
        .fallback(missing)
        .with_state(readiness)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_once_nothing_is_awaited() {
        let readiness = Readiness::default();
        assert_eq!(readiness.answer(), (StatusCode::OK, "ok\n".into()));
        readiness.awaits("the certificate");
        readiness.awaits("the API server");
        let both = "waiting for the API server\nwaiting for the certificate\n";
        assert_eq!(readiness.answer(), (StatusCode::SERVICE_UNAVAILABLE, both.into()));
        readiness.has("the certificate");
        assert_eq!(readiness.answer().1, "waiting for the API server\n");
        readiness.has("the API server");
        assert_eq!(readiness.answer().0, StatusCode::OK);
    }
}
