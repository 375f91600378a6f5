//! `steersman preflight`, from flags to report: observe, plan, report.
//! Comes in: which cluster; goes out: whether it can run Steersman and what is there.

mod observe;

use steersman_plan::preflight::{Report, Right, plan, report};
use steersman_runtime::client::{self, CallError, ConnectError};

use crate::args::ClusterArgs;

pub use observe::{observe, rules};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// `rights` are those that the operator needs.
pub async fn run(cluster: &ClusterArgs, rights: Vec<Right>) -> Result<Report, PreflightError> {
    let server = client::connect(&cluster.connect_options()).await?;
    let seen = observe(&server, rights).await?;
    let findings = plan(&seen);
    Ok(report(seen, findings))
}
