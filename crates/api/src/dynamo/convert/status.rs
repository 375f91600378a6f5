//! The status of a request, in the other version.
//! Comes in: a status, and what annotations have kept of the other version's; goes out: the other version's status, and
//! the rest that has no place in it.
//!
//! What was kept speaks of a moment. It comes back only if it still leads to the phase and the graph that the status
//! names now: otherwise the status has moved on since.

use serde_json::{Value, json};

use super::tree::{Kind, Object, Source, overlay, put, remove, text};

/// Fields of the same name and meaning.
const SAME: [&str; 2] = ["observedGeneration", "conditions"];
const SELECTED: &[&str] = &["profilingResults", "selectedConfig"];

/// A status taken apart for the other version.
#[derive(Default)]
pub struct Split {
    pub said: Object,
    pub rest: Source,
}

/// The phase that a state of v1alpha1 stands for.
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

/// The state that a phase of v1beta1 shows as.
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

/// What v1alpha1 shows of a phase and a name, if nothing more is known.
fn shown(phase: Option<&Value>, name: Option<&str>) -> (Option<Value>, Option<Value>) {
    (state_of(phase).map(Value::from), name.map(|name| json!({ "name": name })))
}

pub fn from_alpha(status: Object) -> Split {
    let mut split = Split { rest: Source::new(status), ..Split::default() };
    let Split { said, rest } = &mut split;
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

/// `phase` and `dgdName` stay in the rest until `settle` knows whether v1alpha1 can tell them.
pub fn from_beta(status: Object) -> Split {
    let mut split = Split { rest: Source::new(status), ..Split::default() };
    let Split { said, rest } = &mut split;
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

/// The status of v1alpha1: what v1beta1 says, over what was kept for v1alpha1.
pub fn join_alpha(split: &mut Split, kept: Object) -> Object {
    let mut status = from_alpha(kept).rest.rest;
    let mut said = std::mem::take(&mut split.said);
    // Go writes fields that it has no value for as empty texts.
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
        // A phase that v1alpha1 has no state for shows as another one, which is then still true.
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

/// Drops phase and name from the rest where `alpha` tells both: each is the witness of the other.
fn settle(rest: &mut Object, alpha: &Object) {
    let (state, deployment) = (alpha.get("state"), alpha.get("deployment"));
    let told = |name: &str, as_told: Option<&str>| match rest.get(name) {
        None => as_told.is_none(),
        Some(value) => value.is_string() && value.as_str() == as_told,
    };
    if told("phase", phase_of(state, deployment)) && told("dgdName", name_of(deployment)) {
        rest.remove("phase");
        rest.remove("dgdName");
    }
}

/// Whether the rest of a v1beta1 status holds what is true of one phase or one graph only.
pub fn needs_witness(rest: &Object) -> bool {
    ["profilingPhase", "profilingJobName", "deploymentInfo"].iter().any(|name| rest.contains_key(*name))
}

/// The status of v1beta1: what v1alpha1 says, over what was kept for v1beta1. `state` is that of v1alpha1.
pub fn join_beta(split: &mut Split, kept: Object, state: Option<&Value>) -> Object {
    let mut status = from_beta(kept).rest.rest;
    let mut said = std::mem::take(&mut split.said);
    let (phase, name) = (status.remove("phase"), status.remove("dgdName"));
    let same_name = text(name.as_ref()) == text(said.get("dgdName"));
    let told = state.and_then(Value::as_str).map(|state| if state.is_empty() { "Pending" } else { state });
    let deployed = said.get("phase").and_then(Value::as_str) == Some("Deployed");
    if phase.is_some() && same_name && !deployed && state_of(phase.as_ref()) == told {
        set(&mut said, "phase", phase.clone());
    }
    let same_phase = match &phase {
        // Nothing was noted before the phase was: then it was Profiling, the only time when these fields were kept.
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
