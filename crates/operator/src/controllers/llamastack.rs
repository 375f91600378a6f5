//! LlamaStackDistribution in the steps of a pass. Which steps there are is the driver's business; what they decide is
//! decided in the plan.

use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use serde_json::Value;
use steersman_plan::llamastack::{self as family, Seen, Settings};
use steersman_plan::{Outcome, Plan};

use super::driver::{Family, Observed, PassError};
use crate::client::Server;
use crate::observe;

/// The family with what the operator was told about it.
#[derive(Clone, Debug)]
pub struct LlamaStack {
    pub settings: Settings,
}

impl Family for LlamaStack {
    type Seen = Seen;

    fn kind(&self) -> GroupVersionKind {
        observe::llamastack::kind()
    }

    fn manager(&self) -> &str {
        observe::llamastack::MANAGER
    }

    async fn observe(&self, server: &Server, object: &DynamicObject) -> Result<Observed<Seen>, PassError> {
        observe::llamastack::observe(server, &self.settings, object).await
    }

    fn plan(&self, seen: &Seen) -> Plan {
        family::plan(seen)
    }

    fn report(&self, seen: &Seen, plan: &Plan, outcome: &Outcome) -> Result<Value, PassError> {
        serde_json::to_value(family::report(seen, plan, outcome)).map_err(|cause| PassError::Status {
            object: format!("{}/{}", seen.object.namespace, seen.object.name),
            cause,
        })
    }
}
