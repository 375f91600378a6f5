//! Implements the steps of a reconcile for DynamoGraphDeploymentRequests; the decisions are those of the plan.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;
use steersman_api::Family as Api;
use steersman_plan::dynamo::phase::PhaseStep;
use steersman_plan::dynamo::validate::{DYNAMO_VERSION, default_image};
use steersman_plan::dynamo::{self as family, Plan, Settings, Snapshot, names};
use steersman_reconcile::{Event, NamespacedName, Outcome, Requeue};
use steersman_runtime::client::CallError;
use steersman_runtime::controller::{
    Observed, ReconcileContext, ReconcileError, ReconcileOutcome, Reconciler, serialize_status,
};
use steersman_runtime::http::Http;
use steersman_runtime::rbac::Rule;
use steersman_runtime::resource::CustomResource;
use steersman_runtime::store::Scope;
use steersman_runtime::store::cache::Watched;
use tokio_util::sync::CancellationToken;

use crate::dynamo::metrics::{ReconcileResult, RequestMetrics};
use crate::dynamo::observe::hardware::{self, Endpoint, ExporterSource, NAMESPACES, Sources};
use crate::dynamo::observe::{self as observed, RequestWatches};
use crate::installation::{Installation, SecretRules};
use crate::relay::{PROFILING_ROLE, THOROUGH_ROLE};
use crate::resource::custom_resource;

pub fn rules() -> Vec<Rule> {
    let rule = Rule::namespaced;
    let run = "run the profiling Jobs of DynamoGraphDeploymentRequests and read their results";
    let graph = "create the generated DynamoGraphDeployments and follow their state";
    let note = "write discovered GPUs and generated graphs to DynamoGraphDeploymentRequests";
    let pods = "report why pods do not start, and find DCGM exporters";
    let claims = "check whether the PersistentVolumeClaims of DynamoGraphDeploymentRequests exist";
    let owner = "set DynamoGraphDeployments as owners of the ConfigMaps that are generated with them";
    let replaced = &["get", "list", "watch", "create", "patch", "delete"];
    let (requests, graphs) = (Api::Dgdr, Api::Dgd);
    let own = custom_resource(requests)
        .controller_rules("dynamographdeploymentrequests/status", "dynamographdeploymentrequests/finalizers");
    let others = [
        rule(requests.group(), requests.plural(), &["patch"], note),
        rule("batch", "jobs", &["get", "list", "watch", "create", "delete"], run),
        rule("", "configmaps", replaced, run),
        rule("", "pods", &["list", "watch"], pods),
        rule("", "persistentvolumeclaims", &["get"], claims),
        rule(graphs.group(), graphs.plural(), &["get", "list", "watch", "create"], graph),
        // Clusters with OwnerReferencesPermissionEnforcement, such as OpenShift, require this for `blockOwnerDeletion`.
        rule(graphs.group(), "dynamographdeployments/finalizers", &["update"], owner),
    ];
    [own, others.to_vec(), hardware::rules()].concat()
}

/// The access with which Steersman gives profiling Jobs their account. Not needed if an administrator creates the account.
pub fn account_rules() -> Vec<Rule> {
    let why = "create the ServiceAccount of profiling Jobs and bind it to its ClusterRole";
    let role = Rule {
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
        names: vec![PROFILING_ROLE, THOROUGH_ROLE],
        verbs: &["get", "bind"],
        namespaced: false,
        why,
    };
    let bindings = &["get", "list", "watch", "create", "patch", "delete"];
    vec![
        Rule::namespaced("", "serviceaccounts", &["get", "list", "watch", "create", "patch"], why),
        Rule::namespaced("rbac.authorization.k8s.io", "rolebindings", bindings, why),
        role,
    ]
}

