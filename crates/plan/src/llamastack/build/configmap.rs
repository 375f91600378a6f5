//! ConfigMaps with the server's configuration, one for each content.
//! Comes in: a configuration and the ConfigMaps that are there; goes out: the one to write, and those that must stay.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::DynamicObject;
use serde_json::{Value, json};

use super::child;
use crate::llamastack::names;
use crate::llamastack::snapshot::{ObservedConfigMap, ObservedObject, Snapshot};

/// How many configurations stay, the one in use among them, so that a look back is possible.
pub const KEPT: usize = 2;

/// The whole hash, of which the name has the beginning.
const HASH: &str = "steersman.dev/config-hash";

const DIGITS: [usize; 3] = [8, 16, 64];

/// A ConfigMap that has the content keeps its name; otherwise the name is longer where another content has the short one.
pub fn name(object: &str, hash: &str, text: &str, there: &[ObservedConfigMap]) -> String {
    if let Some(known) = there.iter().find(|known| known.config_yaml == text) {
        return known.name.clone();
    }
    let names = DIGITS.map(|digits| names::config(object, hash.get(..digits).unwrap_or(hash)));
    let free = names.iter().find(|name| !there.iter().any(|known| known.name == **name));
    free.cloned().unwrap_or_else(|| names::config(object, hash))
}

pub fn generated(object: &ObservedObject, name: &str, hash: &str, text: &str) -> DynamicObject {
    let data = json!({ "immutable": true, "data": { "config.yaml": text } });
    let mut map = child::<ConfigMap>(object, name.to_owned(), data);
    map.metadata.labels = Some(names::labels_of(&object.name, Some(names::GENERATED)));
    map.metadata.annotations = Some([(HASH.to_owned(), hash.to_owned())].into());
    map
}

/// Those besides `current` that stay, as they are. All do until the Deployment uses what it should (`wanted`: the names of
/// the ConfigMaps of ours that its pods shall mount) and somebody has looked which ones pods still run with.
pub fn kept<'a>(
    snapshot: &'a Snapshot,
    current: Option<&str>,
    wanted: &BTreeSet<String>,
) -> Vec<&'a ObservedConfigMap> {
    let others = || snapshot.config_maps.iter().filter(|map| Some(map.name.as_str()) != current);
    let Some(in_use) = snapshot.in_use.as_ref().filter(|_| followed(snapshot, wanted)) else {
        return others().collect();
    };
    let told = snapshot.object.status.as_ref().and_then(|status| status.config_generation.as_ref());
    let told = told.and_then(|told| told.config_map_name.as_deref());
    let needed = |map: &ObservedConfigMap| in_use.contains(&map.name) || told == Some(&map.name);
    let mut newest: Vec<&ObservedConfigMap> = others().collect();
    newest.sort_by(|one, other| (&other.created, &other.name).cmp(&(&one.created, &one.name)));
    let room = KEPT - usize::from(current.is_some());
    newest.into_iter().enumerate().filter(|(place, map)| *place < room || needed(map)).map(|(_, map)| map).collect()
}

/// Whether the live Deployment uses exactly the `wanted` ones of our ConfigMaps, and all of its pods are of that template:
/// an older one that starts again needs what it was made with.
pub fn followed(snapshot: &Snapshot, wanted: &BTreeSet<String>) -> bool {
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

/// As a write that changes nothing: what is not written is swept.
pub fn unchanged(object: &ObservedObject, map: &ObservedConfigMap) -> DynamicObject {
    generated(object, &map.name, &crate::llamastack::resolution::digest(&map.config_yaml), &map.config_yaml)
}
