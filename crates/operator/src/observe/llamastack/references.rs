//! What an object refers to, asked for one by one: nothing of it is ours, so no watch of ours follows it.
//! Comes in: the object as the plan will see it; goes out: which Secrets and ConfigMaps are there, with their keys. Of
//! Secrets nothing else is kept.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::json;
use steersman_plan::llamastack::validate::{Kind, Named};
use steersman_plan::llamastack::{
    ANY_USER_ROLE, CLUSTER_CA_BUNDLE, ObjectSeen, ReferenceSeen, TrustSeen, mounted_config_maps, referred,
};

use crate::client::{CallError, Server};

/// On ConfigMaps that objects of other namespaces may use.
const SHARED: (&str, &str) = ("llamastack.io/watch", "true");

pub struct Looked {
    pub references: Vec<ReferenceSeen>,
    pub trust: TrustSeen,
}

pub async fn look_up(server: &Server, object: &ObjectSeen, operator: Option<&str>) -> Result<Looked, CallError> {
    let named: BTreeSet<Named> = referred(object).into_iter().map(|reference| reference.named).collect();
    let bundle = object.spec.networking.as_ref().and_then(|networking| networking.tls.as_ref());
    let bundle = bundle.and_then(|tls| tls.ca_bundle.as_ref());
    let mut looked = Looked { references: Vec::new(), trust: TrustSeen::default() };
    for Named { kind, namespace, name } in named {
        let (secret, content) = match kind {
            Kind::Secret => (true, secret_keys(server, &namespace, &name).await?),
            Kind::ConfigMap => {
                let map = config_map(server, &namespace, &name).await?;
                let open = |map: &ConfigMap| {
                    namespace == object.namespace
                        || operator == Some(namespace.as_str())
                        || map.labels().get(SHARED.0).is_some_and(|value| value == SHARED.1)
                };
                (false, map.filter(open).map(content))
            }
        };
        let place =
            |given: Option<&str>| given.filter(|given| !given.is_empty()).unwrap_or(&object.namespace).to_owned();
        if !secret
            && let Some(bundle) = bundle
            && bundle.config_map_name == name
            && place(bundle.config_map_namespace.as_deref()) == namespace
        {
            looked.trust.named.clone_from(&content);
        }
        looked.references.push(ReferenceSeen {
            secret,
            namespace,
            name,
            keys: content.as_ref().map(|content| content.keys().cloned().collect()),
            content: content.filter(|_| !secret),
        });
    }
    looked.trust.cluster = config_map(server, &object.namespace, CLUSTER_CA_BUNDLE).await?.map(content);
    Ok(looked)
}

/// The keys alone, each with nothing.
async fn secret_keys(
    server: &Server,
    namespace: &str,
    name: &str,
) -> Result<Option<BTreeMap<String, String>>, CallError> {
    let secrets: Api<Secret> = Api::namespaced(server.client.clone(), namespace);
    let found = server.call(secrets.get_opt(name)).await?;
    Ok(found.map(|secret| secret.data.unwrap_or_default().into_keys().map(|key| (key, String::new())).collect()))
}

async fn config_map(server: &Server, namespace: &str, name: &str) -> Result<Option<ConfigMap>, CallError> {
    let maps: Api<ConfigMap> = Api::namespaced(server.client.clone(), namespace);
    server.call(maps.get_opt(name)).await
}

fn content(map: ConfigMap) -> BTreeMap<String, String> {
    map.data.unwrap_or_default()
}

/// The ConfigMaps that pods of the object run with now.
pub async fn in_use(server: &Server, object: &ObjectSeen) -> Result<BTreeSet<String>, CallError> {
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

/// Whoever may not ask is not on OpenShift, or not meant to use this role.
pub async fn any_user(server: &Server) -> Result<bool, CallError> {
    let roles: Api<ClusterRole> = Api::all(server.client.clone());
    match server.call(roles.get_opt(ANY_USER_ROLE)).await {
        Ok(found) => Ok(found.is_some()),
        Err(CallError::Answered { code: 403, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
