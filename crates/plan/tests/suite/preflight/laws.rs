//! What holds for every cluster, however broken.

use jiff::Timestamp;
use proptest::prelude::*;
use steersman_api::meta::ServerVersion;
use steersman_api::{Family, LEGACY_LEASES};
use steersman_plan::preflight::{
    Conversion, CrdSeen, FamilySeen, LeaseSeen, LegacySeen, Reach, Right, RightSeen, Seen, plan, report,
};
use steersman_reconcile::{Lookup, Severity};

fn answer<T: std::fmt::Debug>(known: impl Strategy<Value = T>) -> impl Strategy<Value = Lookup<T>> {
    prop_oneof![3 => known.prop_map(Lookup::Known), 1 => ".{0,9}".prop_map(Lookup::Unknown)]
}

fn crd() -> impl Strategy<Value = CrdSeen> {
    let version = || prop::sample::select(vec!["v1alpha1", "v1alpha2", "v1beta1", "v9"]).prop_map(str::to_owned);
    let conversion = prop_oneof![
        Just(Conversion::None),
        (".{0,5}", ".{0,5}").prop_map(|(namespace, name)| Conversion::Service { namespace, name }),
        ".{0,5}".prop_map(Conversion::Url),
    ];
    (prop::collection::vec(version(), 0..4), version(), any::<bool>(), conversion, answer(any::<u64>())).prop_map(
        |(served, storage, established, conversion, objects)| CrdSeen {
            served,
            storage,
            established,
            conversion,
            objects,
        },
    )
}

fn lease() -> impl Strategy<Value = LeaseSeen> {
    let time =
        (Timestamp::MIN.as_second()..Timestamp::MAX.as_second()).prop_map(|s| Timestamp::from_second(s).unwrap());
    (".{0,5}", prop::option::of(".{0,5}"), prop::option::of(time), prop::option::of(any::<i32>()))
        .prop_map(|(namespace, holder, renewed, lasts_seconds)| LeaseSeen { namespace, holder, renewed, lasts_seconds })
}

fn right(allowed: impl Strategy<Value = Lookup<bool>>) -> impl Strategy<Value = RightSeen> {
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
    (resource, reach, allowed).prop_map(|((group, resource, name), reach, allowed)| RightSeen {
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

fn seen() -> impl Strategy<Value = Seen> {
    let families =
        prop::collection::vec((prop::sample::select(Family::ALL.to_vec()), answer(prop::option::of(crd()))), 0..6);
    let leases = prop::collection::vec(
        (prop::sample::select(LEGACY_LEASES.to_vec()), answer(prop::collection::vec(lease(), 0..3))),
        0..4,
    );
    let server = (0..3u32, 0..60u32).prop_map(|(major, minor)| ServerVersion::new(major, minor));
    let rights = prop::collection::vec(right(answer(any::<bool>())), 0..5);
    (answer(".{0,5}"), answer(server), families, rights, leases).prop_map(|(user, server, families, rights, leases)| {
        Seen {
            now: super::now(),
            user,
            server,
            families: families.into_iter().map(|(family, crd)| FamilySeen { family, crd }).collect(),
            rights,
            leases: leases.into_iter().map(|(lease, found)| LegacySeen { lease, found }).collect(),
        }
    })
}

fn ready(seen: &Seen) -> bool {
    report(seen.clone(), plan(seen)).ready
}

proptest! {
    #[test]
    fn every_cluster_gets_one_answer_and_always_the_same(seen in seen()) {
        let findings = plan(&seen);
        prop_assert_eq!(&findings, &plan(&seen.clone()));
        prop_assert!(findings.is_sorted_by_key(|finding| finding.severity));
        prop_assert!(findings.iter().all(|finding| !finding.message.is_empty() && !finding.remedy.is_empty()));
        let blocked = findings.iter().any(|finding| finding.severity == Severity::Blocker);
        prop_assert_eq!(ready(&seen), !blocked);
    }

    #[test]
    fn a_missing_right_never_makes_a_cluster_ready(seen in seen(), denied in right(Just(Lookup::Known(false)))) {
        let mut poorer = seen;
        poorer.rights.push(denied);
        prop_assert!(!ready(&poorer));
    }

    #[test]
    fn granting_every_right_takes_away_only_what_rights_blocked(seen in seen()) {
        let mut granted = seen.clone();
        granted.rights.iter_mut().for_each(|right| right.allowed = Lookup::Known(true));
        prop_assert!(ready(&granted) || !ready(&seen));
        prop_assert!(plan(&granted).iter().all(|finding| !finding.reason.starts_with("Right")));
    }

    #[test]
    fn the_order_in_which_rights_were_asked_does_not_matter(seen in seen()) {
        let mut turned = seen.clone();
        turned.rights.reverse();
        let told = |seen: &Seen| {
            let mut messages: Vec<_> = plan(seen).into_iter().map(|finding| finding.message).collect();
            messages.sort();
            messages
        };
        prop_assert_eq!(told(&seen), told(&turned));
    }

    #[test]
    fn ready_is_said_only_of_a_server_that_is_known_to_be_new_enough(seen in seen()) {
        let new_enough = seen.server.known().is_some_and(|version| *version >= ServerVersion::new(1, 33));
        prop_assert!(new_enough || !ready(&seen));
    }
}
