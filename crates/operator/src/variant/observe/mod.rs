//! Watches the fleet: objects, scale targets, pods and settings.

mod excluded;
mod look;
mod maps;
mod news;
mod nodes;
mod objects;
mod owners;
mod places;
mod pods;
mod scales;
mod sync;
mod targets;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::Resource;
#[cfg(test)]
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use steersman_api::Family;
use steersman_plan::variant::config::main_keys;
use steersman_plan::variant::names;
use steersman_plan::variant::target::{GROUPS, LEADER_WORKER_SET};
use steersman_reconcile::NamespacedName;
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::rbac::Rule;
use steersman_runtime::resource::gvk_of;
use steersman_runtime::store::Scope;
use steersman_runtime::store::served::{self, Optional};
use tokio::sync::watch;

use self::maps::{Maps, Marks};
use self::objects::Variant;
use self::scales::Scales;
use self::targets::{Way, Workload};
use crate::installation::Installation;
use crate::resource::custom_resource;
use crate::variant::prometheus::PodPlace;
use steersman_runtime::store::{Change, Store};

pub use look::{Look, Metering, Stamp};
pub use news::News;

/// The family's field manager.
pub const MANAGER: &str = "steersman/va";

/// Namespace of the Go operator's ConfigMaps.
const FORMER: &str = "workload-variant-autoscaler-system";

/// CRD of LeaderWorkerSets, whose replicas are groups of pods.
pub const LEADER_WORKER_SETS: &str = "leaderworkersets.leaderworkerset.x-k8s.io";

const LEADER_WORKER_SET_API: Optional = Optional { group: GROUPS, version: "v1", crd: LEADER_WORKER_SETS };

/// Permissions of the watches.
pub fn rules() -> Vec<Rule> {
    let follow = |group, resource, why| Rule {
        group,
        resource,
        names: vec![],
        verbs: &["get", "list", "watch"],
        namespaced: true,
        why,
    };
    let scaled = "see the workloads that VariantAutoscalings name";
    vec![
        follow(Family::Va.group(), Family::Va.plural(), "follow the objects that it acts on"),
        follow("apps", "deployments", scaled),
        follow("apps", "statefulsets", scaled),
        follow(GROUPS, "leaderworkersets", scaled),
        Rule {
            group: Family::Va.group(),
            resource: Family::Va.plural(),
            names: vec![],
            verbs: &["patch"],
            namespaced: true,
            why: "tie a VariantAutoscaling that asks for it to its workload",
        },
        follow("", "pods", "know which pods' metrics are whose"),
        follow("", "configmaps", "read the settings of VariantAutoscalings"),
        Rule {
            group: "",
            resource: "namespaces",
            names: vec![],
            verbs: &["list", "watch"],
            namespaced: false,
            why: "see which namespaces have settings of their own, and which are left alone",
        },
        Rule {
            group: "",
            resource: "nodes",
            names: vec![],
            verbs: &["list"],
            namespaced: false,
            why: "count the accelerators that replicas could run on",
        },
    ]
}

/// Settings of the process that only this family uses.
#[derive(Clone, Default)]
pub struct Options {
    /// The environment variables that are read.
    pub environment: BTreeMap<String, String>,
    /// Prometheus may be queried without TLS.
    pub allow_http: bool,
}

impl Options {
    /// Reads the environment of the process. One variable may be a token, so this has no `Debug`.
    pub fn of_process(allow_http: bool) -> Self {
        let counted = main_keys().chain(names::VARIABLES);
        let environment = counted.filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?))).collect();
        Self { environment, allow_http }
    }
}

pub struct Fleet {
    scope: Scope,
    /// If set, only objects with this value of the instance label are ours.
    pub instance: Option<String>,
    node_selector: Option<String>,
    pub variants: Store<Variant>,
    deployments: Store<Workload>,
    stateful_sets: Store<Workload>,
    groups: Store<Workload>,
    pods: Store<Arc<PodPlace>>,
    owners: pods::Owners,
    namespaces: Store<Marks>,
    pub maps: Maps,
    scales: Scales,
    /// Objects whose status does not report yet that their namespace is excluded.
    untold: Mutex<BTreeSet<NamespacedName>>,
}

