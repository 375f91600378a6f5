//! LlamaStackDistribution in the steps of a pass. Which steps there are is the driver's business; what they decide is
//! decided in the plan.

use kube::api::DynamicObject;
use serde_json::Value;
use steersman_api::Family as Api;
use steersman_plan::llamastack::{self as family, Seen, Settings};
use steersman_plan::{Outcome, Plan};

use super::driver::{Family, Observed, PassError, Tools, rules_for};
use crate::observe;
use crate::observe::cache::Watched;
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
    ];
    let own = rules_for(Api::Llsd, "llamastackdistributions/status", "llamastackdistributions/finalizers");
    [own, children.to_vec()].concat()
}

/// The family with what the operator was told about it.
#[derive(Clone, Debug)]
pub struct LlamaStack {
    pub settings: Settings,
}

impl LlamaStack {
    /// With the images of this version.
    pub fn shipped() -> Self {
        let distributions = family::config::base::images();
        Self { settings: Settings { operator_version: env!("CARGO_PKG_VERSION").to_owned(), distributions } }
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
        observe::llamastack::observe(tools, &self.settings, object).await
    }

    fn plan(&self, seen: &Seen) -> Plan {
        family::plan(seen)
    }

    fn report(&self, seen: &Seen, plan: &Plan, outcome: &Outcome) -> Result<Value, PassError> {
        observe::llamastack::stored_status(&family::report(seen, plan, outcome)).map_err(|cause| PassError::Status {
            object: format!("{}/{}", seen.object.namespace, seen.object.name),
            cause,
        })
    }
}
