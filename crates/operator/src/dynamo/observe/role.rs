//! Whether the ClusterRole of profiling Jobs is there.
//! Comes in: its name; goes out: yes or no, asked once a minute for all requests together while it is there.

use std::time::{Duration, Instant};

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::Api;
use steersman_runtime::client::{CallError, Server};
use tokio::sync::Mutex;

/// Roles go rarely, and who binds one that is gone does no harm. That one is missing is asked anew each time: somebody waits.
const HOLDS: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Role {
    /// When it was last there. Held while somebody asks, so that nobody else does at the same time.
    found: Mutex<Option<Instant>>,
}

impl Role {
    /// Whoever may not ask is told by the binding's creation.
    pub async fn is_there(&self, server: &Server, name: &str) -> Result<bool, CallError> {
        let mut found = self.found.lock().await;
        if found.is_some_and(|when| when.elapsed() < HOLDS) {
            return Ok(true);
        }
        let roles: Api<ClusterRole> = Api::all(server.client.clone());
        let there = match server.call(roles.get_metadata_opt(name)).await {
            Ok(role) => role.is_some(),
            Err(CallError::Answered { code: 403, .. }) => true,
            Err(error) => return Err(error),
        };
        *found = there.then(Instant::now);
        Ok(there)
    }
}
