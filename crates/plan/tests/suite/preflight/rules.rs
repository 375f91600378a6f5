//! Each rule of the preflight: one departure from a good cluster, one finding, word by word.

use steersman_api::meta::ServerVersion;
use steersman_api::{Family, LEGACY_LEASES};
use steersman_plan::preflight::{Conversion, CrdSeen, LeaseSeen, Reach, Right, RightSeen, Seen, plan};
use steersman_reconcile::Lookup;
use steersman_reconcile::Severity::{self, Blocker, Info, Warning};

use super::{a_crd, a_good_cluster, a_lease, a_right, only_finding, with_crd, with_lease};

fn expect(seen: &Seen, severity: Severity, reason: &str, message: &str, remedy: &str) {
    let finding = only_finding(seen);
    assert_eq!((finding.severity, finding.reason), (severity, reason));
    assert_eq!(finding.message, message);
    assert_eq!(finding.remedy, remedy);
}

#[test]
fn a_good_cluster_gives_no_finding() {
    assert_eq!(plan(&a_good_cluster()), []);
    let oldest = Seen { server: Lookup::Known(ServerVersion::new(1, 33)), ..a_good_cluster() };
    assert_eq!(plan(&oldest), []);
}

#[test]
fn an_old_server_blocks() {
    expect(
        &Seen { server: Lookup::Known(ServerVersion::new(1, 32)), ..a_good_cluster() },
        Blocker,
        "ServerTooOld",
        "The API server is Kubernetes 1.32; Steersman needs 1.33 or newer.",
        "Upgrade the control plane to Kubernetes 1.33 or newer.",
    );
}

#[test]
fn a_server_whose_version_is_unknown_blocks() {
    expect(
        &Seen { server: Lookup::Unknown("forbidden".into()), ..a_good_cluster() },
        Blocker,
        "ServerVersionUnknown",
        "The version of the API server could not be read: forbidden.",
        "Check that `kubectl version` shows a server of 1.33 or newer, then run preflight again.",
    );
}

#[test]
fn a_missing_right_blocks_and_names_the_rule() {
    expect(
        &Seen { rights: vec![a_right(Lookup::Known(false))], ..a_good_cluster() },
        Blocker,
        "RightMissing",
        "ada may not list llamastackdistributions.llamastack.io in all namespaces; Steersman needs it to count the objects.",
        "Bind a ClusterRole with the rule {apiGroups: [\"llamastack.io\"], resources: [\"llamastackdistributions\"], \
         verbs: [\"list\"]}; deploy/rbac.yaml, printed by `steersman rbac`, has it.",
    );
}

#[test]
fn a_missing_right_on_one_object_names_it_and_an_unknown_user_is_called_so() {
    let right = Right {
        group: "apiextensions.k8s.io".into(),
        resource: "customresourcedefinitions".into(),
        name: Some("x.y".into()),
        verb: "get".into(),
        reach: Reach::Cluster,
        why: "see it".into(),
    };
    let rights = vec![RightSeen { right, allowed: Lookup::Known(false) }];
    expect(
        &Seen { rights, user: Lookup::Unknown("timed out".into()), ..a_good_cluster() },
        Blocker,
        "RightMissing",
        "The current user may not get customresourcedefinitions.apiextensions.k8s.io named x.y; Steersman needs it to see it.",
        "Bind a ClusterRole with the rule {apiGroups: [\"apiextensions.k8s.io\"], resources: \
         [\"customresourcedefinitions\"], resourceNames: [\"x.y\"], verbs: [\"get\"]}; deploy/rbac.yaml, printed by \
         `steersman rbac`, has it.",
    );
}

#[test]
fn a_right_on_a_part_of_objects_in_one_namespace_is_told_as_such() {
    let right = Right {
        group: String::new(),
        resource: "pods/log".into(),
        name: None,
        verb: "get".into(),
        reach: Reach::Namespace("steersman-system".into()),
        why: "read it".into(),
    };
    let asked = |allowed| Seen { rights: vec![RightSeen { right: right.clone(), allowed }], ..a_good_cluster() };
    expect(
        &asked(Lookup::Known(false)),
        Blocker,
        "RightMissing",
        "ada may not get log of pods in namespace steersman-system; Steersman needs it to read it.",
        "Bind a Role with the rule {apiGroups: [\"\"], resources: [\"pods/log\"], verbs: [\"get\"]}; deploy/rbac.yaml, \
         printed by `steersman rbac`, has it.",
    );
    expect(
        &asked(Lookup::Unknown("timed out".into())),
        Blocker,
        "RightUnknown",
        "It could not be found out whether ada may get log of pods in namespace steersman-system: timed out.",
        "Make `kubectl auth can-i get pods --subresource=log -n steersman-system` answer, then run preflight again.",
    );
}

