//! The children besides the configuration, from the operator's own plan.
//! Comes in: the stored object; goes out: the objects that a cluster without any of them would get, and what stands against
//! them.

use anyhow::Context;
use jiff::Timestamp;
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::convert::convert;
use steersman_plan::llamastack::config::base;
use steersman_plan::llamastack::{ObjectSeen, Seen, ServerSeen, Settings, plan};
use steersman_plan::{Finding, Severity};

/// Findings that speak of this version of Steersman, not of the object.
const NOT_YET: [&str; 2] = ["UserConfigNotSupported", "CABundleNotSupported"];

#[derive(Default)]
pub struct Children {
    pub objects: Vec<Value>,
    pub warnings: Vec<String>,
    pub blockers: Vec<String>,
    /// What this version does not plan, one sentence each.
    pub not_yet: Vec<String>,
}

/// `generated`: the configuration is. The plan does not mount it yet, and a Deployment without it would be another server.
pub fn of(stored: &Value, name: &str, generated: bool) -> anyhow::Result<Children> {
    let seen = seen(stored, name)?;
    let plan = plan(&seen);
    let said = |finding: &Finding| format!("{} {}", finding.message, finding.remedy);
    let mut children = Children::default();
    for finding in &plan.findings {
        match finding.severity {
            Severity::Blocker if NOT_YET.contains(&finding.reason) => {
                children.not_yet.push(format!("the children of the object. {}", finding.message));
            }
            Severity::Blocker => children.blockers.push(said(finding)),
            Severity::Warning | Severity::Info => children.warnings.push(said(finding)),
        }
    }
    for write in &plan.writes {
        let mut object = serde_json::to_value(write.object()).context("a child cannot be written as JSON")?;
        if generated && object["kind"] == "Deployment" {
            let what = "the Deployment. This version of Steersman generates its configuration, but does not mount it";
            children.not_yet.push(what.to_owned());
            continue;
        }
        let child = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let labels = object["metadata"]["labels"].take();
        object["metadata"] = metadata(stored, child, labels);
        children.objects.push(object);
    }
    Ok(children)
}

/// A manifest has no uid, and a reference to an owner without one would be refused; its namespace may be left to kubectl.
pub fn metadata(stored: &Value, name: String, labels: Value) -> Value {
    let mut metadata = json!({ "name": name, "labels": labels });
    let owner = &stored["metadata"];
    if let Some(namespace) = owner["namespace"].as_str() {
        metadata["namespace"] = namespace.into();
    }
    if let Some(uid) = owner["uid"].as_str() {
        metadata["ownerReferences"] = json!([{
            "apiVersion": stored["apiVersion"],
            "kind": stored["kind"],
            "name": owner["name"],
            "uid": uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }]);
    }
    metadata
}

/// As on a cluster that has nothing of it.
fn seen(stored: &Value, name: &str) -> anyhow::Result<Seen> {
    let old = convert(stored.clone(), &format!("{}/v1alpha1", Family::Llsd.group()))?.object;
    let spec = serde_json::from_value(old["spec"].clone()).context("the spec cannot be read in v1alpha1")?;
    Ok(Seen {
        now: Timestamp::UNIX_EPOCH,
        settings: Settings { operator_version: env!("CARGO_PKG_VERSION").to_owned(), distributions: base::images() },
        object: ObjectSeen {
            name: name.to_owned(),
            namespace: stored["metadata"]["namespace"].as_str().unwrap_or_default().to_owned(),
            uid: String::new(),
            generation: None,
            deleting: false,
            spec,
            // What is beyond it is rendered beside the children, and said where it is not.
            beyond: Vec::new(),
            status: None,
        },
        deployment: None,
        volume_claim: None,
        service: false,
        server: ServerSeen::NotAsked,
    })
}