impl Fleet {
    pub fn new(told: &Installation, options: &Options, scope: &Scope) -> Self {
        let given = |name: &str| options.environment.get(name).filter(|value| !value.is_empty()).cloned();
        Self {
            scope: scope.clone(),
            instance: given(names::INSTANCE_VARIABLE),
            node_selector: given(names::NODES_VARIABLE),
            variants: Store::default(),
            deployments: Store::default(),
            stateful_sets: Store::default(),
            groups: Store::default(),
            pods: Store::default(),
            owners: pods::Owners::default(),
            namespaces: Store::default(),
            maps: Maps::new(told.config_namespaces(FORMER), options.environment.clone(), options.allow_http),
            scales: Scales::default(),
            untold: Mutex::default(),
        }
    }

    /// Runs all watches as long as it is polled.
    pub async fn follow(&self, server: &Server, tell: impl Fn(News)) {
        let all = watcher::Config::default;
        let api = |kind: &GroupVersionKind| self.scope.api(server, &ApiResource::from_gvk(kind));
        let (variants, deployments, sets) =
            (custom_resource(Family::Va).gvk(), gvk_of::<Deployment>(), gvk_of::<StatefulSet>());
        let pods = gvk_of::<Pod>();
        let variant_api = self.scope.api(server, &variant_resource());
        let objects = self.variants.follow(
            variant_api,
            &variants.kind,
            all(),
            |object| Some(objects::variant(object)),
            |change| self.variant_changed(&change).into_iter().for_each(&tell),
        );
        let scaled = |way: Way| {
            let tell = &tell;
            move |change: Change<Workload>| self.target_changed(&way, &change).into_iter().for_each(tell)
        };
        let workload = targets::workload;
        tokio::join!(
            objects,
            self.deployments.follow(api(&deployments), &deployments.kind, all(), workload, scaled(Way::Deployment)),
            self.stateful_sets.follow(api(&sets), &sets.kind, all(), workload, scaled(Way::StatefulSet)),
            self.follow_groups(server, scaled(Way::LeaderWorkerSet)),
            self.pods.follow(api(&pods), &pods.kind, all(), |object| pods::pod(object, &self.owners), |_| ()),
            self.follow_namespaces(server, &tell),
            self.follow_maps(server, &tell),
        );
    }

    pub async fn fill(&self, server: &Server) -> Result<(), CallError> {
        let all = ListParams::default();
        let api = |kind: &GroupVersionKind| self.scope.api(server, &ApiResource::from_gvk(kind));
        let variants = self.scope.api(server, &variant_resource());
        self.variants.fill(server, variants, &all, |object| Some(objects::variant(object))).await?;
        self.deployments.fill(server, api(&gvk_of::<Deployment>()), &all, targets::workload).await?;
        self.stateful_sets.fill(server, api(&gvk_of::<StatefulSet>()), &all, targets::workload).await?;
        let groups = self.scope.api(server, &groups());
        match self.groups.fill(server, groups, &all, targets::group).await {
            Err(CallError::Answered { code: 404, .. }) => drop(self.groups.clear()),
            Err(CallError::Answered { code: 403, message, .. }) => self.groups.forbidden(message),
            Err(error) => self.groups.failed(error.to_string()),
            Ok(()) => {}
        }
        let pod = |object: &DynamicObject| pods::pod(object, &self.owners);
        self.pods.fill(server, api(&gvk_of::<Pod>()), &all, pod).await?;
        match &self.scope {
            Scope::Namespace(_) => drop(self.namespaces.clear()),
            Scope::Cluster => self.namespaces.fill(server, namespaces(server), &all, maps::marks).await?,
        }
        let map = ApiResource::from_gvk(&gvk_of::<ConfigMap>());
        for (namespace, store) in &self.maps.own {
            let api = Api::namespaced_with(server.client.clone(), namespace, &map);
            store.fill(server, api, &all, |object| self.maps.own_map(object)).await?;
        }
        for (name, store) in &self.maps.local {
            let named = ListParams::default().fields(&format!("metadata.name={name}"));
            store.fill(server, self.scope.api(server, &map), &named, |object| self.maps.local_map(object)).await?;
        }
        self.note_excluded(None);
        Ok(())
    }

