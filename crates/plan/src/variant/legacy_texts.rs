//! Reads the texts that earlier operators stored: the Go operators, and Steersman before `status.decision.factors`. The
//! texts are those found in clusters, and stay as they are when a message changes.

use steersman_api::meta::conditions;
use steersman_api::variant::v1alpha1::{ConfigFault, DecidedTarget, DecisionFactor, VariantAutoscalingStatus};

use super::names;
use super::trace::{Factor, FactorCode, FactorSubject, Stage};

/// The scale target of a status. Only `TargetResolved` names it: `Scale target Deployment decode found`, `… not found`
/// or `… could not be read: …`.
pub fn scale_target(status: &VariantAutoscalingStatus) -> Option<DecidedTarget> {
    let condition = conditions::find(&status.conditions, names::TARGET)?;
    let mut words = condition.message.strip_prefix("Scale target ")?.split(' ');
    let mut word = || words.next().unwrap_or_default().to_owned();
    Some(DecidedTarget { api_version: None, kind: word(), name: word() })
}

/// The factor of one text in `status.decision.limits`. `None` if no version wrote the text.
pub fn limit(text: &str) -> Option<DecisionFactor> {
    let number = |rest: &str| rest.split(' ').next().and_then(|word| word.parse().ok());
    let factor = if let Some(rest) = text.strip_prefix("its workload, which has stayed at ") {
        Factor::replicas(FactorCode::WorkloadUnmoved, number(rest)?)
    } else if let Some(rest) = text.strip_prefix("maxReplicas=") {
        Factor::replicas(FactorCode::MaxReplicas, number(rest)?)
    } else if let Some(rest) = text.strip_prefix("minReplicas=") {
        Factor::replicas(FactorCode::MinReplicas, number(rest)?)
    } else if let Some(rest) = text.strip_prefix("gpu-limiter: ") {
        accelerators(rest)?
    } else if text.starts_with("growth in one pass: ") {
        Factor::new(FactorCode::GrowthPerReconcile)
    } else if text.starts_with("Scale to zero: no request for ") {
        Factor::new(FactorCode::ScaledToZero)
    } else {
        Factor::new(match text {
            "replicas that do not become ready" => FactorCode::ReplicasNotReady,
            "what other variants cannot have" => FactorCode::OtherVariantsLimited,
            "First run: bootstrapping with 1 replica for Prometheus discovery" => FactorCode::FirstReplica,
            "Scale to zero disabled: the cheapest variant keeps 1 replica" => FactorCode::LastReplica,
            _ => return None,
        })
    };
    Some(factor.stored(Stage::Limits))
}

/// The text of the GPU limiter, with or without the number it granted: `nodes offer 2 of H100`.
fn accelerators(text: &str) -> Option<Factor> {
    let after = |words: &str| text.find(words).map(|at| &text[at + words.len()..]);
    if text.starts_with("the accelerators could not be counted") {
        return Some(Factor::new(FactorCode::AcceleratorsNotCounted));
    }
    if after("nobody knows its accelerator").is_some() {
        return Some(Factor::new(FactorCode::AcceleratorUnknown));
    }
    if let Some((name, _)) = after("no node offers ").and_then(|rest| rest.split_once("; they offer ")) {
        return Some(Factor::about(FactorCode::AcceleratorNotOffered, FactorSubject::Accelerator(name.to_owned())));
    }
    let (_, name) = after("nodes offer ")?.split_once(" of ")?;
    Some(Factor::about(FactorCode::AcceleratorsShort, FactorSubject::Accelerator(name.to_owned())))
}

/// `lastUpdate.reason` without the suffix about bounds. `None` if it has none.
pub fn unclamped_reason(reason: &str) -> Option<String> {
    let mut rest = reason;
    while let Some(at) = rest.ends_with(" for bounds)").then(|| rest.rfind("(clamped from ")).flatten() {
        rest = rest[..at].trim_end();
    }
    (rest.len() < reason.len()).then(|| rest.to_owned())
}

/// Whether `ConfigurationValid` reports the fault: `ConfigMap team-a/settings, key default: …`.
pub fn reports(status: &VariantAutoscalingStatus, fault: &ConfigFault) -> bool {
    let Some(condition) = conditions::find(&status.conditions, names::CONFIG) else { return false };
    let Some(map) = &fault.config_map else { return false };
    let keys = match fault.keys.as_slice() {
        [] => "and ".to_owned(),
        [key] => format!("key {key}: "),
        keys => format!("keys {}", keys.join(" and ")),
    };
    condition.message.contains(&format!("ConfigMap {}/{}, {keys}", map.namespace, map.name))
}