#[test]
fn a_right_that_could_not_be_checked_blocks() {
    expect(
        &Seen { rights: vec![a_right(Lookup::Unknown("timed out".into()))], ..a_good_cluster() },
        Blocker,
        "RightUnknown",
        "It could not be found out whether ada may list llamastackdistributions.llamastack.io in all namespaces: timed out.",
        "Make `kubectl auth can-i list llamastackdistributions.llamastack.io -A` answer, then run preflight again.",
    );
}

#[test]
fn an_absent_crd_is_no_hindrance() {
    expect(
        &with_crd(Family::Va, Lookup::Known(None)),
        Info,
        "CrdAbsent",
        "CRD variantautoscalings.llmd.ai is not installed: there can be no VariantAutoscaling here.",
        "Install it with `steersman crds --apply va` to use va; the other families do not need it.",
    );
    expect(
        &with_crd(Family::Dgd, Lookup::Known(None)),
        Info,
        "CrdAbsent",
        "CRD dynamographdeployments.nvidia.com is not installed: there can be no DynamoGraphDeployment here.",
        "Install it with Dynamo's own operator to have requests deployed: dgdr profiles without it and waits for it before it \
         deploys. The other families do not need it.",
    );
}

#[test]
fn a_crd_that_is_not_established_warns_once() {
    let crd = CrdSeen { established: false, objects: Lookup::Unknown("not served".into()), ..a_crd(Family::Va) };
    expect(
        &with_crd(Family::Va, Lookup::Known(Some(crd))),
        Warning,
        "CrdNotEstablished",
        "CRD variantautoscalings.llmd.ai is installed but not established: the API server does not serve it.",
        "See its conditions: kubectl describe crd variantautoscalings.llmd.ai",
    );
}

#[test]
fn a_crd_without_one_of_our_versions_warns_what_that_means() {
    let crd = CrdSeen { served: vec!["v1alpha1".into()], storage: "v1alpha1".into(), ..a_crd(Family::Llsd) };
    expect(
        &with_crd(Family::Llsd, Lookup::Known(Some(crd))),
        Warning,
        "VersionNotServed",
        "CRD llamastackdistributions.llamastack.io does not serve v1alpha2: the API server refuses manifests of \
         llamastack.io/v1alpha2; objects stay readable as v1alpha1.",
        "Install a LlamaStackDistribution CRD that serves v1alpha1, v1alpha2 if you want to use v1alpha2.",
    );
}

#[test]
fn a_crd_with_none_of_our_versions_warns_that_its_objects_are_out_of_reach() {
    let crd = CrdSeen { served: vec!["v2".into(), "v3".into()], storage: "v3".into(), ..a_crd(Family::Va) };
    expect(
        &with_crd(Family::Va, Lookup::Known(Some(crd))),
        Warning,
        "VersionNotServed",
        "CRD variantautoscalings.llmd.ai does not serve v1alpha1: Steersman knows none of the versions it serves (v2, v3) \
         and cannot read its objects.",
        "Install a VariantAutoscaling CRD that serves v1alpha1 if you want to use v1alpha1.",
    );
}

#[test]
fn more_versions_than_ours_are_fine() {
    let mut crd = a_crd(Family::Va);
    crd.served.push("v1".into());
    assert_eq!(plan(&with_crd(Family::Va, Lookup::Known(Some(crd)))), []);
}

