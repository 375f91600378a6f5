//! Caches for a minute that the ClusterRoles of profiling Jobs exist.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::Api;
use steersman_runtime::client::{CallError, Server};
use tokio::sync::Mutex;

/// Validity of a positive result: roles are rarely deleted, and a binding to a deleted one does no harm. A missing role is
/// looked up each time, because requests wait for it.
const VALIDITY: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct ProfilingRole {
    /// Time of the last positive result for each role. Locked during a lookup, so that there is one at a time.
    found: Mutex<BTreeMap<String, Instant>>,
}

impl ProfilingRole {
    /// Without the right to read roles the answer is yes: creating the binding then reports a missing role.
    pub async fn exists(&self, server: &Server, name: &str) -> Result<bool, CallError> {
        let mut found = self.found.lock().await;
        if found.get(name).is_some_and(|when| when.elapsed() < VALIDITY) {
            return Ok(true);
        }
        let roles: Api<ClusterRole> = Api::all(server.client.clone());
        let there = match server.call(roles.get_metadata_opt(name)).await {
            Ok(role) => role.is_some(),
            Err(CallError::Answered { code: 403, .. }) => true,
            Err(error) => return Err(error),
        };
        if there {
            found.insert(name.to_owned(), Instant::now());
        } else {
            found.remove(name);
        }
        Ok(there)
    }
}
