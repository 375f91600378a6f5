//! LlamaStackDistribution in the steps of a pass. Which steps there are is the driver's business; what they decide is
//! decided in the plan.

use std::sync::Arc;

use futures::{StreamExt, stream};
use kube::api::DynamicObject;
use serde_json::Value;
use steersman_api::Family as Api;
use steersman_plan::llamastack::{self as family, Seen, Settings};
use steersman_plan::{Outcome, Plan};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use super::driver::{Family, Observed, PassError, Tools, rules_for};
use super::{Place, Told};
use crate::observe;
use crate::observe::cache::{Scope, Watched};
use crate::observe::llamastack::operator_config::{self, Config};
use crate::observe::llamastack::references::{self, References};
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
    let facts = [read("apps", "replicasets", &["list"], "keep configurations that pods still run with")];
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
    /// What the operator's ConfigMap says.
    config: Arc<Config>,
    references: References,
    /// Whether the cluster has the role of OpenShift; not known until the first pass.
    any_user: Arc<OnceCell<bool>>,
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
        let config = Arc::new(Config::new(told.config_namespaces(family::FORMER_NAMESPACE)));
        Self { settings, config, references: References::default(), any_user: Arc::default() }
    }

    /// As an operator that was told nothing.
    pub fn shipped() -> Self {
        Self::new(&Told::default())
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
        let Self { settings, config, references, any_user } = self;
        observe::llamastack::observe(tools, settings, config, references, any_user, object).await
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
        let References { secrets, config_maps } = &self.references;
        let changes = stream::select(secrets.follow(&tools.server, scope), config_maps.follow(&tools.server, scope));
        let referred = changes.for_each(|object| {
            tools.wakes.wake(object);
            std::future::ready(())
        });
        // Every object refers to a ConfigMap, if only to that of its cluster.
        let all = || config_maps.objects().into_iter().for_each(|object| tools.wakes.wake(object));
        let config = self.config.follow(&tools.server, all);
        stop.run_until_cancelled(async { tokio::join!(referred, config) }).await;
    }

    fn forget(&self, place: &Place) {
        self.references.forget(place);
    }
}
