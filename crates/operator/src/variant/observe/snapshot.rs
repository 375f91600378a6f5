//! Takes a snapshot of the fleet for one reconcile, with the versions that show later whether it is still current.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;
use steersman_plan::variant::config::{Config, ConfigSources, concerns};
use steersman_plan::variant::memory::Memory;
use steersman_plan::variant::{
    ConfigFinding, FleetSnapshot, MetricsError, ModelMetrics, ObservedVariant, Settings, has_model,
};
use steersman_reconcile::{DecodeError, Lookup, NamespacedName};
use steersman_runtime::client::Server;

use super::targets::{TargetKind, TargetRecord};
use super::variants::VariantRecord;
use super::{Fleet, nodes};
use crate::variant::prometheus::{FleetPod, ModelQuery, Prometheus};

/// The input of one reconcile.
pub struct ObservedFleet {
    pub snapshot: FleetSnapshot,
    pub versions: BTreeMap<NamespacedName, ObservedVersion>,
    /// Objects whose spec cannot be decoded, with version and error.
    pub undecodable: Vec<(NamespacedName, String, DecodeError)>,
    /// Time spent waiting for answers.
    pub waited: Duration,
}

/// Identifies the observed state of an object and its scale target.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedVersion {
    pub uid: String,
    pub version: String,
    pub unknown_status: Option<Value>,
    /// Uid and replicas of the scale target, if its kind is watched.
    pub(super) target: Option<(String, Option<i32>)>,
}

/// The error says why metrics cannot be queried.
pub type MetricsClient<'a> = Result<&'a Prometheus, String>;

impl Fleet {
    /// Reads only.
    pub async fn observe(
        &self,
        server: &Server,
        metrics_client: MetricsClient<'_>,
        config: Config,
        faults: (&ConfigSources, &[ConfigFinding]),
        settings: Settings,
        memory: Memory,
    ) -> ObservedFleet {
        let mut versions = BTreeMap::new();
        let mut undecodable = Vec::new();
        // Shared by all objects of a namespace.
        let mut namespace_findings: BTreeMap<String, Arc<[ConfigFinding]>> = BTreeMap::new();
        // Allocated once, because the variants take most of the memory of a reconcile.
        let mut variants = Vec::with_capacity(self.variants.len());
        let groups_unknown = self.groups_unknown();
        self.each(|namespace, name, VariantRecord { uid, version, variant, unknown_status, .. }| match variant {
            Ok(variant) => {
                let target = self.with_target(variant, |found| (found.facts(), found.observed.clone()));
                let (facts, target) = target.unzip();
                let (uid, version, unknown_status) = (uid.clone(), version.clone(), unknown_status.clone());
                versions.insert(variant.key.clone(), ObservedVersion { uid, version, unknown_status, target: facts });
                let known = namespace_findings
                    .entry(namespace.to_owned())
                    .or_insert_with_key(|place| findings_of(faults, place));
                let unknown = groups_unknown.as_ref().filter(|_| targets_group(variant));
                let target = unknown.map_or(Lookup::Known(target), |why| Lookup::Unknown(why.clone()));
                variants.push(ObservedVariant { target, config: known.clone(), ..variant.clone() });
            }
            Err(cause) => undecodable.push((NamespacedName::new(namespace, name), version.clone(), cause.clone())),
        });
        let models = models(&variants, &config);
        let began = Instant::now();
        let pods = self.assign_pods(server, &mut variants).await;
        let limited = config.thresholds("", "").limiter;
        let gpus = if limited {
            nodes::count_gpus(server, self.node_selector.as_deref()).await
        } else {
            Lookup::Unknown("GPUs are counted only if the limiter is on".to_owned())
        };
        let models = measure(metrics_client, &models, &pods).await;
        let defective = BTreeSet::new();
        let snapshot =
            FleetSnapshot { now: Timestamp::now(), settings, config, variants, models, gpus, memory, defective };
        ObservedFleet { snapshot, versions, undecodable, waited: began.elapsed() }
    }

    /// Whether the object still belongs to this operator, and spec and scale target are unchanged.
    pub fn is_current(&self, variant: &ObservedVariant, version: &ObservedVersion) -> bool {
        let same = self.with_owned(&variant.key, |now| {
            let spec =
                now.variant.as_ref().is_ok_and(|now| now.spec == variant.spec && now.deleting == variant.deleting);
            now.uid == version.uid && spec
        });
        same == Some(true) && self.with_target(variant, TargetRecord::facts) == version.target
    }

    /// Whether the object still exists, belongs to this operator and is not excluded.
    pub fn is_owned(&self, key: &NamespacedName) -> bool {
        self.with_owned(key, |_| ()).is_some()
    }

    pub fn with_owned<T>(&self, key: &NamespacedName, read: impl FnOnce(&VariantRecord) -> T) -> Option<T> {
        if self.is_excluded(&key.namespace) {
            return None;
        }
        self.variants.with(key, |now| self.is_ours(now).then(|| read(now)))?
    }

