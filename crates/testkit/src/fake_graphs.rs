//! Fake DynamoGraphDeployments: the part of their API that requests use. No controller runs them; tests write their status.

use jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

/// The CRD. It accepts any spec.
pub const GRAPH_CRD: &str = include_str!("graph-crd.yaml");

/// Sets the status of the graph `name`. `components` is `status.components`, keyed by name.
pub async fn set_status(
    graphs: &Api<DynamicObject>,
    name: &str,
    state: &str,
    why: &str,
    components: &Value,
) -> kube::Result<()> {
    let ready = if state == "successful" { "True" } else { "False" };
    let condition = json!({ "type": "Ready", "status": ready, "reason": "some_reason", "message": why,
        "lastTransitionTime": Timestamp::now() });
    let status = json!({ "state": state, "components": components, "conditions": [condition] });
    graphs.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({ "status": status }))).await?;
    Ok(())
}
