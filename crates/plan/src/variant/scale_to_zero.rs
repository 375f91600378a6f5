//! Scales idle models to zero, and keeps one replica of the cheapest variant of a model that may not be scaled to zero.
//! Any unknown input blocks scale to zero.

use std::collections::BTreeMap;

use serde::Serialize;
use steersman_reconcile::{Finding, Lookup, Severity};

use super::analyze::engine_args::EngineArgs;
use super::analyze::{MetricsState, missing_metrics, queue_unknown};
use super::config::duration;
use super::memory::Memory;
use super::progress::VariantState;
use super::snapshot::{DEFAULT_COST, ModelMetrics, ObservedModel, ObservedVariant, PodMetrics};
use super::trace::{DecidedBy, Explanation, Factor, FactorCode, FactorSubject, Proposal};

/// Some versions of vLLM count one block of an empty cache as used; half a block more allows for rounding.
const IDLE_BLOCKS: f64 = 1.5;

/// Used share that counts as empty if the size of the cache is unknown.
const IDLE_SHARE: f64 = 1e-3;

/// Whether a model may be scaled to zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum ScaleToZero {
    /// Scale to zero is off for the model.
    Disabled,
    /// There were requests within the retention period.
    Active,
    /// There was no request, but something else blocks scale to zero.
    Blocked(Explanation),
    /// Whether there were requests is unknown.
    Unknown(Explanation),
    Idle,
}

/// Returns whether a number was changed.
pub fn enforce(
    targets: &mut BTreeMap<String, i32>,
    costs: &BTreeMap<String, f64>,
    scale_to_zero: &ScaleToZero,
) -> bool {
    match scale_to_zero {
        ScaleToZero::Active | ScaleToZero::Blocked(_) | ScaleToZero::Unknown(_) => false,
        ScaleToZero::Idle => {
            targets.values_mut().for_each(|target| *target = 0);
            true
        }
        ScaleToZero::Disabled if targets.values().any(|target| *target > 0) => false,
        ScaleToZero::Disabled => {
            let cost = |variant: &str| costs.get(variant).copied().unwrap_or(DEFAULT_COST);
            let cheapest = targets.keys().min_by(|a, b| cost(a).total_cmp(&cost(b)).then(a.cmp(b))).cloned();
            cheapest.map(|variant| targets.insert(variant, 1)).is_some()
        }
    }
}

