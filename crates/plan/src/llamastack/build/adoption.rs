//! What becomes of pods that an earlier operator started.
//! Comes in: the live Deployment and what the spec asks for; goes out: whether its pods stay as they are. Another operator
//! writes the same pods in other words, and other words would restart them.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use steersman_reconcile::{ADOPTED_LABEL, Finding, Severity};

use crate::llamastack::config::external_providers;
use crate::llamastack::resolution::Setup;
use crate::llamastack::snapshot::{ObservedDeployment, Snapshot};
use crate::llamastack::{fields, names};

/// Pods that stay as an earlier operator made them.
pub struct Kept<'a> {
    pub live: &'a ObservedDeployment,
    /// The value of the mark.
    pub mark: String,
}

/// Kept from the take-over on, for as long as the same is asked for.
pub fn kept<'a>(snapshot: &'a Snapshot, setup: &Setup) -> Option<Kept<'a>> {
    let live = snapshot.deployment.as_ref().filter(|live| live.template.is_object())?;
    let several = fields::replicas(&snapshot.object.spec) > 1;
    let marks = [several, !several].map(|several| mark(snapshot, setup, several));
    let known = marks.iter().find(|mark| live.adopted.as_ref() == Some(*mark));
    let mark = known.or(marks.first().filter(|_| live.legacy))?.clone();
    Some(Kept { live, mark })
}

/// Stands for everything that decides on the pods. Not for how this version would write them: a newer one may write them
/// otherwise, which is no reason to restart them either. The spec counts in its v1alpha1 form, as pods of earlier operators
/// were made from it; what is beyond that is added where it is there. Whether there were `several` pods at the take-over is part
/// of it, but more or fewer of them are no reason to restart those that run.
fn mark(snapshot: &Snapshot, setup: &Setup, several: bool) -> String {
    let object = &snapshot.object;
    let mut server = json!(object.former.server);
    // These decide on no pod.
    for path in ["autoscaling", "podDisruptionBudget"] {
        server.as_object_mut().map(|server| server.remove(path));
    }
    if let Some(Value::Object(storage)) = server.get_mut("storage") {
        storage.remove("size");
    }
    let mut asked = json!({ "server": server, "image": setup.image, "several": several });
    let external = external_providers(&object.spec);
    let beyond = [
        ("config", setup.config.as_ref().map(|config| json!(config.hash))),
        ("trust", setup.bundle.as_ref().map(|bundle| json!(bundle.hash))),
        ("certificate", fields::certificate(&object.spec).map(|secret| json!(secret))),
        ("secrets", setup.generated.as_ref().map(|generated| json!(generated.env))),
        ("external", (!external.is_empty()).then(|| json!(external))),
    ];
    for (name, value) in beyond {
        if let Some(value) = value {
            asked[name] = value;
        }
    }
    let digest = Sha256::digest(asked.to_string());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Says so where the pods are not what this version would make of the spec: the spec may have been changed while nobody
/// was looking.
pub fn finding(kept: &Kept<'_>, object: &str, template: &Value) -> Option<Finding> {
    let mut template = template.clone();
    // Another operator has other values for the same content, which the mark stands for.
    let live = kept.live.template.pointer("/metadata/annotations").and_then(Value::as_object);
    let wanted = template.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    for (name, value) in wanted.into_iter().flatten() {
        if let Some(theirs) = live.and_then(|live| live.get(name)) {
            value.clone_from(theirs);
        }
    }
    let mut places = Vec::new();
    differences(&template, &kept.live.template, "spec.template", &mut places);
    let shown = match places.len() {
        0 => return None,
        more if more > SHOWN => format!("{} and {} more", places[..SHOWN].join(", "), more - SHOWN),
        _ => places.join(", "),
    };
    Some(Finding {
        severity: Severity::Info,
        reason: "AdoptedPodsKept",
        message: format!(
            "Deployment {} was made by an earlier operator, and its pods stay as they are although Steersman would write \
             {shown} otherwise.",
            names::deployment(object)
        ),
        remedy: format!(
            "They follow the next change of what the server is made from. To have it now, at the price of a restart: kubectl label \
             deployment {} {ADOPTED_LABEL}-",
            names::deployment(object)
        ),
    })
}

/// So many places are named.
const SHOWN: usize = 5;

/// The places at which something wanted is not there. What the server or the earlier operator added does not count.
fn differences(wanted: &Value, live: &Value, path: &str, found: &mut Vec<String>) {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => {
            for (key, value) in wanted {
                match live.get(key) {
                    Some(there) => differences(value, there, &format!("{path}.{key}"), found),
                    None if !is_nothing(value) => found.push(format!("{path}.{key}")),
                    None => {}
                }
            }
        }
        (Value::Array(wanted), Value::Array(live)) if wanted.len() == live.len() => {
            for (place, (wanted, live)) in wanted.iter().zip(live).enumerate() {
                differences(wanted, live, &format!("{path}[{place}]"), found);
            }
        }
        _ if wanted != live => found.push(path.to_owned()),
        _ => {}
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
