//! The queries to a running server, and its responses as the status shows them.

mod mask;

use serde_json::{Map, Value};
use steersman_api::llamastack::status::{Phase, ProviderHealth, ProviderInfo};

use super::build::{network, scaling};
use super::snapshot::Snapshot;
use super::{fields, names};

pub const HEALTH: &str = "/v1/health";
pub const VERSION: &str = "/v1/version";
pub const PROVIDERS: &str = "/v1/providers";

/// Maximum length of a provider's message; the server's log has the whole text.
const MAX_MESSAGE_CHARS: usize = 500;

/// The server to query. Another value means another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollTarget {
    /// URL of the Service, without a path.
    pub url: String,
    /// Generation of the Deployment: pods of a newer one may answer differently.
    pub generation: Option<i64>,
}

/// The server to query. None: not all pods are ready and of the newest template, no Service leads to them, or the spec
/// was refused and does not describe the running server.
pub fn poll_target(snapshot: &Snapshot) -> Option<PollTarget> {
    let object = &snapshot.object;
    let live = snapshot.deployment.as_ref()?;
    let refused = object.status.as_ref().is_some_and(|status| status.phase == Some(Phase::Failed));
    let asked = !object.deleting && !refused && snapshot.service;
    (asked && live.ready > 0 && scaling::rolled_out(snapshot, live)).then(|| PollTarget {
        url: names::service_url(
            network::scheme(&object.spec),
            &object.name,
            &object.namespace,
            fields::port(&object.spec),
        ),
        generation: live.generation,
    })
}

/// Why the server is not healthy. None: it is.
pub fn health_problem(answer: &Value) -> Option<String> {
    match answer["status"].as_str() {
        Some(status) if status.eq_ignore_ascii_case("ok") => None,
        Some(status) => Some(format!("the server reports the status {:?}", mask::text(status, MAX_MESSAGE_CHARS))),
        None => Some("the response has no status".to_owned()),
    }
}

pub fn version(answer: &Value) -> Option<String> {
    answer["version"]
        .as_str()
        .filter(|version| !version.is_empty())
        .map(|version| mask::text(version, MAX_MESSAGE_CHARS))
}

/// The server's providers, masked. None: the response is no such list.
pub fn providers(answer: &Value) -> Option<Vec<ProviderInfo>> {
    answer["data"].as_array()?.iter().map(provider).collect()
}

fn provider(entry: &Value) -> Option<ProviderInfo> {
    let entry = entry.as_object()?;
    let text = |value: Option<&Value>| mask::text(value.and_then(Value::as_str).unwrap_or_default(), MAX_MESSAGE_CHARS);
    // Other health fields, such as times and measurements, would change the status at every query.
    let health = entry.get("health").and_then(Value::as_object);
    Some(ProviderInfo {
        api: text(entry.get("api")),
        provider_id: text(entry.get("provider_id")),
        provider_type: text(entry.get("provider_type")),
        config: match entry.get("config") {
            Some(Value::Object(config)) => mask::config(config),
            _ => Value::Object(Map::new()),
        },
        health: ProviderHealth {
            status: text(health.and_then(|health| health.get("status"))),
            message: text(health.and_then(|health| health.get("message"))),
        },
    })
}
