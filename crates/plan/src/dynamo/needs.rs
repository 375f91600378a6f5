//! Lists what a reconcile must read, by the phase of the request, so that observing code knows no phases.

use steersman_api::dynamo::v1beta1::Phase;

use super::snapshot::{JobState, ObservedJob, ObservedObject, ObservedOutput};
use super::{graph, hardware, names, phase, request};

/// Each of these costs a call, a watch or memory, and is read only if the step uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub job_pods: bool,
    /// Name of the graph.
    pub graph: Option<String>,
    pub graph_pods: bool,
    /// Names of the ConfigMaps that are generated with the graph.
    pub additional: Vec<String>,
    /// The claims that the request names. Once profiling has begun, the pod reports a missing one.
    pub claims: bool,
    pub cluster_role: bool,
    /// The ServiceAccount, even if it does not have our labels.
    pub account: bool,
    pub hardware: bool,
}

/// Whether a Job that is not in the store is read from the API server: a Job of another owner lacks our label.
pub fn confirms_job(object: &ObservedObject) -> bool {
    let may_create = match request::phase(object).unwrap_or_default() {
        Phase::Pending | Phase::Profiling => true,
        Phase::Failed => !request::has_job(object) || request::wants_retry(object),
        Phase::Ready | Phase::Deploying | Phase::Deployed => false,
    };
    may_create && !object.deleting
}

/// Whether the output is read from the API server: once the Job has ended or is gone the output is final, and the watch
/// of ConfigMaps may lag behind that of Jobs.
pub fn confirms_output(object: &ObservedObject, job: Option<&ObservedJob>, output: Option<&ObservedOutput>) -> bool {
    let own = job.filter(|job| phase::is_own(object, Some(job)));
    let runs = own.is_some_and(|job| matches!(job.state, JobState::Running | JobState::Suspended));
    let has_verdict = output.is_some_and(|output| {
        output.owner.as_deref() == Some(object.uid.as_str()) && output.data.contains_key("profiler_status")
    });
    let profiles = request::phase(object) == Some(Phase::Profiling) || (own.is_some() && confirms_job(object));
    profiles && !object.deleting && !runs && !has_verdict
}

pub fn needs(object: &ObservedObject, job: Option<&ObservedJob>, output: Option<&ObservedOutput>) -> Needs {
    if object.deleting {
        return Needs::default();
    }
    match phase::first_phase(object, job, output) {
        Phase::Pending | Phase::Failed => {
            let began = request::has_job(object) || phase::is_own(object, job);
            let begins = !began || request::wants_retry(object);
            let deploys = begins && request::auto_apply(object);
            Needs {
                // The log of a failed Job is gone with its pods.
                job_pods: job.is_some() && request::phase(object) == Some(Phase::Failed),
                // A name that is taken is reported before the profiling.
                graph: deploys.then(|| names::graph(&object.name, request::graph_override(&object.spec))),
                claims: true,
                cluster_role: begins,
                account: begins,
                hardware: begins && hardware::needs_discovery(request::hardware(object).as_ref()),
                ..Needs::default()
            }
        }
        Phase::Profiling => {
            // A result leads to the graph in the same step.
            let generated = output.and_then(|output| graph::generate(object, output).ok());
            Needs {
                job_pods: job.is_some(),
                account: job.is_some(),
                graph: generated.as_ref().map(|generated| generated.name().to_owned()),
                graph_pods: generated.is_some(),
                additional: generated.map(|generated| generated.additional_names(object)).unwrap_or_default(),
                ..Needs::default()
            }
        }
        Phase::Ready | Phase::Deploying | Phase::Deployed => Needs {
            graph: Some(graph::name(object)),
            graph_pods: request::phase(object) != Some(Phase::Ready) || request::auto_apply(object),
            additional: graph::additional_names(object),
            ..Needs::default()
        },
    }
}
