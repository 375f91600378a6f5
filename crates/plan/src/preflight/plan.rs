//! The rules of the preflight, one function each.

use steersman_api::meta::ServerVersion;
use steersman_api::{Family, LegacyLease};
use steersman_reconcile::{Finding, Lookup};

use super::seen::{Conversion, CrdSeen, FamilySeen, LeaseSeen, LegacySeen, Reach, Right, RightSeen, Seen};

/// The version of the API types that Steersman is built with.
pub const OLDEST_SERVER: ServerVersion = ServerVersion::new(1, 33);

/// Another machine's clock set the renew time. A lease counts as abandoned only if it is older than any usual
/// difference between two clocks.
const CLOCK_SLACK_SECONDS: i64 = 60;

/// client-go's default for a lease without a duration.
const USUAL_LEASE_SECONDS: i32 = 15;

/// Total: every cluster gets findings, blockers first. A needed fact that could not be read counts as a finding.
pub fn plan(seen: &Seen) -> Vec<Finding> {
    let mut findings: Vec<Finding> = server(seen).into_iter().collect();
    findings.extend(seen.rights.iter().filter_map(|right| missing_right(seen, right)));
    for FamilySeen { family, crd } in &seen.families {
        match crd {
            Lookup::Known(Some(crd)) => {
                findings.extend(not_established(*family, crd));
                findings.extend(missing_versions(*family, crd));
                findings.extend(conversion(*family, crd));
                findings.extend(uncounted(seen, *family, crd));
            }
            Lookup::Known(None) => findings.push(absent(*family)),
            Lookup::Unknown(why) => findings.extend(unreadable_crd(seen, *family, why)),
        }
    }
    for LegacySeen { lease, found } in &seen.leases {
        match found {
            Lookup::Known(found) => findings.extend(found.iter().filter_map(|found| held(seen, lease, found))),
            Lookup::Unknown(why) => findings.extend(unreadable_lease(seen, lease, why)),
        }
    }
    // The sort is stable: within one severity the order of the rules stays.
    findings.sort_by_key(|finding| finding.severity);
    findings
}

fn server(seen: &Seen) -> Option<Finding> {
    match &seen.server {
        Lookup::Known(version) if *version >= OLDEST_SERVER => None,
        Lookup::Known(version) => Some(Finding::blocker(
            "ServerTooOld",
            format!("The API server is Kubernetes {version}; Steersman needs {OLDEST_SERVER} or newer."),
            format!("Upgrade the control plane to Kubernetes {OLDEST_SERVER} or newer."),
        )),
        Lookup::Unknown(why) => Some(Finding::blocker(
            "ServerVersionUnknown",
            format!("The version of the API server could not be read: {why}."),
            format!(
                "Check that `kubectl version` shows a server of {OLDEST_SERVER} or newer, then run preflight again."
            ),
        )),
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
            Some(Finding::blocker(
                "RightMissing",
                format!("{user} may not {act}; Steersman needs it to {why}."),
                format!(
                    "Bind a {role} with the rule {{apiGroups: [\"{group}\"], resources: [\"{resource}\"], {names}\
                     verbs: [\"{verb}\"]}}; deploy/rbac.yaml, printed by `steersman rbac`, has it."
                ),
            ))
        }
        Lookup::Unknown(cause) => {
            let user = seen.user.known().map_or("the current user", String::as_str);
            let item = name.as_ref().map_or_else(String::new, |name| format!("/{name}"));
            let part = if part.is_empty() { String::new() } else { format!(" --subresource={part}") };
            Some(Finding::blocker(
                "RightUnknown",
                format!("It could not be found out whether {user} may {act}: {cause}."),
                format!("Make `kubectl auth can-i {verb} {kind}{item}{part}{flag}` answer, then run preflight again."),
            ))
        }
    }
}

fn absent(family: Family) -> Finding {
    let shipped = steersman_api::crds::FAMILIES.contains(&family);
    let remedy = if shipped {
        format!("Install it with `steersman crds --apply {family}` to use {family}; the other families do not need it.")
    } else {
        // The only family without a shipped CRD is the graph, which Dynamo's own operator deploys.
        format!(
            "Install it with Dynamo's own operator to have requests deployed: {dgdr} profiles without it and waits for it \
             before it deploys. The other families do not need it.",
            dgdr = Family::Dgdr
        )
    };
    let message = format!("CRD {} is not installed: there can be no {} here.", family.crd_name(), family.kind());
    Finding::info("CrdAbsent", message, remedy)
}

