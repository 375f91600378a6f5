//! LlamaStackDistribution in the steps of a pass. Which steps there are is the driver's business; what they decide is
//! decided in the plan.

use std::sync::Arc;

use kube::api::DynamicObject;
use serde_json::Value;
use steersman_api::Family as Api;
use steersman_plan::llamastack::{self as family, Seen, Settings};
use steersman_plan::{Outcome, Plan};
use tokio::sync::OnceCell;

use super::driver::{Family, Observed, PassError, Tools, rules_for};
use crate::observe::cache::Watched;
use crate::rbac::Rule;
use crate::{observe, rbac};

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
        read("", "secrets", &["get"], "see whether the Secrets that its objects name are there, with their keys"),
        read("apps", "replicasets", &["list"], "keep configurations that pods still run with"),
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
    [own, children.to_vec(), facts.to_vec(), vec![any_user]].concat()
}

/// The family with what the operator was told about it.
#[derive(Clone, Debug)]
pub struct LlamaStack {
    pub settings: Settings,
    /// Whether the cluster has the role of OpenShift; not known until the first pass.
    any_user: Arc<OnceCell<bool>>,
}

impl LlamaStack {
    /// With the images of this version.
    pub fn shipped() -> Self {
        let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let settings = Settings {
            operator_version: env!("CARGO_PKG_VERSION").to_owned(),
            distributions: family::config::base::images(),
            operator_image: given("OPERATOR_IMAGE"),
            operator_namespace: Some(given("POD_NAMESPACE").unwrap_or_else(|| rbac::NAMESPACE.to_owned())),
        };
        Self { settings, any_user: Arc::default() }
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
        observe::llamastack::observe(tools, &self.settings, &self.any_user, object).await
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
}
