//! Who wrote what, by the API server's own account.
//! Comes in: the audit log of a cluster; goes out: every write in the order in which the server did it, with who asked.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::cluster::Cluster;

pub(crate) const POLICY: &str = "audit-policy.json";
pub(crate) const LOG: &str = "log/audit.log";

/// Writes, and of Leases also what was written. Reads are many and nobody asks for them.
const RULES: &str = r#"{
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

/// One write.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
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

impl Written {
    /// Refused writes are in the log too.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.response_status.code)
    }

    pub fn is_lease(&self) -> bool {
        self.uri.contains("/leases")
    }

    /// Of a Lease: whom this write made its holder; empty: it was released.
    pub fn holder(&self) -> &str {
        self.request_object.pointer("/spec/holderIdentity").and_then(Value::as_str).unwrap_or_default()
    }
}

pub(crate) fn prepare(folder: &Path) -> Result<()> {
    std::fs::write(folder.join(POLICY), RULES).context("cannot write the audit policy")
}

impl Cluster {
    /// All writes so far, in the order in which they were answered.
    pub fn writes(&self) -> Result<Vec<Written>> {
        let text = std::fs::read_to_string(self.folder.join(LOG)).context("cannot read the audit log")?;
        // The last line may be half written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = whole.lines().map(serde_json::from_str);
        lines.collect::<serde_json::Result<_>>().context("cannot parse the audit log")
    }
}
