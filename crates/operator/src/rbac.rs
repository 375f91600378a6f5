//! The rights that Steersman needs.
//! Comes in: the rules, each kept next to the code that needs it; goes out: the manifests of `deploy/rbac.yaml`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use kube::Resource;
use kube::api::ObjectMeta;
use steersman_plan::preflight::Right;

use crate::observe;

pub const NAMESPACE: &str = "steersman-system";
pub const NAME: &str = "steersman";

const HEADER: &str = "\
# Generated from the code by `steersman rbac`; do not edit. `cargo xtask check` fails where this file differs.
";

/// One kind of resource and what Steersman does with it, in all namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub group: &'static str,
    pub resource: &'static str,
    /// Only objects of these names; empty: all. A list call is held to it by a field selector on the name.
    pub names: Vec<&'static str>,
    pub verbs: &'static [&'static str],
    pub namespaced: bool,
    /// What for, as it follows "needed to".
    pub why: &'static str,
}

impl Rule {
    /// The single rights that make up the rule.
    pub fn rights(&self) -> Vec<Right> {
        let names: Vec<Option<&str>> =
            if self.names.is_empty() { vec![None] } else { self.names.iter().copied().map(Some).collect() };
        let right = |name: Option<&str>, verb: &str| Right {
            group: self.group.to_owned(),
            resource: self.resource.to_owned(),
            name: name.map(str::to_owned),
            verb: verb.to_owned(),
            namespaced: self.namespaced,
            why: self.why.to_owned(),
        };
        names.into_iter().flat_map(|name| self.verbs.iter().map(move |verb| right(name, verb))).collect()
    }

    fn policy(&self) -> PolicyRule {
        let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        PolicyRule {
            api_groups: Some(owned(&[self.group])),
            resources: Some(owned(&[self.resource])),
            resource_names: (!self.names.is_empty()).then(|| owned(&self.names)),
            verbs: owned(self.verbs),
            non_resource_urls: None,
        }
    }
}

/// All rules of the program.
pub fn rules() -> Vec<Rule> {
    observe::preflight::rules()
}

#[derive(Debug, thiserror::Error)]
#[error("cannot write the manifests as YAML: {0}")]
pub struct RenderError(#[from] serde_saphyr::ser_error::Error);

/// Namespace, ServiceAccount, ClusterRole and ClusterRoleBinding, as one file for `kubectl apply`.
pub fn manifests() -> Result<String, RenderError> {
    let namespace = Namespace { metadata: metadata(NAMESPACE, None), ..Namespace::default() };
    let account = ServiceAccount { metadata: metadata(NAME, Some(NAMESPACE)), ..ServiceAccount::default() };
    let binding = ClusterRoleBinding {
        metadata: metadata(NAME, None),
        role_ref: RoleRef {
            api_group: ClusterRole::group(&()).into_owned(),
            kind: ClusterRole::kind(&()).into_owned(),
            name: NAME.to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: ServiceAccount::kind(&()).into_owned(),
            name: NAME.to_owned(),
            namespace: Some(NAMESPACE.to_owned()),
            api_group: None,
        }]),
    };
    let documents = [
        serde_saphyr::to_string(&namespace)?,
        serde_saphyr::to_string(&account)?,
        role()?,
        serde_saphyr::to_string(&binding)?,
    ];
    Ok(format!("{HEADER}{}", documents.join("---\n")))
}

/// Rendered rule by rule, because whoever grants a right should read next to it what it is for.
fn role() -> Result<String, RenderError> {
    let role = ClusterRole { metadata: metadata(NAME, None), ..ClusterRole::default() };
    let mut text = serde_saphyr::to_string(&role)?;
    text.push_str("rules:\n");
    for rule in rules() {
        text.push_str(&format!("# needed to {}\n{}", rule.why, serde_saphyr::to_string(&[rule.policy()])?));
    }
    Ok(text)
}

fn metadata(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some(BTreeMap::from([("app.kubernetes.io/name".to_owned(), NAME.to_owned())])),
        ..ObjectMeta::default()
    }
}
