//! The settings of the controller of DynamoGraphDeploymentRequests.

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::dynamo::RequestOptions;
use crate::dynamo::observe::hardware::{ENDPOINT, Endpoint};
use crate::relay::PROFILING_ROLE;
use crate::settings::Switch;

// Environment variables by which the profiler, and the graphs it starts, find the rest of the platform.
const NATS: &str = "NATS_SERVER";
const ETCD: &str = "ETCD_ENDPOINTS";
const MODEL_EXPRESS: &str = "MODEL_EXPRESS_URL";
const PROMETHEUS: &str = "PROMETHEUS_ENDPOINT";

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "DynamoGraphDeploymentRequests")]
pub struct RequestArgs {
    /// When nodes pull Steersman's own image for the containers that it adds to profiling Jobs
    #[arg(long, env = "OPERATOR_IMAGE_PULL_POLICY", hide_env_values = true, value_name = "POLICY",
        default_value = "IfNotPresent", value_parser = PossibleValuesParser::new(["Always", "IfNotPresent", "Never"]))]
    operator_image_pull_policy: String,
    /// The ClusterRole that the account of profiling Jobs, dgdr-profiling-job, is bound to in the namespace of each request.
    /// For another than the default one Steersman needs the right to get and bind it. Empty: account and binding are made by
    /// somebody else
    #[arg(long, value_name = "NAME", default_value = PROFILING_ROLE)]
    dgdr_profiling_cluster_role: String,
    /// Whether the labels of nodes are looked at for GPUs that requests do not describe. Exporters of DCGM are asked in any
    /// case
    #[arg(long, value_enum, value_name = "SWITCH", default_value_t = Switch::On)]
    gpu_discovery: Switch,
    /// Where exporters of DCGM serve their metrics, with {POD_IP} for the address of a pod
    #[arg(long, env = "DCGM_METRICS_ENDPOINT_TEMPLATE", hide_env_values = true, value_name = "URL", default_value = ENDPOINT)]
    dcgm_endpoint: Endpoint,
    /// The address of NATS, for profilers; everyone who may see a Job can read it
    #[arg(long, env = NATS, hide_env_values = true, value_name = "URL")]
    dgdr_nats_address: Option<String>,
    /// The address of etcd, for profilers
    #[arg(long, env = ETCD, hide_env_values = true, value_name = "ADDRESS")]
    dgdr_etcd_address: Option<String>,
    /// The address of Model Express, for profilers
    #[arg(long, env = MODEL_EXPRESS, hide_env_values = true, value_name = "URL")]
    dgdr_model_express_url: Option<String>,
    /// The address of Prometheus, for profilers
    #[arg(long, env = PROMETHEUS, hide_env_values = true, value_name = "URL")]
    dgdr_prometheus_endpoint: Option<String>,
}

impl RequestArgs {
    pub fn options(&self) -> RequestOptions {
        let addresses = [
            (NATS, &self.dgdr_nats_address),
            (ETCD, &self.dgdr_etcd_address),
            (MODEL_EXPRESS, &self.dgdr_model_express_url),
            (PROMETHEUS, &self.dgdr_prometheus_endpoint),
        ];
        // Manifests set a variable to the empty string if there is no such address.
        let given = |text: &String| !text.is_empty();
        RequestOptions {
            default_image: None,
            pull_policy: Some(self.operator_image_pull_policy.clone()),
            cluster_role: Some(self.dgdr_profiling_cluster_role.clone()).filter(given),
            by_labels: self.gpu_discovery == Switch::On,
            endpoint: self.dcgm_endpoint.clone(),
            infrastructure: addresses
                .into_iter()
                .filter_map(|(name, address)| Some((name.to_owned(), address.clone().filter(given)?)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        requests: RequestArgs,
    }

    fn told(flags: &str) -> RequestOptions {
        Line::parse_from([&["run"], &flags.split_whitespace().collect::<Vec<_>>()[..]].concat()).requests.options()
    }

    #[test]
    fn flags_become_request_options() {
        let given = told(
            "--operator-image-pull-policy Always --dgdr-profiling-cluster-role mine --gpu-discovery off \
             --dcgm-endpoint http://{POD_IP}:9401/metrics --dgdr-nats-address nats://nats:4222 \
             --dgdr-etcd-address etcd:2379 --dgdr-model-express-url http://express:8001 \
             --dgdr-prometheus-endpoint http://prometheus:9090",
        );
        let addresses = [
            ("NATS_SERVER", "nats://nats:4222"),
            ("ETCD_ENDPOINTS", "etcd:2379"),
            ("MODEL_EXPRESS_URL", "http://express:8001"),
            ("PROMETHEUS_ENDPOINT", "http://prometheus:9090"),
        ];
        let expected = RequestOptions {
            default_image: None,
            pull_policy: Some("Always".to_owned()),
            cluster_role: Some("mine".to_owned()),
            by_labels: false,
            endpoint: "http://{POD_IP}:9401/metrics".parse().unwrap(),
            infrastructure: addresses.map(|(name, address)| (name.to_owned(), address.to_owned())).into(),
        };
        assert_eq!(given, expected);
    }

    #[test]
    fn defaults_bind_shipped_role_without_addresses() {
        let given = told("");
        let expected = RequestOptions { pull_policy: Some("IfNotPresent".to_owned()), ..RequestOptions::default() };
        assert_eq!(given, expected);
        assert_eq!(given.cluster_role.as_deref(), Some("steersman-profiling-job"));
        let nothing = Line::parse_from(["run", "--dgdr-profiling-cluster-role", "", "--dgdr-nats-address", ""]);
        let nothing = nothing.requests.options();
        assert_eq!((nothing.cluster_role, nothing.infrastructure.len()), (None, 0));
    }

    #[test]
    fn unknown_pull_policy_is_refused() {
        let said =
            Line::try_parse_from(["run", "--operator-image-pull-policy", "Sometimes"]).err().unwrap().to_string();
        assert!(said.contains("[possible values: Always, IfNotPresent, Never]"), "{said}");
    }
}
