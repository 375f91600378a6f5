//! Watches the fleet (VariantAutoscalings, workloads, pods, settings), reports the changes that concern decisions, and takes
//! snapshots of everything for reconciles.

mod config_maps;
mod excluded;
mod nodes;
mod owners;
mod pod_assignment;
mod pods;
mod scales;
mod snapshot;
mod sync;
mod targets;
mod triggers;
mod variants;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::Resource;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use steersman_api::Family;
use steersman_plan::variant::config::main_keys;
use steersman_plan::variant::names;
use steersman_plan::variant::target::{GROUPS, LEADER_WORKER_SET};
use steersman_reconcile::NamespacedName;
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::http::Inside;
use steersman_runtime::rbac::Rule;
use steersman_runtime::resource::gvk_of;
use steersman_runtime::store::served::Optional;
use steersman_runtime::store::{Change, PAGE, RawObject, SMALL_PAGE, Scope, Store};

use self::config_maps::{ConfigMaps, NamespaceRecord};
use self::scales::Scales;
use self::targets::{TargetKind, TargetRecord};
use self::variants::VariantRecord;
use crate::installation::Installation;
use crate::resource::custom_resource;
use crate::variant::prometheus::FleetPod;

pub use snapshot::{MetricsClient, ObservedFleet, ObservedVersion};
pub use triggers::Trigger;

/// The family's field manager.
pub const MANAGER: &str = "steersman/va";

/// CRD of LeaderWorkerSets. One replica of a LeaderWorkerSet is a group of pods.
pub const LEADER_WORKER_SETS: &str = "leaderworkersets.leaderworkerset.x-k8s.io";

const LEADER_WORKER_SET_API: Optional = Optional { group: GROUPS, version: "v1", crd: LEADER_WORKER_SETS };

/// The access that the watches need.
pub fn rules() -> Vec<Rule> {
    let follow = |group, resource, why| Rule::namespaced(group, resource, &["get", "list", "watch"], why);
    let (group, variants) = (Family::Va.group(), Family::Va.plural());
    let scaled = "read the scale targets of VariantAutoscalings";
    let settings = "find namespaces with their own settings, and excluded namespaces";
    vec![
        follow(group, variants, "watch VariantAutoscalings"),
        follow("apps", "deployments", scaled),
        follow("apps", "statefulsets", scaled),
        follow(GROUPS, "leaderworkersets", scaled),
        Rule::namespaced(
            group,
            variants,
            &["patch"],
            "set the owner reference of a VariantAutoscaling that requests one",
        ),
        follow("", "pods", "assign the metrics of pods to scale targets"),
        follow("", "configmaps", "read the settings of VariantAutoscalings"),
        Rule::cluster("", "namespaces", &["list", "watch"], settings),
        Rule::cluster("", "nodes", &["list"], "count accelerators for the GPU limiter"),
    ]
}

/// The access to the settings of the fleet, for an operator that may not read the ConfigMaps of all namespaces.
pub fn settings_rules() -> Vec<Rule> {
    let why = "read the settings of VariantAutoscalings";
    vec![Rule::namespaced("", "configmaps", &["get", "list", "watch"], why)]
}

/// Options of this family. They have no `Debug`, because a variable may be a token.
#[derive(Clone, Default)]
pub struct Options {
    /// The environment variables that we read.
    pub environment: BTreeMap<String, String>,
    /// Prometheus may be queried without TLS.
    pub allow_http: bool,
    /// Routing of scrapes to pods.
    pub inside: Inside,
}

impl Options {
    /// Reads the environment of the process.
    pub fn of_process(allow_http: bool, inside: Inside) -> Self {
        let variables = main_keys().chain(names::VARIABLES);
        let environment = variables.filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?))).collect();
        Self { environment, allow_http, inside }
    }
}

/// The stores of all watches.
pub struct Fleet {
    scope: Scope,
    /// If set, only objects with this value of the instance label are ours.
    pub instance: Option<String>,
    node_selector: Option<String>,
    pub variants: Store<VariantRecord>,
    deployments: Store<TargetRecord>,
    stateful_sets: Store<TargetRecord>,
    groups: Store<TargetRecord>,
    pods: Store<Arc<FleetPod>>,
    pod_names: pods::NameCache,
    namespaces: Store<NamespaceRecord>,
    pub config_maps: ConfigMaps,
    scales: Scales,
    /// Objects whose status does not report yet that their namespace is excluded.
    pending_exclusions: Mutex<BTreeSet<NamespacedName>>,
}

