//! Renders the health, version and providers of the running server.

use steersman_api::llamastack::status::Phase;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionStatus;
use steersman_api::meta::conditions::{Statement, Truth};
use steersman_reconcile::path;

use super::result_statement;
use crate::llamastack::build::scaling;
use crate::llamastack::server::poll_target;
use crate::llamastack::snapshot::{ObservedServer, Snapshot};
use crate::llamastack::stored_status::{DEPLOYMENT_READY, HEALTH_CHECK, condition};

/// Whether nothing contradicts that the server serves. The last result stays until the server is queried again.
pub fn serves(snapshot: &Snapshot) -> bool {
    match &snapshot.server {
        _ if poll_target(snapshot).is_none() => true,
        ObservedServer::Unhealthy(_) => false,
        ObservedServer::Pending if has_answered(snapshot) => {
            let stored = snapshot.object.status.as_ref().and_then(|status| status.phase);
            stored != Some(Phase::Initializing)
        }
        ObservedServer::Pending | ObservedServer::Failed(_) | ObservedServer::Answered { .. } => true,
    }
}

/// The condition `HealthCheck`. None: the stored one stays until the server is queried again.
pub fn health(snapshot: &Snapshot, ready: bool) -> Option<Statement> {
    let names = snapshot.object.field_names();
    let result = match &snapshot.server {
        _ if !ready => Err("Deployment not ready".to_owned()),
        _ if scaling::replicas(snapshot) == Some(0) => {
            Err(format!("No server is running: {} is 0", names.render(&path!(spec.workload.replicas))))
        }
        ObservedServer::Failed(why) | ObservedServer::Unhealthy(why) => Err(why.clone()),
        ObservedServer::Answered { providers: Some(_), .. } => Ok("Health check passed".to_owned()),
        ObservedServer::Answered { providers: None, .. } => {
            Ok("Health check passed. The providers are unknown: the server requires credentials, and Steersman sends \
                none"
                .to_owned())
        }
        ObservedServer::Pending if has_answered(snapshot) => return None,
        ObservedServer::Pending => {
            let message = "The pods are ready; the first health check of the server is pending";
            return Some(Statement::new(HEALTH_CHECK, Truth::Unknown, "HealthCheckPending", message));
        }
    };
    Some(result_statement(HEALTH_CHECK, result))
}

/// Whether the stored condition comes from the server, which is not queried while the Deployment is not ready.
fn has_answered(snapshot: &Snapshot) -> bool {
    condition(snapshot, DEPLOYMENT_READY).is_some_and(|known| known.status == "True")
        && condition(snapshot, HEALTH_CHECK).is_some()
}

pub fn set_fields(snapshot: &Snapshot, ready: bool, status: &mut LlamaStackDistributionStatus) {
    let config = status.distribution_config.get_or_insert_default();
    match &snapshot.server {
        _ if !ready => config.providers = None,
        ObservedServer::Pending => {}
        ObservedServer::Failed(_) | ObservedServer::Unhealthy(_) => config.providers = None,
        ObservedServer::Answered { version, providers } => {
            config.providers.clone_from(providers);
            let known = &mut status.version.get_or_insert_default().llama_stack_server_version;
            *known = version.clone().or(known.take());
        }
    }
}
