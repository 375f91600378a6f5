//! Looks up the Secrets and ConfigMaps that an object refers to. Of Secrets only the keys are kept.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, ListParams};
use serde_json::json;
use steersman_plan::llamastack::validate::{ReferenceKind, ReferencedObject, is_shared_with};
use steersman_plan::llamastack::{
    ANY_USER_ROLE, CLUSTER_CA_BUNDLE, ObservedObject, ObservedReference, ObservedSecret, ObservedTrust,
    mounted_config_maps, pod_secrets, referred,
};
use steersman_reconcile::NamespacedName;
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::cpu_bound;
use steersman_runtime::rbac::Rule;
use steersman_runtime::store::references::{self, Content, ReferenceStore};

use crate::installation::{SecretAccess, SecretRules};

/// The stores of all referenced objects.
#[derive(Clone)]
pub struct References {
    pub secrets: Arc<ReferenceStore>,
    pub config_maps: Arc<ReferenceStore>,
    pub access: SecretAccess,
}

/// Permissions for Secrets. A watch requests only metadata, but RBAC has no smaller permission than `list`. The permission for
/// ConfigMaps is among those for the children.
pub fn secret_rules() -> SecretRules {
    let rule = |verbs, why| Rule::namespaced("", "secrets", verbs, why);
    SecretRules {
        get: vec![rule(&["get"], "check whether a referenced Secret and its key exist; no value is stored")],
        watch: vec![rule(
            &["list", "watch"],
            "reconcile as soon as a referenced Secret exists; only metadata is watched, and no value is stored",
        )],
    }
}

/// The result of looking up an object's references.
pub struct ReferenceLookup {
    pub references: Vec<ObservedReference>,
    pub secrets: Vec<ObservedSecret>,
    pub trust: ObservedTrust,
    /// Whether watches report every change of them.
    pub followed: bool,
}

impl References {
    pub fn new(access: SecretAccess) -> Self {
        Self {
            secrets: Arc::new(ReferenceStore::new(references::ReferenceKind::Secret, &[])),
            config_maps: Arc::new(ReferenceStore::new(references::ReferenceKind::ConfigMap, &[CLUSTER_CA_BUNDLE])),
            access,
        }
    }

    /// Called when the object is deleted.
    pub fn forget(&self, object: &NamespacedName) {
        self.secrets.forget(object);
        self.config_maps.forget(object);
    }

    pub async fn look_up(&self, server: &Server, object: &ObservedObject) -> Result<ReferenceLookup, CallError> {
        let (referenced, mut of_pod) = cpu_bound::run(|| {
            let referenced: BTreeSet<ReferencedObject> =
                referred(object).into_iter().map(|reference| reference.named).collect();
            (referenced, pod_secrets(&object.spec))
        });
        of_pod.retain(|name, _| !referenced.contains(&secret_named(object, name)));
        let cluster = NamespacedName::new(object.namespace.clone(), CLUSTER_CA_BUNDLE);
        // Registered before the reads, so that a change in between enqueues the object again.
        let all = of_pod.keys().map(|name| secret_named(object, name)).chain(referenced.iter().cloned());
        self.refer(object, &all.collect(), &cluster);
        let bundle = object.spec.networking.as_ref().and_then(|networking| networking.tls.as_ref());
        let bundle = bundle.and_then(|tls| tls.ca_bundle.as_ref());
        let mut lookup = ReferenceLookup {
            references: Vec::new(),
            secrets: Vec::new(),
            trust: ObservedTrust::default(),
            followed: true,
        };
        for ReferencedObject { kind, namespace, name } in referenced {
            let place = NamespacedName { namespace, name };
            let secret = kind == ReferenceKind::Secret;
            if secret && self.access == SecretAccess::None {
                continue;
            }
            let found = if secret { &self.secrets } else { &self.config_maps }.get(server, &place).await?;
            lookup.followed &= found.followed;
            let NamespacedName { namespace, name } = place;
            let open = |content: &Arc<Content>| {
                namespace == object.namespace || (!secret && is_shared_with(&content.labels, &object.namespace))
            };
            let content = found.content.filter(open);
            if let Some(content) = content.as_ref().filter(|_| secret) {
                lookup.secrets.push(observed_secret(&name, Some(content)));
            }
            let content = content.map(|content| content.data.clone());
            let home =
                |given: Option<&str>| given.filter(|given| !given.is_empty()).unwrap_or(&object.namespace).to_owned();
            if !secret
                && let Some(bundle) = bundle
                && bundle.config_map_name == name
                && home(bundle.config_map_namespace.as_deref()) == namespace
            {
                lookup.trust.named.clone_from(&content);
            }
            lookup.references.push(ObservedReference {
                secret,
                namespace,
                name,
                keys: content.as_ref().map(|content| content.keys().cloned().collect()),
                content: content.filter(|_| !secret),
            });
        }
        for (name, required) in of_pod {
            let found = self.secrets.get(server, &NamespacedName::new(&object.namespace, &name)).await?;
            lookup.followed &= found.followed;
            if found.content.is_some() || required {
                lookup.secrets.push(observed_secret(&name, found.content.as_ref()));
            }
        }
        let found = self.config_maps.get(server, &cluster).await?;
        lookup.followed &= found.followed;
        lookup.trust.cluster = found.content.map(|content| content.data.clone());
        Ok(lookup)
    }

