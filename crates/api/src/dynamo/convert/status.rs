//! Converts the status of a request.
//!
//! A field from an annotation returns only if it still agrees with the phase and the graph of the status: otherwise it is
//! stale.

use serde_json::{Value, json};

use super::spec::Split;
use crate::convert::tree::{Kind, Object, Source, overlay, put, remove, text};

/// Fields of the same name and meaning.
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

/// The v1alpha1 state and deployment of a phase and a name.
fn shown(phase: Option<&Value>, name: Option<&str>) -> (Option<Value>, Option<Value>) {
    (state_of(phase).map(Value::from), name.map(|name| json!({ "name": name })))
}

pub fn from_alpha(status: Object) -> Split {
    let mut split = Split { rest: Source::new(status), ..Split::default() };
    let Split { said, rest, .. } = &mut split;
    take_same(rest, said);
    if let Some(graph) = rest.take(&["generatedDeployment"], Kind::Anything) {
        put(said, SELECTED, graph);
    }
    note_wrong(rest, "state", Value::is_string, "a text");
    note_wrong(rest, "deployment", Value::is_object, "an object");
    let (state, deployment) = (rest.rest.get("state"), rest.rest.get("deployment"));
    let (phase, name) = (phase_of(state, deployment).map(Value::from), name_of(deployment));
    let rebuilt = shown(phase.as_ref(), name);
    let same = (rebuilt.0.as_ref(), rebuilt.1.as_ref()) == (state, deployment);
    if let Some(name) = name {
        put(said, &["dgdName"], name.into());
    }
    if let Some(phase) = phase {
        put(said, &["phase"], phase);
    }
    if same {
        rest.rest.remove("state");
        rest.rest.remove("deployment");
    }
    split
}

/// `phase` and `dgdName` stay in the rest until `settle` knows whether v1alpha1 determines them.
pub fn from_beta(status: Object) -> Split {
    let mut split = Split { rest: Source::new(status), ..Split::default() };
    let Split { said, rest, .. } = &mut split;
    take_same(rest, said);
    if let Some(graph) = rest.take(SELECTED, Kind::Anything) {
        put(said, &["generatedDeployment"], graph);
    }
    note_wrong(rest, "phase", Value::is_string, "a text");
    note_wrong(rest, "dgdName", Value::is_string, "a text");
    let (state, deployment) = shown(rest.rest.get("phase"), text(rest.rest.get("dgdName")));
    set(said, "state", state);
    set(said, "deployment", deployment);
    split
}

fn take_same(rest: &mut Source, said: &mut Object) {
    for name in SAME {
        if let Some(value) = rest.take(&[name], Kind::Anything) {
            put(said, &[name], value);
        }
    }
}

fn note_wrong(rest: &mut Source, name: &str, right: fn(&Value) -> bool, want: &'static str) {
    if rest.rest.get(name).is_some_and(|value| !value.is_null() && !right(value)) {
        rest.wrong.push((name.to_owned(), want));
    }
}

fn set(object: &mut Object, name: &str, value: Option<Value>) {
    match value {
        Some(value) => object.insert(name.to_owned(), value),
        None => object.remove(name),
    };
}

/// The v1alpha1 status: the fields of v1beta1 over those from annotations.
pub fn join_alpha(split: &mut Split, kept: Object) -> Object {
    let mut status = from_alpha(kept).rest.rest;
    let mut said = std::mem::take(&mut split.said);
    // The Go operator writes absent fields as empty texts.
    let state = status.remove("state").filter(|state| state.as_str() != Some(""));
    let mut deployment = status.remove("deployment");
    if let Some(Value::Object(deployment)) = &mut deployment
        && deployment.get("state").and_then(Value::as_str) == Some("")
    {
        deployment.remove("state");
    }
    if state.is_some() || deployment.is_some() {
        let state = state.or_else(|| said.get("state").cloned());
        let beta = &split.rest.rest;
        let (now, then) = (beta.get("phase").and_then(Value::as_str), phase_of(state.as_ref(), deployment.as_ref()));
        // A phase without a v1alpha1 state of its own is shown as another state, which then still agrees.
        let shows = then != Some("Deployed") && state_of(beta.get("phase")) == state.as_ref().and_then(Value::as_str);
        if (now == then || shows) && name_of(deployment.as_ref()) == text(beta.get("dgdName")) {
            set(&mut said, "state", state);
            set(&mut said, "deployment", deployment);
        }
    }
    overlay(&mut status, said);
    settle(&mut split.rest.rest, &status);
    status
}

/// Removes phase and name from the rest if `alpha` determines both: each is needed to check the other.
fn settle(rest: &mut Object, alpha: &Object) {
    let (state, deployment) = (alpha.get("state"), alpha.get("deployment"));
    let agrees = |name: &str, derived: Option<&str>| match rest.get(name) {
        None => derived.is_none(),
        Some(value) => value.is_string() && value.as_str() == derived,
    };
    if agrees("phase", phase_of(state, deployment)) && agrees("dgdName", name_of(deployment)) {
        rest.remove("phase");
        rest.remove("dgdName");
    }
}

/// The v1beta1 status: the fields of v1alpha1 over those from annotations. `state` is that of v1alpha1.
pub fn join_beta(split: &mut Split, kept: Object, state: Option<&Value>) -> Object {
    let mut status = from_beta(kept).rest.rest;
    let mut said = std::mem::take(&mut split.said);
    let (phase, name) = (status.remove("phase"), status.remove("dgdName"));
    let same_name = text(name.as_ref()) == text(said.get("dgdName"));
    let state = state.and_then(Value::as_str).map(|state| if state.is_empty() { "Pending" } else { state });
    let deployed = said.get("phase").and_then(Value::as_str) == Some("Deployed");
    if phase.is_some() && same_name && !deployed && state_of(phase.as_ref()) == state {
        set(&mut said, "phase", phase.clone());
    }
    let same_phase = match &phase {
        // Earlier versions stored no phase: it was Profiling, the only phase in which they kept these fields.
        None => said.get("phase").is_none_or(|phase| *phase == "Profiling"),
        Some(_) => said.get("phase") == phase.as_ref(),
    };
    if !same_phase {
        remove(&mut status, &["profilingPhase"]);
        remove(&mut status, &["profilingJobName"]);
    }
    if !same_name {
        remove(&mut status, &["deploymentInfo"]);
    } else if name.is_some() && !said.contains_key("dgdName") {
        set(&mut said, "dgdName", name);
    }
    overlay(&mut status, said);
    status
}