impl Fleet {
    pub fn new(installation: &Installation, options: &Options, scope: &Scope) -> Self {
        let variable = |name: &str| options.environment.get(name).filter(|value| !value.is_empty()).cloned();
        Self {
            scope: scope.clone(),
            instance: variable(names::INSTANCE_VARIABLE),
            node_selector: variable(names::NODES_VARIABLE),
            variants: Store::default(),
            deployments: Store::default(),
            stateful_sets: Store::default(),
            groups: Store::default(),
            pods: Store::default(),
            pod_names: pods::NameCache::default(),
            namespaces: Store::default(),
            config_maps: ConfigMaps::new(
                installation.config_namespace().to_owned(),
                options.environment.clone(),
                options.allow_http,
            ),
            scales: Scales::default(),
            pending_exclusions: Mutex::default(),
        }
    }

    /// Follows everything for as long as it is polled.
    pub async fn follow(&self, server: &Server, report: impl Fn(Trigger)) {
        let all = || watcher::Config::default().page_size(SMALL_PAGE);
        let api = |kind: &GroupVersionKind| self.scope.api::<RawObject>(server, &ApiResource::from_gvk(kind));
        let (variants, deployments, sets) =
            (custom_resource(Family::Va).gvk(), gvk_of::<Deployment>(), gvk_of::<StatefulSet>());
        let pods = gvk_of::<Pod>();
        let variant_api = self.scope.api(server, &variant_resource());
        let objects = self.variants.follow(
            variant_api,
            &variants.kind,
            all(),
            |object| Some(variants::variant(object)),
            |change| self.variant_changed(&change).into_iter().for_each(&report),
        );
        let scaled = |kind: TargetKind| {
            let report = &report;
            move |change: Change<TargetRecord>| self.target_changed(&kind, &change).into_iter().for_each(report)
        };
        let workload = targets::raw_workload;
        tokio::join!(
            objects,
            self.deployments.follow(
                api(&deployments),
                &deployments.kind,
                all(),
                workload,
                scaled(TargetKind::Deployment)
            ),
            self.stateful_sets.follow(api(&sets), &sets.kind, all(), workload, scaled(TargetKind::StatefulSet)),
            self.follow_groups(server, scaled(TargetKind::LeaderWorkerSet)),
            self.pods.follow(
                api(&pods),
                &pods.kind,
                all(),
                |object| pods::pod(&object.parse()?, &self.pod_names),
                |_| ()
            ),
            self.follow_namespaces(server, &report),
            self.follow_config_maps(server, &report),
        );
    }

    pub async fn fill(&self, server: &Server) -> Result<(), CallError> {
        let all = ListParams::default();
        let api = |kind: &GroupVersionKind| self.scope.api(server, &ApiResource::from_gvk(kind));
        let variants = self.scope.api(server, &variant_resource());
        self.variants.fill(server, variants, &all, |object| Some(variants::variant(object))).await?;
        self.deployments.fill(server, api(&gvk_of::<Deployment>()), &all, targets::workload).await?;
        self.stateful_sets.fill(server, api(&gvk_of::<StatefulSet>()), &all, targets::workload).await?;
        let groups = self.scope.api(server, &groups());
        match self.groups.fill(server, groups, &all, targets::group).await {
            Err(CallError::Answered { code: 404, .. }) => drop(self.groups.not_served()),
            Err(CallError::Answered { code: 403, message, .. }) => self.groups.forbidden(message),
            Err(error) => self.groups.failed(error.to_string()),
            Ok(()) => {}
        }
        let pod = |object: &DynamicObject| pods::pod(object, &self.pod_names);
        self.pods.fill(server, api(&gvk_of::<Pod>()), &all, pod).await?;
        match &self.scope {
            Scope::Namespace(_) => drop(self.namespaces.clear()),
            Scope::Cluster => {
                self.namespaces.fill(server, namespaces(server), &all, config_maps::namespace_record).await?
            }
        }
        let map = ApiResource::from_gvk(&gvk_of::<ConfigMap>());
        let own = Api::namespaced_with(server.client.clone(), &self.config_maps.namespace, &map);
        self.config_maps.own.fill(server, own, &all, |object| self.config_maps.own_map(object)).await?;
        for (name, store) in &self.config_maps.local {
            let named = ListParams::default().fields(&format!("metadata.name={name}"));
            store
                .fill(server, self.scope.api(server, &map), &named, |object| self.config_maps.local_map(object))
                .await?;
        }
        self.collect_excluded(None);
        Ok(())
    }

