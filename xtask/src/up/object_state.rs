//! The state of an object in a few words, from its status.

use serde_json::Value;
use steersman_api::Family;

/// Whether the object has what its user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    Failed,
    Waiting,
    Good,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectState {
    pub health: Health,
    pub phase: String,
    /// Part of the phase, such as that of a profiler.
    pub part: Option<String>,
    /// Cause of the phase, or facts about an object that is well. May be empty.
    pub reason: String,
}

/// Conditions in the order in which their causes are shown. `Succeeded` summarizes the others of a request; those of a server
/// come in the order in which users are told to read them. Others follow.
const CONDITION_ORDER: [&str; 5] = ["Succeeded", "SpecAccepted", "TargetResolved", "DeploymentReady", "HealthCheck"];

pub fn object_state(family: Family, status: &Value) -> ObjectState {
    match family {
        Family::Llsd => server(status),
        Family::Dgdr => request(status),
        Family::Va => variant(status),
        Family::Dgd => graph(status),
    }
}

fn server(status: &Value) -> ObjectState {
    let phase = phase(status);
    let health = match phase.as_str() {
        "Ready" => Health::Good,
        "Failed" => Health::Failed,
        _ => Health::Waiting,
    };
    let cause = cause(status).map(str::to_owned);
    ObjectState { health, phase, part: None, reason: cause.or_else(|| server_facts(status)).unwrap_or_default() }
}

/// The server's version and the number of its providers, as it reports them.
fn server_facts(status: &Value) -> Option<String> {
    let version = status["version"]["llamaStackServerVersion"].as_str()?;
    let providers = status["distributionConfig"]["providers"].as_array()?.len();
    Some(format!("llama-stack {version}, {}", count(providers, "provider")))
}

fn request(status: &Value) -> ObjectState {
    let phase = phase(status);
    let health = match phase.as_str() {
        "Deployed" | "Ready" => Health::Good,
        "Failed" => Health::Failed,
        _ => Health::Waiting,
    };
    let reason = cause(status).or_else(|| status["summary"].as_str()).unwrap_or_default().to_owned();
    ObjectState { health, phase, part: status["profilingPhase"].as_str().map(str::to_owned), reason }
}

/// The actual and the decided number of replicas, and the reason of the decision.
fn variant(status: &Value) -> ObjectState {
    let wanted = &status["desiredOptimizedAlloc"];
    let number =
        |value: &Value| value["numReplicas"].as_i64().map_or_else(|| "?".to_owned(), |count| count.to_string());
    let is_false = |type_: &str| conditions(status).any(|found| found["type"] == type_ && found["status"] == "False");
    let health = if is_false("TargetResolved") || is_false("OptimizationReady") {
        Health::Failed
    } else if is_false("MetricsAvailable") || wanted["numReplicas"].is_null() {
        Health::Waiting
    } else {
        Health::Good
    };
    ObjectState {
        health,
        phase: format!("has {}, wants {}", number(&status["currentAlloc"]), number(wanted)),
        part: None,
        reason: wanted["lastUpdate"]["reason"].as_str().or_else(|| cause(status)).unwrap_or_default().to_owned(),
    }
}

/// The state of a graph, which `up` simulates.
fn graph(status: &Value) -> ObjectState {
    let state = status["state"].as_str();
    let health = if state == Some("successful") { Health::Good } else { Health::Waiting };
    ObjectState { health, phase: state.unwrap_or("new").to_owned(), part: None, reason: "(simulated)".to_owned() }
}

fn phase(status: &Value) -> String {
    status["phase"].as_str().unwrap_or("new").to_owned()
}

fn conditions(status: &Value) -> impl Iterator<Item = &Value> {
    status["conditions"].as_array().into_iter().flatten()
}

/// The message of the first unmet condition.
fn cause(status: &Value) -> Option<&str> {
    let rank = |condition: &&Value| {
        let position = CONDITION_ORDER.iter().position(|type_| condition["type"] == *type_);
        position.unwrap_or(CONDITION_ORDER.len())
    };
    let unmet = conditions(status).filter(|condition| condition["status"] == "False");
    unmet.min_by_key(rank).and_then(|condition| condition["message"].as_str())
}

/// Such as `1 provider` or `2 providers`.
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("{number} {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn unmet(type_: &str, message: &str) -> Value {
        json!({ "type": type_, "status": "False", "message": message })
    }

    #[test]
    fn state_follows_the_status() {
        use Health::{Failed, Good, Waiting};
        let answered = json!({ "phase": "Ready", "version": { "llamaStackServerVersion": "0.7.1" },
            "distributionConfig": { "providers": [{}, {}] } });
        let starting = json!({ "phase": "Initializing", "conditions": [
            unmet("HealthCheck", "Deployment not ready"), unmet("DeploymentReady", "the image cannot be pulled")] });
        let refused = json!({ "phase": "Failed", "conditions": [
            unmet("DeploymentReady", "old"), unmet("SpecAccepted", "spec.port: too large")] });
        let profiling = json!({ "phase": "Profiling", "profilingPhase": "SweepingDecode", "summary": "measuring",
            "conditions": [unmet("Profiling", "x"), unmet("Succeeded", "Profiling: measuring")] });
        let deployed = json!({ "phase": "Deployed", "summary": "the graph serves" });
        let scaling = json!({ "currentAlloc": { "numReplicas": 1 },
            "desiredOptimizedAlloc": { "numReplicas": 2, "lastUpdate": { "reason": "scale-up" } } });
        let blind = json!({ "desiredOptimizedAlloc": { "numReplicas": 2 },
            "conditions": [unmet("MetricsAvailable", "no metrics")] });
        let lost =
            json!({ "conditions": [unmet("MetricsAvailable", "no metrics"), unmet("TargetResolved", "no workload")] });
        for (family, status, health, phase, reason) in [
            (Family::Llsd, json!({}), Waiting, "new", ""),
            (Family::Llsd, answered, Good, "Ready", "llama-stack 0.7.1, 2 providers"),
            (Family::Llsd, starting, Waiting, "Initializing", "the image cannot be pulled"),
            (Family::Llsd, refused, Failed, "Failed", "spec.port: too large"),
            (Family::Dgdr, profiling, Waiting, "Profiling", "Profiling: measuring"),
            (Family::Dgdr, deployed, Good, "Deployed", "the graph serves"),
            (Family::Dgdr, json!({ "phase": "Failed" }), Failed, "Failed", ""),
            (Family::Va, scaling, Good, "has 1, wants 2", "scale-up"),
            (Family::Va, blind, Waiting, "has ?, wants 2", "no metrics"),
            (Family::Va, lost, Failed, "has ?, wants ?", "no workload"),
            (Family::Dgd, json!({ "state": "pending" }), Waiting, "pending", "(simulated)"),
            (Family::Dgd, json!({ "state": "successful" }), Good, "successful", "(simulated)"),
        ] {
            let part = status["profilingPhase"].as_str().map(str::to_owned);
            let expected = ObjectState { health, phase: phase.to_owned(), part, reason: reason.to_owned() };
            assert_eq!(object_state(family, &status), expected, "{status}");
        }
    }
}
