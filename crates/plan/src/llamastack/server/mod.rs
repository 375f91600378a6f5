//! The running server, which is asked what it serves.
//! Comes in: what was seen of the object, and the server's answers; goes out: whether and where to ask it, and its answers
//! as the status shows them.

mod masked;

use serde_json::{Map, Value};
use steersman_api::llamastack::status::{Phase, ProviderHealth, ProviderInfo};

use super::build::network;
use super::snapshot::Snapshot;
use super::{fields, names, rollout};

pub const HEALTH: &str = "/v1/health";
pub const VERSION: &str = "/v1/version";
pub const PROVIDERS: &str = "/v1/providers";

/// A message of a provider is for a glance; the server's log has the whole.
const LONGEST: usize = 500;

/// Which server to ask. Another one, if any of it differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Of the Service, without a path.
    pub url: String,
    /// Of the Deployment: what runs since then may answer otherwise.
    pub generation: Option<i64>,
}

/// None: there is no server to ask now, because its pods are not all ready and of the newest template, because no Service
/// leads to them, or because the spec was refused and does not say where the server is that runs.
pub fn question(snapshot: &Snapshot) -> Option<Question> {
    let object = &snapshot.object;
    let live = snapshot.deployment.as_ref()?;
    let refused = object.status.as_ref().is_some_and(|status| status.phase == Some(Phase::Failed));
    let asked = !object.deleting && !refused && snapshot.service && fields::wants_service(&object.spec);
    (asked && live.ready > 0 && rollout::complete(snapshot, live)).then(|| Question {
        url: names::service_url(
            network::scheme(&object.spec),
            &object.name,
            &object.namespace,
            fields::port(&object.spec),
        ),
        generation: live.generation,
    })
}

/// What the server says against its own health. None: nothing.
pub fn illness(answer: &Value) -> Option<String> {
    match answer["status"].as_str() {
        Some(status) if status.eq_ignore_ascii_case("ok") => None,
        Some(status) => Some(format!("the server calls itself {:?}", masked::text(status, LONGEST))),
        None => Some("the answer has no status".to_owned()),
    }
}

pub fn version(answer: &Value) -> Option<String> {
    answer["version"].as_str().filter(|version| !version.is_empty()).map(|version| masked::text(version, LONGEST))
}

/// The server's list, without anything secret. None: it is no such list.
pub fn providers(answer: &Value) -> Option<Vec<ProviderInfo>> {
    answer["data"].as_array()?.iter().map(provider).collect()
}

fn provider(entry: &Value) -> Option<ProviderInfo> {
    let entry = entry.as_object()?;
    let text = |value: Option<&Value>| masked::text(value.and_then(Value::as_str).unwrap_or_default(), LONGEST);
    // Times and measurements may stand beside these two; with them the status would never rest.
    let health = entry.get("health").and_then(Value::as_object);
    Some(ProviderInfo {
        api: text(entry.get("api")),
        provider_id: text(entry.get("provider_id")),
        provider_type: text(entry.get("provider_type")),
        config: match entry.get("config") {
            Some(Value::Object(config)) => masked::config(config),
            _ => Value::Object(Map::new()),
        },
        health: ProviderHealth {
            status: text(health.and_then(|health| health.get("status"))),
            message: text(health.and_then(|health| health.get("message"))),
        },
    })
}