    async fn follow_groups(&self, server: &Server, changed: impl Fn(Change<TargetRecord>)) {
        let resource = groups();
        let follow = || {
            let api: Api<RawObject> = self.scope.api(server, &resource);
            let config = watcher::Config::default().page_size(SMALL_PAGE);
            self.groups.follow(api, LEADER_WORKER_SET, config, targets::raw_group, &changed)
        };
        self.groups.follow_while_served(server, &LEADER_WORKER_SET_API, follow, &changed).await;
    }

    /// Labels and annotations of a namespace do not matter to an operator that is restricted to it.
    async fn follow_namespaces(&self, server: &Server, report: &impl Fn(Trigger)) {
        match self.scope {
            Scope::Namespace(_) => drop(self.namespaces.clear()),
            Scope::Cluster => {
                let changed = |change: Change<NamespaceRecord>| {
                    self.namespace_changed(&change);
                    report(Trigger::NamespaceChanged(change.object.name));
                };
                let (api, kind) = (namespaces(server), Namespace::kind(&()));
                let all = watcher::Config::default().page_size(PAGE);
                self.namespaces.follow(api, &kind, all, config_maps::namespace_record, changed).await;
            }
        }
    }

    async fn follow_config_maps(&self, server: &Server, report: &impl Fn(Trigger)) {
        let resource = ApiResource::from_gvk(&gvk_of::<ConfigMap>());
        let kind = ConfigMap::kind(&());
        let api = Api::namespaced_with(server.client.clone(), &self.config_maps.namespace, &resource);
        let record = |object: &DynamicObject| self.config_maps.own_map(object);
        let config = watcher::Config::default().page_size(SMALL_PAGE);
        let own = self
            .config_maps
            .own
            .follow(api, &kind, config, record, |change| report(Trigger::ConfigMapChanged(change.object)));
        let local = self.config_maps.local.iter().map(|(name, store)| {
            let config = watcher::Config::default().fields(&format!("metadata.name={name}")).page_size(SMALL_PAGE);
            let record = |object: &DynamicObject| self.config_maps.local_map(object);
            let changed = |change: Change<config_maps::ConfigMapRecord>| {
                if self.local().contains(&change.object.namespace) {
                    report(Trigger::ConfigMapChanged(change.object));
                }
            };
            store.follow(self.scope.api(server, &resource), &kind, config, record, changed)
        });
        tokio::join!(own, futures::future::join_all(local));
    }

    fn is_ours(&self, variant: &VariantRecord) -> bool {
        self.instance.is_none() || variant.instance == self.instance
    }

    pub fn is_excluded(&self, namespace: &str) -> bool {
        self.namespaces.get(&NamespacedName::new("", namespace)).is_some_and(|record| record.excluded)
    }

    /// Reads the objects that we act on, in the order of namespace and name, without a copy.
    pub fn each(&self, mut read: impl FnMut(&str, &str, &VariantRecord)) {
        let excluded = self.excluded();
        self.variants.each(|namespace, name, variant| {
            if self.is_ours(variant) && !excluded.contains(namespace) {
                read(namespace, name, variant);
            }
        });
    }

    #[cfg(test)]
    pub fn put_variant(&self, object: &serde_json::Value) {
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}"));
        self.variants.receive(watcher::Event::Apply(object), &|object| Some(variants::variant(object)));
    }

    #[cfg(test)]
    pub fn put_namespace(&self, object: &serde_json::Value) {
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}"));
        self.namespaces.receive(watcher::Event::Apply(object), &config_maps::namespace_record);
    }

    /// Namespaces whose own ConfigMaps are read.
    pub fn local(&self) -> BTreeSet<String> {
        let mut local = BTreeSet::new();
        self.each(|namespace, _, _| {
            if !local.contains(namespace) {
                local.insert(namespace.to_owned());
            }
        });
        self.namespaces.each(|_, name, record| {
            if record.enabled && !record.excluded {
                local.insert(name.to_owned());
            }
        });
        if let Scope::Namespace(name) = &self.scope {
            local.insert(name.clone());
        }
        local
    }
}

pub fn variant_resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&custom_resource(Family::Va).gvk(), Family::Va.plural())
}

fn groups() -> ApiResource {
    let Optional { group, version, .. } = LEADER_WORKER_SET_API;
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, LEADER_WORKER_SET), "leaderworkersets")
}

fn namespaces(server: &Server) -> Api<DynamicObject> {
    Api::all_with(server.client.clone(), &ApiResource::from_gvk(&gvk_of::<Namespace>()))
}
