//! Decides whether a model may be scaled to zero. Any unknown input blocks it.

use jiff::SignedDuration;
use steersman_reconcile::Lookup;

use super::MetricsState;
use super::group::{Group, queue_unknown, unknown};
use crate::variant::config::duration;
use crate::variant::factor::{Explanation, Factor, FactorCode, FactorSubject};
use crate::variant::limits::enforce::ScaleToZero;
use crate::variant::saturation::engine_args::EngineArgs;
use crate::variant::saturation::tokens::capacity::Memory;
use crate::variant::snapshot::{ModelMetrics, PodMetrics};

/// Some versions of vLLM count one block of an empty cache as used; half a block more allows for rounding.
const ONE_BLOCK: f64 = 1.5;

/// Used share that counts as empty if the size of the cache is unknown.
const EMPTY: f64 = 1e-3;

impl Group<'_> {
    pub fn retention(&self) -> SignedDuration {
        self.seen.config.zero(self.namespace).retention(self.namespace, self.model)
    }

    pub fn scale_to_zero(&self, metrics: &MetricsState, memory: &Memory) -> ScaleToZero {
        if !self.seen.config.zero(self.namespace).enabled(self.namespace, self.model) {
            return ScaleToZero::Disabled;
        }
        if let Some(key) = self.seen.config.zero(self.namespace).unknown(self.model) {
            let factor = Factor::about(FactorCode::ScaleToZeroEntryInvalid, FactorSubject::Key(key.to_owned()));
            let text = format!("entry {key} of the scale-to-zero ConfigMap cannot be decoded");
            return ScaleToZero::Unknown(Explanation::of(factor, text));
        }
        let Some(seen) = self.metrics else {
            return ScaleToZero::Unknown(Explanation::new(FactorCode::ModelNotQueried, "the model was not queried"));
        };
        match metrics {
            MetricsState::Available | MetricsState::NoReplicas => {}
            other => return ScaleToZero::Unknown(unknown(other, self.model)),
        }
        let queued = match &seen.queue {
            Lookup::Known(queue) => queue.is_some_and(|queue| queue.requests > 0.0),
            Lookup::Unknown(why) => return ScaleToZero::Unknown(queue_unknown(why)),
        };
        let requests_unknown = |text: String| ScaleToZero::Unknown(Explanation::new(FactorCode::RequestsUnknown, text));
        match &seen.requests {
            Lookup::Unknown(why) => requests_unknown(format!("the number of requests is unknown: {why}")),
            Lookup::Known(requests) if !requests.is_finite() => {
                requests_unknown("the number of requests is not a valid number".to_owned())
            }
            Lookup::Known(requests) if *requests > 0.0 => ScaleToZero::Active,
            Lookup::Known(_) if queued => ScaleToZero::Blocked(Explanation::new(
                FactorCode::RequestsQueued,
                "requests are queued at the endpoint picker",
            )),
            Lookup::Known(_) => match self.loaded(seen, memory).or_else(|| self.young()) {
                Some(why) => ScaleToZero::Blocked(why),
                None => ScaleToZero::Idle,
            },
        }
    }

    /// The first pod with work. Pods that are not ready count too: they may have been ready a moment ago.
    fn loaded(&self, seen: &ModelMetrics, memory: &Memory) -> Option<Explanation> {
        let mut pods: Vec<&PodMetrics> = seen.pods.iter().flatten().collect();
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        pods.into_iter().find_map(|pod| {
            let name = &pod.name;
            let (code, text) = match (pod.queue, pod.kv) {
                (None, _) => (FactorCode::PodQueueUnknown, format!("the queue of pod {name} is unknown")),
                (_, None) => (FactorCode::PodKvCacheUnknown, format!("the KV cache usage of pod {name} is unknown")),
                (Some(queue), _) if queue > 0.0 => {
                    (FactorCode::RequestsQueued, format!("requests are queued at pod {name}"))
                }
                (_, Some(kv)) if kv > self.empty(pod, memory) => {
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
    fn empty(&self, pod: &PodMetrics, memory: &Memory) -> f64 {
        let Some(total) = pod.total_kv.filter(|total| *total > 0) else { return EMPTY };
        let record = self.owner(pod).and_then(|owner| memory.records.get(&owner.memory_key()));
        let told = record.and_then(|record| Some(record.args.as_ref()?.block_size)).filter(|size| *size > 0);
        let block = told.unwrap_or_else(|| EngineArgs::default().block_size);
        ONE_BLOCK * block as f64 / total as f64
    }

    /// Blocks scale to zero within the retention period after the last change. A change to 0 does not count: the scale
    /// target may take minutes to follow it, and counting it would cancel it.
    fn young(&self) -> Option<Explanation> {
        let changed = self.variants.iter().filter_map(|variant| {
            let previous = variant.previous();
            let at = previous.at.filter(|_| previous.replicas > 0);
            at.or_else(|| previous.at.is_none().then_some(variant.created))
        });
        let young = changed.max().is_some_and(|at| self.seen.now.duration_since(at) < self.retention());
        young.then(|| {
            let text = format!("the number of replicas changed less than {} ago", duration::go(self.retention()));
            Explanation::new(FactorCode::RecentDecision, text)
        })
    }
}
