//! LlamaStackDistribution in the steps of a pass. Which steps there are is the driver's business; what they decide is
//! decided in the plan.

use std::sync::Arc;

use kube::api::DynamicObject;
use serde_json::Value;
use steersman_api::Family as Api;
use steersman_plan::llamastack::{self as family, Seen, Settings};
use steersman_plan::{Outcome, Plan};
use tokio_util::sync::CancellationToken;

use super::driver::{Family, Observed, PassError, Tools, rules_for};
use super::{Place, Told};
use crate::observe;
use crate::observe::cache::{Scope, Watched};
use crate::observe::llamastack::operator_config::{self, Config};
use crate::observe::llamastack::server::Servers;
use crate::observe::llamastack::{Beside, references};
use crate::rbac::Rule;

/// What the controller does in every namespace.
pub fn rules() -> Vec<Rule> {
    let child = |group, resource, verbs| Rule {
        group,
        resource,
        names: vec![],
        verbs,
        namespaced: true,
        why: "run the servers of LlamaStackDistributions",
    };
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
    [own, children.to_vec(), references::rules(), facts.to_vec(), vec![any_user]].concat()
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
    /// With the images of this version. `servers`: where they are asked what they serve.
    pub fn new(told: &Told, servers: Option<Servers>) -> Self {
        let settings = Settings {
            operator_version: env!("CARGO_PKG_VERSION").to_owned(),
            distributions: family::config::base::images(),
            operator_image: told.operator_image.clone(),
            operator_namespace: Some(told.namespace.clone()),
            ..Settings::default()
        };
        let config = Config::new(told.config_namespaces(family::FORMER_NAMESPACE));
        Self { settings, beside: Arc::new(Beside::new(config, servers)) }
    }

    /// As an operator that was told nothing, and asks no server.
    pub fn shipped() -> Self {
        Self::new(&Told::default(), None)
    }
}

impl Family for LlamaStack {
    type Seen = Seen;

    fn api(&self) -> Api {
        Api::Llsd
    }

    fn manager(&self) -> &str {
        observe::llamastack::MANAGER
    }

    fn children(&self) -> Vec<Watched> {
        observe::llamastack::children()
    }

    async fn observe(&self, tools: &Tools, object: &DynamicObject) -> Result<Observed<Seen>, PassError> {
        observe::llamastack::observe(tools, &self.settings, &self.beside, object).await
    }

    fn plan(&self, seen: &Seen) -> Plan {
        family::plan(seen)
    }

    fn report(&self, seen: &Seen, plan: &Plan, outcome: &Outcome) -> Result<Value, PassError> {
        serde_json::to_value(family::report(seen, plan, outcome)).map_err(|cause| PassError::Status {
            object: format!("{}/{}", seen.object.namespace, seen.object.name),
            cause: cause.to_string(),
        })
    }

    async fn beside(&self, tools: &Tools, scope: &Scope, stop: CancellationToken) {
        self.beside.run(tools, scope, stop).await;
    }

    fn forget(&self, place: &Place) {
        self.beside.forget(place);
    }
}
