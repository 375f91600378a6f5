//! `steersman preflight`, from flags to report: observe, plan, report.
//! Comes in: which cluster; goes out: whether it can run Steersman and what is there.

use steersman_plan::preflight::{Report, plan, report};

use crate::cli::ClusterArgs;
use crate::client::{self, CallError, ConnectError};
use crate::observe;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Call(#[from] CallError),
}

pub async fn run(cluster: &ClusterArgs) -> Result<Report, PreflightError> {
    let server = client::connect(cluster).await?;
    let seen = observe::preflight::observe(&server).await?;
    let findings = plan(&seen);
    Ok(report(seen, findings))
}
