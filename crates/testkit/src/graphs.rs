//! DynamoGraphDeployments without anybody who runs them: as far as requests look at them.
//! Comes in: how a graph fares; goes out: its status, as whoever runs graphs would write it.

use jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

/// The definition, which takes any spec.
pub const CRD: &str = include_str!("graph-crd.yaml");

/// Sets the status of the graph `name`; `components` are those of the status, by name.
pub async fn is(
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