    /// Until then there are none.
    async fn follow_groups(&self, server: &Server, changed: impl Fn(Change<Workload>)) {
        let (serves, mut served) = watch::channel(None);
        let discover = served::follow(server, &LEADER_WORKER_SET_API, |is| {
            serves.send_replace(Some(is));
        });
        let resource = groups();
        let watch = async {
            loop {
                let is = *served.borrow_and_update();
                if is == Some(false) {
                    self.groups.clear().into_iter().for_each(&changed);
                }
                let follow = async {
                    if is == Some(true) {
                        self.groups.relist();
                        let api = self.scope.api(server, &resource);
                        let config = watcher::Config::default();
                        self.groups.follow(api, LEADER_WORKER_SET, config, targets::group, &changed).await;
                    }
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    () = follow => {}
                    changed = served.changed() => if changed.is_err() { return },
                }
            }
        };
        tokio::join!(discover, watch);
    }

    /// Annotations of the namespace are ignored if the operator is restricted to it.
    async fn follow_namespaces(&self, server: &Server, tell: &impl Fn(News)) {
        match self.scope {
            Scope::Namespace(_) => drop(self.namespaces.clear()),
            Scope::Cluster => {
                let told = |change: Change<Marks>| {
                    self.marks_changed(&change);
                    tell(News::Namespace(change.object.name));
                };
                let kind = Namespace::kind(&());
                self.namespaces.follow(namespaces(server), &kind, watcher::Config::default(), maps::marks, told).await;
            }
        }
    }

    async fn follow_maps(&self, server: &Server, tell: &impl Fn(News)) {
        let resource = ApiResource::from_gvk(&gvk_of::<ConfigMap>());
        let kind = ConfigMap::kind(&());
        let own = self.maps.own.iter().map(|(namespace, store)| {
            let api: Api<DynamicObject> = Api::namespaced_with(server.client.clone(), namespace, &resource);
            let record = |object: &DynamicObject| self.maps.own_map(object);
            store.follow(api, &kind, watcher::Config::default(), record, |change| tell(News::Map(change.object)))
        });
        let local = self.maps.local.iter().map(|(name, store)| {
            let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
            let record = |object: &DynamicObject| self.maps.local_map(object);
            let changed = |change: Change<maps::Map>| {
                if self.local().contains(&change.object.namespace) {
                    tell(News::Map(change.object));
                }
            };
            store.follow(self.scope.api(server, &resource), &kind, config, record, changed)
        });
        tokio::join!(futures::future::join_all(own), futures::future::join_all(local));
    }

    fn is_ours(&self, variant: &Variant) -> bool {
        self.instance.is_none() || variant.instance == self.instance
    }

    pub fn is_excluded(&self, namespace: &str) -> bool {
        self.namespaces.get(&NamespacedName::new("", namespace)).is_some_and(|marks| marks.excluded)
    }

    /// Visits the objects of this operator, ordered by namespace and name, without copying them.
    pub fn each(&self, mut look: impl FnMut(&str, &str, &Variant)) {
        let excluded = self.excluded();
        self.variants.each(|namespace, name, variant| {
            if self.is_ours(variant) && !excluded.contains(namespace) {
                look(namespace, name, variant);
            }
        });
    }

    #[cfg(test)]
    pub fn put_variant(&self, object: &serde_json::Value) {
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}"));
        let name = NamespacedName::new(object.namespace().unwrap_or_default(), object.name_any());
        self.variants.put(name, Some(objects::variant(&object)));
    }

    #[cfg(test)]
    pub fn put_namespace(&self, object: &serde_json::Value) {
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}"));
        self.namespaces.put(NamespacedName::new("", object.name_any()), maps::marks(&object));
    }

    /// Namespaces whose own ConfigMaps apply.
    pub fn local(&self) -> BTreeSet<String> {
        let mut local = BTreeSet::new();
        self.each(|namespace, _, _| {
            if !local.contains(namespace) {
                local.insert(namespace.to_owned());
            }
        });
        self.namespaces.each(|_, name, marks| {
            if marks.enabled && !marks.excluded {
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
