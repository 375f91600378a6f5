//! The phases from a generated graph to one that serves: leads to Ready, Deploying, Deployed or Failed.

use steersman_api::Family;
use steersman_api::dynamo::v1beta1::{DeploymentInfo, Phase};
use steersman_api::meta::conditions::Truth;

use super::pods::{self, PodProblem};
use super::profiling::GENERATED;
use super::{Creation, DEPLOYMENT, PhaseStep, SPEC_GENERATED, enter_phase, is_unseen, stored_condition, stored_reason};
use crate::dynamo::graph::{self, Claim};
use crate::dynamo::names::GENERATED_GRAPH;
use crate::dynamo::request::{self, Acceptance};
use crate::dynamo::snapshot::{ObservedGraph, ObservedObject, Snapshot};
use crate::dynamo::{legacy_texts, reported};

/// State of a graph that serves.
const SERVING: &str = "successful";
/// Default for a graph without a state.
const INITIALIZING: &str = "initializing";

/// Limit of events about failed pulls: a graph may have hundreds of pods with one wrong image.
const MAX_REPORTED_PULLS: usize = 64;
/// Number of pods whose problem is in the message of a condition.
const MAX_LISTED_PODS: usize = 5;

/// Waits until automatic deployment is enabled.
pub fn ready(snapshot: &mut Snapshot) -> PhaseStep {
    let object = &snapshot.object;
    let wanted = request::auto_apply(object) && request::acceptance(object) != Acceptance::Changed;
    if !wanted {
        return await_approval(snapshot);
    }
    if snapshot.graph.is_none() && was_deleted(object) {
        return deleted(snapshot, &graph::name(object));
    }
    let generated =
        PhaseStep::to(Phase::Deploying, object).with_condition(SPEC_GENERATED, Truth::True, "SpecGenerated", GENERATED);
    enter_phase(snapshot, Phase::Deploying);
    step(snapshot).after(generated)
}

/// v1alpha1 had a state for a deleted graph, which v1beta1 shows as Ready. The graph is not created again, though its
/// manifest is there.
fn was_deleted(object: &ObservedObject) -> bool {
    stored_reason(object, DEPLOYMENT) == Some("DeploymentDeleted")
}

/// Ready, with the steps to create or follow the graph.
pub fn await_approval(snapshot: &Snapshot) -> PhaseStep {
    let object = &snapshot.object;
    let step = PhaseStep::to(Phase::Ready, object);
    if snapshot.graph.as_ref().is_some_and(|found| graph::claim(object, found) == Claim::Ours) {
        let name = graph::name(object);
        return step.with_detail(format!("DGD {name} exists; set spec.autoApply to true to follow its state"));
    }
    // Replacing the request by its manifest removes the annotation.
    let place = match request::generated_graph(object) {
        Some(_) => format!("annotation {GENERATED_GRAPH}"),
        None => "status.profilingResults.selectedConfig".to_owned(),
    };
    let name = graph::name(object);
    let was_followed = !is_unseen(object) && !was_deleted(object) && snapshot.graphs_served;
    let step = if snapshot.graph.is_none() && was_followed {
        // This reason means that the graph can be created again.
        let text = format!("DGD {name} was deleted. It is created again once spec.autoApply is true.");
        step.with_condition(DEPLOYMENT, Truth::False, "DeploymentNotCreated", text)
    } else {
        step
    };
    step.with_detail(format!("set spec.autoApply to true to create DGD {name}, or create it yourself from {place}"))
}

