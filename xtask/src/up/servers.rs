//! Simulates the Llama Stack servers: answers the operator's requests to them while their pods are ready, with the
//! version of their image and the providers of their configuration.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Service};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use steersman_plan::llamastack::config::{self, base};
use steersman_plan::llamastack::names;
use steersman_plan::llamastack::server::{HEALTH, PROVIDERS, VERSION};
use steersman_testkit::ClusterGateway;
use steersman_testkit::pod_behaviour::is_serving;

/// Keys of a server's configuration in its ConfigMap.
const CONFIG_KEYS: [&str; 2] = [config::CONFIG_KEY, config::LEGACY_CONFIG_KEY];

/// Value of a variable from a Secret or a field of the pod, as a server shows secrets.
const MASKED: &str = "********";

/// Starts the gateway that answers in place of the servers.
pub async fn start(admin: &Client) -> Result<ClusterGateway> {
    let admin = admin.clone();
    ClusterGateway::start(move |host, path| {
        let admin = admin.clone();
        async move { answer(&admin, &host, &path).await }
    })
    .await
}

/// `None`: the host is not the Service of a server with a ready pod, or there is nothing at the path.
async fn answer(admin: &Client, host: &str, path: &str) -> Option<Value> {
    let (service, namespace) = service_of(host)?;
    let selector = Api::<Service>::namespaced(admin.clone(), namespace).get(service).await.ok()?.spec?.selector?;
    let (label, value) = names::SERVER_LABEL;
    if selector.get(label).is_none_or(|found| found != value) {
        return None;
    }
    let selector: Vec<String> = selector.iter().map(|(label, value)| format!("{label}={value}")).collect();
    let pods = Api::<Pod>::namespaced(admin.clone(), namespace);
    let pods = pods.list(&ListParams::default().labels(&selector.join(","))).await.ok()?;
    let pod = pods.items.into_iter().find(is_serving)?;
    let server = pod.spec.as_ref()?.containers.first()?;
    match path {
        HEALTH => Some(json!({ "status": "OK" })),
        VERSION => Some(json!({ "version": version(server.image.as_deref()?) })),
        PROVIDERS => {
            let config = configuration(admin, &pod, server).await?;
            Some(json!({ "data": providers(&config, &variables(server)) }))
        }
        _ => None,
    }
}

/// The Service and its namespace in a host such as `a-service.ns.svc.cluster.local:8321`.
fn service_of(host: &str) -> Option<(&str, &str)> {
    let mut labels = host.split('.');
    let (service, namespace) = (labels.next()?, labels.next()?);
    (labels.next() == Some("svc")).then_some((service, namespace))
}

/// The version of llama-stack in an image: that of a distribution, otherwise the tag.
fn version(image: &str) -> &str {
    let known = base::DISTRIBUTIONS.iter().find(|known| known.image == image).map(|known| known.server_version);
    known.or_else(|| image.rsplit_once(':').map(|(_, tag)| tag)).unwrap_or_default()
}

/// The configuration that is mounted into the pod, otherwise that of the image; null if the image is unknown. `None`: the API
/// server does not answer.
async fn configuration(admin: &Client, pod: &Pod, server: &Container) -> Option<Value> {
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), &pod.namespace()?);
    let volumes = pod.spec.as_ref()?.volumes.iter().flatten();
    for mounted in volumes.filter_map(|volume| volume.config_map.as_ref()) {
        let data = maps.get_opt(&mounted.name).await.ok()?.and_then(|map| map.data).unwrap_or_default();
        if let Some(text) = CONFIG_KEYS.iter().find_map(|key| data.get(*key)) {
            return Some(config::read_yaml(text).unwrap_or_default());
        }
    }
    let is_own =
        |known: &&base::ShippedDistribution| Some(known.image) == server.image.as_deref() && !known.mounts_always;
    let own = base::DISTRIBUTIONS.iter().find(is_own).and_then(|known| base::base(known.name));
    Some(own.map_or(Value::Null, |base| base.config.clone()))
}

/// The environment of a container.
fn variables(container: &Container) -> BTreeMap<String, String> {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| MASKED.to_owned());
    container.env.iter().flatten().map(|variable| (variable.name.clone(), value(&variable.value))).collect()
}