#[test]
fn a_conversion_by_someone_else_warns_and_names_it() {
    let service = Conversion::Service { namespace: "dynamo-system".into(), name: "webhook".into() };
    let cases = [
        (service, "Service dynamo-system/webhook"),
        (Conversion::Url("https://[::1]:1/c".into()), "https://[::1]:1/c"),
    ];
    for (conversion, named) in cases {
        let crd = CrdSeen { conversion, ..a_crd(Family::Dgd) };
        expect(
            &with_crd(Family::Dgd, Lookup::Known(Some(crd))),
            Warning,
            "ConversionElsewhere",
            &format!(
                "CRD dynamographdeployments.nvidia.com is converted by {named}, which is not Steersman's: when nothing \
                 answers there, objects can be neither read nor written in any version but the one they are stored in."
            ),
            &format!("Keep {named} running for as long as the CRD names it."),
        );
    }
}

#[test]
fn objects_that_cannot_be_listed_warn_unless_the_missing_right_is_told_already() {
    let crd = CrdSeen { objects: Lookup::Unknown("no answer".into()), ..a_crd(Family::Llsd) };
    let seen = with_crd(Family::Llsd, Lookup::Known(Some(crd)));
    expect(
        &seen,
        Warning,
        "ObjectsUnreadable",
        "The LlamaStackDistribution objects could not be listed: no answer.",
        "Make `kubectl get llamastackdistributions.llamastack.io -A` work, then run preflight again.",
    );
    let denied = Seen { rights: vec![a_right(Lookup::Known(false))], ..seen };
    assert_eq!(only_finding(&denied).reason, "RightMissing");
}

#[test]
fn a_crd_that_cannot_be_read_warns() {
    expect(
        &with_crd(Family::Va, Lookup::Unknown("no answer".into())),
        Warning,
        "CrdUnreadable",
        "CRD variantautoscalings.llmd.ai could not be read: no answer.",
        "Make `kubectl get crd variantautoscalings.llmd.ai` work, then run preflight again.",
    );
}

#[test]
fn an_operator_at_work_warns_and_a_gone_one_is_mentioned() {
    let [dynamo, ..] = LEGACY_LEASES;
    let active = |lease: LeaseSeen, renewed: &str| {
        expect(
            &with_lease(dynamo, Lookup::Known(vec![lease])),
            Warning,
            "OtherOperatorActive",
            &format!(
                "Lease elsewhere/dynamo.nvidia.com is held by pod-a, {renewed}: NVIDIA's Dynamo operator is at work here."
            ),
            "Stop it before Steersman acts on DynamoGraphDeploymentRequest and DynamoGraphDeployment: two operators must not \
             act on the same objects.",
        );
    };
    active(a_lease("pod-a", 3), "renewed 3 s ago");
    active(a_lease("pod-a", 75), "renewed 75 s ago");
    active(a_lease("pod-a", -30), "renewed 0 s ago");
    active(LeaseSeen { lasts_seconds: None, ..a_lease("pod-a", 75) }, "renewed 75 s ago");
    active(LeaseSeen { renewed: None, ..a_lease("pod-a", 0) }, "never renewed");
    expect(
        &with_lease(dynamo, Lookup::Known(vec![a_lease("pod-a", 76)])),
        Info,
        "LeaseAbandoned",
        "Lease elsewhere/dynamo.nvidia.com names pod-a as holder but was renewed 76 s ago: NVIDIA's Dynamo operator seems to \
         be gone.",
        "Nothing, if NVIDIA's Dynamo operator was uninstalled.",
    );
}

#[test]
fn a_lease_that_was_given_up_is_not_worth_a_word() {
    for holder in [None, Some(String::new())] {
        let lease = LeaseSeen { holder, ..a_lease("", 1) };
        assert_eq!(plan(&with_lease(LEGACY_LEASES[0], Lookup::Known(vec![lease]))), []);
    }
}

#[test]
fn leases_that_cannot_be_listed_warn_unless_the_missing_right_is_told_already() {
    let seen = with_lease(LEGACY_LEASES[2], Lookup::Unknown("no answer".into()));
    expect(
        &seen,
        Warning,
        "LeaseUnreadable",
        "Whether the Llama Stack operator runs here could not be seen: no answer.",
        "Make sure that it does not act on the same LlamaStackDistribution.",
    );
    let mut right = a_right(Lookup::Known(false));
    right.right.group = "coordination.k8s.io".into();
    right.right.resource = "leases".into();
    right.right.name = Some(LEGACY_LEASES[2].name.into());
    assert_eq!(only_finding(&Seen { rights: vec![right], ..seen }).reason, "RightMissing");
}
