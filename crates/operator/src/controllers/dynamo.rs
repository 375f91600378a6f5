//! DynamoGraphDeploymentRequest in the steps of a pass. Which steps there are is the driver's business; what they decide is
//! decided in the plan.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;
use steersman_api::Family as Api;
use steersman_plan::dynamo::phase::Step;
use steersman_plan::dynamo::validate::{DYNAMO_VERSION, default_image};
use steersman_plan::dynamo::{self as family, Plan, Seen, Settings};
use steersman_reconcile::{Event, Outcome, Requeue};
use tokio_util::sync::CancellationToken;

use super::driver::{Family, Observed, PassError, Passed, Tools, as_status, rules_for};
use super::{Place, Told};
use crate::client::CallError;
use crate::observe::cache::{Scope, Watched};
use crate::observe::dynamo::hardware::{self, Endpoint, Sources};
use crate::observe::dynamo::{self as observed, Beside};
use crate::rbac::Rule;
use crate::reach::Http;
use crate::relay;
use crate::telemetry::dynamo::Ended;
use crate::telemetry::metrics::Metrics;

/// What the account of the profiling Jobs may do. Shipped next to the operator's own roles.
pub const PROFILING_ROLE: &str = "steersman-profiling-job";

/// What the controller does in every namespace.
pub fn rules() -> Vec<Rule> {
    let rule = Rule::namespaced;
    let run = "run the profiling Jobs of DynamoGraphDeploymentRequests and read their results";
    let account = "give profiling Jobs their account";
    let graph = "create the graphs that profiling generates, and watch over them";
    let kept = &["get", "list", "watch", "create", "patch"];
    let replaced = &["get", "list", "watch", "create", "patch", "delete"];
    let (requests, graphs) = (Api::Dgdr, Api::Dgd);
    let own = rules_for(requests, "dynamographdeploymentrequests/status", "dynamographdeploymentrequests/finalizers");
    let others = [
        rule(
            requests.group(),
            requests.plural(),
            &["patch"],
            "note in its objects the GPUs it found and what was generated",
        ),
        rule("batch", "jobs", &["get", "list", "watch", "create"], run),
        rule("", "configmaps", replaced, run),
        rule(
            "",
            "pods",
            &["list", "watch"],
            "say in its objects' status why pods do not get on, and find exporters of GPUs",
        ),
        rule("", "persistentvolumeclaims", &["get"], "see whether the claims are there that requests name"),
        rule(
            "",
            "secrets",
            &["get", "list", "watch"],
            "see whether there is a token for downloads; metadata is watched, of values none is kept",
        ),
        rule("", "serviceaccounts", kept, account),
        rule("rbac.authorization.k8s.io", "rolebindings", replaced, account),
        rule(graphs.group(), graphs.plural(), &["get", "list", "watch", "create"], graph),
        // Where the cluster checks who may hold up a deletion, as OpenShift does.
        rule(
            graphs.group(),
            "dynamographdeployments/finalizers",
            &["update"],
            "make graphs the owners of the ConfigMaps that were generated with them",
        ),
    ];
    let role = Rule {
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
        names: vec![PROFILING_ROLE],
        verbs: &["get", "bind"],
        namespaced: false,
        why: account,
    };
    [own, others.to_vec(), vec![role], hardware::rules()].concat()
}

/// What profiling Jobs do: our relay, and beside it the profiler, which tries out graphs of its own.
pub fn profiling_rules() -> Vec<Rule> {
    let rule = Rule::namespaced;
    let why = "try out candidates when profiling thoroughly";
    let profiler = [
        rule("", "configmaps", &["patch", "delete"], why),
        rule(Api::Dgd.group(), Api::Dgd.plural(), &["get", "create", "delete", "list", "watch"], why),
        rule("", "pods", &["list", "create", "delete"], why),
        rule("", "pods/log", &["get"], why),
    ];
    [relay::rules(), profiler.to_vec()].concat()
}

/// What the process was told for requests alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldOfRequests {
    /// When nodes pull the operator's image. None: as Kubernetes decides.
    pub pull_policy: Option<String>,
    /// The ClusterRole for the account of profiling Jobs. None: the account is managed elsewhere.
    pub cluster_role: Option<String>,
    /// Whether the labels of nodes are looked at for GPUs.
    pub by_labels: bool,
    /// Where exporters of DCGM serve.
    pub endpoint: Endpoint,
    /// Addresses for profilers, by the name of the variable.
    pub infrastructure: BTreeMap<String, String>,
}

impl Default for ToldOfRequests {
    fn default() -> Self {
        Self {
            pull_policy: None,
            cluster_role: Some(PROFILING_ROLE.to_owned()),
            by_labels: true,
            endpoint: Endpoint::default(),
            infrastructure: BTreeMap::new(),
        }
    }
}

