//! Collects the RBAC rules, which are defined next to the code that needs them, and renders them as `deploy/rbac.yaml`.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::Resource;
use kube::api::ObjectMeta;
use steersman_plan::preflight::{Reach, Right};
use steersman_runtime::rbac::Rule;
use steersman_runtime::serve::scrape;

use crate::installation::{NAME, NAMESPACE, labels};
use crate::{certs, controllers, crds, preflight, relay, run, webhooks};

const HEADER: &str = "\
# Generated from the code by `steersman rbac`; do not edit. `cargo xtask check` fails if this file differs.
";

/// The single rights that make up a rule of the ClusterRole.
pub fn rights(rule: &Rule) -> Vec<Right> {
    rights_within(rule, if rule.namespaced { Reach::AllNamespaces } else { Reach::Cluster })
}

/// The single rights that make up a rule of the Role in `namespace`.
pub fn rights_in(rule: &Rule, namespace: &str) -> Vec<Right> {
    rights_within(rule, Reach::Namespace(namespace.to_owned()))
}

fn rights_within(rule: &Rule, reach: Reach) -> Vec<Right> {
    let names: Vec<Option<&str>> =
        if rule.names.is_empty() { vec![None] } else { rule.names.iter().copied().map(Some).collect() };
    let right = |name: Option<&str>, verb: &str| Right {
        group: rule.group.to_owned(),
        resource: rule.resource.to_owned(),
        name: name.map(str::to_owned),
        verb: verb.to_owned(),
        reach: reach.clone(),
        why: rule.why.to_owned(),
    };
    let single = |name| rule.verbs.iter().map(move |verb| (name, *verb));
    names.into_iter().flat_map(single).map(|(name, verb)| right(name, verb)).collect()
}

fn policy(rule: &Rule) -> PolicyRule {
    let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(owned(&[rule.group])),
        resources: Some(owned(&[rule.resource])),
        resource_names: (!rule.names.is_empty()).then(|| owned(&rule.names)),
        verbs: owned(rule.verbs),
        non_resource_urls: None,
    }
}

/// Rules of the ClusterRole.
pub fn rules() -> Vec<Rule> {
    [
        preflight::rules(),
        scrape::rules(),
        certs::rules(),
        webhooks::llamastack::rules(),
        crds::migrate::rules(),
        controllers::rules(),
    ]
    .concat()
}

pub fn all_rights() -> Vec<Right> {
    let own = own_rules();
    let own = own.iter().flat_map(|rule| rights_in(rule, NAMESPACE));
    rules().iter().flat_map(rights).chain(own).collect()
}

/// Rules of the Role in the operator's own namespace.
pub fn own_rules() -> Vec<Rule> {
    [run::rules(), certs::own_rules(), controllers::own_rules()].concat()
}

#[derive(Debug, thiserror::Error)]
#[error("cannot serialize the manifests as YAML: {0}")]
pub struct RbacRenderError(#[from] serde_saphyr::ser_error::Error);

/// The file for `kubectl apply`: Namespace, ServiceAccount, the two roles with their bindings, and the role that the operator
/// binds to the accounts of profiling Jobs.
pub fn manifests() -> Result<String, RbacRenderError> {
    let namespace = Namespace { metadata: metadata(NAMESPACE, None), ..Namespace::default() };
    let account = ServiceAccount { metadata: metadata(NAME, Some(NAMESPACE)), ..ServiceAccount::default() };
    let role = ClusterRole { metadata: metadata(NAME, None), ..ClusterRole::default() };
    let binding = ClusterRoleBinding {
        metadata: metadata(NAME, None),
        role_ref: reference::<ClusterRole>(),
        subjects: Some(vec![subject()]),
    };
    let own_role = Role { metadata: metadata(NAME, Some(NAMESPACE)), ..Role::default() };
    let own_binding = RoleBinding {
        metadata: metadata(NAME, Some(NAMESPACE)),
        role_ref: reference::<Role>(),
        subjects: Some(vec![subject()]),
    };
    let profiling = ClusterRole { metadata: metadata(relay::PROFILING_ROLE, None), ..ClusterRole::default() };
    let thorough = ClusterRole { metadata: metadata(relay::THOROUGH_ROLE, None), ..ClusterRole::default() };
    let documents = [
        serde_saphyr::to_string(&namespace)?,
        serde_saphyr::to_string(&account)?,
        serde_saphyr::to_string(&role)? + &explained(&rules())?,
        serde_saphyr::to_string(&binding)?,
        serde_saphyr::to_string(&own_role)? + &explained(&own_rules())?,
        serde_saphyr::to_string(&own_binding)?,
        serde_saphyr::to_string(&profiling)? + &explained(&relay::rules())?,
        serde_saphyr::to_string(&thorough)? + &explained(&relay::thorough_rules())?,
    ];
    Ok(format!("{HEADER}{}", documents.join("---\n")))
}

/// Renders each rule with its reason as a comment, for the administrator who grants it.
fn explained(rules: &[Rule]) -> Result<String, RbacRenderError> {
    let mut text = String::from("rules:\n");
    for rule in rules {
        text.push_str(&format!("# needed to {}\n{}", rule.why, serde_saphyr::to_string(&[policy(rule)])?));
    }
    Ok(text)
}

fn reference<K: Resource<DynamicType = ()>>() -> RoleRef {
    RoleRef { api_group: K::group(&()).into_owned(), kind: K::kind(&()).into_owned(), name: NAME.to_owned() }
}

fn subject() -> Subject {
    Subject {
        kind: ServiceAccount::kind(&()).into_owned(),
        name: NAME.to_owned(),
        namespace: Some(NAMESPACE.to_owned()),
        api_group: None,
    }
}

fn metadata(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some(labels()),
        ..ObjectMeta::default()
    }
}
