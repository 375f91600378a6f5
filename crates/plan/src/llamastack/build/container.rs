//! The container of the server.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, HTTPGetAction, Lifecycle, LifecycleHandler, Probe, ResourceRequirements,
    SleepAction,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use steersman_api::llamastack::v1alpha2::{LlamaStackDistributionSpec, Overrides};
use steersman_reconcile::quantity::billionths;

use super::pod::{TRUST_FILE, volume_mounts};
use crate::llamastack::config::{TLS_CERT, TLS_KEY, variable};
use crate::llamastack::fields;
use crate::llamastack::resolution::Setup;
use crate::llamastack::snapshot::ObservedObject;

type Amounts = BTreeMap<String, Quantity>;

pub const CONTAINER: &str = "llama-stack";
const MEMORY: &str = "1Gi";

/// Failed startup probes, ten seconds apart, after which a server is restarted. A server on a busy node needs more than half a
/// minute, and one that loads models more; a crash is noticed at once in any case.
const STARTUP_FAILURES: i32 = 30;

/// Time in which nodes learn that a pod ends.
const DRAIN_SECONDS: i64 = 5;

/// Starts a server with a mounted configuration, whose values reach the script as variables only. The entry point of the
/// server has changed twice. An unknown version counts as new.
const ERA: &str = r#"era=$(python3 -c '
import re
from importlib.metadata import version
parts = [int(part) for part in re.findall(r"\d+", version("llama_stack"))[:3]]
print("first" if parts < [0, 2, 17] else "second" if parts < [0, 3] else "third")
' 2>/dev/null || echo third)
case "$era" in
first) exec python3 -m llama_stack.distribution.server.server --config "$LLAMA_STACK_CONFIG" ;;
second) exec python3 -m llama_stack.core.server.server "$LLAMA_STACK_CONFIG" ;;
esac
exec uvicorn llama_stack.core.server.server:create_app --factory --host 0.0.0.0 \
  --port "${LLS_PORT:-8321}" --workers "${LLS_WORKERS:-1}""#;

/// Older servers read the certificates from the configuration; the newest take them as arguments.
fn start_script(secure: bool, env_file: Option<&str>) -> String {
    let prepared = env_file.map(|file| format!(". {file}\n")).unwrap_or_default();
    let certificates =
        if secure { format!(" \\\n  --ssl-certfile {TLS_CERT} --ssl-keyfile {TLS_KEY}") } else { String::new() };
    format!("set -e\n{prepared}{ERA}{certificates}\n")
}

pub fn server(object: &ObservedObject, setup: &Setup) -> Container {
    let spec = &object.spec;
    let overrides = fields::overrides(spec);
    let words = |of: fn(&Overrides) -> &Option<Vec<String>>| {
        overrides.and_then(|given| of(given).clone()).filter(|words| !words.is_empty())
    };
    let name = object.v1alpha1.container_name.clone().filter(|name| !name.is_empty());
    let secure = fields::certificate(spec).is_some();
    let env_file = setup.pod.env_file;
    // Without a mounted configuration (generated or the user's), the image's own command starts the server.
    let start =
        setup.config.as_ref().map(|_| vec!["/bin/sh".to_owned(), "-c".to_owned(), start_script(secure, env_file)]);
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
        lifecycle: drain(overrides),
        startup_probe: Some(Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/v1/health".to_owned()),
                port: IntOrString::Int(port),
                scheme: secure.then(|| "HTTPS".to_owned()),
                ..Default::default()
            }),
            initial_delay_seconds: Some(15),
            timeout_seconds: Some(30),
            failure_threshold: Some(STARTUP_FAILURES),
            success_threshold: Some(1),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Keeps a server running until no node sends it requests any more. Nodes learn of the end of a pod a moment after its processes
/// do, and the server closes its port at once.
fn drain(overrides: Option<&Overrides>) -> Option<Lifecycle> {
    let grace = overrides.and_then(|pod| pod.termination_grace_period_seconds);
    // The API server rejects a pause that is longer than the grace period, or zero.
    let seconds = grace.map_or(DRAIN_SECONDS, |grace| grace.min(DRAIN_SECONDS));
    let pause = LifecycleHandler { sleep: Some(SleepAction { seconds }), ..Default::default() };
    (seconds > 0).then(|| Lifecycle { pre_stop: Some(pause), ..Default::default() })
}

/// Names are unique, because server-side apply rejects duplicates. The last entry of a name counts, in its place, where
/// it may refer to the variables before it.
fn env(spec: &LlamaStackDistributionSpec, setup: &Setup) -> Vec<EnvVar> {
    let port = fields::port(spec).to_string();
    let ours: Vec<EnvVar> = [
        Some(variable("HF_HOME", fields::mount_path(spec))),
        setup.bundle.as_ref().map(|_| variable("SSL_CERT_FILE", TRUST_FILE)),
        Some(variable("LLS_WORKERS", &fields::workers(spec).unwrap_or(1).to_string())),
        Some(variable("LLS_PORT", &port)),
        // The image's own command reads this variable; it is unset for the default port.
        (fields::port(spec) != fields::PORT).then(|| variable("LLAMA_STACK_PORT", &port)),
        Some(variable("LLAMA_STACK_CONFIG", setup.pod.config_path)),
    ]
    .into_iter()
    .flatten()
    .chain(setup.pod.env.iter().cloned())
    .chain(setup.generated.iter().flat_map(|generated| generated.env.iter().cloned()))
    .collect();
    let all: Vec<&EnvVar> = ours.iter().chain(fields::env(spec)).collect();
    let mut known = BTreeSet::new();
    let mut last: Vec<EnvVar> = all.into_iter().rev().filter(|env| known.insert(&env.name)).cloned().collect();
    last.reverse();
    last
}

/// A request of zero counts as unset. Limits are added only if the user sized the server by `workers`.
pub fn resources(spec: &LlamaStackDistributionSpec) -> ResourceRequirements {
    let given = spec.workload.as_ref().and_then(|workload| workload.resources.clone()).unwrap_or_default();
    let workers = fields::workers(spec);
    let defaults = [
        ("cpu".to_owned(), Quantity(workers.unwrap_or(1).to_string())),
        ("memory".to_owned(), Quantity(MEMORY.to_owned())),
    ];
    // A default request above the user's limit would be refused.
    let defaults = defaults.map(|(name, default)| {
        let limit = given.limits.as_ref().and_then(|limits| limits.get(&name));
        let limit = limit.filter(|limit| (Some(1)..billionths(&default.0)).contains(&billionths(&limit.0)));
        (name, limit.cloned().unwrap_or(default))
    });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_fits_grace_period() {
        for (grace, expected) in [(None, Some(5)), (Some(30), Some(5)), (Some(3), Some(3)), (Some(0), None)] {
            let overrides = Overrides { termination_grace_period_seconds: grace, ..Overrides::default() };
            let pause = drain(Some(&overrides)).and_then(|hooks| hooks.pre_stop?.sleep);
            assert_eq!(pause.map(|pause| pause.seconds), expected, "{grace:?}");
        }
        assert!(drain(None).is_some());
    }
}
