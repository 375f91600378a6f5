//! The rules of the preflight, one function each.
//! Comes in: `Seen`; goes out: findings, blockers first, in the order of the rules.

use steersman_api::meta::ServerVersion;
use steersman_api::{Family, LegacyLease};
use steersman_reconcile::{Finding, Lookup, Severity};

use super::seen::{Conversion, CrdSeen, LeaseSeen, Reach, Right, RightSeen, Seen};

/// The API types that Steersman is built with are those of this version.
pub const OLDEST_SERVER: ServerVersion = ServerVersion::new(1, 33);

/// The lease was stamped by another machine's clock. Only a lease that is older than any usual difference between two
/// clocks is taken for abandoned.
const CLOCK_SLACK_SECONDS: i64 = 60;

/// What client-go assumes where a lease does not say how long it lasts.
const USUAL_LEASE_SECONDS: i32 = 15;

/// Total: every cluster gets an answer. What could not be seen and is needed counts against it.
pub fn plan(seen: &Seen) -> Vec<Finding> {
    let mut findings: Vec<Finding> = server(seen)
        .into_iter()
        .chain(seen.rights.iter().filter_map(|right| missing_right(seen, right)))
        .chain(seen.families.iter().flat_map(|family| match &family.crd {
            Lookup::Known(Some(crd)) => crd_findings(seen, family.family, crd),
            Lookup::Known(None) => vec![absent(family.family)],
            Lookup::Unknown(why) => unreadable_crd(seen, family.family, why).into_iter().collect(),
        }))
        .chain(seen.leases.iter().flat_map(|legacy| match &legacy.found {
            Lookup::Known(found) => found.iter().filter_map(|lease| held(seen, &legacy.lease, lease)).collect(),
            Lookup::Unknown(why) => unreadable_lease(seen, &legacy.lease, why).into_iter().collect::<Vec<_>>(),
        }))
        .collect();
    // Stable: within one severity the order of the rules stays.
    findings.sort_by_key(|finding| finding.severity);
    findings
}

fn server(seen: &Seen) -> Option<Finding> {
    match &seen.server {
        Lookup::Known(version) if *version >= OLDEST_SERVER => None,
        Lookup::Known(version) => Some(Finding {
            severity: Severity::Blocker,
            reason: "ServerTooOld",
            message: format!("The API server is Kubernetes {version}; Steersman needs {OLDEST_SERVER} or newer."),
            remedy: format!("Upgrade the control plane to Kubernetes {OLDEST_SERVER} or newer."),
        }),
        Lookup::Unknown(why) => Some(Finding {
            severity: Severity::Blocker,
            reason: "ServerVersionUnknown",
            message: format!("The version of the API server could not be read: {why}."),
            remedy: format!(
                "Check that `kubectl version` shows a server of {OLDEST_SERVER} or newer, then run preflight again."
            ),
        }),
    }
}

fn missing_right(seen: &Seen, asked: &RightSeen) -> Option<Finding> {
    let Right { group, resource, name, verb, reach, why } = &asked.right;
    let object = name.as_ref().map_or_else(String::new, |name| format!(" named {name}"));
    let (place, role, flag) = match reach {
        Reach::Cluster => (String::new(), "ClusterRole", String::new()),
        Reach::AllNamespaces => (" in all namespaces".to_owned(), "ClusterRole", " -A".to_owned()),
        Reach::Namespace(name) => (format!(" in namespace {name}"), "Role", format!(" -n {name}")),
    };
    let (kind, part) = resource.split_once('/').unwrap_or((resource, ""));
    let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    let part_of = if part.is_empty() { String::new() } else { format!("{part} of ") };
    let act = format!("{verb} {part_of}{kind}{object}{place}");
    match &asked.allowed {
        Lookup::Known(true) => None,
        Lookup::Known(false) => {
            let user = seen.user.known().map_or("The current user", String::as_str);
            let names = name.as_ref().map_or_else(String::new, |name| format!("resourceNames: [\"{name}\"], "));
            Some(Finding {
                severity: Severity::Blocker,
                reason: "RightMissing",
                message: format!("{user} may not {act}; Steersman needs it to {why}."),
                remedy: format!(
                    "Bind a {role} with the rule {{apiGroups: [\"{group}\"], resources: [\"{resource}\"], {names}\
                     verbs: [\"{verb}\"]}}; deploy/rbac.yaml, printed by `steersman rbac`, has it."
                ),
            })
        }
        Lookup::Unknown(cause) => {
            let user = seen.user.known().map_or("the current user", String::as_str);
            let item = name.as_ref().map_or_else(String::new, |name| format!("/{name}"));
            let part = if part.is_empty() { String::new() } else { format!(" --subresource={part}") };
            Some(Finding {
                severity: Severity::Blocker,
                reason: "RightUnknown",
                message: format!("It could not be found out whether {user} may {act}: {cause}."),
                remedy: format!(
                    "Make `kubectl auth can-i {verb} {kind}{item}{part}{flag}` answer, then run preflight again."
                ),
            })
        }
    }
}

