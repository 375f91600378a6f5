//! Converts the status of a request.
//!
//! A field from an annotation is restored only if it still agrees with the phase and the graph of the status. Otherwise
//! it is stale.

use serde_json::{Value, json};

use super::spec::SectionSplit;
use crate::convert::tree::{JsonObject, SourceFields, ValueKind, insert_at, overlay, remove, text};

/// Fields with the same name and meaning in both versions.
const SAME: [&str; 2] = ["observedGeneration", "conditions"];
const SELECTED: &[&str] = &["profilingResults", "selectedConfig"];

/// The v1beta1 phase of a v1alpha1 state.
fn phase_of(state: Option<&Value>, deployment: Option<&Value>) -> Option<&'static str> {
    let created = deployment.and_then(|deployment| deployment.get("created")) == Some(&Value::Bool(true));
    Some(match state?.as_str()? {
        "Profiling" => "Profiling",
        "Ready" if created => "Deployed",
        "Ready" | "DeploymentDeleted" => "Ready",
        "Deploying" => "Deploying",
        "Failed" => "Failed",
        _ => "Pending",
    })
}

/// The v1alpha1 state of a v1beta1 phase.
fn state_of(phase: Option<&Value>) -> Option<&'static str> {
    Some(match phase?.as_str()? {
        "Profiling" => "Profiling",
        "Ready" | "Deployed" => "Ready",
        "Deploying" => "Deploying",
        "Failed" => "Failed",
        _ => "Pending",
    })
}

fn name_of(deployment: Option<&Value>) -> Option<&str> {
    text(deployment?.get("name"))
}

/// The v1alpha1 state and deployment for a v1beta1 phase and graph name.
fn alpha_state(phase: Option<&Value>, name: Option<&str>) -> (Option<Value>, Option<Value>) {
    (state_of(phase).map(Value::from), name.map(|name| json!({ "name": name })))
}

pub fn from_alpha(status: JsonObject) -> SectionSplit {
    let mut split = SectionSplit { unmapped: SourceFields::new(status), ..SectionSplit::default() };
    let SectionSplit { mapped, unmapped, .. } = &mut split;
    take_same(unmapped, mapped);
    if let Some(graph) = unmapped.take(&["generatedDeployment"], ValueKind::Any) {
        insert_at(mapped, SELECTED, graph);
    }
    report_wrong_type(unmapped, "state", Value::is_string, "a string");
    report_wrong_type(unmapped, "deployment", Value::is_object, "an object");
    let (state, deployment) = (unmapped.remaining.get("state"), unmapped.remaining.get("deployment"));
    let (phase, name) = (phase_of(state, deployment).map(Value::from), name_of(deployment));
    let rebuilt = alpha_state(phase.as_ref(), name);
    let same = (rebuilt.0.as_ref(), rebuilt.1.as_ref()) == (state, deployment);
    if let Some(name) = name {
        insert_at(mapped, &["dgdName"], name.into());
    }
    if let Some(phase) = phase {
        insert_at(mapped, &["phase"], phase);
    }
    if same {
        unmapped.remaining.remove("state");
        unmapped.remaining.remove("deployment");
    }
    split
}

/// `phase` and `dgdName` stay unmapped until `remove_derived` knows whether v1alpha1 determines them.
pub fn from_beta(status: JsonObject) -> SectionSplit {
    let mut split = SectionSplit { unmapped: SourceFields::new(status), ..SectionSplit::default() };
    let SectionSplit { mapped, unmapped, .. } = &mut split;
    take_same(unmapped, mapped);
    if let Some(graph) = unmapped.take(SELECTED, ValueKind::Any) {
        insert_at(mapped, &["generatedDeployment"], graph);
    }
    report_wrong_type(unmapped, "phase", Value::is_string, "a string");
    report_wrong_type(unmapped, "dgdName", Value::is_string, "a string");
    let (state, deployment) = alpha_state(unmapped.remaining.get("phase"), text(unmapped.remaining.get("dgdName")));
    set(mapped, "state", state);
    set(mapped, "deployment", deployment);
    split
}

fn take_same(unmapped: &mut SourceFields, mapped: &mut JsonObject) {
    for name in SAME {
        if let Some(value) = unmapped.take(&[name], ValueKind::Any) {
            insert_at(mapped, &[name], value);
        }
    }
}

