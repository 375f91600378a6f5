//! The rules of the preflight, one function each.

use steersman_api::meta::ServerVersion;
use steersman_api::{Family, LegacyLease};
use steersman_reconcile::{Finding, Lookup};

use super::snapshot::{
    ClusterSnapshot, Conversion, ObservedCrd, ObservedFamily, ObservedLease, ObservedLegacyLease, ObservedRight, Reach,
    Right,
};

/// The version of the API types that Steersman is built with.
pub const OLDEST_SERVER: ServerVersion = ServerVersion::new(1, 33);

/// Another machine's clock set the renew time. A lease counts as abandoned only if it is older than any usual
/// difference between two clocks.
const CLOCK_SLACK_SECONDS: i64 = 60;

/// client-go's default for a lease without a duration.
const USUAL_LEASE_SECONDS: i32 = 15;

/// Total: every cluster gets findings, blockers first. A needed fact that could not be read counts as a finding.
pub fn plan(snapshot: &ClusterSnapshot) -> Vec<Finding> {
    let mut findings: Vec<Finding> = server(snapshot).into_iter().collect();
    findings.extend(snapshot.rights.iter().filter_map(|right| missing_right(snapshot, right)));
    for ObservedFamily { family, crd } in &snapshot.families {
        match crd {
            Lookup::Known(Some(crd)) => {
                findings.extend(not_established(*family, crd));
                findings.extend(missing_versions(*family, crd));
                findings.extend(conversion(*family, crd));
                findings.extend(uncounted(snapshot, *family, crd));
            }
            Lookup::Known(None) => findings.push(absent(*family)),
            Lookup::Unknown(why) => findings.extend(unreadable_crd(snapshot, *family, why)),
        }
    }
    for ObservedLegacyLease { lease, found } in &snapshot.leases {
        match found {
            Lookup::Known(found) => findings.extend(found.iter().filter_map(|found| held(snapshot, lease, found))),
            Lookup::Unknown(why) => findings.extend(unreadable_lease(snapshot, lease, why)),
        }
    }
    // The sort is stable: within one severity the order of the rules stays.
    findings.sort_by_key(|finding| finding.severity);
    findings
}

fn server(snapshot: &ClusterSnapshot) -> Option<Finding> {
    match &snapshot.server {
        Lookup::Known(version) if *version >= OLDEST_SERVER => None,
        Lookup::Known(version) => Some(Finding::blocker(
            "ServerTooOld",
            format!("The API server is Kubernetes {version}; Steersman needs {OLDEST_SERVER} or newer."),
            format!("Upgrade the control plane to Kubernetes {OLDEST_SERVER} or newer."),
        )),
        Lookup::Unknown(why) => Some(Finding::blocker(
            "ServerVersionUnknown",
            format!("Cannot read the version of the API server: {why}."),
            format!(
                "Check that `kubectl version` shows a server of {OLDEST_SERVER} or newer, then run preflight again."
            ),
        )),
    }
}

fn missing_right(snapshot: &ClusterSnapshot, observed: &ObservedRight) -> Option<Finding> {
    let Right { group, resource, name, verb, reach, why } = &observed.right;
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
    match &observed.allowed {
        Lookup::Known(true) => None,
        Lookup::Known(false) => {
            let user = snapshot.user.known().map_or("The current user", String::as_str);
            let names = name.as_ref().map_or_else(String::new, |name| format!("resourceNames: [\"{name}\"], "));
            Some(Finding::blocker(
                "RightMissing",
                format!("{user} may not {act}; Steersman needs it to {why}."),
                format!(
                    "Bind a {role} with the rule {{apiGroups: [\"{group}\"], resources: [\"{resource}\"], {names}\
                     verbs: [\"{verb}\"]}}; deploy/rbac.yaml, printed by `steersman rbac`, contains it."
                ),
            ))
        }
        Lookup::Unknown(cause) => {
            let user = snapshot.user.known().map_or("the current user", String::as_str);
            let item = name.as_ref().map_or_else(String::new, |name| format!("/{name}"));
            let part = if part.is_empty() { String::new() } else { format!(" --subresource={part}") };
            Some(Finding::blocker(
                "RightUnknown",
                format!("Cannot determine whether {user} may {act}: {cause}."),
                format!(
                    "Check why `kubectl auth can-i {verb} {kind}{item}{part}{flag}` fails, then run preflight again."
                ),
            ))
        }
    }
}

fn absent(family: Family) -> Finding {
    let shipped = steersman_api::crds::FAMILIES.contains(&family);
    let remedy = if shipped {
        format!("Install it with `steersman crds --apply {family}` to use {family}; the other families do not need it.")
    } else {
        // The only family without a shipped CRD is the graph, which NVIDIA's Dynamo operator deploys.
        format!(
            "Install the CRDs of NVIDIA's Dynamo operator to deploy graphs. Without this CRD {dgdr} still profiles requests, and \
             waits with their deployment. The other families do not need it.",
            dgdr = Family::Dgdr
        )
    };
    let message = format!("CRD {} is not installed, so the cluster has no {}.", family.crd_name(), family.kind());
    Finding::info("CrdAbsent", message, remedy)
}

