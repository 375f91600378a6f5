//! Implements the steps of a reconcile for LlamaStackDistributions; the decisions are those of the plan.

use std::sync::Arc;

use kube::api::DynamicObject;
use serde_json::Value;
use steersman_api::Family as Api;
use steersman_plan::llamastack::{self as family, Plan, Settings, Snapshot};
use steersman_reconcile::{Event, NamespacedName, Outcome};
use steersman_runtime::controller::{Observed, ReconcileContext, ReconcileError, Reconciler, serialize_status};
use steersman_runtime::rbac::Rule;
use steersman_runtime::resource::CustomResource;
use steersman_runtime::store::Scope;
use steersman_runtime::store::cache::Watched;
use tokio_util::sync::CancellationToken;

use crate::installation::{Installation, SecretAccess, SecretRules};
use crate::llamastack::observe::server::Servers;
use crate::llamastack::observe::{self, SharedWatches, references};
use crate::llamastack::oci::{self, Bases};
use crate::resource::custom_resource;

pub fn rules() -> Vec<Rule> {
    let child =
        |group, resource, verbs| Rule::namespaced(group, resource, verbs, "run the servers of LlamaStackDistributions");
    // Claims are never deleted: they hold users' data. Accounts are deleted with their owner.
    let kept = &["get", "list", "watch", "create", "patch"];
    let swept = &["get", "list", "watch", "create", "patch", "delete"];
    let children = [
        child("apps", "deployments", kept),
        child("", "services", swept),
        child("", "serviceaccounts", kept),
        child("", "persistentvolumeclaims", &["get", "list", "watch", "create"]),
        child("", "configmaps", swept),
        child("networking.k8s.io", "ingresses", swept),
        child("networking.k8s.io", "networkpolicies", swept),
        child("autoscaling", "horizontalpodautoscalers", swept),
        child("policy", "poddisruptionbudgets", swept),
        // Written only if an administrator permits it: see ANY_USER_ROLE.
        child("rbac.authorization.k8s.io", "rolebindings", &["get", "list", "watch"]),
    ];
    let read = |group, resource, verbs, why| Rule { why, ..child(group, resource, verbs) };
    let facts = [
        read("apps", "replicasets", &["list"], "keep configurations that pods still run with"),
        read("", "pods", &["list", "watch"], "report in the status of objects why pods are not ready"),
    ];
    let own = custom_resource(Api::Llsd)
        .controller_rules("llamastackdistributions/status", "llamastackdistributions/finalizers");
    let watches = [observe::route_rules(), oci::rules()].concat();
    [own, children.to_vec(), facts.to_vec(), watches].concat()
}

pub fn secret_rules() -> SecretRules {
    let SecretRules { mut get, watch } = references::secret_rules();
    get.extend(oci::secret_rules());
    SecretRules { get, watch }
}

#[derive(Clone)]
pub struct LlamaStack {
    pub settings: Settings,
    watches: Arc<SharedWatches>,
}

impl LlamaStack {
    /// A reconciler without watches, servers and registries.
    pub fn new(installation: &Installation) -> Self {
        let settings = Settings {
            operator_version: env!("CARGO_PKG_VERSION").to_owned(),
            distributions: family::config::base::images(),
            operator_image: installation.operator_image.clone(),
            operator_namespace: Some(installation.namespace.clone()),
            ignores_secrets: installation.secrets == SecretAccess::None,
            ..Settings::default()
        };
        Self { settings, watches: Arc::new(SharedWatches::new(installation)) }
    }

    pub fn shipped() -> Self {
        Self::new(&Installation::default())
    }

    /// A reconciler for [`Reconciler::run_watches`], which watches Routes, and polls servers and registries if given.
    pub fn following(installation: &Installation, servers: Option<Servers>, labels: Option<Bases>) -> Self {
        let Self { settings, .. } = Self::new(installation);
        Self { settings, watches: Arc::new(SharedWatches::following(installation, servers, labels)) }
    }
}

impl Reconciler for LlamaStack {
    type Snapshot = Snapshot;
    type Resolution = family::Resolution;

    fn resource(&self) -> CustomResource {
        custom_resource(Api::Llsd)
    }

    fn field_manager(&self) -> &str {
        observe::MANAGER
    }

    fn children(&self) -> Vec<Watched> {
        observe::children()
    }

    async fn observe(
        &self,
        context: &ReconcileContext,
        object: &DynamicObject,
    ) -> Result<Observed<Snapshot>, ReconcileError> {
        observe::observe(context, &self.settings, &self.watches, object).await
    }

    fn plan(&self, snapshot: &Snapshot) -> Plan {
        family::plan(snapshot)
    }

    fn events(&self, _: &Snapshot, plan: &Plan, _: &Outcome) -> Vec<Event> {
        plan.events.clone()
    }

    fn status(&self, snapshot: &Snapshot, plan: &Plan, outcome: &Outcome) -> Result<Value, ReconcileError> {
        serialize_status(&family::status(snapshot, plan, outcome), &snapshot.object.namespace, &snapshot.object.name)
    }

    async fn run_watches(&self, context: &ReconcileContext, scope: &Scope, stop: CancellationToken) {
        self.watches.run(context, scope, stop).await;
    }

    fn forget(&self, object: &NamespacedName) {
        self.watches.forget(object);
    }
}
