//! One snapshot of the whole fleet.
//! Comes in: what the watches know, the settings, and the way to metrics; goes out: what the plan reads, and by which marks
//! each object and workload is known to be still the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;
use steersman_plan::Finding;
use steersman_plan::preflight::Answer;
use steersman_plan::readable::Unreadable;
use steersman_plan::variant::config::{Config, ConfigSeen, concerns};
use steersman_plan::variant::saturation::tokens::capacity::Memory;
use steersman_plan::variant::{Key, Mode, ModelSeen, Seen, Settings, Silence, VariantSeen};

use super::objects::Variant;
use super::targets::{Way, Workload};
use super::{Fleet, nodes};
use crate::client::Server;
use crate::controllers::Place;
use crate::observe::prometheus::{ModelAsked, PodPlace, Prometheus};

/// Everything that one pass works on.
pub struct Look {
    pub seen: Seen,
    pub stamps: BTreeMap<Key, Stamp>,
    /// Objects whose spec cannot be read: their version, and why.
    pub unreadable: Vec<(Place, String, Unreadable)>,
    /// How long others took to answer.
    pub asked: Duration,
}

/// By which an object and its workload are the same as when they were seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Stamp {
    pub uid: String,
    pub version: String,
    pub strange: Option<Value>,
    /// Uid and replicas of the workload, where it is watched.
    pub(super) target: Option<(String, Option<i32>)>,
}

/// The way to metrics: Err says why there is none.
pub type Metering<'a> = Result<&'a Prometheus, String>;

impl Fleet {
    /// Reads only.
    pub async fn look(
        &self,
        server: &Server,
        metering: Metering<'_>,
        config: Config,
        faults: (&ConfigSeen, &[Finding]),
        settings: Settings,
        memory: Memory,
    ) -> Look {
        let mut stamps = BTreeMap::new();
        let mut unreadable = Vec::new();
        // One list for all objects of a namespace.
        let mut faulty: BTreeMap<String, Arc<[Finding]>> = BTreeMap::new();
        // Each is copied once, and there is room for just as many: they are what most of a pass's memory goes into.
        let mut variants = Vec::with_capacity(self.variants.len());
        self.each(|namespace, name, Variant { uid, version, seen, strange, .. }| match seen {
            Ok(seen) => {
                let target = self.watched(seen, |found| (facts(found), found.seen.clone()));
                let (facts, target) = target.unzip();
                let (uid, version, strange) = (uid.clone(), version.clone(), strange.clone());
                stamps.insert(seen.key.clone(), Stamp { uid, version, strange, target: facts });
                let known = faulty.entry(namespace.to_owned()).or_insert_with_key(|place| concerning(faults, place));
                let (target, config) = (Answer::Known(target), known.clone());
                variants.push(VariantSeen { target, config, ..seen.clone() });
            }
            Err(cause) => unreadable.push(((namespace.to_owned(), name.to_owned()), version.clone(), cause.clone())),
        });
        let models = models(&variants, &config);
        let began = Instant::now();
        let pods = self.places(server, &mut variants).await;
        let limited = config.thresholds("", "", Mode::Steersman).is_some_and(|thresholds| thresholds.limiter);
        let gpus = if limited {
            nodes::look(server, self.node_selector.as_deref()).await
        } else {
            Answer::Unknown("nobody has counted".to_owned())
        };
        let models = measure(metering, &models, &pods).await;
        let seen = Seen { now: Timestamp::now(), settings, config, variants, models, gpus, memory };
        Look { seen, stamps, unreadable, asked: began.elapsed() }
    }

    /// Whether the object and its workload are as they were when they were seen.
    pub fn stands(&self, seen: &VariantSeen, stamp: &Stamp) -> bool {
        let place = (seen.key.namespace.clone(), seen.key.name.clone());
        let same = self.variants.with(&place, |now| {
            let spec = now.seen.as_ref().is_ok_and(|now| now.spec == seen.spec && now.deleting == seen.deleting);
            now.uid == stamp.uid && spec
        });
        same == Some(true) && self.watched(seen, facts) == stamp.target
    }

    /// Looks at the workload, if it is of a kind that is watched and there.
    pub(super) fn watched<T>(&self, seen: &VariantSeen, look: impl FnOnce(&Workload) -> T) -> Option<T> {
        let target = seen.spec.scale_target_ref.as_ref()?;
        let mirror = match Way::to(target) {
            Way::Deployment => &self.deployments,
            Way::StatefulSet => &self.stateful_sets,
            Way::LeaderWorkerSet => &self.groups,
            Way::Scale(_) | Way::Unclear(_) => return None,
        };
        mirror.with(&(seen.key.namespace.clone(), target.name.clone()), look)
    }
}

fn facts(workload: &Workload) -> (String, Option<i32>) {
    (workload.uid.clone(), workload.seen.replicas)
}

fn concerning((config, findings): (&ConfigSeen, &[Finding]), namespace: &str) -> Arc<[Finding]> {
    findings.iter().filter(|finding| concerns(finding, config, namespace)).cloned().collect()
}

/// Each model of a namespace once, whatever number of variants it has.
fn models(variants: &[VariantSeen], config: &Config) -> Vec<ModelAsked> {
    let living = variants.iter().filter(|seen| !seen.deleting && !seen.spec.model_id.is_empty());
    let keys: BTreeSet<Key> = living.map(|seen| Key::new(&seen.key.namespace, &seen.spec.model_id)).collect();
    let asked = |key: Key| {
        let retention = config.zero(&key.namespace).retention(&key.namespace, &key.name);
        ModelAsked { key, retention }
    };
    keys.into_iter().map(asked).collect()
}

async fn measure(metering: Metering<'_>, models: &[ModelAsked], pods: &[Arc<PodPlace>]) -> BTreeMap<Key, ModelSeen> {
    let cause = match metering {
        Ok(prometheus) => {
            let look = prometheus.look(models, pods, Timestamp::now());
            // However slow Prometheus is, objects are told what is known.
            let longest = prometheus.longest();
            match tokio::time::timeout(longest, look).await {
                Ok(seen) => return seen,
                Err(_) => Silence::Failed(format!("no answer within {} s", longest.as_secs())),
            }
        }
        Err(why) => Silence::Unasked(why),
    };
    let nobody = || "nobody could be asked".to_owned();
    let silent = ModelSeen { pods: Err(cause), requests: Answer::Unknown(nobody()), queue: Answer::Unknown(nobody()) };
    models.iter().map(|model| (model.key.clone(), silent.clone())).collect()
}