fn crd_findings(seen: &Seen, family: Family, crd: &CrdSeen) -> Vec<Finding> {
    [not_established(family, crd), missing_versions(family, crd), conversion(family, crd), uncounted(seen, family, crd)]
        .into_iter()
        .flatten()
        .collect()
}

fn absent(family: Family) -> Finding {
    let shipped = steersman_api::crds::FAMILIES.contains(&family);
    Finding {
        severity: Severity::Info,
        reason: "CrdAbsent",
        message: format!("CRD {} is not installed: there can be no {} here.", family.crd_name(), family.kind()),
        remedy: if shipped {
            format!(
                "Install it with `steersman crds --apply {family}` to use {family}; the other families do not need it."
            )
        } else {
            // Only the graph, which an operator of its own deploys.
            format!(
                "Install it with Dynamo's own operator to have requests deployed: {dgdr} profiles without it and waits for \
                 it before it deploys. The other families do not need it.",
                dgdr = Family::Dgdr
            )
        },
    }
}

fn not_established(family: Family, crd: &CrdSeen) -> Option<Finding> {
    (!crd.established).then(|| Finding {
        severity: Severity::Warning,
        reason: "CrdNotEstablished",
        message: format!(
            "CRD {} is installed but not established: the API server does not serve it.",
            family.crd_name()
        ),
        remedy: format!("See its conditions: kubectl describe crd {}", family.crd_name()),
    })
}

fn missing_versions(family: Family, crd: &CrdSeen) -> Option<Finding> {
    let ours = family.served_versions();
    let (there, missing): (Vec<&str>, Vec<&str>) =
        ours.iter().partition(|version| crd.served.iter().any(|served| served == *version));
    if missing.is_empty() {
        return None;
    }
    let consequence = if there.is_empty() {
        format!("Steersman knows none of the versions it serves ({}) and cannot read its objects", list(&crd.served))
    } else {
        format!(
            "the API server refuses manifests of {}/{}; objects stay readable as {}",
            family.group(),
            list(&missing),
            list(&there)
        )
    };
    Some(Finding {
        severity: Severity::Warning,
        reason: "VersionNotServed",
        message: format!("CRD {} does not serve {}: {consequence}.", family.crd_name(), list(&missing)),
        remedy: format!(
            "Install a {} CRD that serves {} if you want to use {}.",
            family.kind(),
            list(ours),
            list(&missing)
        ),
    })
}

/// The Service in front of Steersman's webhooks, whatever namespace it is in.
const OUR_SERVICE: &str = "steersman-webhook";

/// The path at which Steersman converts.
const OUR_PATH: &str = "/convert";

fn conversion(family: Family, crd: &CrdSeen) -> Option<Finding> {
    let converter = match &crd.conversion {
        Conversion::None => return None,
        Conversion::Service { name, .. } if name == OUR_SERVICE => return None,
        Conversion::Service { namespace, name } => format!("Service {namespace}/{name}"),
        Conversion::Url(url) if url.ends_with(OUR_PATH) => {
            return Some(Finding {
                severity: Severity::Info,
                reason: "ConversionByUrl",
                message: format!("CRD {} is converted by whoever answers at {url}.", family.crd_name()),
                remedy: "Keep it running; for Steersman it is the address of `steersman run --webhook-url`.".to_owned(),
            });
        }
        Conversion::Url(url) => url.clone(),
    };
    Some(Finding {
        severity: Severity::Warning,
        reason: "ConversionElsewhere",
        message: format!(
            "CRD {} is converted by {converter}, which is not Steersman's: when nothing answers there, objects can be neither \
             read nor written in any version but the one they are stored in.",
            family.crd_name()
        ),
        remedy: format!("Keep {converter} running for as long as the CRD names it."),
    })
}

