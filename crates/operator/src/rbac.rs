//! Collects the RBAC rules, which are defined next to the code that needs them, and renders them as manifests: `deploy/rbac.yaml`
//! for the default flags of `steersman run`, smaller roles for others.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::Resource;
use kube::api::ObjectMeta;
use serde::Serialize;
use steersman_api::Family;
use steersman_plan::dynamo::names;
use steersman_plan::preflight::{Reach, Right};
use steersman_runtime::rbac::Rule;
use steersman_runtime::serve::scrape;

use crate::installation::{NAME, NAMESPACE, SecretAccess, labels};
use crate::settings::{self, Switch};
use crate::{certs, controllers, crds, preflight, relay, run, webhooks};

const HEADER: &str = "\
# Generated from the code by `steersman rbac`; do not edit. `cargo xtask check` fails if this file differs.
";

/// The flags of `steersman rbac`. Those that `steersman run` has as well have the same meaning.
#[derive(Clone, Debug, Args)]
pub struct RbacArgs {
    /// Controllers that will run, as a list such as dgdr,va; default: all of this version
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = settings::controller)]
    pub controllers: Vec<Family>,
    /// Namespace of the operator
    #[arg(long, default_value = NAMESPACE, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub namespace: String,
    /// Print Roles for an operator of this one namespace instead of a ClusterRole. Run it with --webhooks=off
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub watch_namespace: Option<String>,
    /// With --watch-namespace: print a ClusterRole as well, with the rules that no Role can have. Without it, GPUs are not
    /// discovered by node labels and not counted by the GPU limiter, and metrics are served on loopback addresses only
    #[arg(long, requires = "watch_namespace")]
    pub cluster_role: bool,
    /// What the operator may do with Secrets of users' namespaces
    #[arg(long, value_enum, value_name = "ACCESS", default_value_t = SecretAccess::default())]
    pub secrets: SecretAccess,
    /// Whether the operator will serve the webhooks
    #[arg(long, value_enum, value_name = "SWITCH", default_value_t = Switch::On)]
    pub webhooks: Switch,
}

impl Default for RbacArgs {
    /// The role for `steersman run` without flags.
    fn default() -> Self {
        Self {
            controllers: Vec::new(),
            namespace: NAMESPACE.to_owned(),
            watch_namespace: None,
            cluster_role: false,
            secrets: SecretAccess::default(),
            webhooks: Switch::On,
        }
    }
}

/// A rule of the operator, and the installations that need it.
#[derive(Clone, Debug)]
pub struct Grant {
    pub rule: Rule,
    /// For the operator's own namespace, not for those of its objects.
    pub own: bool,
    /// The controller that needs the rule. None: every installation.
    pub controller: Option<Family>,
    /// Needed only if webhooks are served.
    pub webhooks: bool,
    /// The least access to Secrets that includes the rule.
    pub secrets: SecretAccess,
    pub installations: Installations,
}

/// Kinds of installations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Installations {
    All,
    /// The installation reconciles the objects of all namespaces.
    ClusterWide,
    /// The installation reconciles the objects of one namespace.
    SingleNamespace,
}

impl Grant {
    fn all(rules: Vec<Rule>) -> impl Iterator<Item = Self> {
        rules.into_iter().map(|rule| Self {
            rule,
            own: false,
            controller: None,
            webhooks: false,
            secrets: SecretAccess::None,
            installations: Installations::All,
        })
    }
}

/// Every rule of the operator.
pub fn grants() -> Vec<Grant> {
    let cluster_wide = |grant| Grant { installations: Installations::ClusterWide, ..grant };
    let webhook = |grant| Grant { webhooks: true, ..grant };
    let own = |grant| Grant { own: true, ..grant };
    let common = Grant::all(preflight::lease_rules())
        .map(cluster_wide)
        .chain(Grant::all(scrape::rules()))
        .chain(Grant::all(certs::rules()).map(webhook));
    let families = controllers::AVAILABLE.iter().flat_map(|family| of_family(*family));
    let last = Grant::all(controllers::event_rules())
        .chain(Grant::all(run::rules()).map(own))
        .chain(Grant::all(certs::own_rules()).map(own).map(webhook));
    common.chain(families).chain(last).collect()
}

