//! The merge rules for lists and maps of a graph, as its schema declares them.

use serde_json::Value;

/// Keys of the entries of a list. None: the list is replaced as a whole.
pub fn keys(path: &[String]) -> Option<&'static [&'static str]> {
    let name = path.last().map(String::as_str)?;
    Some(match name {
        // The environment of a graph's spec is replaced as a whole, that of a container is merged.
        "env" if path.len() == 2 => return None,
        "components" if path.len() == 2 => &["name"],
        // A service of v1alpha1 has lists of its own with the names of container fields: claims of volumes, with a
        // `mountPoint`, and claims of devices.
        "volumeMounts" if path.len() == 4 && path[1] == "services" => return None,
        "claims" if path.len() == 5 && path[1] == "services" => return None,
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "imagePullSecrets"
        | "resourceClaims"
        | "schedulingGates"
        | "env"
        | "claims"
        | "extraClientPods" => &["name"],
        "volumeMounts" => &["mountPath"],
        "volumeDevices" => &["devicePath"],
        "hostAliases" => &["ip"],
        "ports" => &["containerPort", "protocol"],
        "topologySpreadConstraints" => &["topologyKey", "whenUnsatisfiable"],
        _ => return None,
    })
}

/// Lists of unique strings.
pub fn is_set(name: &str) -> bool {
    matches!(name, "extraClientContainers" | "gmsClientContainers")
}

/// Maps that are replaced as a whole.
pub fn is_whole(name: &str) -> bool {
    matches!(
        name,
        "nodeSelector"
            | "secretKeyRef"
            | "configMapKeyRef"
            | "fileKeyRef"
            | "fieldRef"
            | "resourceFieldRef"
            | "secretRef"
            | "configMapRef"
            | "configMap"
            | "nodePublishSecretRef"
            | "dataSource"
            | "selector"
            | "labelSelector"
            | "namespaceSelector"
            | "requiredDuringSchedulingIgnoredDuringExecution"
    )
}

/// The value of a key, or the API server's default for an absent one.
pub fn key(item: &Value, key: &str) -> Value {
    match &item[key] {
        Value::Null if key == "protocol" => "TCP".into(),
        value => value.clone(),
    }
}

/// Fields that accept any content, including null.
pub fn is_opaque(name: &str) -> bool {
    matches!(name, "value" | "parameters" | "config")
}