/// The list of providers as the server answers it. Providers whose id is empty are off.
fn providers(config: &Value, variables: &BTreeMap<String, String>) -> Vec<Value> {
    let apis = config["apis"].as_array();
    let is_served = |api: &str| apis.is_none_or(|apis| apis.iter().any(|served| served == api));
    let mut found = Vec::new();
    for (api, providers) in config["providers"].as_object().into_iter().flatten().filter(|(api, _)| is_served(api)) {
        for provider in providers.as_array().into_iter().flatten() {
            let provider = substituted(provider, variables);
            if provider["provider_id"].as_str().is_some_and(|id| !id.is_empty()) {
                found.push(json!({ "api": api, "provider_id": provider["provider_id"],
                    "provider_type": provider["provider_type"], "config": provider["config"],
                    "health": { "status": "OK", "message": "simulated" } }));
            }
        }
    }
    found
}

/// The value with its references to variables replaced.
fn substituted(value: &Value, variables: &BTreeMap<String, String>) -> Value {
    match value {
        Value::String(text) if text.contains(REFERENCE) => {
            let replaced = replace_references(text, variables);
            // The server reads numbers and truth values from the environment as such.
            match serde_json::from_str(&replaced) {
                Ok(typed @ (Value::Number(_) | Value::Bool(_))) => typed,
                _ => Value::String(replaced),
            }
        }
        Value::Array(items) => items.iter().map(|item| substituted(item, variables)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (name.clone(), substituted(field, variables))).collect()
        }
        other => other.clone(),
    }
}

const REFERENCE: &str = "${env.";

/// `${env.NAME}`, `${env.NAME:=default}`, and `${env.NAME:+value}`, which is empty unless NAME is set.
fn replace_references(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut parts = text.split(REFERENCE);
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (reference, rest) = part.split_once('}').unwrap_or((part, ""));
        let set = |name: &str| variables.get(name).map(String::as_str).filter(|value| !value.is_empty());
        let value = if let Some((name, default)) = reference.split_once(":=") {
            set(name).unwrap_or(default)
        } else if let Some((name, value)) = reference.split_once(":+") {
            set(name).map_or("", |_| value)
        } else {
            set(reference).unwrap_or_default()
        };
        replaced += value;
        replaced += rest;
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_as_by_the_server() {
        let variables = BTreeMap::from([("A".to_owned(), "1".to_owned()), ("EMPTY".to_owned(), String::new())]);
        for (written, expected) in [
            (json!("plain"), json!("plain")),
            (json!("${env.A}"), json!(1)),
            (json!("${env.B}"), json!("")),
            (json!("${env.B:=http://b:1/}"), json!("http://b:1/")),
            (json!("${env.EMPTY:=true}"), json!(true)),
            (json!("${env.A:+vllm}"), json!("vllm")),
            (json!("${env.B:+vllm}"), json!("")),
            (json!({ "path": ["${env.B:=~/.llama}/x-${env.A}.db"] }), json!({ "path": ["~/.llama/x-1.db"] })),
        ] {
            assert_eq!(substituted(&written, &variables), expected, "{written}");
        }
    }

    #[test]
    fn starter_lists_providers_that_are_on() {
        let config = &base::base("starter").unwrap().config;
        let ids = |variables: &[(&str, &str)]| -> Vec<String> {
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let listed = providers(config, &variables);
            assert!(listed.iter().all(|provider| provider["health"]["status"] == "OK"));
            listed.iter().map(|provider| provider["provider_id"].as_str().unwrap().to_owned()).collect()
        };
        let without = ids(&[]);
        assert!(without.contains(&"openai".to_owned()) && !without.contains(&"vllm".to_owned()), "{without:?}");
        assert!(ids(&[("VLLM_URL", "http://vllm:8000/v1")]).contains(&"vllm".to_owned()));
    }

    #[test]
    fn api_that_is_off_lists_no_provider() {
        let config = json!({ "apis": ["inference"], "providers": {
            "inference": [{ "provider_id": "a", "provider_type": "remote::a" }],
            "safety": [{ "provider_id": "b", "provider_type": "remote::b" }] } });
        let listed = providers(&config, &BTreeMap::new());
        assert_eq!(listed.len(), 1);
        assert_eq!((&listed[0]["api"], &listed[0]["provider_id"]), (&json!("inference"), &json!("a")));
    }

    #[test]
    fn version_is_that_of_the_image() {
        for known in base::DISTRIBUTIONS {
            assert_eq!(version(known.image), known.server_version);
        }
        assert_eq!(version("registry.example.com:5000/stack:0.6.9"), "0.6.9");
    }

    #[test]
    fn host_names_service_and_namespace() {
        assert_eq!(service_of("a-service.ns.svc.cluster.local:8321"), Some(("a-service", "ns")));
        assert_eq!(service_of("10.0.0.7:9400"), None);
    }
}