/// The family with what the operator was told about it.
#[derive(Clone)]
pub struct Dynamo {
    pub settings: Settings,
    beside: Arc<Beside>,
    /// Where requests are counted under the names of NVIDIA's operator. None: nowhere.
    metrics: Option<Arc<Metrics>>,
}

impl Dynamo {
    /// For single passes, beside which nothing runs: no exporter is asked.
    pub fn new(told: &Told) -> Self {
        Self::with(told, None)
    }

    /// With exporters of GPUs asked by [`Family::beside`], and passes counted.
    pub fn following(told: &Told, inside: Http, metrics: Arc<Metrics>) -> Self {
        let metrics = Some(metrics);
        Self { metrics, ..Self::with(told, Some((inside, told.requests.endpoint.clone()))) }
    }

    fn with(told: &Told, exporters: Option<(Http, Endpoint)>) -> Self {
        let requests = &told.requests;
        let settings = Settings {
            default_image: default_image(told.dgdr_default_image.as_deref(), DYNAMO_VERSION),
            operator_image: told.operator_image.clone().unwrap_or_default(),
            operator_image_pull_policy: requests.pull_policy.clone(),
            profiling_cluster_role: requests.cluster_role.clone(),
            infrastructure: requests.infrastructure.clone(),
            ..Settings::default()
        };
        let sources = Sources { exporters, by_labels: requests.by_labels };
        Self { settings, beside: Arc::new(Beside::new(sources)), metrics: None }
    }
}

impl Family for Dynamo {
    type Seen = Seen;
    type Resolution = Step;

    fn api(&self) -> Api {
        Api::Dgdr
    }

    fn manager(&self) -> &str {
        observed::MANAGER
    }

    fn children(&self) -> Vec<Watched> {
        observed::children()
    }

    /// Its Job is there.
    fn can_wait(&self, tools: &Tools, object: &DynamicObject) -> bool {
        observed::has_job(tools, object)
    }

    async fn observe(&self, tools: &Tools, object: &DynamicObject) -> Result<Observed<Seen>, PassError> {
        observed::observe(tools, &self.settings, &self.beside, object).await
    }

    fn plan(&self, seen: &Seen) -> Plan {
        family::plan(seen)
    }

    fn notes(&self, seen: &Seen, plan: &Plan, outcome: &Outcome) -> Vec<Event> {
        family::notes(seen, plan, outcome)
    }

    fn notes_failures(&self) -> bool {
        true
    }

    fn report(&self, seen: &Seen, plan: &Plan, outcome: &Outcome) -> Result<Value, PassError> {
        as_status(&family::report(seen, plan, outcome), &seen.object.namespace, &seen.object.name)
    }

    async fn beside(&self, tools: &Tools, scope: &Scope, stop: CancellationToken) {
        self.beside.run(tools, scope, stop).await;
    }

    fn began(&self, object: &DynamicObject) {
        if let Some(metrics) = &self.metrics {
            let phase = object.data["status"]["phase"].as_str().unwrap_or_default();
            metrics.dynamo.stands(&object.namespace().unwrap_or_default(), &object.name_any(), phase);
        }
    }

    fn ended(&self, object: &DynamicObject, passed: &Result<Passed, PassError>, time: Duration) {
        if let Some(metrics) = &self.metrics {
            metrics.dynamo.passed(&object.namespace().unwrap_or_default(), ended(passed), time);
        }
    }

    fn forget(&self, place: &Place) {
        self.beside.forget(place);
        if let Some(metrics) = &self.metrics {
            metrics.dynamo.forget(&place.0, &place.1);
        }
    }

    fn stopped(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.dynamo.forget_all();
        }
    }
}

/// How a pass ended, in the words of the measurements of requests.
fn ended(passed: &Result<Passed, PassError>) -> Ended {
    let status = match passed {
        Ok(Passed::Done { next: Requeue::After(_), .. } | Passed::Overtaken) => return Ended::Again,
        Ok(_) => return Ended::Well,
        Err(PassError::Call(CallError::Answered { code, .. })) => Some(*code),
        Err(PassError::Call(CallError::Unauthorized { .. })) => Some(401),
        Err(PassError::Call(CallError::TooSlow { .. })) => None,
        Err(PassError::Call(_)) => Some(503),
        Err(PassError::Write(failure)) if failure.conflict => Some(409),
        Err(PassError::Write(failure)) if !failure.transient => Some(422),
        Err(PassError::Write(_) | PassError::Unreadable { .. } | PassError::Status { .. }) => Some(500),
    };
    Ended::Failed(status)
}
