//! The rendered rights: what they grant, and that nobody can grant more by accident.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule};
use steersman::rbac::{NAME, NAMESPACE, manifests, rules};

fn documents() -> Vec<String> {
    manifests().unwrap().split("---\n").map(str::to_owned).collect()
}

fn role() -> ClusterRole {
    serde_saphyr::from_str(&documents()[2]).unwrap()
}

#[test]
fn the_file_holds_an_account_a_role_and_their_binding() {
    let [namespace, account, role, binding] = &documents()[..] else { panic!("four documents expected") };
    let namespace: Namespace = serde_saphyr::from_str(namespace).unwrap();
    let account: ServiceAccount = serde_saphyr::from_str(account).unwrap();
    let role: ClusterRole = serde_saphyr::from_str(role).unwrap();
    let binding: ClusterRoleBinding = serde_saphyr::from_str(binding).unwrap();
    assert_eq!(namespace.metadata.name.as_deref(), Some(NAMESPACE));
    assert_eq!(account.metadata.name.as_deref(), Some(NAME));
    assert_eq!(account.metadata.namespace.as_deref(), Some(NAMESPACE));
    assert_eq!(
        (binding.role_ref.kind.as_str(), Some(&binding.role_ref.name)),
        ("ClusterRole", role.metadata.name.as_ref())
    );
    let [subject] = &binding.subjects.unwrap()[..] else { panic!("one subject expected") };
    assert_eq!((subject.kind.as_str(), subject.name.as_str()), ("ServiceAccount", NAME));
    assert_eq!(subject.namespace.as_deref(), Some(NAMESPACE));
}

#[test]
fn the_file_says_that_it_is_generated_and_what_each_rule_is_for() {
    let text = manifests().unwrap();
    assert!(text.starts_with("# Generated from the code by `steersman rbac`; do not edit. `cargo xtask check` fails"));
    for rule in rules() {
        assert!(text.contains(&format!("# needed to {}\n", rule.why)), "{rule:?}");
    }
}

#[test]
fn the_role_grants_exactly_the_rights_that_preflight_asks_for() {
    let mut granted: Vec<_> = role().rules.unwrap().into_iter().flat_map(singly).collect();
    let mut asked: Vec<_> = rules()
        .iter()
        .flat_map(|rule| rule.rights())
        .map(|right| (right.group, right.resource, right.name, right.verb))
        .collect();
    granted.sort();
    asked.sort();
    assert_eq!(granted, asked);
}

type Single = (String, String, Option<String>, String);

fn singly(rule: PolicyRule) -> Vec<Single> {
    let [group] = &rule.api_groups.unwrap()[..] else { panic!("one group per rule") };
    let [resource] = &rule.resources.unwrap()[..] else { panic!("one resource per rule") };
    let names: Vec<_> = rule.resource_names.map_or_else(|| vec![None], |names| names.into_iter().map(Some).collect());
    let single = |name: &Option<String>, verb: &String| (group.clone(), resource.clone(), name.clone(), verb.clone());
    names.iter().flat_map(|name| rule.verbs.iter().map(|verb| single(name, verb))).collect()
}

#[test]
fn nothing_is_granted_that_writes_or_that_is_wide_open() {
    for rule in role().rules.unwrap() {
        assert!(rule.verbs.iter().all(|verb| verb == "get" || verb == "list"), "{rule:?}");
        let words = rule.api_groups.iter().chain(&rule.resources).flatten();
        assert!(words.into_iter().all(|word| !word.is_empty() && word != "*" && word != "secrets"), "{rule:?}");
    }
}