fn uncounted(seen: &Seen, family: Family, crd: &CrdSeen) -> Option<Finding> {
    let Lookup::Unknown(why) = &crd.objects else { return None };
    // Where the cause has a finding of its own, this one would only repeat it.
    if !crd.established || refused(seen, family.group(), family.plural(), None) {
        return None;
    }
    Some(Finding {
        severity: Severity::Warning,
        reason: "ObjectsUnreadable",
        message: format!("The {} objects could not be listed: {why}.", family.kind()),
        remedy: format!("Make `kubectl get {}.{} -A` work, then run preflight again.", family.plural(), family.group()),
    })
}

fn unreadable_crd(seen: &Seen, family: Family, why: &str) -> Option<Finding> {
    let (group, resource) = ("apiextensions.k8s.io", "customresourcedefinitions");
    (!refused(seen, group, resource, Some(family.crd_name()))).then(|| Finding {
        severity: Severity::Warning,
        reason: "CrdUnreadable",
        message: format!("CRD {} could not be read: {why}.", family.crd_name()),
        remedy: format!("Make `kubectl get crd {}` work, then run preflight again.", family.crd_name()),
    })
}

fn unreadable_lease(seen: &Seen, lease: &LegacyLease, why: &str) -> Option<Finding> {
    (!refused(seen, "coordination.k8s.io", "leases", Some(lease.name))).then(|| Finding {
        severity: Severity::Warning,
        reason: "LeaseUnreadable",
        message: format!("Whether {} runs here could not be seen: {why}.", lease.operator),
        remedy: format!("Make sure that it does not act on the same {}.", kinds(lease)),
    })
}

fn held(seen: &Seen, legacy: &LegacyLease, lease: &LeaseSeen) -> Option<Finding> {
    let holder = lease.holder.as_deref().filter(|holder| !holder.is_empty())?;
    let age = lease.renewed.map(|renewed| seen.now.as_second().saturating_sub(renewed.as_second()).max(0));
    let lasts = i64::from(lease.lasts_seconds.unwrap_or(USUAL_LEASE_SECONDS));
    let place = format!("Lease {}/{}", lease.namespace, legacy.name);
    let renewed = age.map_or_else(|| "never renewed".to_owned(), |age| format!("renewed {age} s ago"));
    if age.is_some_and(|age| age > lasts.saturating_add(CLOCK_SLACK_SECONDS)) {
        return Some(Finding {
            severity: Severity::Info,
            reason: "LeaseAbandoned",
            message: format!(
                "{place} names {holder} as holder but was {renewed}: {} seems to be gone.",
                legacy.operator
            ),
            remedy: format!("Nothing, if {} was uninstalled.", legacy.operator),
        });
    }
    Some(Finding {
        severity: Severity::Warning,
        reason: "OtherOperatorActive",
        message: format!("{place} is held by {holder}, {renewed}: {} is at work here.", legacy.operator),
        remedy: format!(
            "Stop it before Steersman acts on {}: two operators must not act on the same objects.",
            kinds(legacy)
        ),
    })
}

/// Whether a missing right already explains that something could not be read.
fn refused(seen: &Seen, group: &str, resource: &str, name: Option<&str>) -> bool {
    seen.rights.iter().any(|RightSeen { right, allowed }| {
        allowed.known() != Some(&true)
            && (right.group.as_str(), right.resource.as_str()) == (group, resource)
            && (right.name.is_none() || right.name.as_deref() == name)
    })
}

fn kinds(lease: &LegacyLease) -> String {
    lease.families.iter().map(|family| family.kind()).collect::<Vec<_>>().join(" and ")
}

fn list<T: AsRef<str>>(words: &[T]) -> String {
    words.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}