fn of_family(family: Family) -> Vec<Grant> {
    let at_least = |secrets| move |grant| Grant { secrets, ..grant };
    let cluster_wide = |grant| Grant { installations: Installations::ClusterWide, ..grant };
    let webhook = |grant| Grant { webhooks: true, ..grant };
    let own = |grant| Grant { own: true, ..grant };
    let secrets = controllers::secret_rules(family);
    let mut all: Vec<Grant> = Grant::all(preflight::rules(family)).map(cluster_wide).collect();
    all.extend(Grant::all(crds::migrate::rules(family)).map(cluster_wide));
    all.extend(Grant::all(controllers::rules(family)));
    all.extend(Grant::all(secrets.get).map(at_least(SecretAccess::Get)));
    all.extend(Grant::all(secrets.watch).map(at_least(SecretAccess::Watch)));
    all.extend(Grant::all(certs::admission_rules(family)).map(webhook));
    all.extend(Grant::all(controllers::own_rules(family)).map(own));
    let settings = |grant| Grant { own: true, installations: Installations::SingleNamespace, ..grant };
    all.extend(Grant::all(controllers::settings_rules(family)).map(settings));
    if family == Family::Dgdr {
        all.extend(Grant::all(preflight::rules(Family::Dgd)).map(cluster_wide));
        // In a single namespace, an administrator creates the account: RBAC has no right to read one ClusterRole there.
        all.extend(Grant::all(crate::dynamo::account_rules()).map(cluster_wide));
    }
    if family == Family::Llsd {
        all.extend(Grant::all(webhooks::llamastack::rules()).map(webhook));
        let secrets = Grant::all(webhooks::llamastack::secret_rules()).map(webhook);
        all.extend(secrets.map(at_least(SecretAccess::Get)));
    }
    all.into_iter().map(|grant| Grant { controller: Some(family), ..grant }).collect()
}

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

/// Rules of the shipped ClusterRole.
pub fn rules() -> Vec<Rule> {
    RbacArgs::default().rules()
}

/// Rules of the shipped Role in the operator's own namespace.
pub fn own_rules() -> Vec<Rule> {
    RbacArgs::default().own_rules()
}

/// The rights of the shipped roles.
pub fn all_rights() -> Vec<Right> {
    RbacArgs::default().rights()
}

/// The file `deploy/rbac.yaml`.
pub fn manifests() -> Result<String, RbacRenderError> {
    RbacArgs::default().manifests()
}

