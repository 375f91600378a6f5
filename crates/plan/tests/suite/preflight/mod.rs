//! A cluster in which nothing is wrong, from which each test departs in one point.

mod laws;
mod report;
mod rules;

use jiff::Timestamp;
use steersman_api::meta::ServerVersion;
use steersman_api::{Family, LEGACY_LEASES, LegacyLease};
use steersman_plan::preflight::{
    Conversion, CrdSeen, FamilySeen, LeaseSeen, LegacySeen, Reach, Right, RightSeen, Seen, plan,
};
use steersman_reconcile::{Finding, Lookup};

fn now() -> Timestamp {
    "2026-11-15T23:00:00Z".parse().unwrap()
}

/// Newest server, every CRD as Steersman wants it, every right, no other operator.
fn a_good_cluster() -> Seen {
    Seen {
        now: now(),
        user: Lookup::Known("ada".into()),
        server: Lookup::Known(ServerVersion::new(1, 36)),
        families: Family::ALL.map(|family| FamilySeen { family, crd: Lookup::Known(Some(a_crd(family))) }).to_vec(),
        rights: vec![a_right(Lookup::Known(true))],
        leases: LEGACY_LEASES.map(|lease| LegacySeen { lease, found: Lookup::Known(vec![]) }).to_vec(),
    }
}

fn a_crd(family: Family) -> CrdSeen {
    CrdSeen {
        served: family.served_versions().iter().map(ToString::to_string).collect(),
        storage: family.storage_version().into(),
        established: true,
        conversion: Conversion::None,
        objects: Lookup::Known(0),
    }
}

fn a_right(allowed: Lookup<bool>) -> RightSeen {
    let right = Right {
        group: Family::Llsd.group().into(),
        resource: Family::Llsd.plural().into(),
        name: None,
        verb: "list".into(),
        reach: Reach::AllNamespaces,
        why: "count the objects".into(),
    };
    RightSeen { right, allowed }
}

fn a_lease(holder: &str, age_seconds: i64) -> LeaseSeen {
    LeaseSeen {
        namespace: "elsewhere".into(),
        holder: Some(holder.into()),
        renewed: Some(Timestamp::from_second(now().as_second() - age_seconds).unwrap()),
        lasts_seconds: Some(15),
    }
}

fn with_crd(family: Family, crd: Lookup<Option<CrdSeen>>) -> Seen {
    let mut seen = a_good_cluster();
    seen.families.iter_mut().find(|seen| seen.family == family).unwrap().crd = crd;
    seen
}

fn with_lease(legacy: LegacyLease, found: Lookup<Vec<LeaseSeen>>) -> Seen {
    Seen { leases: vec![LegacySeen { lease: legacy, found }], ..a_good_cluster() }
}

fn only_finding(seen: &Seen) -> Finding {
    let mut findings = plan(seen);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings.remove(0)
}