fn not_established(family: Family, crd: &ObservedCrd) -> Option<Finding> {
    let name = family.crd_name();
    (!crd.established).then(|| {
        Finding::warning(
            "CrdNotEstablished",
            format!("CRD {name} is installed but not established: the API server does not serve it."),
            format!("See its conditions: kubectl describe crd {name}"),
        )
    })
}

fn missing_versions(family: Family, crd: &ObservedCrd) -> Option<Finding> {
    let ours = family.served_versions();
    let (there, missing): (Vec<&str>, Vec<&str>) =
        ours.iter().partition(|version| crd.served.iter().any(|served| served == *version));
    if missing.is_empty() {
        return None;
    }
    let consequence = if there.is_empty() {
        format!("Steersman supports none of the versions it serves ({}) and cannot read its objects", list(&crd.served))
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

fn conversion(family: Family, crd: &ObservedCrd) -> Option<Finding> {
    let converter = match &crd.conversion {
        Conversion::None => return None,
        Conversion::Service { name, .. } if name == OUR_SERVICE => return None,
        Conversion::Service { namespace, name } => format!("Service {namespace}/{name}"),
        Conversion::Url(url) if url.ends_with(OUR_PATH) => {
            return Some(Finding::info(
                "ConversionByUrl",
                format!("CRD {} is converted by the server at {url}.", family.crd_name()),
                "Keep that server running; Steersman has this address if `steersman run --webhook-url` names it.",
            ));
        }
        Conversion::Url(url) => url.clone(),
    };
    Some(Finding::warning(
        "ConversionElsewhere",
        format!(
            "CRD {} is converted by {converter}, not by Steersman's Service {OUR_SERVICE}. While it does not respond, objects can \
             be read and written only in the version in which they are stored.",
            family.crd_name()
        ),
        format!("Keep {converter} running for as long as the CRD names it."),
    ))
}

fn uncounted(snapshot: &ClusterSnapshot, family: Family, crd: &ObservedCrd) -> Option<Finding> {
    let Lookup::Unknown(why) = &crd.objects else { return None };
    // The cause has a finding of its own, which this one would repeat.
    if !crd.established || refused(snapshot, family.group(), family.plural(), None) {
        return None;
    }
    Some(Finding::warning(
        "ObjectsUnreadable",
        format!("Cannot list the {} objects: {why}.", family.kind()),
        format!("Check why `kubectl get {}.{} -A` fails, then run preflight again.", family.plural(), family.group()),
    ))
}

fn unreadable_crd(snapshot: &ClusterSnapshot, family: Family, why: &str) -> Option<Finding> {
    let name = family.crd_name();
    (!refused(snapshot, "apiextensions.k8s.io", "customresourcedefinitions", Some(name))).then(|| {
        Finding::warning(
            "CrdUnreadable",
            format!("Cannot read the CRD {name}: {why}."),
            format!("Check why `kubectl get crd {name}` fails, then run preflight again."),
        )
    })
}

fn unreadable_lease(snapshot: &ClusterSnapshot, lease: &LegacyLease, why: &str) -> Option<Finding> {
    (!refused(snapshot, "coordination.k8s.io", "leases", Some(lease.name))).then(|| {
        Finding::warning(
            "LeaseUnreadable",
            format!("Cannot determine whether {} runs in this cluster: {why}.", lease.operator),
            format!("Make sure that it does not act on the same {}.", kinds(lease)),
        )
    })
}

fn held(snapshot: &ClusterSnapshot, legacy: &LegacyLease, lease: &ObservedLease) -> Option<Finding> {
    let holder = lease.holder.as_deref().filter(|holder| !holder.is_empty())?;
    let age = lease.renewed.map(|renewed| snapshot.now.as_second().saturating_sub(renewed.as_second()).max(0));
    let lasts = i64::from(lease.lasts_seconds.unwrap_or(USUAL_LEASE_SECONDS));
    let place = format!("Lease {}/{}", lease.namespace, legacy.name);
    let operator = legacy.operator;
    let renewed = age.map_or_else(|| "never renewed".to_owned(), |age| format!("renewed {age} s ago"));
    if age.is_some_and(|age| age > lasts.saturating_add(CLOCK_SLACK_SECONDS)) {
        return Some(Finding::info(
            "LeaseAbandoned",
            format!("{place} names {holder} as holder but was {renewed}: {operator} seems to be stopped."),
            format!("No action is needed if {operator} was uninstalled."),
        ));
    }
    Some(Finding::warning(
        "OtherOperatorActive",
        format!("{place} is held by {holder}, {renewed}: {operator} is running."),
        format!("Stop it before Steersman acts on {}: two operators must not act on the same objects.", kinds(legacy)),
    ))
}

/// Whether a missing right explains a failed read.
fn refused(snapshot: &ClusterSnapshot, group: &str, resource: &str, name: Option<&str>) -> bool {
    snapshot.rights.iter().any(|ObservedRight { right, allowed }| {
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
