//! LlamaStackDistribution in the steps of a pass. Which steps there are is the driver's business; what they decide is
//! decided in the plan.

use std::sync::Arc;

use kube::api::DynamicObject;
use serde_json::Value;
use steersman_api::Family as Api;
use steersman_plan::llamastack::{self as family, Plan, Settings, Snapshot};
use steersman_reconcile::{Event, Outcome};
use tokio_util::sync::CancellationToken;

use super::driver::{Family, Observed, PassError, Tools, as_status, rules_for};
use super::{Place, Told};
use crate::observe;
use crate::observe::cache::{Scope, Watched};
use crate::observe::llamastack::server::Servers;
use crate::observe::llamastack::{Beside, operator_config, references};
use crate::observe::oci::Bases;
use crate::rbac::Rule;

/// What the controller does in every namespace.
pub fn rules() -> Vec<Rule> {
    let child =
        |group, resource, verbs| Rule::namespaced(group, resource, verbs, "run the servers of LlamaStackDistributions");
    // Never a claim to delete: it holds users' data. Nor an account: it goes with its owner.
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
        child("rbac.authorization.k8s.io", "rolebindings", swept),
    ];
    let read = |group, resource, verbs, why| Rule { why, ..child(group, resource, verbs) };
    let facts = [
        read("apps", "replicasets", &["list"], "keep configurations that pods still run with"),
        read("", "pods", &["list", "watch"], "say in its objects' status why pods are not ready"),
    ];
    let any_user = Rule {
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
        names: vec![family::ANY_USER_ROLE],
        verbs: &["get", "bind"],
        namespaced: false,
        why: "let servers run as the user of their image on OpenShift",
    };
    let own = rules_for(Api::Llsd, "llamastackdistributions/status", "llamastackdistributions/finalizers");
    let beside = [references::rules(), observe::llamastack::route_rules(), observe::oci::rules()].concat();
    [own, children.to_vec(), facts.to_vec(), vec![any_user], beside].concat()
}

/// What it does where the operator runs.
pub fn own_rules() -> Vec<Rule> {
    operator_config::own_rules()
}

/// The family with what the operator was told about it.
#[derive(Clone)]
pub struct LlamaStack {
    pub settings: Settings,
    beside: Arc<Beside>,
}

impl LlamaStack {
    /// With the images of this version.
    pub fn new(told: &Told) -> Self {
        let settings = Settings {
            operator_version: env!("CARGO_PKG_VERSION").to_owned(),
            distributions: family::config::base::images(),
            operator_image: told.operator_image.clone(),
            operator_namespace: Some(told.namespace.clone()),
            ..Settings::default()
        };
        Self { settings, beside: Arc::new(Beside::new(told)) }
    }

    /// As an operator that was told nothing.
    pub fn shipped() -> Self {
        Self::new(&Told::default())
    }

    /// With what [`Family::beside`] follows: the cluster's Routes, and the servers and the labels of images where they are to
    /// be asked.
    pub fn following(told: &Told, servers: Option<Servers>, labels: Option<Bases>) -> Self {
        let Self { settings, .. } = Self::new(told);
        Self { settings, beside: Arc::new(Beside::following(told, servers, labels)) }
    }
}

impl Family for LlamaStack {
    type Seen = Snapshot;
    type Resolution = family::Resolution;

    fn api(&self) -> Api {
        Api::Llsd
    }

    fn manager(&self) -> &str {
        observe::llamastack::MANAGER
    }

    fn children(&self) -> Vec<Watched> {
        observe::llamastack::children()
    }

    async fn observe(&self, tools: &Tools, object: &DynamicObject) -> Result<Observed<Snapshot>, PassError> {
        observe::llamastack::observe(tools, &self.settings, &self.beside, object).await
    }

    fn plan(&self, seen: &Snapshot) -> Plan {
        family::plan(seen)
    }

    fn notes(&self, _: &Snapshot, plan: &Plan, _: &Outcome) -> Vec<Event> {
        plan.events.clone()
    }

    fn report(&self, seen: &Snapshot, plan: &Plan, outcome: &Outcome) -> Result<Value, PassError> {
        as_status(&family::status(seen, plan, outcome), &seen.object.namespace, &seen.object.name)
    }

    async fn beside(&self, tools: &Tools, scope: &Scope, stop: CancellationToken) {
        self.beside.run(tools, scope, stop).await;
    }

    fn forget(&self, place: &Place) {
        self.beside.forget(place);
    }
}
