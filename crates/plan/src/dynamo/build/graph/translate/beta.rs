//! Translates an override of v1alpha1 for a graph of v1beta1. Fields that v1beta1 lacks become warnings.

use serde_json::{Value, json};

use super::{COMMON_FIELDS, JsonObject, MAIN, MODES, PROBES, SIDECAR, TranslatedOverride, renamed};
use crate::dynamo::build::graph::merge::{APPEND, ARGUMENTS_REPLACED};

pub fn to_beta(wanted: &JsonObject, graph: &JsonObject) -> TranslatedOverride {
    let mut result = TranslatedOverride { wanted: wanted.clone(), graph: graph.clone(), warnings: Vec::new() };
    result.wanted.insert("apiVersion".to_owned(), "nvidia.com/v1beta1".into());
    let Some(Value::Object(spec)) = result.wanted.remove("spec") else { return result };
    let warnings = &mut result.warnings;
    let mut translated = JsonObject::new();
    for (name, value) in spec {
        match name.as_str() {
            "envs" => translated.insert("env".to_owned(), value),
            "services" => {
                disable(&value, &mut result.graph);
                translated.insert("components".to_owned(), components(&value, graph, warnings))
            }
            "topologyConstraint" => translated.insert(name, renamed(value, "topologyProfile", "clusterTopologyName")),
            "pvcs" => {
                warnings.push(none(&format!("spec.{name}")));
                None
            }
            _ => translated.insert(name, value),
        };
    }
    result.wanted.insert("spec".to_owned(), translated.into());
    result
}

/// Fields of a service with a switch. v1beta1 has the first in the component, the others in its `experimental`; their
/// presence enables them.
const SWITCHED: [&str; 3] = ["scalingAdapter", "gpuMemoryService", "failover"];

/// Removes from the graph what a service disables.
fn disable(services: &Value, graph: &mut JsonObject) {
    let components = graph.get_mut("spec").and_then(|spec| spec.get_mut("components")?.as_array_mut());
    for component in components.into_iter().flatten() {
        let Some(service) = component["name"].as_str().and_then(|name| services.get(name)).cloned() else { continue };
        for field in SWITCHED.iter().filter(|field| service[**field]["enabled"] == false) {
            let place = if *field == SWITCHED[0] { Some(&mut *component) } else { component.get_mut("experimental") };
            if let Some(Value::Object(fields)) = place {
                fields.remove(*field);
            }
        }
    }
}

fn none(path: &str) -> String {
    format!("{path}: ignored because v1beta1, in which the graph is generated, has no such field")
}

fn components(services: &Value, graph: &JsonObject, warnings: &mut Vec<String>) -> Value {
    let services = services.as_object().into_iter().flatten();
    let found = services.filter_map(|(name, service)| {
        let mut component = component(name, service.as_object()?, warnings);
        if !ARGUMENTS_REPLACED.contains(&name.as_str()) && has_arguments(graph, name) {
            append_arguments(&mut component);
        }
        Some(component)
    });
    found.collect()
}

fn component(name: &str, service: &JsonObject, warnings: &mut Vec<String>) -> Value {
    let mut component = json!({ "name": name });
    let mut pod = Pod::default();
    for (field, value) in service {
        match field.as_str() {
            same if COMMON_FIELDS.contains(&same) => component[same] = value.clone(),
            "componentType" | "subComponentType" => {
                if let Some(kind) = kind(service) {
                    component["type"] = kind.into();
                }
            }
            "sharedMemory" if value["disabled"] == true => component["sharedMemorySize"] = "0".into(),
            "sharedMemory" if value["size"].is_string() => component["sharedMemorySize"] = value["size"].clone(),
            "scalingAdapter" if value["enabled"] == true => component["scalingAdapter"] = json!({}),
            "checkpoint" => component["experimental"]["checkpoint"] = value.clone(),
            "gpuMemoryService" | "failover" if value["enabled"] == true => {
                component["experimental"][field.as_str()] = enabled(value);
            }
            // Disabled: removed from the graph.
            switched if SWITCHED.contains(&switched) && value["enabled"] == false => {}
            "volumeMounts" => pod.mounts(value, &mut component),
            "extraPodMetadata" => pod.metadata = Some(value.clone()),
            "frontendSidecar" if value.is_object() => {
                component["frontendSidecar"] = SIDECAR.into();
                pod.sidecar = Some(sidecar(value));
            }
            "envs" => pod.dedicated["env"] = value.clone(),
            "envFromSecret" => pod.dedicated["envFrom"] = json!([{ "secretRef": { "name": value } }]),
            "resources" => pod.dedicated["resources"] = resources(value),
            probe if PROBES.contains(&probe) => pod.dedicated[probe] = value.clone(),
            "extraPodSpec" => {}
            _ => warnings.push(none(&format!("spec.services[{name}].{field}"))),
        }
    }
    if let Some(template) = pod.template(service.get("extraPodSpec").and_then(Value::as_object)) {
        component["podTemplate"] = template;
    }
    component
}

fn kind(service: &JsonObject) -> Option<String> {
    let text = |name: &str| service.get(name).and_then(Value::as_str);
    match (text("componentType"), text("subComponentType")) {
        (Some("worker") | None, Some(sub @ ("prefill" | "decode"))) => Some(sub.to_owned()),
        (Some(kind), _) => Some(kind.to_owned()),
        (None, _) => None,
    }
}

