//! Takes a snapshot of the fleet for one reconcile, with the versions that show later whether it is still current.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;
use steersman_plan::variant::config::{Config, ConfigSeen, concerns};
use steersman_plan::variant::saturation::tokens::capacity::Memory;
use steersman_plan::variant::{ConfigFinding, Mode, ModelSeen, Seen, Settings, Silence, VariantSeen};
use steersman_reconcile::{DecodeError, Lookup, NamespacedName};
use steersman_runtime::client::Server;

use super::objects::Variant;
use super::targets::{Way, Workload};
use super::{Fleet, nodes};
use crate::variant::prometheus::{ModelAsked, PodPlace, Prometheus};

/// The input of one reconcile.
pub struct Look {
    pub seen: Seen,
    pub stamps: BTreeMap<NamespacedName, Stamp>,
    /// Objects whose spec cannot be decoded, with version and error.
    pub unreadable: Vec<(NamespacedName, String, DecodeError)>,
    /// Time spent waiting for answers.
    pub asked: Duration,
}

/// Identifies the observed state of an object and its scale target.
#[derive(Clone, Debug, PartialEq)]
pub struct Stamp {
    pub uid: String,
    pub version: String,
    pub strange: Option<Value>,
    /// Uid and replicas of the scale target, if its kind is watched.
    pub(super) target: Option<(String, Option<i32>)>,
}

/// The error says why metrics cannot be queried.
pub type Metering<'a> = Result<&'a Prometheus, String>;

impl Fleet {
    /// Reads only.
    pub async fn look(
        &self,
        server: &Server,
        metering: Metering<'_>,
        config: Config,
        faults: (&ConfigSeen, &[ConfigFinding]),
        settings: Settings,
        memory: Memory,
    ) -> Look {
        let mut stamps = BTreeMap::new();
        let mut unreadable = Vec::new();
        // Shared by all objects of a namespace.
        let mut faulty: BTreeMap<String, Arc<[ConfigFinding]>> = BTreeMap::new();
        // Allocated once, because the variants take most of the memory of a reconcile.
        let mut variants = Vec::with_capacity(self.variants.len());
        let groups_unknown = self.groups_unknown();
        self.each(|namespace, name, Variant { uid, version, seen, strange, .. }| match seen {
            Ok(seen) => {
                let target = self.watched(seen, |found| (found.facts(), found.seen.clone()));
                let (facts, target) = target.unzip();
                let (uid, version, strange) = (uid.clone(), version.clone(), strange.clone());
                stamps.insert(seen.key.clone(), Stamp { uid, version, strange, target: facts });
                let known = faulty.entry(namespace.to_owned()).or_insert_with_key(|place| concerning(faults, place));
                let unknown = groups_unknown.as_ref().filter(|_| names_a_group(seen));
                let target = unknown.map_or(Lookup::Known(target), |why| Lookup::Unknown(why.clone()));
                variants.push(VariantSeen { target, config: known.clone(), ..seen.clone() });
            }
            Err(cause) => unreadable.push((NamespacedName::new(namespace, name), version.clone(), cause.clone())),
        });
        let models = models(&variants, &config);
        let began = Instant::now();
        let pods = self.places(server, &mut variants).await;
        let limited = config.thresholds("", "", Mode::Steersman).is_some_and(|thresholds| thresholds.limiter);
        let gpus = if limited {
            nodes::look(server, self.node_selector.as_deref()).await
        } else {
            Lookup::Unknown("nobody has counted".to_owned())
        };
        let models = measure(metering, &models, &pods).await;
        let defective = BTreeSet::new();
        let seen = Seen { now: Timestamp::now(), settings, config, variants, models, gpus, memory, defective };
        Look { seen, stamps, unreadable, asked: began.elapsed() }
    }

    /// Whether the object still belongs to this operator, and spec and scale target are unchanged.
    pub fn stands(&self, seen: &VariantSeen, stamp: &Stamp) -> bool {
        let same = self.acted_on(&seen.key, |now| {
            let spec = now.seen.as_ref().is_ok_and(|now| now.spec == seen.spec && now.deleting == seen.deleting);
            now.uid == stamp.uid && spec
        });
        same == Some(true) && self.watched(seen, Workload::facts) == stamp.target
    }

    /// Whether the object still exists, belongs to this operator and is not excluded.
    pub fn acts_on(&self, key: &NamespacedName) -> bool {
        self.acted_on(key, |_| ()).is_some()
    }

    pub fn acted_on<T>(&self, key: &NamespacedName, look: impl FnOnce(&Variant) -> T) -> Option<T> {
        if self.is_excluded(&key.namespace) {
            return None;
        }
        self.variants.with(key, |now| self.is_ours(now).then(|| look(now)))?
    }

