//! One case for each preflight rule, with the exact text of its finding.

use steersman_api::meta::ServerVersion;
use steersman_api::{Family, LEGACY_LEASES};
use steersman_plan::preflight::{Conversion, CrdSeen, LeaseSeen, Reach, Right, RightSeen, Seen, plan};
use steersman_reconcile::Lookup;
use steersman_reconcile::Severity::{self, Blocker, Info, Warning};

use super::{healthy_cluster, healthy_crd, lease_held_by, list_right, only_finding, with_crd, with_lease};

fn assert_finding(cluster: &Seen, severity: Severity, reason: &str, message: &str, remedy: &str) {
    let finding = only_finding(cluster);
    assert_eq!((finding.severity, finding.reason), (severity, reason));
    assert_eq!(finding.message, message);
    assert_eq!(finding.remedy, remedy);
}

#[test]
fn healthy_cluster_has_no_findings() {
    assert_eq!(plan(&healthy_cluster()), []);
    let oldest = Seen { server: Lookup::Known(ServerVersion::new(1, 33)), ..healthy_cluster() };
    assert_eq!(plan(&oldest), []);
}

#[test]
fn old_server_blocks() {
    assert_finding(
        &Seen { server: Lookup::Known(ServerVersion::new(1, 32)), ..healthy_cluster() },
        Blocker,
        "ServerTooOld",
        "The API server is Kubernetes 1.32; Steersman needs 1.33 or newer.",
        "Upgrade the control plane to Kubernetes 1.33 or newer.",
    );
}

#[test]
fn unknown_server_version_blocks() {
    assert_finding(
        &Seen { server: Lookup::Unknown("forbidden".into()), ..healthy_cluster() },
        Blocker,
        "ServerVersionUnknown",
        "The version of the API server could not be read: forbidden.",
        "Check that `kubectl version` shows a server of 1.33 or newer, then run preflight again.",
    );
}

#[test]
fn missing_right_blocks_with_rule() {
    assert_finding(
        &Seen { rights: vec![list_right(Lookup::Known(false))], ..healthy_cluster() },
        Blocker,
        "RightMissing",
        "ada may not list llamastackdistributions.llamastack.io in all namespaces; Steersman needs it to count the objects.",
        "Bind a ClusterRole with the rule {apiGroups: [\"llamastack.io\"], resources: [\"llamastackdistributions\"], \
         verbs: [\"list\"]}; deploy/rbac.yaml, printed by `steersman rbac`, has it.",
    );
}

#[test]
fn missing_right_names_object_and_user() {
    let right = Right {
        group: "apiextensions.k8s.io".into(),
        resource: "customresourcedefinitions".into(),
        name: Some("x.y".into()),
        verb: "get".into(),
        reach: Reach::Cluster,
        why: "see it".into(),
    };
    let rights = vec![RightSeen { right, allowed: Lookup::Known(false) }];
    assert_finding(
        &Seen { rights, user: Lookup::Unknown("timed out".into()), ..healthy_cluster() },
        Blocker,
        "RightMissing",
        "The current user may not get customresourcedefinitions.apiextensions.k8s.io named x.y; Steersman needs it to see it.",
        "Bind a ClusterRole with the rule {apiGroups: [\"apiextensions.k8s.io\"], resources: \
         [\"customresourcedefinitions\"], resourceNames: [\"x.y\"], verbs: [\"get\"]}; deploy/rbac.yaml, printed by \
         `steersman rbac`, has it.",
    );
}

