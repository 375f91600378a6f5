//! The container of the server.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerPort, EnvVar, HTTPGetAction, Probe, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use steersman_api::llamastack::v1alpha2::{LlamaStackDistributionSpec, Overrides};
use steersman_reconcile::quantity::billionths;

use super::pod::{TRUST_FILE, volume_mounts};
use super::script;
use crate::llamastack::resolution::Setup;
use crate::llamastack::snapshot::ObservedObject;
use crate::llamastack::{config, fields};

type Amounts = BTreeMap<String, Quantity>;

const CONTAINER: &str = "llama-stack";
const MEMORY: &str = "1Gi";

pub fn server(object: &ObservedObject, setup: &Setup) -> Container {
    let spec = &object.spec;
    let overrides = fields::overrides(spec);
    let words = |of: fn(&Overrides) -> &Option<Vec<String>>| {
        overrides.and_then(|given| of(given).clone()).filter(|words| !words.is_empty())
    };
    let name = object.former.container_name.clone().filter(|name| !name.is_empty());
    let secure = fields::certificate(spec).is_some();
    let env_file = setup.generated.as_ref().and_then(|generated| generated.pod.env_file);
    // Without a mounted configuration (generated or the user's), the image's own command starts the server.
    let start =
        setup.config.as_ref().map(|_| vec!["/bin/sh".to_owned(), "-c".to_owned(), script::start(secure, env_file)]);
    let port = fields::port(spec);
    Container {
        name: name.unwrap_or_else(|| CONTAINER.to_owned()),
        image: Some(setup.image.clone()),
        command: words(|given| &given.command).or(start),
        args: words(|given| &given.args),
        ports: Some(vec![ContainerPort { container_port: port, ..Default::default() }]),
        env: Some(env(spec, setup)),
        resources: Some(resources(spec)),
        volume_mounts: Some(volume_mounts(object, setup)),
        startup_probe: Some(Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/v1/health".to_owned()),
                port: IntOrString::Int(port),
                scheme: secure.then(|| "HTTPS".to_owned()),
                ..Default::default()
            }),
            initial_delay_seconds: Some(15),
            timeout_seconds: Some(30),
            failure_threshold: Some(3),
            success_threshold: Some(1),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Names are unique, because server-side apply rejects duplicates. The last entry of a name counts, in its place, where
/// it may refer to the variables before it.
fn env(spec: &LlamaStackDistributionSpec, setup: &Setup) -> Vec<EnvVar> {
    let generated = setup.generated.as_ref();
    let path = generated.map_or(config::CONFIG_PATH, |generated| generated.pod.config_path);
    let port = fields::port(spec).to_string();
    let plain = |name: &str, value: String| EnvVar { name: name.to_owned(), value: Some(value), value_from: None };
    let ours: Vec<EnvVar> = [
        Some(plain("HF_HOME", fields::mount_path(spec).to_owned())),
        setup.bundle.as_ref().map(|_| plain("SSL_CERT_FILE", TRUST_FILE.to_owned())),
        Some(plain("LLS_WORKERS", fields::workers(spec).unwrap_or(1).to_string())),
        Some(plain("LLS_PORT", port.clone())),
        // The image's own command reads this variable; it is unset for the default port.
        (!fields::usual_port(spec)).then(|| plain("LLAMA_STACK_PORT", port)),
        Some(plain("LLAMA_STACK_CONFIG", path.to_owned())),
    ]
    .into_iter()
    .flatten()
    .chain(generated.into_iter().flat_map(|generated| generated.pod.env.iter().chain(&generated.env).cloned()))
    .collect();
    let all: Vec<&EnvVar> = ours.iter().chain(fields::env(spec)).collect();
    let repeated = |place: usize| all[place + 1..].iter().any(|later| later.name == all[place].name);
    (0..all.len()).filter(|place| !repeated(*place)).map(|place| all[place].clone()).collect()
}

/// A request of zero counts as unset. Limits are added only if the user sized the server by `workers`.
fn resources(spec: &LlamaStackDistributionSpec) -> ResourceRequirements {
    let given = spec.workload.as_ref().and_then(|workload| workload.resources.clone()).unwrap_or_default();
    let workers = fields::workers(spec);
    let defaults = [
        ("cpu".to_owned(), Quantity(workers.unwrap_or(1).to_string())),
        ("memory".to_owned(), Quantity(MEMORY.to_owned())),
    ];
    let requests = completed(given.requests, &defaults);
    let sized = defaults.map(|(name, default)| (name.clone(), requests.get(&name).cloned().unwrap_or(default)));
    let limits = match workers {
        Some(_) => Some(completed(given.limits, &sized)),
        None => given.limits,
    };
    ResourceRequirements { requests: Some(requests), limits, ..given }
}

/// Adds the defaults of absent and zero amounts.
fn completed(given: Option<Amounts>, defaults: &[(String, Quantity)]) -> Amounts {
    let mut amounts = given.unwrap_or_default();
    for (name, default) in defaults {
        if amounts.get(name).is_none_or(|amount| billionths(&amount.0) == Some(0)) {
            amounts.insert(name.clone(), default.clone());
        }
    }
    amounts
}
