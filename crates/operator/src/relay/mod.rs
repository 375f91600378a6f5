//! Runs `steersman relay`, the sidecar of the profiler that copies its progress and results into the request's ConfigMap.

pub mod decide;
pub mod deliver;
pub mod files;
pub mod follow;
pub mod pod;
pub mod status;

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use steersman_api::Family;
use steersman_runtime::rbac::Rule;
use steersman_runtime::telemetry::logs;
use steersman_runtime::{client, signals};

use crate::args::{ClusterArgs, LogLevel};
use decide::Ending;
use deliver::RequestRef;
use follow::{RelayTarget, RelayTiming, follow};

#[derive(Clone, Debug, Args)]
pub struct RelayArgs {
    /// Name of the DynamoGraphDeploymentRequest
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub name: String,
    /// Namespace of the DynamoGraphDeploymentRequest
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub namespace: String,
    /// UID of the DynamoGraphDeploymentRequest, for the owner reference of the ConfigMap
    #[arg(long, value_name = "UID", value_parser = NonEmptyStringValueParser::new())]
    pub uid: String,
    /// Name of the profiler's container in this pod
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub container: String,
    /// Folder with the files of the profiler
    #[arg(long, value_name = "FOLDER")]
    pub directory: PathBuf,
    /// Name of this pod
    #[arg(long, env = "POD_NAME", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub pod: String,
    /// Lowest level of log lines
    #[arg(long, env = "LOG_LEVEL", hide_env_values = true, value_enum, ignore_case = true, value_name = "LEVEL",
        default_value_t = LogLevel::Info)]
    pub log_level: LogLevel,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// ClusterRole of the account of profiling Jobs, shipped with the operator's own roles.
pub const PROFILING_ROLE: &str = "steersman-profiling-job";

/// ClusterRole with the further rights of a thorough search, bound while a namespace has such a request.
pub const THOROUGH_ROLE: &str = "steersman-profiling-job-thorough";

/// Rules of a profiler that deploys candidate graphs.
pub fn thorough_rules() -> Vec<Rule> {
    let rule = Rule::namespaced;
    let why = "deploy candidate graphs when profiling thoroughly";
    vec![
        rule("", "configmaps", &["patch", "delete"], why),
        rule(Family::Dgd.group(), Family::Dgd.plural(), &["get", "create", "delete", "list", "watch"], why),
        rule("", "pods", &["list", "create", "delete"], why),
        rule("", "pods/log", &["get"], why),
    ]
}

/// Rules of the relay, which runs as the account of the profiling Job. A rapid search needs no others.
pub fn rules() -> Vec<Rule> {
    let (rule, requests) = (Rule::namespaced, Family::Dgdr);
    let identify = "distinguish the output of this request from that of an earlier one of the same name";
    let own = "set requests as owners of their outputs";
    vec![
        rule("", "configmaps", &["get", "create", "update"], "deliver the progress and the result of the profiler"),
        rule("", "pods", &["get"], "detect the end of the profiler"),
        rule(requests.group(), requests.plural(), &["get"], identify),
        // Clusters with OwnerReferencesPermissionEnforcement, such as OpenShift, require this for `blockOwnerDeletion`.
        rule(requests.group(), "dynamographdeploymentrequests/finalizers", &["update"], own),
    ]
}

/// Runs until the profiler has ended and its results are written, or until SIGTERM or SIGINT.
pub async fn relay(args: RelayArgs) -> anyhow::Result<Ending> {
    let stop = signals::stop_token(None)?;
    logs::install(args.log_level.as_level())?;
    let server = client::connect(&args.cluster.connect_options()).await?;
    let RelayArgs { name, namespace, uid, container, directory: folder, pod, .. } = args;
    tracing::info!(request = name, namespace, pod, container, folder = %folder.display(), "following the profiler");
    let target = RelayTarget { request: RequestRef { name, namespace, uid }, pod, container, folder };
    let ending = follow(&server, &target, &RelayTiming::default(), &stop).await?;
    match ending {
        Ending::Verdict => tracing::info!("delivered the result of the profiler"),
        Ending::NoVerdict => tracing::warn!("the profiler ended without a result"),
    }
    Ok(ending)
}