    /// Reads the scale target, if its kind is watched and it exists.
    pub(super) fn watched<T>(&self, seen: &VariantSeen, look: impl FnOnce(&Workload) -> T) -> Option<T> {
        let target = seen.spec.scale_target_ref.as_ref()?;
        let store = match Way::to(target) {
            Way::Deployment => &self.deployments,
            Way::StatefulSet => &self.stateful_sets,
            Way::LeaderWorkerSet => &self.groups,
            Way::Scale(_) | Way::Unclear(_) => return None,
        };
        store.with(&NamespacedName::new(&seen.key.namespace, &target.name), look)
    }
}

fn names_a_group(seen: &VariantSeen) -> bool {
    seen.spec.scale_target_ref.as_ref().is_some_and(|target| Way::to(target) == Way::LeaderWorkerSet)
}

fn concerning((config, findings): (&ConfigSeen, &[ConfigFinding]), namespace: &str) -> Arc<[ConfigFinding]> {
    findings.iter().filter(|finding| concerns(finding, config, namespace)).cloned().collect()
}

/// Each model of a namespace once, however many variants it has.
fn models(variants: &[VariantSeen], config: &Config) -> Vec<ModelAsked> {
    let living = variants.iter().filter(|seen| !seen.deleting && !seen.spec.model_id.is_empty());
    let keys: BTreeSet<NamespacedName> =
        living.map(|seen| NamespacedName::new(&seen.key.namespace, &seen.spec.model_id)).collect();
    let asked = |key: NamespacedName| {
        let retention = config.zero(&key.namespace).retention(&key.namespace, &key.name);
        ModelAsked { key, retention }
    };
    keys.into_iter().map(asked).collect()
}

async fn measure(
    metering: Metering<'_>,
    models: &[ModelAsked],
    pods: &[Arc<PodPlace>],
) -> BTreeMap<NamespacedName, ModelSeen> {
    let cause = match metering {
        Ok(prometheus) => {
            let look = prometheus.look(models, pods, Timestamp::now());
            // The time is bounded, so that a slow Prometheus does not delay statuses without limit.
            let longest = prometheus.longest();
            match tokio::time::timeout(longest, look).await {
                Ok(seen) => return seen,
                Err(_) => Silence::Failed(format!("no answer within {} s", longest.as_secs())),
            }
        }
        Err(why) => Silence::Unasked(why),
    };
    let nobody = || "nobody could be asked".to_owned();
    let silent = ModelSeen { pods: Err(cause), requests: Lookup::Unknown(nobody()), queue: Lookup::Unknown(nobody()) };
    models.iter().map(|model| (model.key.clone(), silent.clone())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use steersman_plan::variant::names::{EXCLUDE_ANNOTATION, INSTANCE_LABEL, INSTANCE_VARIABLE};

    use super::super::{Options, maps, objects};
    use super::*;
    use crate::installation::Installation;
    use steersman_runtime::store::Scope;

    fn stored(instance: &str) -> Variant {
        let object = json!({ "metadata": { "namespace": "n", "name": "v", "uid": "u", "labels": { INSTANCE_LABEL: instance } },
            "spec": { "scaleTargetRef": { "kind": "Deployment", "name": "decode" }, "modelID": "m" } });
        objects::variant(&serde_json::from_value(object).unwrap())
    }

    fn marked(exclude: &str) -> Option<maps::Marks> {
        let namespace = json!({ "metadata": { "name": "n", "annotations": { EXCLUDE_ANNOTATION: exclude } } });
        maps::marks(&serde_json::from_value(namespace).unwrap())
    }

    #[test]
    fn excluded_namespace_makes_snapshot_outdated() {
        let environment = BTreeMap::from([(INSTANCE_VARIABLE.to_owned(), "ours".to_owned())]);
        let options = Options { environment, ..Options::default() };
        let fleet = Fleet::new(&Installation::default(), &options, &Scope::Cluster);
        let (place, namespace) = (NamespacedName::new("n", "v"), NamespacedName::new("", "n"));
        let put = |instance: &str| drop(fleet.variants.put(place.clone(), Some(stored(instance))));
        put("ours");
        let seen = stored("ours").seen.unwrap();
        let stamp = Stamp { uid: "u".to_owned(), version: String::new(), strange: None, target: None };
        let stands = || (fleet.stands(&seen, &stamp), fleet.acts_on(&seen.key));
        assert_eq!(stands(), (true, true));
        put("theirs");
        assert_eq!(stands(), (false, false), "another operator acts on it");
        put("ours");
        fleet.namespaces.put(namespace.clone(), marked("true"));
        assert_eq!(stands(), (false, false), "its namespace is excluded");
        fleet.namespaces.put(namespace, marked("false"));
        assert_eq!(stands(), (true, true));
        let other = Stamp { uid: "other".to_owned(), ..stamp.clone() };
        assert_eq!((fleet.stands(&seen, &other), fleet.acts_on(&seen.key)), (false, true));
        fleet.variants.put(place.clone(), None);
        assert_eq!(stands(), (false, false), "it is gone");
    }
}