pub fn step(snapshot: &mut Snapshot) -> PhaseStep {
    let object = &snapshot.object;
    if !request::auto_apply(object) && request::acceptance(object) != Acceptance::Changed {
        return await_approval(snapshot);
    }
    let name = graph::name(object);
    let is_stored = request::generated_graph(object).is_some();
    match &snapshot.graph {
        None if was_deleted(object) => deleted(snapshot, &name),
        None if is_stored || is_unseen(object) => missing(snapshot, &name),
        None => absent(snapshot, &name),
        Some(found) if !is_stored && !is_unseen(object) => follow_known(snapshot, found),
        Some(found) => match graph::claim(object, found) {
            Claim::Ours => {
                let step = follow(snapshot, found);
                // From now on, a missing graph means that it was deleted.
                if is_stored {
                    snapshot.object.annotations.insert(GENERATED_GRAPH.to_owned(), String::new());
                }
                step
            }
            claim => refused(snapshot, &name, claim),
        },
    }
}

pub fn deployed(snapshot: &Snapshot) -> PhaseStep {
    match &snapshot.graph {
        None => absent(snapshot, &graph::name(&snapshot.object)),
        Some(found) => follow_known(snapshot, found),
    }
}

/// A graph that existed before. If the cluster does not serve graphs, as after a rollback of the CRD, it may still
/// exist: the state is unknown and no request fails for it.
fn absent(snapshot: &Snapshot, name: &str) -> PhaseStep {
    if snapshot.graphs_served {
        return deleted(snapshot, name);
    }
    let (kind, crd) = (Family::Dgd.kind(), Family::Dgd.crd_name());
    let version = format!("{}/{}", Family::Dgd.group(), Family::Dgd.storage_version());
    let text = format!(
        "the cluster does not serve {kind} ({version}), so the state of DGD {name} is unknown. Install NVIDIA's \
         Dynamo operator, or its CRD {crd}; this request continues once the API is served."
    );
    let phase = request::phase(&snapshot.object).unwrap_or(Phase::Deploying);
    let known = stored_reason(&snapshot.object, DEPLOYMENT) == Some("DeploymentUnknown");
    PhaseStep::to(phase, &snapshot.object)
        .with_condition(DEPLOYMENT, Truth::Unknown, "DeploymentUnknown", text.clone())
        .with_detail(text.clone())
        .with_warning_unless(known, "DeploymentUnknown", text)
}

/// The graph that was followed so far, unless it is newer than the condition about it and not ours: then another has
/// taken its name. An older one counts as the same, because earlier operators followed any graph of the name, and
/// labels may be removed.
fn follow_known(snapshot: &Snapshot, found: &ObservedGraph) -> PhaseStep {
    let object = &snapshot.object;
    let reported = stored_condition(object, DEPLOYMENT).map(|known| known.last_transition_time.0);
    let newer = matches!((found.created, reported), (Some(created), Some(reported)) if created > reported);
    if newer && graph::claim(object, found) != Claim::Ours {
        return deleted(snapshot, &found.name);
    }
    follow(snapshot, found)
}

fn missing(snapshot: &Snapshot, name: &str) -> PhaseStep {
    let object = &snapshot.object;
    let step = PhaseStep::to(Phase::Deploying, object);
    match graph::wanted(object) {
        Ok(graph) => PhaseStep { creation: Creation::Graph(graph), ..step },
        Err(why) => {
            let text = format!("DGD {name} does not exist and cannot be created: {why}");
            // This reason means that the graph was never created, so that a later absence does not count as a deletion.
            step.with_wait(DEPLOYMENT, "DeploymentCreationFailed", text)
        }
    }
}

/// A graph of another owner is never adopted.
fn refused(snapshot: &Snapshot, name: &str, claim: Claim) -> PhaseStep {
    let text = format!(
        "{} Delete it (kubectl delete dgd -n {} {name}), or create a new DGDR with another name in \
         spec.overrides.dgd.metadata.name.",
        claim.refusal(name),
        snapshot.object.namespace
    );
    let known = stored_reason(&snapshot.object, DEPLOYMENT) == Some("DeploymentNameTaken");
    // The graph lacks our labels, so no watch covers it.
    let step = PhaseStep { deployment: None, unwatched: true, ..PhaseStep::to(Phase::Deploying, &snapshot.object) };
    step.with_wait(DEPLOYMENT, "DeploymentNameTaken", text.clone()).with_warning_unless(
        known,
        "DeploymentCreationFailed",
        text,
    )
}