#[test]
fn subresource_right_names_namespace() {
    let right = Right {
        group: String::new(),
        resource: "pods/log".into(),
        name: None,
        verb: "get".into(),
        reach: Reach::Namespace("steersman-system".into()),
        why: "read it".into(),
    };
    let cluster_with =
        |allowed| Seen { rights: vec![RightSeen { right: right.clone(), allowed }], ..healthy_cluster() };
    assert_finding(
        &cluster_with(Lookup::Known(false)),
        Blocker,
        "RightMissing",
        "ada may not get log of pods in namespace steersman-system; Steersman needs it to read it.",
        "Bind a Role with the rule {apiGroups: [\"\"], resources: [\"pods/log\"], verbs: [\"get\"]}; deploy/rbac.yaml, \
         printed by `steersman rbac`, has it.",
    );
    assert_finding(
        &cluster_with(Lookup::Unknown("timed out".into())),
        Blocker,
        "RightUnknown",
        "It could not be found out whether ada may get log of pods in namespace steersman-system: timed out.",
        "Make `kubectl auth can-i get pods --subresource=log -n steersman-system` answer, then run preflight again.",
    );
}

#[test]
fn unchecked_right_blocks() {
    assert_finding(
        &Seen { rights: vec![list_right(Lookup::Unknown("timed out".into()))], ..healthy_cluster() },
        Blocker,
        "RightUnknown",
        "It could not be found out whether ada may list llamastackdistributions.llamastack.io in all namespaces: timed out.",
        "Make `kubectl auth can-i list llamastackdistributions.llamastack.io -A` answer, then run preflight again.",
    );
}

#[test]
fn absent_crd_is_informational() {
    assert_finding(
        &with_crd(Family::Va, Lookup::Known(None)),
        Info,
        "CrdAbsent",
        "CRD variantautoscalings.llmd.ai is not installed: there can be no VariantAutoscaling here.",
        "Install it with `steersman crds --apply va` to use va; the other families do not need it.",
    );
    assert_finding(
        &with_crd(Family::Dgd, Lookup::Known(None)),
        Info,
        "CrdAbsent",
        "CRD dynamographdeployments.nvidia.com is not installed: there can be no DynamoGraphDeployment here.",
        "Install it with Dynamo's own operator to have requests deployed: dgdr profiles without it and waits for it before it \
         deploys. The other families do not need it.",
    );
}

#[test]
fn unestablished_crd_warns_once() {
    let crd = CrdSeen { established: false, objects: Lookup::Unknown("not served".into()), ..healthy_crd(Family::Va) };
    assert_finding(
        &with_crd(Family::Va, Lookup::Known(Some(crd))),
        Warning,
        "CrdNotEstablished",
        "CRD variantautoscalings.llmd.ai is installed but not established: the API server does not serve it.",
        "See its conditions: kubectl describe crd variantautoscalings.llmd.ai",
    );
}

#[test]
fn crd_missing_one_version_warns() {
    let crd = CrdSeen { served: vec!["v1alpha1".into()], storage: "v1alpha1".into(), ..healthy_crd(Family::Llsd) };
    assert_finding(
        &with_crd(Family::Llsd, Lookup::Known(Some(crd))),
        Warning,
        "VersionNotServed",
        "CRD llamastackdistributions.llamastack.io does not serve v1alpha2: the API server refuses manifests of \
         llamastack.io/v1alpha2; objects stay readable as v1alpha1.",
        "Install a LlamaStackDistribution CRD that serves v1alpha1, v1alpha2 if you want to use v1alpha2.",
    );
}

#[test]
fn crd_without_known_versions_warns() {
    let crd = CrdSeen { served: vec!["v2".into(), "v3".into()], storage: "v3".into(), ..healthy_crd(Family::Va) };
    assert_finding(
        &with_crd(Family::Va, Lookup::Known(Some(crd))),
        Warning,
        "VersionNotServed",
        "CRD variantautoscalings.llmd.ai does not serve v1alpha1: Steersman knows none of the versions it serves (v2, v3) \
         and cannot read its objects.",
        "Install a VariantAutoscaling CRD that serves v1alpha1 if you want to use v1alpha1.",
    );
}

#[test]
fn additional_crd_versions_are_accepted() {
    let mut crd = healthy_crd(Family::Va);
    crd.served.push("v1".into());
    assert_eq!(plan(&with_crd(Family::Va, Lookup::Known(Some(crd)))), []);
}