    /// Reads the scale target, if its kind is watched and it exists.
    pub(super) fn with_target<T>(&self, variant: &ObservedVariant, read: impl FnOnce(&TargetRecord) -> T) -> Option<T> {
        let target = variant.spec.scale_target_ref.as_ref()?;
        let store = match TargetKind::of(target) {
            TargetKind::Deployment => &self.deployments,
            TargetKind::StatefulSet => &self.stateful_sets,
            TargetKind::LeaderWorkerSet => &self.groups,
            TargetKind::Scale(_) | TargetKind::Invalid(_) => return None,
        };
        store.with(&NamespacedName::new(&variant.key.namespace, &target.name), read)
    }
}

fn targets_group(variant: &ObservedVariant) -> bool {
    variant.spec.scale_target_ref.as_ref().is_some_and(|target| TargetKind::of(target) == TargetKind::LeaderWorkerSet)
}

fn findings_of((config, findings): (&ConfigSources, &[ConfigFinding]), namespace: &str) -> Arc<[ConfigFinding]> {
    findings.iter().filter(|finding| concerns(finding, config, namespace)).cloned().collect()
}

/// Each model of a namespace once, however many variants it has.
fn models(variants: &[ObservedVariant], config: &Config) -> Vec<ModelQuery> {
    let living = variants.iter().filter(|variant| !variant.deleting && has_model(&variant.spec));
    let keys: BTreeSet<NamespacedName> =
        living.map(|variant| NamespacedName::new(&variant.key.namespace, &variant.spec.model_id)).collect();
    let query = |key: NamespacedName| {
        let retention = config.zero(&key.namespace).retention(&key.namespace, &key.name);
        ModelQuery { key, retention }
    };
    keys.into_iter().map(query).collect()
}

async fn measure(
    metrics_client: MetricsClient<'_>,
    models: &[ModelQuery],
    pods: &[Arc<FleetPod>],
) -> BTreeMap<NamespacedName, ModelMetrics> {
    let cause = match metrics_client {
        Ok(prometheus) => {
            let query = prometheus.query(models, pods, Timestamp::now());
            // The time is bounded, so that a slow Prometheus does not delay statuses without limit.
            let time_limit = prometheus.time_limit();
            match tokio::time::timeout(time_limit, query).await {
                Ok(metrics) => return metrics,
                Err(_) => MetricsError::QueryFailed(format!(
                    "the queries took longer than {} s; check whether Prometheus is overloaded",
                    time_limit.as_secs()
                )),
            }
        }
        Err(why) => MetricsError::NotConfigured(why),
    };
    let not_queried = || "Prometheus was not queried".to_owned();
    let unknown = ModelMetrics {
        pods: Err(cause),
        requests: Lookup::Unknown(not_queried()),
        queue: Lookup::Unknown(not_queried()),
    };
    models.iter().map(|model| (model.key.clone(), unknown.clone())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use steersman_plan::variant::names::{EXCLUDE_ANNOTATION, INSTANCE_LABEL, INSTANCE_VARIABLE};

    use super::super::{Options, config_maps, variants};
    use super::*;
    use crate::installation::Installation;
    use steersman_runtime::store::Scope;

    fn record(instance: &str) -> VariantRecord {
        let object = json!({ "metadata": { "namespace": "n", "name": "v", "uid": "u", "labels": { INSTANCE_LABEL: instance } },
            "spec": { "scaleTargetRef": { "kind": "Deployment", "name": "decode" }, "modelID": "m" } });
        variants::variant(&serde_json::from_value(object).unwrap())
    }

    fn namespace_record(exclude: &str) -> Option<config_maps::NamespaceRecord> {
        let namespace = json!({ "metadata": { "name": "n", "annotations": { EXCLUDE_ANNOTATION: exclude } } });
        config_maps::namespace_record(&serde_json::from_value(namespace).unwrap())
    }

    #[test]
    fn excluded_namespace_makes_snapshot_outdated() {
        let environment = BTreeMap::from([(INSTANCE_VARIABLE.to_owned(), "ours".to_owned())]);
        let options = Options { environment, ..Options::default() };
        let fleet = Fleet::new(&Installation::default(), &options, &Scope::Cluster);
        let (place, namespace) = (NamespacedName::new("n", "v"), NamespacedName::new("", "n"));
        let put = |instance: &str| drop(fleet.variants.put(place.clone(), Some(record(instance))));
        put("ours");
        let variant = record("ours").variant.unwrap();
        let version =
            ObservedVersion { uid: "u".to_owned(), version: String::new(), unknown_status: None, target: None };
        let is_current = || (fleet.is_current(&variant, &version), fleet.is_owned(&variant.key));
        assert_eq!(is_current(), (true, true));
        put("theirs");
        assert_eq!(is_current(), (false, false), "another operator acts on it");
        put("ours");
        fleet.namespaces.put(namespace.clone(), namespace_record("true"));
        assert_eq!(is_current(), (false, false), "its namespace is excluded");
        fleet.namespaces.put(namespace, namespace_record("false"));
        assert_eq!(is_current(), (true, true));
        let other = ObservedVersion { uid: "other".to_owned(), ..version.clone() };
        assert_eq!((fleet.is_current(&variant, &other), fleet.is_owned(&variant.key)), (false, true));
        fleet.variants.put(place.clone(), None);
        assert_eq!(is_current(), (false, false), "it is gone");
    }
}