fn follow(snapshot: &Snapshot, found: &ObservedGraph) -> PhaseStep {
    let object = &snapshot.object;
    let name = &found.name;
    let was = request::phase(object);
    let state = request::non_empty(found.state.as_deref()).unwrap_or(INITIALIZING);
    let info = DeploymentInfo { replicas: Some(found.replicas), available_replicas: Some(found.available) };
    let at = |phase| PhaseStep {
        deployment: Some(info.clone()),
        dgd_name: Some(name.clone()),
        // The watch sees graphs with our labels only.
        unwatched: !graph::is_labelled(object, found),
        ..PhaseStep::to(phase, object)
    };
    let reason = stored_reason(object, DEPLOYMENT).unwrap_or_default();
    let announced = |step: PhaseStep| {
        if !is_unseen(object) {
            return step;
        }
        step.with_event("DeploymentCreated", format!("DynamoGraphDeployment {name} created successfully"))
    };
    if state == SERVING {
        let text = format!("DynamoGraphDeployment {name} is ready");
        let step =
            announced(at(Phase::Deployed)).with_condition(DEPLOYMENT, Truth::True, "DeploymentReady", text.clone());
        return if was == Some(Phase::Deployed) { step } else { step.with_event("DeploymentReady", text) };
    }
    let problems = pods::of_graph(&snapshot.graph_pods);
    let mut more: Vec<String> = problems.iter().take(MAX_LISTED_PODS).map(PodProblem::sentence).collect();
    if problems.len() > MAX_LISTED_PODS {
        more.push(format!("{} more problems of its pods are not listed.", problems.len() - MAX_LISTED_PODS));
    }
    more.extend(found.unready.clone().filter(|text| !text.is_empty()));
    let summary = problems.first().map(|problem| problem.message.clone());
    let with_more = |text: String| if more.is_empty() { text } else { format!("{text}. {}", more.join(" ")) };
    let degrades = was == Some(Phase::Deployed);
    // The reason stays until the graph serves again: the degradation explains more than the progress.
    let step = if degrades || reason == "DeploymentDegraded" {
        let text = with_more(format!("Deployment degraded to {state}"));
        let event = format!("DynamoGraphDeployment {name} degraded from Ready to {state}");
        let step = at(Phase::Deploying).with_wait(DEPLOYMENT, "DeploymentDegraded", text);
        step.with_warning_unless(!degrades, "DeploymentDegraded", event)
    } else {
        let text = with_more(format!("DGD {name} is in {state} state"));
        announced(at(Phase::Deploying)).with_wait(DEPLOYMENT, "DeploymentInProgress", text)
    };
    let step = PhaseStep { summary, ..step };
    let pulls = problems.iter().filter(|problem| problem.is_image_pull);
    pulls.take(MAX_REPORTED_PULLS).fold(step, |step, pull| report_pull(object, step, pull))
}

/// Reports an image that cannot be pulled, with one event for each container.
pub fn report_pull(object: &ObservedObject, step: PhaseStep, pull: &PodProblem) -> PhaseStep {
    let problem = pull.reported();
    let known =
        reported::contains(object, &problem) || legacy_texts::has_image_pull(object, &pull.pod, pull.container());
    step.with_problem(problem, "ImagePullFailed", known, pull.message.clone())
}

fn deleted(snapshot: &Snapshot, name: &str) -> PhaseStep {
    let text = "Deployment was deleted by user. Create a new DGDR to redeploy.";
    let step = PhaseStep { dgd_name: None, deployment: None, ..PhaseStep::to(Phase::Failed, &snapshot.object) };
    let event = format!(
        "DGD {name} was deleted. DGDR will not recreate it. Delete this DGDR and create a new one to redeploy."
    );
    step.with_failure(&snapshot.object, DEPLOYMENT, "DeploymentDeleted", text).with_warning("DeploymentDeleted", event)
}