fn report_wrong_type(source: &mut SourceFields, name: &str, is_right: fn(&Value) -> bool, required: &'static str) {
    if source.remaining.get(name).is_some_and(|value| !value.is_null() && !is_right(value)) {
        source.wrong_types.push((name.to_owned(), required));
    }
}

fn set(object: &mut JsonObject, name: &str, value: Option<Value>) {
    match value {
        Some(value) => object.insert(name.to_owned(), value),
        None => object.remove(name),
    };
}

/// The v1alpha1 status: the fields of v1beta1 over those from annotations.
pub fn assemble_alpha(split: &mut SectionSplit, preserved: JsonObject) -> JsonObject {
    let mut status = from_alpha(preserved).unmapped.remaining;
    let mut mapped = std::mem::take(&mut split.mapped);
    // The Go operator writes absent fields as empty strings.
    let state = status.remove("state").filter(|state| state.as_str() != Some(""));
    let mut deployment = status.remove("deployment");
    if let Some(Value::Object(deployment)) = &mut deployment
        && deployment.get("state").and_then(Value::as_str) == Some("")
    {
        deployment.remove("state");
    }
    if state.is_some() || deployment.is_some() {
        let state = state.or_else(|| mapped.get("state").cloned());
        let beta = &split.unmapped.remaining;
        let (current, stored) =
            (beta.get("phase").and_then(Value::as_str), phase_of(state.as_ref(), deployment.as_ref()));
        // Two phases can have the same v1alpha1 state, which then still agrees.
        let same_state =
            stored != Some("Deployed") && state_of(beta.get("phase")) == state.as_ref().and_then(Value::as_str);
        if (current == stored || same_state) && name_of(deployment.as_ref()) == text(beta.get("dgdName")) {
            set(&mut mapped, "state", state);
            set(&mut mapped, "deployment", deployment);
        }
    }
    overlay(&mut status, mapped);
    remove_derived(&mut split.unmapped.remaining, &status);
    status
}

/// Removes phase and name from the unmapped fields if `alpha` determines both: each is needed to check the other.
fn remove_derived(unmapped: &mut JsonObject, alpha: &JsonObject) {
    let (state, deployment) = (alpha.get("state"), alpha.get("deployment"));
    let agrees = |name: &str, derived: Option<&str>| match unmapped.get(name) {
        None => derived.is_none(),
        Some(value) => value.is_string() && value.as_str() == derived,
    };
    if agrees("phase", phase_of(state, deployment)) && agrees("dgdName", name_of(deployment)) {
        unmapped.remove("phase");
        unmapped.remove("dgdName");
    }
}

/// The v1beta1 status: the fields of v1alpha1 over those from annotations. `state` is that of v1alpha1.
pub fn assemble_beta(split: &mut SectionSplit, preserved: JsonObject, state: Option<&Value>) -> JsonObject {
    let mut status = from_beta(preserved).unmapped.remaining;
    let mut mapped = std::mem::take(&mut split.mapped);
    let (phase, name) = (status.remove("phase"), status.remove("dgdName"));
    let same_name = text(name.as_ref()) == text(mapped.get("dgdName"));
    let state = state.and_then(Value::as_str).map(|state| if state.is_empty() { "Pending" } else { state });
    let deployed = mapped.get("phase").and_then(Value::as_str) == Some("Deployed");
    if phase.is_some() && same_name && !deployed && state_of(phase.as_ref()) == state {
        set(&mut mapped, "phase", phase.clone());
    }
    let same_phase = match &phase {
        // Earlier versions stored no phase, and preserved these fields in phase Profiling only.
        None => mapped.get("phase").is_none_or(|phase| *phase == "Profiling"),
        Some(_) => mapped.get("phase") == phase.as_ref(),
    };
    if !same_phase {
        remove(&mut status, &["profilingPhase"]);
        remove(&mut status, &["profilingJobName"]);
    }
    if !same_name {
        remove(&mut status, &["deploymentInfo"]);
    } else if name.is_some() && !mapped.contains_key("dgdName") {
        set(&mut mapped, "dgdName", name);
    }
    overlay(&mut status, mapped);
    status
}