#[derive(Debug, thiserror::Error)]
#[error("cannot serialize the manifests as YAML: {0}")]
pub struct RbacRenderError(#[from] serde_saphyr::ser_error::Error);

impl RbacArgs {
    /// The controllers, each once.
    fn families(&self) -> Vec<Family> {
        let all = self.controllers.is_empty();
        controllers::AVAILABLE.iter().copied().filter(|family| all || self.controllers.contains(family)).collect()
    }

    /// An operator of one namespace serves none: they are for the objects of all namespaces.
    fn serves_webhooks(&self) -> bool {
        self.webhooks == Switch::On && self.watch_namespace.is_none()
    }

    fn selects(&self, grant: &Grant) -> bool {
        let installed = match grant.installations {
            Installations::All => true,
            Installations::ClusterWide => self.watch_namespace.is_none(),
            Installations::SingleNamespace => self.watch_namespace.is_some(),
        };
        installed
            && grant.controller.is_none_or(|family| self.families().contains(&family))
            && (!grant.webhooks || self.serves_webhooks())
            && grant.secrets <= self.secrets
    }

    fn selected(&self, own: bool) -> Vec<Rule> {
        grants().into_iter().filter(|grant| grant.own == own && self.selects(grant)).map(|grant| grant.rule).collect()
    }

    /// Rules for the namespaces of the objects, and for objects without a namespace.
    pub fn rules(&self) -> Vec<Rule> {
        self.selected(false)
    }

    /// Rules for the operator's own namespace.
    pub fn own_rules(&self) -> Vec<Rule> {
        self.selected(true)
    }

    /// The single rights that the roles grant.
    pub fn rights(&self) -> Vec<Right> {
        let own = self.own_rules();
        let own = own.iter().flat_map(|rule| rights_in(rule, &self.namespace));
        let rules = self.rules();
        let others = rules.iter().flat_map(|rule| match &self.watch_namespace {
            Some(_) if !rule.namespaced && !self.cluster_role => Vec::new(),
            Some(watched) if rule.namespaced => rights_in(rule, watched),
            _ => rights(rule),
        });
        others.chain(own).collect()
    }

    /// The file for `kubectl apply`: Namespace, ServiceAccount, and roles with their bindings.
    pub fn manifests(&self) -> Result<String, RbacRenderError> {
        let own = &self.namespace;
        let namespace = Namespace { metadata: metadata(own, None), ..Namespace::default() };
        let account = ServiceAccount { metadata: metadata(NAME, Some(own)), ..ServiceAccount::default() };
        let mut documents = vec![serde_saphyr::to_string(&namespace)?, serde_saphyr::to_string(&account)?];
        match &self.watch_namespace {
            None => {
                documents.extend(self.cluster_role(NAME, &self.rules())?);
                documents.extend(self.role(own, &self.own_rules())?);
                if self.families().contains(&Family::Dgdr) {
                    documents.push(profiling_role(relay::PROFILING_ROLE, &relay::rules())?);
                    documents.push(profiling_role(relay::THOROUGH_ROLE, &relay::thorough_rules())?);
                }
            }
            Some(watched) => documents.extend(self.namespaced_roles(watched)?),
        }
        Ok(format!("{}{}", self.header(), documents.join("---\n")))
    }

    fn namespaced_roles(&self, watched: &str) -> Result<Vec<String>, RbacRenderError> {
        let (namespaced, clustered): (Vec<_>, Vec<_>) = self.rules().into_iter().partition(|rule| rule.namespaced);
        let mut documents = if watched == self.namespace {
            self.role(watched, &[namespaced, self.own_rules()].concat())?
        } else {
            [self.role(watched, &namespaced)?, self.role(&self.namespace, &self.own_rules())?].concat()
        };
        if self.families().contains(&Family::Dgdr) {
            documents.extend(profiling_account(watched)?);
        }
        if self.cluster_role {
            // Operators of other namespaces have one each.
            documents.extend(self.cluster_role(&format!("{NAME}-{}", self.namespace), &clustered)?);
        }
        Ok(documents)
    }

    /// States the flags of `steersman run` that the roles are for, if they are not the default ones.
    fn header(&self) -> String {
        let mut flags = Vec::new();
        if self.families().len() < controllers::AVAILABLE.len() {
            let names: Vec<_> = self.families().into_iter().map(Family::short_name).collect();
            flags.push(format!("--controllers={}", names.join(",")));
        }
        if let Some(watched) = &self.watch_namespace {
            flags.push(format!("--watch-namespace={watched}"));
            if self.families().contains(&Family::Dgdr) {
                flags.push("--dgdr-profiling-cluster-role=''".to_owned());
                if !self.cluster_role {
                    flags.push("--gpu-discovery=off".to_owned());
                }
            }
        }
        if self.secrets != SecretAccess::default() {
            flags.push(format!("--secrets={}", self.secrets.flag_value()));
        }
        if !self.serves_webhooks() {
            flags.push("--webhooks=off".to_owned());
        }
        if flags.is_empty() {
            return HEADER.to_owned();
        }
        format!(
            "# Printed by `steersman rbac`, for an operator with these flags:\n#   steersman run {}\n",
            flags.join(" ")
        )
    }

    fn cluster_role(&self, name: &str, rules: &[Rule]) -> Result<Vec<String>, RbacRenderError> {
        let role = ClusterRole { metadata: metadata(name, None), ..ClusterRole::default() };
        let binding = ClusterRoleBinding {
            metadata: metadata(name, None),
            role_ref: reference::<ClusterRole>(name),
            subjects: Some(vec![self.subject()]),
        };
        Ok(vec![serde_saphyr::to_string(&role)? + &explained(rules)?, serde_saphyr::to_string(&binding)?])
    }

    fn role(&self, namespace: &str, rules: &[Rule]) -> Result<Vec<String>, RbacRenderError> {
        let role = Role { metadata: metadata(NAME, Some(namespace)), ..Role::default() };
        let binding = RoleBinding {
            metadata: metadata(NAME, Some(namespace)),
            role_ref: reference::<Role>(NAME),
            subjects: Some(vec![self.subject()]),
        };
        Ok(vec![serde_saphyr::to_string(&role)? + &explained(rules)?, serde_saphyr::to_string(&binding)?])
    }

    fn subject(&self) -> Subject {
        account_subject(NAME, &self.namespace)
    }
}

/// A role that the operator binds to the accounts of profiling Jobs.
fn profiling_role(name: &str, rules: &[Rule]) -> Result<String, RbacRenderError> {
    let role = ClusterRole { metadata: metadata(name, None), ..ClusterRole::default() };
    Ok(serde_saphyr::to_string(&role)? + &explained(rules)?)
}

/// The account of profiling Jobs in one namespace, with its rights.
fn profiling_account(namespace: &str) -> Result<Vec<String>, RbacRenderError> {
    let (account, role) = (names::SERVICE_ACCOUNT, relay::PROFILING_ROLE);
    let binding = RoleBinding {
        metadata: metadata(role, Some(namespace)),
        role_ref: reference::<Role>(role),
        subjects: Some(vec![account_subject(account, namespace)]),
    };
    let account = ServiceAccount { metadata: metadata(account, Some(namespace)), ..ServiceAccount::default() };
    let role = Role { metadata: metadata(role, Some(namespace)), ..Role::default() };
    let rules = [relay::rules(), relay::thorough_rules()].concat();
    Ok(vec![
        serde_saphyr::to_string(&account)?,
        serde_saphyr::to_string(&role)? + &explained(&rules)?,
        serde_saphyr::to_string(&binding)?,
    ])
}

/// The rule as Kubernetes has it.
pub fn policy(rule: &Rule) -> PolicyRule {
    let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(owned(&[rule.group])),
        resources: Some(owned(&[rule.resource])),
        resource_names: (!rule.names.is_empty()).then(|| owned(&rule.names)),
        verbs: owned(rule.verbs),
        non_resource_urls: None,
    }
}

/// Renders each rule with its reason as a comment, for the administrator who grants it.
pub fn explained(rules: &[Rule]) -> Result<String, RbacRenderError> {
    let mut text = String::from("rules:\n");
    for rule in rules {
        text.push_str(&format!("# needed to {}\n{}", rule.why, serde_saphyr::to_string(&[policy(rule)])?));
    }
    Ok(text)
}

fn reference<K: Resource<DynamicType = ()>>(name: &str) -> RoleRef {
    RoleRef { api_group: K::group(&()).into_owned(), kind: K::kind(&()).into_owned(), name: name.to_owned() }
}

fn account_subject(name: &str, namespace: &str) -> Subject {
    Subject {
        kind: ServiceAccount::kind(&()).into_owned(),
        name: name.to_owned(),
        namespace: Some(namespace.to_owned()),
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
