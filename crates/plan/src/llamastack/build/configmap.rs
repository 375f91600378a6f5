//! ConfigMaps with generated configurations, one for each content.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::DynamicObject;
use serde_json::{Value, json};

use super::labelled_child;
use crate::content_hash;
use crate::llamastack::names;
use crate::llamastack::snapshot::{ObservedConfigMap, ObservedObject, Snapshot};

/// Number of configurations to keep, including the one in use, so that the previous one can be inspected.
pub const RETAINED: usize = 2;

/// Annotation with the whole hash; the name has its first digits.
const HASH_ANNOTATION: &str = "steersman.dev/config-hash";

const HASH_DIGITS: [usize; 3] = [8, 16, 64];

/// Reuses the ConfigMap with this content. Otherwise a name that another content has is made longer.
pub fn name(object: &str, hash: &str, text: &str, existing: &[ObservedConfigMap]) -> String {
    if let Some(known) = existing.iter().find(|known| known.config_yaml == text) {
        return known.name.clone();
    }
    let names = HASH_DIGITS.map(|digits| names::config(object, hash.get(..digits).unwrap_or(hash)));
    let free = names.iter().find(|name| !existing.iter().any(|known| known.name == **name));
    free.cloned().unwrap_or_else(|| names::config(object, hash))
}

pub fn generated(object: &ObservedObject, name: &str, hash: &str, text: &str) -> DynamicObject {
    let data = json!({ "immutable": true, "data": { "config.yaml": text } });
    let mut map = labelled_child::<ConfigMap>(object, name.to_owned(), Some(names::GENERATED), data);
    map.metadata.annotations = Some([(HASH_ANNOTATION.to_owned(), hash.to_owned())].into());
    map
}

/// The ConfigMaps to keep besides `current`. All stay until the Deployment mounts exactly `wanted` and the ConfigMaps
/// in use by ReplicaSets are known.
pub fn retained<'a>(
    snapshot: &'a Snapshot,
    current: Option<&str>,
    wanted: &BTreeSet<String>,
) -> Vec<&'a ObservedConfigMap> {
    let others = || snapshot.config_maps.iter().filter(|map| Some(map.name.as_str()) != current);
    let Some(in_use) = snapshot.in_use.as_ref().filter(|_| is_rolled_out(snapshot, wanted)) else {
        return others().collect();
    };
    let generation = snapshot.object.status.as_ref().and_then(|status| status.config_generation.as_ref());
    let reported = generation.and_then(|generation| generation.config_map_name.as_deref());
    let needed = |map: &ObservedConfigMap| in_use.contains(&map.name) || reported == Some(&map.name);
    let mut newest: Vec<&ObservedConfigMap> = others().collect();
    newest.sort_by(|one, other| (&other.created, &other.name).cmp(&(&one.created, &one.name)));
    let room = RETAINED - usize::from(current.is_some());
    newest.into_iter().enumerate().filter(|(place, map)| *place < room || needed(map)).map(|(_, map)| map).collect()
}

/// Whether the live Deployment mounts exactly the `wanted` ConfigMaps of ours and all pods are of that template. A pod
/// of an older template that restarts needs its old ConfigMap.
pub fn is_rolled_out(snapshot: &Snapshot, wanted: &BTreeSet<String>) -> bool {
    let Some(live) = &snapshot.deployment else { return false };
    let ours = |name: &String| {
        wanted.contains(name)
            || *name == names::ca_bundle(&snapshot.object.name)
            || snapshot.config_maps.iter().any(|map| map.name == *name)
    };
    let used: BTreeSet<String> = mounted(&live.template).into_iter().filter(ours).collect();
    let rolled_out = live.observed_generation >= live.generation && live.updated >= live.replicas.unwrap_or(1);
    rolled_out && used == *wanted
}

/// Names of the ConfigMaps that pods of this template mount.
pub fn mounted(template: &Value) -> BTreeSet<String> {
    let volumes = template.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten();
    volumes.filter_map(|volume| volume.pointer("/configMap/name")?.as_str().map(ToOwned::to_owned)).collect()
}

/// Writes the ConfigMap unchanged, because prune deletes what the plan does not write.
pub fn unchanged(object: &ObservedObject, map: &ObservedConfigMap) -> DynamicObject {
    generated(object, &map.name, &content_hash::hex(&map.config_yaml), &map.config_yaml)
}
