//! Runs `steersman preflight`: observe, plan, report.

mod observe;

use steersman_plan::preflight::{Report, Right, plan, report};
use steersman_runtime::client::{self, CallError, ConnectError};

use crate::args::ClusterArgs;

pub use observe::{lease_rules, observe, rules};

#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Reports on a cluster. `rights` are those that the operator needs.
pub async fn run(cluster: &ClusterArgs, rights: Vec<Right>) -> Result<Report, PreflightError> {
    let server = client::connect(&cluster.connect_options()).await?;
    let snapshot = observe(&server, rights).await?;
    let findings = plan(&snapshot);
    Ok(report(snapshot, findings))
}