fn not_established(family: Family, crd: &CrdSeen) -> Option<Finding> {
    let name = family.crd_name();
    (!crd.established).then(|| {
        Finding::warning(
            "CrdNotEstablished",
            format!("CRD {name} is installed but not established: the API server does not serve it."),
            format!("See its conditions: kubectl describe crd {name}"),
        )
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
    let (kind, ours, missing) = (family.kind(), list(ours), list(&missing));
    Some(Finding::warning(
        "VersionNotServed",
        format!("CRD {} does not serve {missing}: {consequence}.", family.crd_name()),
        format!("Install a {kind} CRD that serves {ours} if you want to use {missing}."),
    ))
}

/// The Service of Steersman's webhooks, in any namespace.
const OUR_SERVICE: &str = "steersman-webhook";

/// The path of Steersman's conversion webhook.
const OUR_PATH: &str = "/convert";

fn conversion(family: Family, crd: &CrdSeen) -> Option<Finding> {
    let converter = match &crd.conversion {
        Conversion::None => return None,
        Conversion::Service { name, .. } if name == OUR_SERVICE => return None,
        Conversion::Service { namespace, name } => format!("Service {namespace}/{name}"),
        Conversion::Url(url) if url.ends_with(OUR_PATH) => {
            return Some(Finding::info(
                "ConversionByUrl",
                format!("CRD {} is converted by whoever answers at {url}.", family.crd_name()),
                "Keep it running; for Steersman it is the address of `steersman run --webhook-url`.",
            ));
        }
        Conversion::Url(url) => url.clone(),
    };
    Some(Finding::warning(
        "ConversionElsewhere",
        format!(
            "CRD {} is converted by {converter}, which is not Steersman's: when nothing answers there, objects can be neither \
             read nor written in any version but the one they are stored in.",
            family.crd_name()
        ),
        format!("Keep {converter} running for as long as the CRD names it."),
    ))
}

fn uncounted(seen: &Seen, family: Family, crd: &CrdSeen) -> Option<Finding> {
    let Lookup::Unknown(why) = &crd.objects else { return None };
    // The cause has a finding of its own, which this one would repeat.
    if !crd.established || refused(seen, family.group(), family.plural(), None) {
        return None;
    }
    Some(Finding::warning(
        "ObjectsUnreadable",
        format!("The {} objects could not be listed: {why}.", family.kind()),
        format!("Make `kubectl get {}.{} -A` work, then run preflight again.", family.plural(), family.group()),
    ))
}

fn unreadable_crd(seen: &Seen, family: Family, why: &str) -> Option<Finding> {
    let name = family.crd_name();
    (!refused(seen, "apiextensions.k8s.io", "customresourcedefinitions", Some(name))).then(|| {
        Finding::warning(
            "CrdUnreadable",
            format!("CRD {name} could not be read: {why}."),
            format!("Make `kubectl get crd {name}` work, then run preflight again."),
        )
    })
}

fn unreadable_lease(seen: &Seen, lease: &LegacyLease, why: &str) -> Option<Finding> {
    (!refused(seen, "coordination.k8s.io", "leases", Some(lease.name))).then(|| {
        Finding::warning(
            "LeaseUnreadable",
            format!("Whether {} runs here could not be seen: {why}.", lease.operator),
            format!("Make sure that it does not act on the same {}.", kinds(lease)),
        )
    })
}

fn held(seen: &Seen, legacy: &LegacyLease, lease: &LeaseSeen) -> Option<Finding> {
    let holder = lease.holder.as_deref().filter(|holder| !holder.is_empty())?;
    let age = lease.renewed.map(|renewed| seen.now.as_second().saturating_sub(renewed.as_second()).max(0));
    let lasts = i64::from(lease.lasts_seconds.unwrap_or(USUAL_LEASE_SECONDS));
    let place = format!("Lease {}/{}", lease.namespace, legacy.name);
    let operator = legacy.operator;
    let renewed = age.map_or_else(|| "never renewed".to_owned(), |age| format!("renewed {age} s ago"));
    if age.is_some_and(|age| age > lasts.saturating_add(CLOCK_SLACK_SECONDS)) {
        return Some(Finding::info(
            "LeaseAbandoned",
            format!("{place} names {holder} as holder but was {renewed}: {operator} seems to be gone."),
            format!("Nothing, if {operator} was uninstalled."),
        ));
    }
    Some(Finding::warning(
        "OtherOperatorActive",
        format!("{place} is held by {holder}, {renewed}: {operator} is at work here."),
        format!("Stop it before Steersman acts on {}: two operators must not act on the same objects.", kinds(legacy)),
    ))
}

/// Whether a missing right explains a failed read.
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
