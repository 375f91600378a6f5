//! Names and labels of the children.

use std::collections::BTreeMap;

/// Suffixes of the children's names, in the order in which the Go operator renders them. All names must be valid, even
/// of children that this object does not need yet: a field added later must not find the object's name too long.
const SUFFIXES: [&str; 7] = ["pvc", "sa", "service", "network-policy", "hpa", "pdb", "rb"];

/// Label with the purpose of a ConfigMap.
pub const COMPONENT: &str = "app.kubernetes.io/component";
pub const GENERATED: &str = "generated-config";
pub const TRUST: &str = "ca-bundle";

/// Label of all servers' pods, of every object.
pub const SERVER_LABEL: (&str, &str) = ("app", "llama-stack");

const LABEL_LIMIT: usize = 63;

pub fn deployment(object: &str) -> String {
    object.to_owned()
}

/// Functions from the name of an object to that of its child.
macro_rules! children {
    ($($(#[$doc:meta])* $child:ident: $suffix:literal,)+) => {
        $($(#[$doc])* pub fn $child(object: &str) -> String {
            prefixed(object, $suffix)
        })+
    };
}

children! {
    volume_claim: "pvc",
    service_account: "sa",
    service: "service",
    ingress: "ingress",
    route: "route",
    network_policy: "network-policy",
    autoscaler: "hpa",
    disruption_budget: "pdb",
    role_binding: "rb",
    /// The ConfigMap with the certificates that the server trusts.
    ca_bundle: "ca-bundle",
}

/// URL of the server inside the cluster.
pub fn service_url(scheme: &str, object: &str, namespace: &str, port: i32) -> String {
    format!("{scheme}://{}.{namespace}.svc.cluster.local:{port}", service(object))
}

/// The ConfigMap with a generated configuration, by the first digits of its hash.
pub fn config(object: &str, digits: &str) -> String {
    prefixed(object, &format!("config-{digits}"))
}

/// Labels of every child.
pub fn labels() -> BTreeMap<String, String> {
    map(&[
        ("app.kubernetes.io/managed-by", "llama-stack-operator"),
        ("app.kubernetes.io/part-of", "llama-stack"),
        ("llamastack.io/watch", "true"),
    ])
}

/// Labels of children that have a component of their own or are selected by others.
pub fn labels_of(object: &str, component: Option<&str>) -> BTreeMap<String, String> {
    let component = component.map(|component| (COMPONENT.to_owned(), component.to_owned()));
    labels().into_iter().chain(selector(object)).chain(component).collect()
}

/// Labels of the pods, selected by Deployment and Service. They can never change: the selector of a Deployment is
/// immutable.
pub fn selector(object: &str) -> BTreeMap<String, String> {
    map(&[SERVER_LABEL, ("app.kubernetes.io/instance", object)])
}

/// Labels that distinguish the pods of this object, for spreading them.
pub fn instance(object: &str) -> BTreeMap<String, String> {
    map(&[("app.kubernetes.io/instance", object)])
}

/// Reports the first child whose name is invalid, in the words of the Go operator.
pub fn refusal(object: &str) -> Option<String> {
    SUFFIXES.map(|suffix| prefixed(object, suffix)).iter().find_map(|name| {
        let faults = label_faults(name);
        let faults = (!faults.is_empty()).then(|| faults.join(", "))?;
        Some(format!("failed to make valid prefixed name: failed to validate name {name:?}: {faults}"))
    })
}

fn prefixed(object: &str, suffix: &str) -> String {
    format!("{object}-{suffix}")
}

fn label_faults(name: &str) -> Vec<String> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let well_formed = !name.is_empty() && name.chars().all(inner) && !name.starts_with('-') && !name.ends_with('-');
    let mut faults = Vec::new();
    if name.len() > LABEL_LIMIT {
        faults.push(format!("must be no more than {LABEL_LIMIT} characters"));
    }
    if !well_formed {
        faults.push(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
             end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    faults
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
