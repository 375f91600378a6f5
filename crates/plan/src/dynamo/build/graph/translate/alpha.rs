//! Translates an override of v1beta1 for a graph of v1alpha1.
//!
//! A v1alpha1 service describes its main container twice, in its own fields and in `extraPodSpec.mainContainer`, which
//! takes precedence. The fields of an override are first moved there in the graph, so that they are merged by the same
//! rules as in v1beta1.

use serde_json::{Value, json};
use steersman_reconcile::quantity::billionths;

use super::beta::resources;
use super::{COMMON_FIELDS, JsonObject, MAIN, MODES, PROBES, SIDECAR, renamed};

const GPU: &str = "nvidia.com/gpu";
const SWITCHED: [&str; 2] = ["gpuMemoryService", "failover"];
const METADATA: [&str; 2] = ["labels", "annotations"];

pub struct TranslatedOverride {
    pub wanted: JsonObject,
    pub graph: JsonObject,
    pub warnings: Vec<String>,
}

/// The first field of an override that graphs of v1alpha1 do not have.
pub fn field_missing_in_alpha(wanted: &JsonObject) -> Option<String> {
    let beyond = |value: &Value, place: &str, known: &[&str]| {
        let fields = value.as_object().into_iter().flatten();
        fields.map(|(name, _)| name).find(|name| !known.contains(&name.as_str())).map(|name| format!("{place}.{name}"))
    };
    let of = |component: &Value| {
        let place = format!("spec.components[{}]", component["name"].as_str().unwrap_or_default());
        let template = &component["podTemplate"];
        let switches = [SWITCHED.as_slice(), &["checkpoint"]].concat();
        (!component["frontendSidecar"].is_null())
            .then(|| format!("{place}.frontendSidecar"))
            .or_else(|| beyond(&component["experimental"], &format!("{place}.experimental"), &switches))
            .or_else(|| beyond(template, &format!("{place}.podTemplate"), &["metadata", "spec"]))
            .or_else(|| beyond(&template["metadata"], &format!("{place}.podTemplate.metadata"), &METADATA))
    };
    wanted.get("spec")?["components"].as_array()?.iter().find_map(of)
}

pub fn to_alpha(wanted: &JsonObject, graph: &JsonObject) -> Result<TranslatedOverride, String> {
    if let Some(field) = field_missing_in_alpha(wanted) {
        return Err(format!(
            "override {field} cannot be merged: this profiler generates graphs of nvidia.com/v1alpha1, which have no \
             such field; use a profiler of Dynamo 1.5 or later, or remove the field"
        ));
    }
    let mut result = TranslatedOverride { wanted: wanted.clone(), graph: graph.clone(), warnings: Vec::new() };
    result.wanted.insert("apiVersion".to_owned(), "nvidia.com/v1alpha1".into());
    let Some(Value::Object(spec)) = result.wanted.remove("spec") else { return Ok(result) };
    let mut translated = JsonObject::new();
    for (name, value) in spec {
        match name.as_str() {
            "env" => translated.insert("envs".to_owned(), value),
            "components" => translated.insert("services".to_owned(), services(&value, &mut result)?.into()),
            "topologyConstraint" => translated.insert(name, renamed(value, "clusterTopologyName", "topologyProfile")),
            _ => translated.insert(name, value),
        };
    }
    result.wanted.insert("spec".to_owned(), translated.into());
    Ok(result)
}

fn services(components: &Value, result: &mut TranslatedOverride) -> Result<JsonObject, String> {
    let mut services = JsonObject::new();
    for component in components.as_array().into_iter().flatten().filter_map(Value::as_object) {
        let name = component.get("name").and_then(Value::as_str).unwrap_or_default();
        let own =
            result.graph.get_mut("spec").and_then(|spec| spec.get_mut("services")?.get_mut(name)?.as_object_mut());
        let Some(own) = own else {
            let why = "ignored because the generated blueprint has no such component";
            result.warnings.push(format!("spec.components[{name}]: {why}"));
            continue;
        };
        if services.insert(name.to_owned(), service(name, component, own)?.into()).is_some() {
            return Err(format!("duplicate component name {name:?} in spec.components"));
        }
    }
    Ok(services)
}

