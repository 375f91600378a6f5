//! The children that make the server reachable: Service, Ingress or Route, and NetworkPolicy.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::{NamespaceResourceScope, Resource};
use kube_core::DynamicObject;
use serde_json::{Value, json};
use steersman_api::llamastack::v1alpha2::{AllowedFrom, ExposeForm, LlamaStackDistributionSpec};

use super::{child, labelled_child, matching};
use crate::llamastack::operator_config::DefaultPolicy;
use crate::llamastack::snapshot::{ObservedObject, Snapshot};
use crate::llamastack::{fields, names};

const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Annotation of the NGINX ingress controller. Others read `appProtocol` of the Service.
const BACKEND_PROTOCOL: (&str, &str) = ("nginx.ingress.kubernetes.io/backend-protocol", "HTTPS");
/// Label of the namespaces of OpenShift's routers.
const ROUTERS: (&str, &str) = ("network.openshift.io/policy-group", "ingress");

pub fn scheme(spec: &LlamaStackDistributionSpec) -> &'static str {
    if fields::certificate(spec).is_some() { "https" } else { "http" }
}

pub fn service(object: &ObservedObject) -> DynamicObject {
    let port = fields::port(&object.spec);
    let mut spec = json!({
        "type": "ClusterIP",
        "selector": names::selector(&object.name),
        "ports": [{ "name": scheme(&object.spec), "protocol": "TCP", "port": port, "targetPort": port }],
    });
    if fields::certificate(&object.spec).is_some() {
        spec["ports"][0]["appProtocol"] = "https".into();
    }
    child::<Service>(object, names::service(&object.name), json!({ "spec": spec }))
}

pub fn ingress(object: &ObservedObject, expose: &ExposeForm) -> DynamicObject {
    let service = json!({ "name": names::service(&object.name), "port": { "number": fields::port(&object.spec) } });
    let path = json!({ "path": "/", "pathType": "Prefix", "backend": { "service": service } });
    let mut rule = json!({ "http": { "paths": [path] } });
    if let Some(host) = host(expose) {
        rule["host"] = json!(host);
    }
    let data = json!({ "spec": { "rules": [rule] } });
    let mut ingress = labelled_child::<Ingress>(object, names::ingress(&object.name), None, data);
    if fields::certificate(&object.spec).is_some() {
        // Without it, NGINX sends plain HTTP to the server, which then answers nothing.
        ingress.metadata.annotations = Some([(BACKEND_PROTOCOL.0.to_owned(), BACKEND_PROTOCOL.1.to_owned())].into());
    }
    ingress
}

/// OpenShift's Route, which k8s-openapi does not have.
pub struct Route;

impl Resource for Route {
    const API_VERSION: &'static str = "route.openshift.io/v1";
    const GROUP: &'static str = "route.openshift.io";
    const KIND: &'static str = "Route";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "routes";
    type Scope = NamespaceResourceScope;
}

/// Clients outside the cluster use HTTPS in any case, with the certificate of the server or else of the router. Plain
/// HTTP is redirected, because requests carry API keys.
pub fn route(object: &ObservedObject, expose: &ExposeForm) -> DynamicObject {
    let termination = if fields::certificate(&object.spec).is_some() { "passthrough" } else { "edge" };
    let mut spec = json!({
        "to": { "kind": Service::KIND, "name": names::service(&object.name) },
        "port": { "targetPort": scheme(&object.spec) },
        "tls": { "termination": termination, "insecureEdgeTerminationPolicy": "Redirect" },
    });
    if let Some(host) = host(expose) {
        spec["host"] = json!(host);
    }
    labelled_child::<Route>(object, names::route(&object.name), None, json!({ "spec": spec }))
}

pub fn host(expose: &ExposeForm) -> Option<&str> {
    expose.hostname().filter(|host| !host.is_empty())
}

/// The spec's `allowedFrom` makes a policy, and so does the operator's feature flag for every server.
pub fn policy(snapshot: &Snapshot) -> Option<DynamicObject> {
    let object = &snapshot.object;
    let operator = snapshot.settings.operator_namespace.as_deref();
    let from = match fields::allowed_from(&object.spec) {
        Some(allowed) => peers(allowed, operator, true),
        None if snapshot.settings.operator_config.policy == DefaultPolicy::On => {
            peers(&AllowedFrom::default(), operator, fields::exposed(&object.spec).is_some())
        }
        None => return None,
    };
    let spec = json!({
        "podSelector": matching(names::selector(&object.name)),
        "policyTypes": ["Ingress"],
        "ingress": [{ "from": from, "ports": [{ "port": fields::port(&object.spec), "protocol": "TCP" }] }],
    });
    Some(child::<NetworkPolicy>(object, names::network_policy(&object.name), json!({ "spec": spec })))
}

/// Admits the pods of the namespace, the operator, the listed namespaces, and OpenShift's routers if `routed`.
fn peers(allowed: &AllowedFrom, operator: Option<&str>, routed: bool) -> Vec<Value> {
    let listed: Vec<&str> = allowed.namespaces.iter().flatten().map(String::as_str).collect();
    if listed.contains(&"*") {
        return vec![json!({ "namespaceSelector": {} })];
    }
    let labelled = |key: &str, value: &str| json!({ "namespaceSelector": { "matchLabels": { key: value } } });
    let named = |name: &str| labelled(NAMESPACE_NAME, name);
    let with_key =
        |key: &String| json!({ "namespaceSelector": { "matchExpressions": [{ "key": key, "operator": "Exists" }] } });
    std::iter::once(json!({ "podSelector": {} }))
        .chain(operator.map(named))
        .chain(listed.iter().map(|name| named(name)))
        .chain(allowed.labels.iter().flatten().map(with_key))
        .chain(routed.then(|| labelled(ROUTERS.0, ROUTERS.1)))
        .collect()
}