/// The presence of the block enables it, and its mode is spelled differently.
fn enabled(value: &Value) -> Value {
    let mut block = value.clone();
    if let Value::Object(fields) = &mut block {
        fields.remove("enabled");
        if let Some((_, beta)) = MODES.iter().find(|(alpha, _)| fields.get("mode").is_some_and(|mode| mode == alpha)) {
            fields.insert("mode".to_owned(), (*beta).into());
        }
    }
    block
}

pub(super) fn resources(value: &Value) -> Value {
    let mut found = JsonObject::new();
    for part in ["requests", "limits"] {
        let Some(amounts) = value[part].as_object() else { continue };
        let gpu = amounts.get("gpuType").and_then(Value::as_str).filter(|name| !name.is_empty());
        let mut plain: JsonObject = amounts.get("custom").and_then(Value::as_object).cloned().unwrap_or_default();
        for (name, amount) in amounts {
            match name.as_str() {
                "gpu" => plain.insert(gpu.unwrap_or("nvidia.com/gpu").to_owned(), amount.clone()),
                "cpu" | "memory" => plain.insert(name.clone(), amount.clone()),
                _ => None,
            };
        }
        found.insert(part.to_owned(), plain.into());
    }
    if value["claims"].is_array() {
        found.insert("claims".to_owned(), value["claims"].clone());
    }
    found.into()
}

fn sidecar(value: &Value) -> Value {
    let mut container = json!({ "name": SIDECAR });
    for (from, to) in [("image", "image"), ("args", "args"), ("envs", "env")] {
        if !value[from].is_null() {
            container[to] = value[from].clone();
        }
    }
    if let Some(secret) = value["envFromSecret"].as_str() {
        container["envFrom"] = json!([{ "secretRef": { "name": secret } }]);
    }
    container
}

/// The fields of a service that describe its pods.
#[derive(Default)]
struct Pod {
    /// Fields of the main container. Null: none.
    dedicated: Value,
    metadata: Option<Value>,
    sidecar: Option<Value>,
}

impl Pod {
    /// The first compilation cache becomes the cache, the others are plain mounts.
    fn mounts(&mut self, value: &Value, component: &mut Value) {
        let mut plain = Vec::new();
        for mount in value.as_array().into_iter().flatten() {
            let (name, path) = (&mount["name"], &mount["mountPoint"]);
            if mount["useAsCompilationCache"] == true && component["compilationCache"].is_null() {
                component["compilationCache"] = json!({ "pvcName": name });
                if path.is_string() {
                    component["compilationCache"]["mountPath"] = path.clone();
                }
            } else {
                plain.push(json!({ "name": name, "mountPath": path }));
            }
        }
        if !plain.is_empty() {
            self.dedicated["volumeMounts"] = plain.into();
        }
    }

    /// `mainContainer` overrides the dedicated fields.
    fn template(self, extra: Option<&JsonObject>) -> Option<Value> {
        let mut spec = extra.cloned().unwrap_or_default();
        let own = spec.remove("mainContainer").and_then(|own| own.as_object().cloned()).unwrap_or_default();
        let mut main = self.dedicated.as_object().cloned().unwrap_or_default();
        for (name, value) in own.into_iter().filter(|(name, _)| name != "name") {
            match (main.get_mut(&name), value) {
                (Some(Value::Array(there)), Value::Array(more)) if name == "env" || name == "volumeMounts" => {
                    let key = if name == "env" { "name" } else { "mountPath" };
                    there.retain(|item| more.iter().all(|new| new[key] != item[key]));
                    there.extend(more);
                }
                (_, value) => {
                    main.insert(name, value);
                }
            }
        }
        let mut containers = Vec::new();
        if !main.is_empty() {
            main.insert("name".to_owned(), MAIN.into());
            containers.push(Value::Object(main));
        }
        if let Some(Value::Array(others)) = spec.remove("containers") {
            containers.extend(others.into_iter().filter(|other| other["name"] != MAIN));
        }
        containers.extend(self.sidecar);
        if !containers.is_empty() {
            spec.insert("containers".to_owned(), containers.into());
        }
        let mut template = JsonObject::new();
        template.extend(self.metadata.map(|metadata| ("metadata".to_owned(), metadata)));
        if !spec.is_empty() {
            template.insert("spec".to_owned(), spec.into());
        }
        (!template.is_empty()).then(|| template.into())
    }
}

fn has_arguments(graph: &JsonObject, name: &str) -> bool {
    let components = graph.get("spec").and_then(|spec| spec["components"].as_array()).into_iter().flatten();
    let mut of_name = components.filter(|component| component["name"] == name);
    let containers = of_name.next().and_then(|component| component["podTemplate"]["spec"]["containers"].as_array());
    containers.into_iter().flatten().any(|container| container["name"] == MAIN && container["args"].is_array())
}

/// In v1alpha1 the arguments of workers are appended.
fn append_arguments(component: &mut Value) {
    let Some(containers) = component.pointer_mut("/podTemplate/spec/containers").and_then(Value::as_array_mut) else {
        return;
    };
    let filled = |container: &Value| container["args"].as_array().is_some_and(|args| !args.is_empty());
    for container in containers.iter_mut().filter(|container| container["name"] == MAIN && filled(container)) {
        container[APPEND] = json!({ "args": "append" });
    }
}
