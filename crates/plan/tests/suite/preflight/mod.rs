//! Preflight checks. Each test starts from a healthy cluster and changes one fact.

mod laws;
mod report;
mod rules;

use jiff::Timestamp;
use steersman_api::meta::ServerVersion;
use steersman_api::{Family, LEGACY_LEASES, LegacyLease};
use steersman_plan::preflight::{
    ClusterSnapshot, Conversion, ObservedCrd, ObservedFamily, ObservedLease, ObservedLegacyLease, ObservedRight, Reach,
    Right, plan,
};
use steersman_reconcile::{Finding, Lookup};

fn now() -> Timestamp {
    "2026-11-15T23:00:00Z".parse().unwrap()
}

/// A cluster with a supported server, all CRDs and rights, and no other operator.
fn healthy_cluster() -> ClusterSnapshot {
    ClusterSnapshot {
        now: now(),
        user: Lookup::Known("ada".into()),
        server: Lookup::Known(ServerVersion::new(1, 36)),
        families: Family::ALL
            .map(|family| ObservedFamily { family, crd: Lookup::Known(Some(healthy_crd(family))) })
            .to_vec(),
        rights: vec![list_right(Lookup::Known(true))],
        leases: LEGACY_LEASES.map(|lease| ObservedLegacyLease { lease, found: Lookup::Known(vec![]) }).to_vec(),
    }
}

fn healthy_crd(family: Family) -> ObservedCrd {
    ObservedCrd {
        served: family.served_versions().iter().map(ToString::to_string).collect(),
        storage: family.storage_version().into(),
        established: true,
        conversion: Conversion::None,
        objects: Lookup::Known(0),
    }
}

fn list_right(allowed: Lookup<bool>) -> ObservedRight {
    let right = Right {
        group: Family::Llsd.group().into(),
        resource: Family::Llsd.plural().into(),
        name: None,
        verb: "list".into(),
        reach: Reach::AllNamespaces,
        why: "count the objects".into(),
    };
    ObservedRight { right, allowed }
}

fn lease_held_by(holder: &str, age_seconds: i64) -> ObservedLease {
    ObservedLease {
        namespace: "elsewhere".into(),
        holder: Some(holder.into()),
        renewed: Some(Timestamp::from_second(now().as_second() - age_seconds).unwrap()),
        lasts_seconds: Some(15),
    }
}

fn with_crd(family: Family, crd: Lookup<Option<ObservedCrd>>) -> ClusterSnapshot {
    let mut cluster = healthy_cluster();
    cluster.families.iter_mut().find(|known| known.family == family).unwrap().crd = crd;
    cluster
}

fn with_lease(legacy: LegacyLease, found: Lookup<Vec<ObservedLease>>) -> ClusterSnapshot {
    ClusterSnapshot { leases: vec![ObservedLegacyLease { lease: legacy, found }], ..healthy_cluster() }
}

fn only_finding(cluster: &ClusterSnapshot) -> Finding {
    let mut findings = plan(cluster);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings.remove(0)
}
