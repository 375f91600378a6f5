//! The rendered RBAC manifests: which rights they grant. A new right must be added to the lists here.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use steersman::certs::SECRET;
use steersman::installation::{NAME, NAMESPACE, SecretAccess};
use steersman::rbac::{self, RbacArgs, manifests, own_rules, rules};
use steersman::relay::{self, PROFILING_ROLE};
use steersman::settings::Switch;
use steersman_api::Family;

fn documents() -> Vec<String> {
    manifests().unwrap().split("---\n").map(str::to_owned).collect()
}

fn role() -> ClusterRole {
    serde_saphyr::from_str(&documents()[2]).unwrap()
}

fn namespace_role() -> Role {
    serde_saphyr::from_str(&documents()[4]).unwrap()
}

#[test]
fn manifests_hold_account_roles_and_bindings() {
    let [namespace, account, role, binding, own_role, own_binding, profiling, thorough] = &documents()[..] else {
        panic!("eight documents expected")
    };
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
    let own_role: Role = serde_saphyr::from_str(own_role).unwrap();
    let own_binding: RoleBinding = serde_saphyr::from_str(own_binding).unwrap();
    assert_eq!((own_binding.role_ref.kind.as_str(), Some(own_binding.role_ref.name)), ("Role", own_role.metadata.name));
    let profiling: ClusterRole = serde_saphyr::from_str(profiling).unwrap();
    assert_eq!(profiling.metadata.name.as_deref(), Some(PROFILING_ROLE));
    let granted: BTreeSet<_> = profiling.rules.unwrap().into_iter().flat_map(single_rights).collect();
    assert!(relay::rules().iter().flat_map(rbac::rights).all(|right| granted.contains(&(
        right.group,
        right.resource,
        right.name,
        right.verb
    ))));
    assert!(!granted.iter().any(|(_, resource, ..)| resource == "secrets" || resource == "nodes"), "{granted:?}");
    assert!(
        !granted.iter().any(|right| right.1 == "dynamographdeployments"),
        "a rapid search deploys nothing: {granted:?}"
    );
    let thorough: ClusterRole = serde_saphyr::from_str(thorough).unwrap();
    assert_eq!(thorough.metadata.name.as_deref(), Some(relay::THOROUGH_ROLE));
    for metadata in [own_role.metadata.namespace, own_binding.metadata.namespace] {
        assert_eq!(metadata.as_deref(), Some(NAMESPACE));
    }
    for subjects in [binding.subjects.unwrap(), own_binding.subjects.unwrap()] {
        let [subject] = &subjects[..] else { panic!("one subject expected") };
        assert_eq!((subject.kind.as_str(), subject.name.as_str()), ("ServiceAccount", NAME));
        assert_eq!(subject.namespace.as_deref(), Some(NAMESPACE));
    }
}

#[test]
fn manifests_explain_every_rule() {
    let text = manifests().unwrap();
    assert!(text.starts_with("# Generated from the code by `steersman rbac`; do not edit. `cargo xtask check` fails"));
    for rule in rules().into_iter().chain(own_rules()) {
        assert!(text.contains(&format!("# needed to {}\n", rule.why)), "{rule:?}");
    }
}

#[test]
fn roles_grant_exactly_the_coded_rules() {
    for (granted, rules) in [(role().rules, rules()), (namespace_role().rules, own_rules())] {
        let mut granted: Vec<_> = granted.unwrap().into_iter().flat_map(single_rights).collect();
        let mut wanted: Vec<_> = rules
            .iter()
            .flat_map(rbac::rights)
            .map(|right| (right.group, right.resource, right.name, right.verb))
            .collect();
        granted.sort();
        wanted.sort();
        assert_eq!(granted, wanted);
    }
}

type SingleRight = (String, String, Option<String>, String);

fn single_rights(rule: PolicyRule) -> Vec<SingleRight> {
    let [group] = &rule.api_groups.unwrap()[..] else { panic!("one group per rule") };
    let [resource] = &rule.resources.unwrap()[..] else { panic!("one resource per rule") };
    let names: Vec<_> = rule.resource_names.map_or_else(|| vec![None], |names| names.into_iter().map(Some).collect());
    let single = |name: &Option<String>, verb: &String| (group.clone(), resource.clone(), name.clone(), verb.clone());
    names.iter().flat_map(|name| rule.verbs.iter().map(|verb| single(name, verb))).collect()
}

