//! The settings of the controller of DynamoGraphDeploymentRequests.

use clap::Args;
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};

use crate::dynamo::RequestOptions;
use crate::dynamo::observe::hardware::{ENDPOINT, Endpoint, NAMESPACES};
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
    /// Pull policy of the containers that Steersman adds to profiling Jobs
    #[arg(long, env = "OPERATOR_IMAGE_PULL_POLICY", hide_env_values = true, value_name = "POLICY",
        default_value = "IfNotPresent", value_parser = PossibleValuesParser::new(["Always", "IfNotPresent", "Never"]))]
    operator_image_pull_policy: String,
    /// ClusterRole that Steersman binds to dgdr-profiling-job, the ServiceAccount of profiling Jobs, in the namespace of each
    /// request. For another role than the default, Steersman needs permission to get and bind it. Empty: you create the
    /// account and the binding yourself
    #[arg(long, value_name = "NAME", default_value = PROFILING_ROLE)]
    dgdr_profiling_cluster_role: String,
    /// Whether to discover GPUs from the labels of nodes for requests that do not describe them. DCGM exporters are queried in
    /// any case
    #[arg(long, value_enum, value_name = "SWITCH", default_value_t = Switch::On)]
    gpu_discovery: Switch,
    /// URL of the metrics of DCGM exporters, with {POD_IP} for the address of a pod
    #[arg(long, env = "DCGM_METRICS_ENDPOINT_TEMPLATE", hide_env_values = true, value_name = "URL", default_value = ENDPOINT)]
    dcgm_endpoint: Endpoint,
    /// Namespaces of DCGM exporters, separated by commas. Only pods of DaemonSets there are queried: whoever may create pods in
    /// these namespaces decides about the GPUs of all requests
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_values = NAMESPACES,
        value_parser = NonEmptyStringValueParser::new())]
    dcgm_namespaces: Vec<String>,
    /// Address of NATS, for profilers; everyone who may read Jobs can see it
    #[arg(long, env = NATS, hide_env_values = true, value_name = "URL")]
    dgdr_nats_address: Option<String>,
    /// Address of etcd, for profilers
    #[arg(long, env = ETCD, hide_env_values = true, value_name = "ADDRESS")]
    dgdr_etcd_address: Option<String>,
    /// Address of Model Express, for profilers
    #[arg(long, env = MODEL_EXPRESS, hide_env_values = true, value_name = "URL")]
    dgdr_model_express_url: Option<String>,
    /// Address of Prometheus, for profilers
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
        let is_set = |text: &String| !text.is_empty();
        RequestOptions {
            default_image: None,
            pull_policy: Some(self.operator_image_pull_policy.clone()),
            cluster_role: Some(self.dgdr_profiling_cluster_role.clone()).filter(is_set),
            by_labels: self.gpu_discovery == Switch::On,
            endpoint: self.dcgm_endpoint.clone(),
            exporter_namespaces: self.dcgm_namespaces.clone(),
            infrastructure: addresses
                .into_iter()
                .filter_map(|(name, address)| Some((name.to_owned(), address.clone().filter(is_set)?)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct RequestLine {
        #[command(flatten)]
        requests: RequestArgs,
    }

    fn options(flags: &str) -> RequestOptions {
        RequestLine::parse_from([&["run"], &flags.split_whitespace().collect::<Vec<_>>()[..]].concat())
            .requests
            .options()
    }

    #[test]
    fn flags_become_request_options() {
        let given = options(
            "--operator-image-pull-policy Always --dgdr-profiling-cluster-role mine --gpu-discovery off \
             --dcgm-endpoint http://{POD_IP}:9401/metrics --dcgm-namespaces gpus,monitoring --dgdr-nats-address nats://nats:4222 \
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
            exporter_namespaces: vec!["gpus".to_owned(), "monitoring".to_owned()],
            infrastructure: addresses.map(|(name, address)| (name.to_owned(), address.to_owned())).into(),
        };
        assert_eq!(given, expected);
    }

    #[test]
    fn defaults_bind_shipped_role_without_addresses() {
        let given = options("");
        let expected = RequestOptions { pull_policy: Some("IfNotPresent".to_owned()), ..RequestOptions::default() };
        assert_eq!(given, expected);
        assert_eq!(given.cluster_role.as_deref(), Some("steersman-profiling-job"));
        let nothing = RequestLine::parse_from(["run", "--dgdr-profiling-cluster-role", "", "--dgdr-nats-address", ""]);
        let nothing = nothing.requests.options();
        assert_eq!((nothing.cluster_role, nothing.infrastructure.len()), (None, 0));
    }

    #[test]
    fn unknown_pull_policy_is_refused() {
        let error = RequestLine::try_parse_from(["run", "--operator-image-pull-policy", "Sometimes"])
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("[possible values: Always, IfNotPresent, Never]"), "{error}");
    }
}