    fn refer(&self, object: &ObservedObject, referenced: &BTreeSet<ReferencedObject>, cluster: &NamespacedName) {
        let own = NamespacedName::new(object.namespace.clone(), object.name.clone());
        let of = |kind: ReferenceKind| {
            let referenced = referenced.iter().filter(move |referenced| referenced.kind == kind);
            referenced.map(|referenced| NamespacedName::new(&referenced.namespace, &referenced.name))
        };
        self.secrets.refer(&own, of(ReferenceKind::Secret).collect());
        self.config_maps.refer(&own, of(ReferenceKind::ConfigMap).chain([cluster.clone()]).collect());
    }
}

fn secret_named(object: &ObservedObject, name: &str) -> ReferencedObject {
    ReferencedObject { kind: ReferenceKind::Secret, namespace: object.namespace.clone(), name: name.to_owned() }
}

fn observed_secret(name: &str, content: Option<&Arc<Content>>) -> ObservedSecret {
    ObservedSecret {
        name: name.to_owned(),
        version: content.map(|content| content.version.clone()),
        changed: content.and_then(|content| content.changed),
    }
}

/// The ConfigMaps that pods of the object run with now.
pub async fn in_use(server: &Server, object: &ObservedObject) -> Result<BTreeSet<String>, CallError> {
    let sets: Api<ReplicaSet> = Api::namespaced(server.client.clone(), &object.namespace);
    let labels = format!("app=llama-stack,app.kubernetes.io/instance={}", object.name);
    let listed = server.call(sets.list(&ListParams::default().labels(&labels))).await?;
    Ok(listed.items.iter().filter(|set| has_pods(set)).flat_map(mounted).collect())
}

fn has_pods(set: &ReplicaSet) -> bool {
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    wanted > 0 || set.status.as_ref().is_some_and(|status| status.replicas > 0)
}

fn mounted(set: &ReplicaSet) -> BTreeSet<String> {
    mounted_config_maps(&json!(set.spec.as_ref().and_then(|spec| spec.template.as_ref())))
}

/// Only an administrator who permits Steersman to read and bind the role gets it bound: it exceeds the rights of namespace
/// users.
pub async fn any_user(server: &Server) -> Result<bool, CallError> {
    let roles: Api<ClusterRole> = Api::all(server.client.clone());
    match server.call(roles.get_opt(ANY_USER_ROLE)).await {
        Ok(found) => Ok(found.is_some()),
        Err(CallError::Answered { code: 403, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