/// All rights except reads, for the review of administrators who grant them.
const WRITES: [&str; 32] = [
    "admissionregistration.k8s.io/mutatingwebhookconfigurations (named): patch",
    "admissionregistration.k8s.io/validatingwebhookconfigurations (named): patch",
    "apiextensions.k8s.io/customresourcedefinitions (named): patch",
    "apiextensions.k8s.io/customresourcedefinitions/status (named): patch",
    "apps/deployments: create patch",
    "authentication.k8s.io/tokenreviews: create",
    "authorization.k8s.io/subjectaccessreviews: create",
    "autoscaling/horizontalpodautoscalers: create patch delete",
    "batch/jobs: create delete",
    "core/configmaps: create patch delete",
    "core/persistentvolumeclaims: create",
    "core/serviceaccounts: create patch",
    "core/services: create patch delete",
    "events.k8s.io/events: create patch",
    "llamastack.io/llamastackdistributions/finalizers: update",
    "llamastack.io/llamastackdistributions/status: patch",
    "llamastack.io/llamastackdistributions/status: update",
    "llmd.ai/variantautoscalings/status: update",
    "llmd.ai/variantautoscalings: patch",
    "networking.k8s.io/ingresses: create patch delete",
    "networking.k8s.io/networkpolicies: create patch delete",
    "nvidia.com/dynamographdeploymentrequests/finalizers: update",
    "nvidia.com/dynamographdeploymentrequests/status: patch",
    "nvidia.com/dynamographdeploymentrequests/status: update",
    "nvidia.com/dynamographdeploymentrequests: patch",
    "nvidia.com/dynamographdeployments/finalizers: update",
    "nvidia.com/dynamographdeployments: create",
    "policy/poddisruptionbudgets: create patch delete",
    "rbac.authorization.k8s.io/clusterroles (named): bind",
    "rbac.authorization.k8s.io/rolebindings: create patch delete",
    "route.openshift.io/routes/custom-host: create update",
    "route.openshift.io/routes: create patch delete",
];

#[test]
fn cluster_role_grants_only_listed_writes() {
    let mut writes: Vec<String> = Vec::new();
    for rule in role().rules.unwrap() {
        let changes = |verb: &&String| !["get", "list", "watch"].contains(&verb.as_str());
        let verbs: Vec<_> = rule.verbs.iter().filter(changes).map(String::as_str).collect();
        let group = rule.api_groups.unwrap().remove(0);
        let group = if group.is_empty() { "core" } else { &group };
        let named = if rule.resource_names.is_some() { " (named)" } else { "" };
        if !verbs.is_empty() {
            writes.push(format!("{group}/{}{named}: {}", rule.resources.unwrap()[0], verbs.join(" ")));
        }
    }
    writes.sort();
    // Several controllers may need the same right.
    writes.dedup();
    assert_eq!(writes, WRITES);
}

#[test]
fn access_to_secrets_follows_the_flag() {
    let verbs = |secrets| -> BTreeSet<&str> {
        let args = RbacArgs { secrets, ..RbacArgs::default() };
        args.rules()
            .into_iter()
            .filter(|rule| rule.resource == "secrets")
            .flat_map(|rule| rule.verbs)
            .copied()
            .collect()
    };
    assert_eq!(verbs(SecretAccess::None), BTreeSet::new());
    assert_eq!(verbs(SecretAccess::Get), BTreeSet::from(["get"]));
    assert_eq!(verbs(SecretAccess::Watch), BTreeSet::from(["get", "list", "watch"]));
}

#[test]
fn controllers_get_no_rules_of_others() {
    let groups = |families: &[Family]| -> BTreeSet<&str> {
        let args = RbacArgs { controllers: families.to_vec(), webhooks: Switch::Off, ..RbacArgs::default() };
        let kinds = ["llamastack.io", "llmd.ai", "nvidia.com"];
        args.rules().iter().map(|rule| rule.group).filter(|group| kinds.contains(group)).collect()
    };
    assert_eq!(groups(&[Family::Llsd]), BTreeSet::from(["llamastack.io"]));
    assert_eq!(groups(&[Family::Va]), BTreeSet::from(["llmd.ai"]));
    assert_eq!(groups(&[Family::Dgdr]), BTreeSet::from(["nvidia.com"]));
}

/// RBAC ignores rules about objects without a namespace in a Role, so that a Role with one would look larger than it is.
#[test]
fn namespaced_roles_have_no_cluster_wide_rules() {
    let args = RbacArgs { watch_namespace: Some("team-a".to_owned()), webhooks: Switch::Off, ..RbacArgs::default() };
    let text = args.manifests().unwrap();
    assert!(text.starts_with("# Printed by `steersman rbac`, for an operator with these flags:\n#   steersman run --watch-namespace=team-a"), "{text}");
    assert!(!text.contains("kind: ClusterRole\n") && !text.contains("resources:\n  - nodes\n"), "{text}");
    let with_cluster_role = RbacArgs { cluster_role: true, ..args }.manifests().unwrap();
    assert!(with_cluster_role.contains("kind: ClusterRole\n") && with_cluster_role.contains("- nodes\n"));
}

#[test]
fn roles_contain_no_wildcards() {
    for rule in role().rules.unwrap().into_iter().chain(namespace_role().rules.unwrap()) {
        let words = rule.api_groups.iter().chain(&rule.resources).flatten().chain(&rule.verbs);
        assert!(words.into_iter().all(|word| word != "*"), "{rule:?}");
    }
}

/// `list` and `watch` would give the values of all Secrets. The operator reads those that objects name, and writes and watches
/// its own certificate.
#[test]
fn secrets_of_users_are_only_read_by_name() {
    let about_secrets = |rule: &PolicyRule| rule.resources == Some(vec!["secrets".to_owned()]);
    let verbs: BTreeSet<_> =
        role().rules.unwrap().into_iter().filter(about_secrets).map(|rule| rule.verbs.join(" ")).collect();
    assert_eq!(verbs, BTreeSet::from(["get".to_owned()]));
    for rule in namespace_role().rules.unwrap().into_iter().filter(about_secrets) {
        let named = rule.resource_names == Some(vec![SECRET.to_owned()]);
        assert!(named || rule.verbs == ["create"], "{rule:?}");
    }
}
