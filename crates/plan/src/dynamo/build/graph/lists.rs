//! How lists and maps of a graph are merged, as its schema says.
//! Comes in: the name of a field; goes out: the keys by which its entries are told apart, or that it is one whole.

/// Keys of the entries of a list. None: the list is replaced as a whole.
pub fn keys(path: &[String]) -> Option<&'static [&'static str]> {
    let name = path.last().map(String::as_str)?;
    Some(match name {
        // On a graph's spec the environment is one whole, on a container it is not.
        "env" if path.len() == 2 => return None,
        "components" if path.len() == 2 => &["name"],
        // A service of v1alpha1 has lists of its own under names that containers have, too: of claims for volumes, at a
        // `mountPoint`, and of claims for devices.
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

/// Lists of texts in which each stands once.
pub fn is_set(name: &str) -> bool {
    matches!(name, "extraClientContainers" | "gmsClientContainers" | "finalizers")
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

/// What the API server takes for an absent key.
pub fn default(key: &str) -> Option<&'static str> {
    (key == "protocol").then_some("TCP")
}

/// Fields that take any content, in which a null may stand.
pub fn is_opaque(name: &str) -> bool {
    matches!(name, "value" | "parameters" | "config")
}