fn service(name: &str, component: &JsonObject, own: &mut JsonObject) -> Result<JsonObject, String> {
    let mut service = JsonObject::new();
    for (field, value) in component {
        match field.as_str() {
            same if COMMON_FIELDS.contains(&same) => {
                service.insert(same.to_owned(), value.clone());
            }
            "type" => {
                // The old subtype must not remain with the new type.
                own.remove("subComponentType");
                let half = value.as_str().filter(|kind| ["prefill", "decode"].contains(kind));
                service.extend(half.map(|half| ("subComponentType".to_owned(), half.into())));
                service.insert("componentType".to_owned(), half.map_or_else(|| value.clone(), |_| "worker".into()));
            }
            "sharedMemorySize" => {
                own.remove("sharedMemory");
                let zero = billionths(&text(value)) == Some(0);
                let memory = if zero { json!({ "disabled": true, "size": "0" }) } else { json!({ "size": value }) };
                service.insert("sharedMemory".to_owned(), memory);
            }
            "scalingAdapter" => {
                service.insert(field.clone(), json!({ "enabled": true }));
            }
            "experimental" => {
                for (name, block) in value.as_object().into_iter().flatten() {
                    let switched = SWITCHED.contains(&name.as_str());
                    service.insert(name.clone(), if switched { enabled(block) } else { block.clone() });
                }
            }
            "podTemplate" => pod(name, value, own, &mut service)?,
            // The name and the cache, which follows; there are no other fields.
            _ => {}
        }
    }
    // The cache comes last: lifting the pod's mounts leaves it alone in the list.
    if let Some(cache) = component.get("compilationCache") {
        service.insert("volumeMounts".to_owned(), with_cache(own, cache));
    }
    Ok(service)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The mounts of a service, of which the first compilation cache is replaced.
fn with_cache(own: &JsonObject, cache: &Value) -> Value {
    let mut mounts = own.get("volumeMounts").and_then(Value::as_array).cloned().unwrap_or_default();
    let place = mounts.iter().position(is_cache).unwrap_or_else(|| {
        mounts.push(json!({ "useAsCompilationCache": true }));
        mounts.len() - 1
    });
    for (from, to) in [("pvcName", "name"), ("mountPath", "mountPoint")] {
        if !cache[from].is_null() {
            mounts[place][to] = cache[from].clone();
        }
    }
    mounts.into()
}

fn is_cache(mount: &Value) -> bool {
    mount["useAsCompilationCache"] == true
}

/// In v1beta1 the presence of the block enables it, and its mode is spelled differently.
fn enabled(block: &Value) -> Value {
    let mut block = block.clone();
    block["enabled"] = true.into();
    if let Some((alpha, _)) = MODES.iter().find(|(_, beta)| block["mode"] == *beta) {
        block["mode"] = (*alpha).into();
    }
    block
}

fn pod(name: &str, template: &Value, own: &mut JsonObject, service: &mut JsonObject) -> Result<(), String> {
    if let Some(metadata) = template.get("metadata") {
        service.insert("extraPodMetadata".to_owned(), metadata.clone());
    }
    let Some(Value::Object(spec)) = template.get("spec") else { return Ok(()) };
    let mut spec = spec.clone();
    if let Some(Value::Array(containers)) = spec.remove("containers") {
        let (main, others): (Vec<Value>, Vec<Value>) =
            containers.into_iter().partition(|container| container["name"] == MAIN);
        if own.contains_key("frontendSidecar") && others.iter().any(|other| other["name"] == SIDECAR) {
            return Err(format!(
                "override spec.components[{name}].podTemplate.spec.containers[{SIDECAR}] cannot be merged: this profiler \
                 generates graphs of nvidia.com/v1alpha1, which have it in frontendSidecar; write the override in v1alpha1"
            ));
        }
        if let Some(Value::Object(mut main)) = main.into_iter().next() {
            main.remove("name");
            lift(own, &main);
            spec.insert("mainContainer".to_owned(), main.into());
        }
        if !others.is_empty() {
            spec.insert("containers".to_owned(), others.into());
        }
    }
    service.insert("extraPodSpec".to_owned(), spec.into());
    Ok(())
}

/// Moves the fields of a service that an override is about to its main container.
fn lift(own: &mut JsonObject, wanted: &JsonObject) {
    let mut lifted = JsonObject::new();
    for field in wanted.keys() {
        match field.as_str() {
            "env" => lifted.extend(own.remove("envs").map(|envs| (field.clone(), envs))),
            "resources" => lifted.extend(own.remove("resources").map(|value| (field.clone(), resources(&value)))),
            probe if PROBES.contains(&probe) => lifted.extend(own.remove(probe).map(|found| (field.clone(), found))),
            "volumeMounts" => lifted.extend(mounts(own).map(|mounts| (field.clone(), mounts))),
            // A list of the container replaces the one Secret.
            "envFrom" => {
                own.remove("envFromSecret");
            }
            _ => {}
        }
    }
    if lifted.is_empty() {
        return;
    }
    let pod = own.entry("extraPodSpec").or_insert_with(|| json!({}));
    let main = &mut pod["mainContainer"];
    if main.is_null() {
        *main = json!({});
    }
    for (field, value) in lifted {
        below(&mut main[field.as_str()], value, &field);
    }
}

/// Removes the mounts of a service, except its cache, and returns them in the form of a container's.
fn mounts(own: &mut JsonObject) -> Option<Value> {
    let Some(Value::Array(mut found)) = own.remove("volumeMounts") else { return None };
    if let Some(place) = found.iter().position(is_cache) {
        own.insert("volumeMounts".to_owned(), json!([found.remove(place)]));
    }
    Some(found.iter().map(|mount| json!({ "name": mount["name"], "mountPath": mount["mountPoint"] })).collect())
}

/// Adds `base` where nothing is set yet.
fn below(there: &mut Value, base: Value, field: &str) {
    match (there, base) {
        (there @ Value::Null, base) => *there = base,
        (Value::Object(there), Value::Object(base)) => {
            for (name, value) in base {
                below(there.entry(name.clone()).or_insert(Value::Null), value, &name);
            }
        }
        (Value::Array(there), Value::Array(mut base)) => {
            let key = if field == "env" { "name" } else { "mountPath" };
            base.retain(|item| there.iter().all(|own| own[key] != item[key]));
            // Variables of the container come last, since they may refer to the others; its mounts come first.
            if field == "env" {
                there.splice(0..0, base)
            } else {
                there.splice(there.len().., base)
            };
        }
        _ => {}
    }
}

/// Profilers read the number of GPUs from the service, so that its resources are moved back.
pub fn restore_service_resources(graph: &mut JsonObject, before: &JsonObject) {
    let services = |graph: &JsonObject| graph.get("spec").and_then(|spec| spec["services"].as_object().cloned());
    let Some(Value::Object(now)) = graph.get_mut("spec").and_then(|spec| spec.get_mut("services")) else { return };
    for (name, service) in services(before).unwrap_or_default() {
        let Some(Value::Object(own)) = now.get_mut(&name) else { continue };
        if service["resources"].is_null() || own.contains_key("resources") {
            continue;
        }
        let main = own.get_mut("extraPodSpec").and_then(|pod| pod.get_mut("mainContainer")?.as_object_mut());
        if let Some(plain) = main.and_then(|main| main.remove("resources")) {
            own.insert("resources".to_owned(), of_service(&plain, &service["resources"]));
        }
    }
}

fn of_service(plain: &Value, before: &Value) -> Value {
    let mut found = JsonObject::new();
    for part in ["requests", "limits"] {
        let Some(amounts) = plain[part].as_object() else { continue };
        let gpu = before[part]["gpuType"].as_str().filter(|name| !name.is_empty());
        let mut service_amounts = json!({});
        for (name, amount) in amounts {
            match name.as_str() {
                "cpu" | "memory" => service_amounts[name] = text(amount).into(),
                name if name == gpu.unwrap_or(GPU) => service_amounts["gpu"] = text(amount).into(),
                name => service_amounts["custom"][name] = text(amount).into(),
            }
        }
        if let Some(gpu) = gpu.filter(|_| !service_amounts["gpu"].is_null()) {
            service_amounts["gpuType"] = gpu.into();
        }
        found.insert(part.to_owned(), service_amounts);
    }
    if plain["claims"].is_array() {
        found.insert("claims".to_owned(), plain["claims"].clone());
    }
    found.into()
}
