//! The children that make the server reachable: Service, Ingress or Route, and NetworkPolicy.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend, IngressSpec,
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
    ServiceBackendPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::{NamespaceResourceScope, Resource};
use kube_core::DynamicObject;
use serde_json::json;
use steersman_api::llamastack::v1alpha2::{AllowedFrom, ExposeForm, LlamaStackDistributionSpec};

use super::{child, labelled_child, matching};
use crate::llamastack::operator_config::DefaultPolicy;
use crate::llamastack::snapshot::{ObservedObject, Snapshot};
use crate::llamastack::{fields, names};

const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Label of the namespaces of OpenShift's routers.
const ROUTERS: (&str, &str) = ("network.openshift.io/policy-group", "ingress");

pub fn scheme(spec: &LlamaStackDistributionSpec) -> &'static str {
    if fields::certificate(spec).is_some() { "https" } else { "http" }
}

pub fn service(object: &ObservedObject) -> DynamicObject {
    let port = fields::port(&object.spec);
    let spec = ServiceSpec {
        type_: Some("ClusterIP".to_owned()),
        selector: Some(names::selector(&object.name)),
        ports: Some(vec![ServicePort {
            name: Some(scheme(&object.spec).to_owned()),
            protocol: Some("TCP".to_owned()),
            port,
            target_port: Some(IntOrString::Int(port)),
            ..Default::default()
        }]),
        ..Default::default()
    };
    child::<Service>(object, names::service(&object.name), json!({ "spec": spec }))
}

pub fn ingress(object: &ObservedObject, expose: &ExposeForm) -> DynamicObject {
    let backend = IngressServiceBackend {
        name: names::service(&object.name),
        port: Some(ServiceBackendPort { number: Some(fields::port(&object.spec)), name: None }),
    };
    let path = HTTPIngressPath {
        path: Some("/".to_owned()),
        path_type: "Prefix".to_owned(),
        backend: IngressBackend { service: Some(backend), resource: None },
    };
    let rule = IngressRule {
        host: host(expose).map(ToOwned::to_owned),
        http: Some(HTTPIngressRuleValue { paths: vec![path] }),
    };
    let spec = IngressSpec { rules: Some(vec![rule]), ..Default::default() };
    labelled_child::<Ingress>(object, names::ingress(&object.name), None, json!({ "spec": spec }))
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
    let from = match fields::allowed_from(&object.spec) {
        Some(allowed) => peers(allowed, snapshot.settings.operator_namespace.as_deref(), true),
        None if snapshot.settings.operator_config.policy == DefaultPolicy::On => {
            let routed = fields::exposed(&object.spec).is_some();
            peers(&AllowedFrom::default(), snapshot.settings.operator_namespace.as_deref(), routed)
        }
        None => return None,
    };
    let port = NetworkPolicyPort {
        port: Some(IntOrString::Int(fields::port(&object.spec))),
        protocol: Some("TCP".to_owned()),
        end_port: None,
    };
    let spec = NetworkPolicySpec {
        pod_selector: Some(matching(names::selector(&object.name))),
        policy_types: Some(vec!["Ingress".to_owned()]),
        ingress: Some(vec![NetworkPolicyIngressRule { from: Some(from), ports: Some(vec![port]) }]),
        egress: None,
    };
    Some(child::<NetworkPolicy>(object, names::network_policy(&object.name), json!({ "spec": spec })))
}

/// Admits the pods of the namespace, the operator, the listed namespaces, and OpenShift's routers if `routed`.
fn peers(allowed: &AllowedFrom, operator: Option<&str>, routed: bool) -> Vec<NetworkPolicyPeer> {
    let namespaces = |selector| NetworkPolicyPeer { namespace_selector: Some(selector), ..Default::default() };
    let listed: Vec<&str> = allowed.namespaces.iter().flatten().map(String::as_str).collect();
    if listed.contains(&"*") {
        return vec![namespaces(LabelSelector::default())];
    }
    let same_namespace = NetworkPolicyPeer { pod_selector: Some(LabelSelector::default()), ..Default::default() };
    let labelled = |key: &str, value: &str| namespaces(matching([(key.to_owned(), value.to_owned())].into()));
    let named = |name: &str| labelled(NAMESPACE_NAME, name);
    let with_key = |key: &String| {
        let exists = LabelSelectorRequirement { key: key.clone(), operator: "Exists".to_owned(), values: None };
        namespaces(LabelSelector { match_expressions: Some(vec![exists]), ..Default::default() })
    };
    std::iter::once(same_namespace)
        .chain(operator.map(named))
        .chain(listed.iter().map(|name| named(name)))
        .chain(allowed.labels.iter().flatten().map(with_key))
        .chain(routed.then(|| labelled(ROUTERS.0, ROUTERS.1)))
        .collect()
}
