//! Reads the API server's audit log: every write in order, with its user.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::cluster::Cluster;

pub(crate) const POLICY_FILE: &str = "audit-policy.json";
pub(crate) const LOG_FILE: &str = "log/audit.log";

/// Audit policy: logs writes, and the content of writes to Leases. Reads are not logged, because there are many and no test
/// needs them.
const POLICY_MANIFEST: &str = r#"{
  "apiVersion": "audit.k8s.io/v1",
  "kind": "Policy",
  "omitStages": ["RequestReceived", "ResponseStarted"],
  "rules": [
    { "level": "Request", "verbs": ["create", "update", "patch"],
      "resources": [{ "group": "coordination.k8s.io", "resources": ["leases"] }] },
    { "level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"] },
    { "level": "None" }
  ]
}
"#;

/// A write request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditedWrite {
    pub verb: String,
    #[serde(rename = "requestURI")]
    pub uri: String,
    #[serde(default)]
    pub user_agent: String,
    pub user: User,
    #[serde(default)]
    response_status: Status,
    #[serde(default)]
    request_object: Value,
}

#[derive(Clone, Debug, Deserialize)]
pub struct User {
    pub username: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

impl AuditedWrite {
    /// Whether the write succeeded. Rejected writes are in the log too.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.response_status.code)
    }

    pub fn is_lease(&self) -> bool {
        self.uri.contains("/leases")
    }

    /// The holder in a write to a Lease. Empty if the Lease was released.
    pub fn holder(&self) -> &str {
        self.request_object.pointer("/spec/holderIdentity").and_then(Value::as_str).unwrap_or_default()
    }
}

pub(crate) fn prepare(folder: &Path) -> Result<()> {
    std::fs::write(folder.join(POLICY_FILE), POLICY_MANIFEST).context("cannot write the audit policy")
}

impl Cluster {
    /// All writes so far, in the order of their responses.
    pub fn audited_writes(&self) -> Result<Vec<AuditedWrite>> {
        let text = std::fs::read_to_string(self.folder.join(LOG_FILE)).context("cannot read the audit log")?;
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = whole.lines().map(serde_json::from_str);
        lines.collect::<serde_json::Result<_>>().context("cannot parse the audit log")
    }
}
