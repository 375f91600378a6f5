//! Properties that hold for every cluster.

use jiff::Timestamp;
use proptest::prelude::*;
use steersman_api::meta::ServerVersion;
use steersman_api::{Family, LEGACY_LEASES};
use steersman_plan::preflight::{
    ClusterSnapshot, Conversion, ObservedCrd, ObservedFamily, ObservedLease, ObservedLegacyLease, ObservedRight, Reach,
    Right, plan, report,
};
use steersman_reconcile::{Lookup, Severity};

fn lookups<T: std::fmt::Debug>(known: impl Strategy<Value = T>) -> impl Strategy<Value = Lookup<T>> {
    prop_oneof![3 => known.prop_map(Lookup::Known), 1 => ".{0,9}".prop_map(Lookup::Unknown)]
}

fn crds() -> impl Strategy<Value = ObservedCrd> {
    let version = || prop::sample::select(vec!["v1alpha1", "v1alpha2", "v1beta1", "v9"]).prop_map(str::to_owned);
    let conversion = prop_oneof![
        Just(Conversion::None),
        (".{0,5}", ".{0,5}").prop_map(|(namespace, name)| Conversion::Service { namespace, name }),
        ".{0,5}".prop_map(Conversion::Url),
    ];
    (prop::collection::vec(version(), 0..4), version(), any::<bool>(), conversion, lookups(any::<u64>())).prop_map(
        |(served, storage, established, conversion, objects)| ObservedCrd {
            served,
            storage,
            established,
            conversion,
            objects,
        },
    )
}

fn leases() -> impl Strategy<Value = ObservedLease> {
    let time =
        (Timestamp::MIN.as_second()..Timestamp::MAX.as_second()).prop_map(|s| Timestamp::from_second(s).unwrap());
    (".{0,5}", prop::option::of(".{0,5}"), prop::option::of(time), prop::option::of(any::<i32>())).prop_map(
        |(namespace, holder, renewed, lasts_seconds)| ObservedLease { namespace, holder, renewed, lasts_seconds },
    )
}

fn rights(allowed: impl Strategy<Value = Lookup<bool>>) -> impl Strategy<Value = ObservedRight> {
    let resource = prop_oneof![
        Just(("coordination.k8s.io", "leases", Some(LEGACY_LEASES[0].name))),
        Just(("apiextensions.k8s.io", "customresourcedefinitions", Some(Family::Va.crd_name()))),
        Just(("llmd.ai", "variantautoscalings", None)),
    ];
    let reach = prop_oneof![
        Just(Reach::Cluster),
        Just(Reach::AllNamespaces),
        Just(Reach::Namespace("steersman-system".into()))
    ];
    (resource, reach, allowed).prop_map(|((group, resource, name), reach, allowed)| ObservedRight {
        right: Right {
            group: group.into(),
            resource: resource.into(),
            name: name.map(Into::into),
            verb: "list".into(),
            reach,
            why: "see".into(),
        },
        allowed,
    })
}

fn clusters() -> impl Strategy<Value = ClusterSnapshot> {
    let families =
        prop::collection::vec((prop::sample::select(Family::ALL.to_vec()), lookups(prop::option::of(crds()))), 0..6);
    let leases = prop::collection::vec(
        (prop::sample::select(LEGACY_LEASES.to_vec()), lookups(prop::collection::vec(leases(), 0..3))),
        0..4,
    );
    let server = (0..3u32, 0..60u32).prop_map(|(major, minor)| ServerVersion::new(major, minor));
    let rights = prop::collection::vec(rights(lookups(any::<bool>())), 0..5);
    (lookups(".{0,5}"), lookups(server), families, rights, leases).prop_map(
        |(user, server, families, rights, leases)| ClusterSnapshot {
            now: super::now(),
            user,
            server,
            families: families.into_iter().map(|(family, crd)| ObservedFamily { family, crd }).collect(),
            rights,
            leases: leases.into_iter().map(|(lease, found)| ObservedLegacyLease { lease, found }).collect(),
        },
    )
}

fn is_ready(cluster: &ClusterSnapshot) -> bool {
    report(cluster.clone(), plan(cluster)).ready
}

proptest! {
    #[test]
    fn findings_are_deterministic_and_sorted(cluster in clusters()) {
        let findings = plan(&cluster);
        prop_assert_eq!(&findings, &plan(&cluster.clone()));
        prop_assert!(findings.is_sorted_by_key(|finding| finding.severity));
        prop_assert!(findings.iter().all(|finding| !finding.message.is_empty() && !finding.remedy.is_empty()));
        let blocked = findings.iter().any(|finding| finding.severity == Severity::Blocker);
        prop_assert_eq!(is_ready(&cluster), !blocked);
    }

    #[test]
    fn missing_right_prevents_ready(cluster in clusters(), denied in rights(Just(Lookup::Known(false)))) {
        let mut restricted = cluster;
        restricted.rights.push(denied);
        prop_assert!(!is_ready(&restricted));
    }

    #[test]
    fn granted_rights_remove_only_right_findings(cluster in clusters()) {
        let mut granted = cluster.clone();
        granted.rights.iter_mut().for_each(|right| right.allowed = Lookup::Known(true));
        prop_assert!(is_ready(&granted) || !is_ready(&cluster));
        prop_assert!(plan(&granted).iter().all(|finding| !finding.reason.starts_with("Right")));
    }

    #[test]
    fn order_of_rights_is_irrelevant(cluster in clusters()) {
        let mut reordered = cluster.clone();
        reordered.rights.reverse();
        let messages = |cluster: &ClusterSnapshot| {
            let mut messages: Vec<_> = plan(cluster).into_iter().map(|finding| finding.message).collect();
            messages.sort();
            messages
        };
        prop_assert_eq!(messages(&cluster), messages(&reordered));
    }

    #[test]
    fn ready_requires_supported_server_version(cluster in clusters()) {
        let new_enough = cluster.server.known().is_some_and(|version| *version >= ServerVersion::new(1, 33));
        prop_assert!(new_enough || !is_ready(&cluster));
    }
}