/// The access to the Secret with the download token, the only one that is read.
pub fn secret_rules() -> SecretRules {
    SecretRules {
        get: vec![Rule {
            names: vec![names::TOKEN_SECRET],
            ..Rule::namespaced(
                "",
                "secrets",
                &["get"],
                "check whether the Secret with the download token exists; no value is kept",
            )
        }],
        watch: vec![Rule::namespaced(
            "",
            "secrets",
            &["list", "watch"],
            "notice at once that the Secret with the download token exists; only metadata is watched",
        )],
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestOptions {
    /// Profiler image for requests without one. None: that of this version.
    pub default_image: Option<String>,
    /// Pull policy of the operator's image. None: the default of Kubernetes.
    pub pull_policy: Option<String>,
    /// ClusterRole of the account of profiling Jobs. None: the account is managed elsewhere.
    pub cluster_role: Option<String>,
    /// Whether GPUs are discovered by the labels of nodes.
    pub by_labels: bool,
    pub endpoint: Endpoint,
    /// Namespaces of DCGM exporters.
    pub exporter_namespaces: Vec<String>,
    /// Addresses for profilers, by the name of the variable.
    pub infrastructure: BTreeMap<String, String>,
}

impl Default for RequestOptions {
    fn default() -> Self {
        Self {
            default_image: None,
            pull_policy: None,
            cluster_role: Some(PROFILING_ROLE.to_owned()),
            by_labels: true,
            endpoint: Endpoint::default(),
            exporter_namespaces: NAMESPACES.map(str::to_owned).to_vec(),
            infrastructure: BTreeMap::new(),
        }
    }
}

#[derive(Clone)]
pub struct Dynamo {
    pub settings: Settings,
    watches: Arc<RequestWatches>,
    /// Metrics under the names of NVIDIA's operator. None: requests are not counted.
    metrics: Option<Arc<RequestMetrics>>,
}

impl Dynamo {
    /// A reconciler without watches, exporters and metrics.
    pub fn new(installation: &Installation, options: &RequestOptions) -> Self {
        Self::with(installation, options, None)
    }

    /// A reconciler for [`Reconciler::run_watches`], which polls GPU exporters, with metrics.
    pub fn following(
        installation: &Installation,
        options: &RequestOptions,
        inside: Http,
        metrics: Arc<RequestMetrics>,
    ) -> Self {
        let exporters = ExporterSource {
            http: inside,
            endpoint: options.endpoint.clone(),
            namespaces: options.exporter_namespaces.clone(),
        };
        Self { metrics: Some(metrics), ..Self::with(installation, options, Some(exporters)) }
    }

    fn with(installation: &Installation, options: &RequestOptions, exporters: Option<ExporterSource>) -> Self {
        let settings = Settings {
            default_image: default_image(options.default_image.as_deref(), DYNAMO_VERSION),
            operator_image: installation.operator_image.clone().unwrap_or_default(),
            operator_image_pull_policy: options.pull_policy.clone(),
            profiling_cluster_role: options.cluster_role.clone(),
            // A role of the administrator has all rights.
            thorough_cluster_role: (options.cluster_role.as_deref() == Some(PROFILING_ROLE))
                .then(|| THOROUGH_ROLE.to_owned()),
            infrastructure: options.infrastructure.clone(),
            ..Settings::default()
        };
        let sources = Sources { exporters, by_labels: options.by_labels };
        Self { settings, watches: Arc::new(RequestWatches::new(sources, installation.secrets)), metrics: None }
    }
}

impl Reconciler for Dynamo {
    type Snapshot = Snapshot;
    type Resolution = PhaseStep;

    fn resource(&self) -> CustomResource {
        custom_resource(Api::Dgdr)
    }

    fn field_manager(&self) -> &str {
        observed::MANAGER
    }

    fn children(&self) -> Vec<Watched> {
        observed::children()
    }

    /// A request whose Job exists can wait.
    fn is_deferrable(&self, context: &ReconcileContext, object: &DynamicObject) -> bool {
        observed::has_job(context, object)
    }

    async fn observe(
        &self,
        context: &ReconcileContext,
        object: &DynamicObject,
    ) -> Result<Observed<Snapshot>, ReconcileError> {
        observed::observe(context, &self.settings, &self.watches, object).await
    }

    fn plan(&self, snapshot: &Snapshot) -> Plan {
        family::plan(snapshot)
    }

    fn events(&self, snapshot: &Snapshot, plan: &Plan, outcome: &Outcome) -> Vec<Event> {
        family::events(snapshot, plan, outcome)
    }

    fn publishes_failures(&self) -> bool {
        true
    }

    fn status(&self, snapshot: &Snapshot, plan: &Plan, outcome: &Outcome) -> Result<Value, ReconcileError> {
        serialize_status(&family::status(snapshot, plan, outcome), &snapshot.object.namespace, &snapshot.object.name)
    }

    async fn run_watches(&self, context: &ReconcileContext, scope: &Scope, stop: CancellationToken) {
        self.watches.run(context, scope, stop).await;
    }

    fn on_start(&self, object: &DynamicObject) {
        if let Some(metrics) = &self.metrics {
            let phase = object.data["status"]["phase"].as_str().unwrap_or_default();
            metrics.set_phase(&object.namespace().unwrap_or_default(), &object.name_any(), phase);
        }
    }

    fn on_end(&self, object: &DynamicObject, outcome: &Result<ReconcileOutcome, ReconcileError>, time: Duration) {
        if let Some(metrics) = &self.metrics {
            metrics.record_reconcile(&object.namespace().unwrap_or_default(), reconcile_result(outcome), time);
        }
    }

    fn forget(&self, object: &NamespacedName) {
        self.watches.forget(object);
        if let Some(metrics) = &self.metrics {
            metrics.forget(&object.namespace, &object.name);
        }
    }

    fn on_stop(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.forget_all();
        }
    }
}

/// The result of a reconcile for the metrics.
fn reconcile_result(outcome: &Result<ReconcileOutcome, ReconcileError>) -> ReconcileResult {
    let status = match outcome {
        Ok(ReconcileOutcome::Reconciled { requeue: Requeue::After(_), .. } | ReconcileOutcome::Conflict) => {
            return ReconcileResult::Requeue;
        }
        Ok(_) => return ReconcileResult::Success,
        Err(ReconcileError::Call(CallError::Answered { code, .. })) => Some(*code),
        Err(ReconcileError::Call(CallError::Unauthorized { .. })) => Some(401),
        Err(ReconcileError::Call(CallError::TooSlow { .. })) => None,
        Err(ReconcileError::Call(_)) => Some(503),
        Err(ReconcileError::Write(failure)) if failure.conflict => Some(409),
        Err(ReconcileError::Write(failure)) if !failure.transient => Some(422),
        Err(
            ReconcileError::Write(_)
            | ReconcileError::Invalid { .. }
            | ReconcileError::Status { .. }
            | ReconcileError::Panicked { .. },
        ) => Some(500),
    };
    ReconcileResult::Error(status)
}
