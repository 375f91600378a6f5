//! What the running server says of itself.
//! Comes in: its answers, or why there are none; goes out: its health, its version and its providers.

use steersman_api::llamastack::v1alpha2::LlamaStackDistributionStatus;
use steersman_api::meta::conditions::{Statement, Truth};

use super::statement;
use crate::llamastack::seen::{Seen, ServerSeen};
use crate::llamastack::stored_status::{DEPLOYMENT_READY, HEALTH_CHECK, condition};
use crate::llamastack::{fields, scaling};

/// None: what the server said before stands until it is heard again.
pub fn health(seen: &Seen, ready: bool) -> Option<Statement> {
    let spec = &seen.object.spec;
    let said = match &seen.server {
        _ if !ready => Err("Deployment not ready".to_owned()),
        _ if scaling::replicas(seen) == Some(0) => Err("No server runs: spec.replicas is 0".to_owned()),
        // A pod is ready only once its startup probe has seen the server's own health check pass.
        _ if !fields::wants_service(spec) => Ok("Health check passed, by the probe of the pods. The server is not asked for \
                                                 its version and providers: it has no Service. Set spec.networking.port \
                                                 to give it one"
            .to_owned()),
        ServerSeen::Silent(why) => Err(why.clone()),
        ServerSeen::Answered { providers: Some(_), .. } => Ok("Health check passed".to_owned()),
        ServerSeen::Answered { providers: None, .. } => {
            Ok("Health check passed. The providers are not shown: the server asks for credentials, and Steersman sends none"
                .to_owned())
        }
        ServerSeen::Awaited if heard_before(seen) => return None,
        ServerSeen::Awaited => {
            return Some(Statement {
                type_: HEALTH_CHECK.to_owned(),
                truth: Truth::Unknown,
                reason: "HealthCheckPending".to_owned(),
                message: "The pods are ready; the server is being asked".to_owned(),
            });
        }
    };
    Some(statement(HEALTH_CHECK, said))
}

/// Whether the stored word is the server's: while the Deployment was not ready, nobody asked it.
fn heard_before(seen: &Seen) -> bool {
    condition(seen, DEPLOYMENT_READY).is_some_and(|known| known.status == "True")
        && condition(seen, HEALTH_CHECK).is_some()
}

pub fn shown(seen: &Seen, ready: bool, status: &mut LlamaStackDistributionStatus) {
    let config = status.distribution_config.get_or_insert_default();
    match &seen.server {
        _ if !ready || !fields::wants_service(&seen.object.spec) => config.providers = None,
        ServerSeen::Awaited => {}
        ServerSeen::Silent(_) => config.providers = None,
        ServerSeen::Answered { version, providers } => {
            config.providers.clone_from(providers);
            let known = &mut status.version.get_or_insert_default().llama_stack_server_version;
            *known = version.clone().or(known.take());
        }
    }
}