#[test]
fn foreign_conversion_webhook_warns() {
    let service = Conversion::Service { namespace: "dynamo-system".into(), name: "webhook".into() };
    let cases = [
        (service, "Service dynamo-system/webhook"),
        (Conversion::Url("https://[::1]:1/c".into()), "https://[::1]:1/c"),
    ];
    for (conversion, converter) in cases {
        let crd = CrdSeen { conversion, ..healthy_crd(Family::Dgd) };
        assert_finding(
            &with_crd(Family::Dgd, Lookup::Known(Some(crd))),
            Warning,
            "ConversionElsewhere",
            &format!(
                "CRD dynamographdeployments.nvidia.com is converted by {converter}, which is not Steersman's: when nothing \
                 answers there, objects can be neither read nor written in any version but the one they are stored in."
            ),
            &format!("Keep {converter} running for as long as the CRD names it."),
        );
    }
}

#[test]
fn unlistable_objects_warn_unless_right_missing() {
    let crd = CrdSeen { objects: Lookup::Unknown("no answer".into()), ..healthy_crd(Family::Llsd) };
    let cluster = with_crd(Family::Llsd, Lookup::Known(Some(crd)));
    assert_finding(
        &cluster,
        Warning,
        "ObjectsUnreadable",
        "The LlamaStackDistribution objects could not be listed: no answer.",
        "Make `kubectl get llamastackdistributions.llamastack.io -A` work, then run preflight again.",
    );
    let denied = Seen { rights: vec![list_right(Lookup::Known(false))], ..cluster };
    assert_eq!(only_finding(&denied).reason, "RightMissing");
}

#[test]
fn unreadable_crd_warns() {
    assert_finding(
        &with_crd(Family::Va, Lookup::Unknown("no answer".into())),
        Warning,
        "CrdUnreadable",
        "CRD variantautoscalings.llmd.ai could not be read: no answer.",
        "Make `kubectl get crd variantautoscalings.llmd.ai` work, then run preflight again.",
    );
}

#[test]
fn active_operator_warns_abandoned_one_informs() {
    let [dynamo, ..] = LEGACY_LEASES;
    let assert_active = |lease: LeaseSeen, renewed: &str| {
        assert_finding(
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
    assert_active(lease_held_by("pod-a", 3), "renewed 3 s ago");
    assert_active(lease_held_by("pod-a", 75), "renewed 75 s ago");
    assert_active(lease_held_by("pod-a", -30), "renewed 0 s ago");
    assert_active(LeaseSeen { lasts_seconds: None, ..lease_held_by("pod-a", 75) }, "renewed 75 s ago");
    assert_active(LeaseSeen { renewed: None, ..lease_held_by("pod-a", 0) }, "never renewed");
    assert_finding(
        &with_lease(dynamo, Lookup::Known(vec![lease_held_by("pod-a", 76)])),
        Info,
        "LeaseAbandoned",
        "Lease elsewhere/dynamo.nvidia.com names pod-a as holder but was renewed 76 s ago: NVIDIA's Dynamo operator seems to \
         be gone.",
        "Nothing, if NVIDIA's Dynamo operator was uninstalled.",
    );
}

#[test]
fn released_lease_is_ignored() {
    for holder in [None, Some(String::new())] {
        let lease = LeaseSeen { holder, ..lease_held_by("", 1) };
        assert_eq!(plan(&with_lease(LEGACY_LEASES[0], Lookup::Known(vec![lease]))), []);
    }
}

#[test]
fn unlistable_leases_warn_unless_right_missing() {
    let cluster = with_lease(LEGACY_LEASES[2], Lookup::Unknown("no answer".into()));
    assert_finding(
        &cluster,
        Warning,
        "LeaseUnreadable",
        "Whether the Llama Stack operator runs here could not be seen: no answer.",
        "Make sure that it does not act on the same LlamaStackDistribution.",
    );
    let mut right = list_right(Lookup::Known(false));
    right.right.group = "coordination.k8s.io".into();
    right.right.resource = "leases".into();
    right.right.name = Some(LEGACY_LEASES[2].name.into());
    assert_eq!(only_finding(&Seen { rights: vec![right], ..cluster }).reason, "RightMissing");
}
