//! Decides whether pods of an earlier operator keep their template. A template that differs in spelling alone would
//! restart them.

use serde_json::{Value, json};
use steersman_reconcile::{ADOPTED_LABEL, Finding};

use crate::content_hash;
use crate::llamastack::config::external_providers;
use crate::llamastack::resolution::Setup;
use crate::llamastack::snapshot::{ObservedDeployment, Snapshot};
use crate::llamastack::{fields, names};

/// A Deployment that keeps the pod template of an earlier operator.
pub struct AdoptedTemplate<'a> {
    pub live: &'a ObservedDeployment,
    /// Value of the label `steersman.dev/adopted`.
    pub label: String,
}

/// Keeps the template from the adoption until the inputs of the pods change.
pub fn adopted_template<'a>(snapshot: &'a Snapshot, setup: &Setup) -> Option<AdoptedTemplate<'a>> {
    let live = snapshot.deployment.as_ref().filter(|live| live.template.is_object())?;
    let several = fields::replicas(&snapshot.object.spec) > 1;
    // Both labels are accepted, so that scaling does not restart adopted pods.
    let labels = [several, !several].map(|several| label(snapshot, setup, several));
    let known = labels.iter().find(|label| live.adopted.as_ref() == Some(*label));
    let label = known.or(labels.first().filter(|_| live.legacy))?.clone();
    Some(AdoptedTemplate { live, label })
}

/// Value of the label: a hash of the inputs of the pods. The template itself is not hashed, because a newer version may
/// render it differently, which is no reason for a restart. The spec is hashed in its v1alpha1 form, from which earlier
/// operators made the pods, with the v1alpha2 inputs that are present. `several`: whether the spec had more than one
/// replica at the adoption, which made earlier operators add scheduling rules to the pods.
fn label(snapshot: &Snapshot, setup: &Setup, several: bool) -> String {
    let object = &snapshot.object;
    let mut server = json!(object.v1alpha1.server);
    // Neither field affects a pod.
    for path in ["autoscaling", "podDisruptionBudget"] {
        server.as_object_mut().map(|server| server.remove(path));
    }
    if let Some(Value::Object(storage)) = server.get_mut("storage") {
        storage.remove("size");
    }
    let mut inputs = json!({ "server": server, "image": setup.image, "several": several });
    let external = external_providers(&object.spec);
    let v1alpha2_inputs = [
        ("config", setup.config.as_ref().map(|config| json!(config.hash))),
        ("trust", setup.bundle.as_ref().map(|bundle| json!(bundle.hash))),
        ("certificate", fields::certificate(&object.spec).map(|secret| json!(secret))),
        ("secrets", setup.generated.as_ref().map(|generated| json!(generated.env))),
        ("external", (!external.is_empty()).then(|| json!(external))),
    ];
    for (name, value) in v1alpha2_inputs {
        if let Some(value) = value {
            inputs[name] = value;
        }
    }
    content_hash::hex(&content_hash::sorted(&inputs).to_string())[..16].to_owned()
}

/// Reports where the adopted template differs from the one that this version would write: the spec may have changed while
/// no operator was running.
pub fn finding(adopted: &AdoptedTemplate<'_>, object: &str, template: &Value) -> Option<Finding> {
    let mut template = template.clone();
    // Operators hash the same content differently; the adoption hash already covers it.
    let live = adopted.live.template.pointer("/metadata/annotations").and_then(Value::as_object);
    let wanted = template.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    for (name, value) in wanted.into_iter().flatten() {
        if let Some(theirs) = live.and_then(|live| live.get(name)) {
            value.clone_from(theirs);
        }
    }
    let mut places = Vec::new();
    differences(&template, &adopted.live.template, "spec.template", &mut places);
    let shown = match places.len() {
        0 => return None,
        more if more > SHOWN => format!("{} and {} more", places[..SHOWN].join(", "), more - SHOWN),
        _ => places.join(", "),
    };
    let deployment = names::deployment(object);
    Some(Finding::info(
        "AdoptedPodsKept",
        format!(
            "Deployment {deployment} was created by an earlier operator. Its pods are not restarted, although \
             Steersman would set {shown} differently."
        ),
        format!(
            "The pods are updated with the next change that affects them. To update them now, which restarts the \
             server: kubectl label deployment {deployment} {ADOPTED_LABEL}-"
        ),
    ))
}

/// Number of differing paths in the message.
const SHOWN: usize = 5;

/// Collects the paths of wanted values that the live template lacks. Values that the API server or the earlier operator
/// added do not count.
fn differences(wanted: &Value, live: &Value, path: &str, found: &mut Vec<String>) {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => {
            for (key, value) in wanted {
                match live.get(key) {
                    Some(live) => differences(value, live, &format!("{path}.{key}"), found),
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