/// Enforces scale to zero on the numbers of all variants of a model.
pub fn apply(
    model: &ObservedModel<'_>,
    states: &[VariantState],
    scale_to_zero: &ScaleToZero,
    proposals: &mut [Proposal<'_>],
) {
    let numbers = proposals.iter().map(|proposal| (proposal.variant.key.name.clone(), proposal.replicas));
    let mut targets: BTreeMap<String, i32> = numbers.collect();
    // A variant without a free GPU is started last.
    let cost = |state: &VariantState| if state.limits().allow(1) { state.cost } else { f64::INFINITY };
    let costs = states.iter().map(|state| (state.variant.clone(), cost(state))).collect();
    // A variant that could not be observed may serve requests, so no other has to be started.
    if *scale_to_zero != ScaleToZero::Disabled || !model.is_partly_unseen {
        enforce(&mut targets, &costs, scale_to_zero);
    }
    for proposal in proposals {
        let target = targets.get(&proposal.variant.key.name).copied().filter(|target| *target != proposal.replicas);
        if let Some(target) = target {
            change(proposal, target, model, scale_to_zero);
        } else if let ScaleToZero::Unknown(why) | ScaleToZero::Blocked(why) = scale_to_zero {
            let text = format!("scale to zero blocked: {why}");
            let blocked = || why.clone().as_cause_of(FactorCode::ScaleToZeroBlocked, text);
            proposal.trace.hold.get_or_insert_with(blocked);
        }
    }
}

fn change(proposal: &mut Proposal<'_>, target: i32, model: &ObservedModel<'_>, scale_to_zero: &ScaleToZero) {
    let variant = proposal.variant;
    let is_first = variant.previous().at.is_none() && variant.current() == Some(0);
    let (code, text) = if *scale_to_zero == ScaleToZero::Idle {
        let text = format!("Scale to zero: no request for {}", duration::go(model.retention()));
        (FactorCode::ScaledToZero, text)
    } else if is_first {
        (FactorCode::FirstReplica, "First run: bootstrapping with 1 replica for Prometheus discovery".to_owned())
    } else {
        (FactorCode::LastReplica, "Scale to zero disabled: the cheapest variant keeps 1 replica".to_owned())
    };
    proposal.replicas = variant.bounds().clamp(target);
    proposal.is_decided = true;
    proposal.set_reason(text.clone());
    proposal.trace.limits.push(Explanation::new(code, text));
    proposal.trace.decided_by = DecidedBy::Limits;
}

/// Reports that `minReplicas` prevents the enabled scale to zero.
pub fn prevented(variant: &ObservedVariant, model: &ObservedModel<'_>, scale_to_zero: &ScaleToZero) -> Option<Finding> {
    (variant.spec.min_replicas > 0 && *scale_to_zero != ScaleToZero::Disabled).then(|| Finding {
        severity: Severity::Info,
        reason: "ScaleToZeroPrevented",
        message: format!(
            "Scale to zero is enabled for model {}, but spec.minReplicas={} prevents it for this variant.",
            model.name, variant.spec.min_replicas
        ),
        remedy: "Set spec.minReplicas to 0 to allow scale to zero.".to_owned(),
    })
}

pub fn evaluate(model: &ObservedModel<'_>, metrics: &MetricsState, memory: &Memory) -> ScaleToZero {
    let config = model.snapshot.config.zero(model.namespace);
    if !config.enabled(model.namespace, model.name) {
        return ScaleToZero::Disabled;
    }
    if let Some(key) = config.unknown(model.name) {
        let factor = Factor::about(FactorCode::ScaleToZeroEntryInvalid, FactorSubject::Key(key.to_owned()));
        let text = format!("entry {key} of the scale-to-zero ConfigMap cannot be decoded");
        return ScaleToZero::Unknown(Explanation::of(factor, text));
    }
    let Some(measured) = model.metrics else {
        return ScaleToZero::Unknown(Explanation::new(FactorCode::ModelNotQueried, "the model was not queried"));
    };
    match metrics {
        MetricsState::Available | MetricsState::NoReplicas => {}
        other => return ScaleToZero::Unknown(missing_metrics(other, model.name)),
    }
    let is_queued = match &measured.queue {
        Lookup::Known(queue) => queue.is_some_and(|queue| queue.requests > 0.0),
        Lookup::Unknown(why) => return ScaleToZero::Unknown(queue_unknown(why)),
    };
    let requests_unknown = |text: String| ScaleToZero::Unknown(Explanation::new(FactorCode::RequestsUnknown, text));
    match &measured.requests {
        Lookup::Unknown(why) => requests_unknown(format!("the number of requests is unknown: {why}")),
        Lookup::Known(requests) if !requests.is_finite() => {
            requests_unknown("the number of requests is not a valid number".to_owned())
        }
        Lookup::Known(requests) if *requests > 0.0 => ScaleToZero::Active,
        Lookup::Known(_) if is_queued => ScaleToZero::Blocked(Explanation::new(
            FactorCode::RequestsQueued,
            "requests are queued at the endpoint picker",
        )),
        Lookup::Known(_) => match busy_pod(model, measured, memory).or_else(|| recent_change(model)) {
            Some(why) => ScaleToZero::Blocked(why),
            None => ScaleToZero::Idle,
        },
    }
}

/// The first pod with work. Pods that are not ready count too: they may have been ready a moment ago.
fn busy_pod(model: &ObservedModel<'_>, measured: &ModelMetrics, memory: &Memory) -> Option<Explanation> {
    let mut pods: Vec<&PodMetrics> = measured.pods.iter().flatten().collect();
    pods.sort_by(|a, b| a.name.cmp(&b.name));
    pods.into_iter().find_map(|pod| {
        let name = &pod.name;
        let (code, text) = match (pod.queue, pod.kv) {
            (None, _) => (FactorCode::PodQueueUnknown, format!("the queue of pod {name} is unknown")),
            (_, None) => (FactorCode::PodKvCacheUnknown, format!("the KV cache usage of pod {name} is unknown")),
            (Some(queue), _) if queue > 0.0 => {
                (FactorCode::RequestsQueued, format!("requests are queued at pod {name}"))
            }
            (_, Some(kv)) if kv > idle_share(model, pod, memory) => {
                let used = kv * 100.0;
                (FactorCode::KvCacheInUse, format!("{used:.2} % of the KV cache of pod {name} is in use"))
            }
            _ => return None,
        };
        Some(Explanation::of(Factor::about(code, FactorSubject::Pod(name.to_string())), text))
    })
}

/// Largest used share of an idle pod's cache.
#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn idle_share(model: &ObservedModel<'_>, pod: &PodMetrics, memory: &Memory) -> f64 {
    let Some(total) = pod.total_kv.filter(|total| *total > 0) else { return IDLE_SHARE };
    let record = model.owner(pod).and_then(|owner| memory.records.get(&owner.memory_key()));
    let known = record.and_then(|record| Some(record.args.as_ref()?.block_size)).filter(|size| *size > 0);
    let block_size = known.unwrap_or_else(|| EngineArgs::default().block_size);
    IDLE_BLOCKS * block_size as f64 / total as f64
}

/// Blocks scale to zero within the retention period after the last change. A change to 0 does not count: the scale
/// target may take minutes to follow it, and counting it would cancel it.
fn recent_change(model: &ObservedModel<'_>) -> Option<Explanation> {
    let changes = model.variants.iter().filter_map(|variant| {
        let previous = variant.previous();
        match previous.at {
            Some(at) => (previous.replicas > 0).then_some(at),
            None => Some(variant.created),
        }
    });
    let is_recent = changes.max().is_some_and(|at| model.snapshot.now.duration_since(at) < model.retention());
    is_recent.then(|| {
        let text = format!("the number of replicas changed less than {} ago", duration::go(model.retention()));
        Explanation::new(FactorCode::RecentDecision, text)
    })
}
