//! One case for each preflight rule, with the exact text of its finding.

use steersman_api::meta::ServerVersion;
use steersman_api::{Family, LEGACY_LEASES};
use steersman_plan::preflight::{
    ClusterSnapshot, Conversion, ObservedCrd, ObservedLease, ObservedRight, Reach, Right, plan,
};
use steersman_reconcile::Lookup;
use steersman_reconcile::Severity::{self, Blocker, Info, Warning};

use super::{healthy_cluster, healthy_crd, lease_held_by, list_right, only_finding, with_crd, with_lease};

fn assert_finding(cluster: &ClusterSnapshot, severity: Severity, reason: &str, message: &str, remedy: &str) {
    let finding = only_finding(cluster);
    assert_eq!((finding.severity, finding.reason), (severity, reason));
    assert_eq!(finding.message, message);
    assert_eq!(finding.remedy, remedy);
}

#[test]
fn healthy_cluster_has_no_findings() {
    assert_eq!(plan(&healthy_cluster()), []);
    let oldest = ClusterSnapshot { server: Lookup::Known(ServerVersion::new(1, 33)), ..healthy_cluster() };
    assert_eq!(plan(&oldest), []);
}

#[test]
fn old_server_blocks() {
    assert_finding(
        &ClusterSnapshot { server: Lookup::Known(ServerVersion::new(1, 32)), ..healthy_cluster() },
        Blocker,
        "ServerTooOld",
        "The API server is Kubernetes 1.32; Steersman needs 1.33 or newer.",
        "Upgrade the control plane to Kubernetes 1.33 or newer.",
    );
}

#[test]
fn unknown_server_version_blocks() {
    assert_finding(
        &ClusterSnapshot { server: Lookup::Unknown("forbidden".into()), ..healthy_cluster() },
        Blocker,
        "ServerVersionUnknown",
        "Cannot read the version of the API server: forbidden.",
        "Check that `kubectl version` shows a server of 1.33 or newer, then run preflight again.",
    );
}

#[test]
fn missing_right_blocks_with_rule() {
    assert_finding(
        &ClusterSnapshot { rights: vec![list_right(Lookup::Known(false))], ..healthy_cluster() },
        Blocker,
        "RightMissing",
        "ada may not list llamastackdistributions.llamastack.io in all namespaces; Steersman needs it to count the objects.",
        "Bind a ClusterRole with the rule {apiGroups: [\"llamastack.io\"], resources: [\"llamastackdistributions\"], \
         verbs: [\"list\"]}; deploy/rbac.yaml, printed by `steersman rbac`, contains it.",
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
    let rights = vec![ObservedRight { right, allowed: Lookup::Known(false) }];
    assert_finding(
        &ClusterSnapshot { rights, user: Lookup::Unknown("timed out".into()), ..healthy_cluster() },
        Blocker,
        "RightMissing",
        "The current user may not get customresourcedefinitions.apiextensions.k8s.io named x.y; Steersman needs it to see it.",
        "Bind a ClusterRole with the rule {apiGroups: [\"apiextensions.k8s.io\"], resources: \
         [\"customresourcedefinitions\"], resourceNames: [\"x.y\"], verbs: [\"get\"]}; deploy/rbac.yaml, printed by \
         `steersman rbac`, contains it.",
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
    let cluster_with = |allowed| ClusterSnapshot {
        rights: vec![ObservedRight { right: right.clone(), allowed }],
        ..healthy_cluster()
    };
    assert_finding(
        &cluster_with(Lookup::Known(false)),
        Blocker,
        "RightMissing",
        "ada may not get log of pods in namespace steersman-system; Steersman needs it to read it.",
        "Bind a Role with the rule {apiGroups: [\"\"], resources: [\"pods/log\"], verbs: [\"get\"]}; deploy/rbac.yaml, \
         printed by `steersman rbac`, contains it.",
    );
    assert_finding(
        &cluster_with(Lookup::Unknown("timed out".into())),
        Blocker,
        "RightUnknown",
        "Cannot determine whether ada may get log of pods in namespace steersman-system: timed out.",
        "Check why `kubectl auth can-i get pods --subresource=log -n steersman-system` fails, then run preflight again.",
    );
}

#[test]
fn unchecked_right_blocks() {
    assert_finding(
        &ClusterSnapshot { rights: vec![list_right(Lookup::Unknown("timed out".into()))], ..healthy_cluster() },
        Blocker,
        "RightUnknown",
        "Cannot determine whether ada may list llamastackdistributions.llamastack.io in all namespaces: timed out.",
        "Check why `kubectl auth can-i list llamastackdistributions.llamastack.io -A` fails, then run preflight again.",
    );
}

#[test]
fn absent_crd_is_informational() {
    assert_finding(
        &with_crd(Family::Va, Lookup::Known(None)),
        Info,
        "CrdAbsent",
        "CRD variantautoscalings.llmd.ai is not installed, so the cluster has no VariantAutoscaling.",
        "Install it with `steersman crds --apply va` to use va; the other families do not need it.",
    );
    assert_finding(
        &with_crd(Family::Dgd, Lookup::Known(None)),
        Info,
        "CrdAbsent",
        "CRD dynamographdeployments.nvidia.com is not installed, so the cluster has no DynamoGraphDeployment.",
        "Install the CRDs of NVIDIA's Dynamo operator to deploy graphs. Without this CRD dgdr still profiles requests, and waits \
         with their deployment. The other families do not need it.",
    );
}

#[test]
fn unestablished_crd_warns_once() {
    let crd =
        ObservedCrd { established: false, objects: Lookup::Unknown("not served".into()), ..healthy_crd(Family::Va) };
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
    let crd = ObservedCrd { served: vec!["v1alpha1".into()], storage: "v1alpha1".into(), ..healthy_crd(Family::Llsd) };
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
    let crd = ObservedCrd { served: vec!["v2".into(), "v3".into()], storage: "v3".into(), ..healthy_crd(Family::Va) };
    assert_finding(
        &with_crd(Family::Va, Lookup::Known(Some(crd))),
        Warning,
        "VersionNotServed",
        "CRD variantautoscalings.llmd.ai does not serve v1alpha1: Steersman supports none of the versions it serves (v2, v3) \
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
        let crd = ObservedCrd { conversion, ..healthy_crd(Family::Dgd) };
        assert_finding(
            &with_crd(Family::Dgd, Lookup::Known(Some(crd))),
            Warning,
            "ConversionElsewhere",
            &format!(
                "CRD dynamographdeployments.nvidia.com is converted by {converter}, not by Steersman's Service \
                 steersman-webhook. While it does not respond, objects can be read and written only in the version in which \
                 they are stored."
            ),
            &format!("Keep {converter} running for as long as the CRD names it."),
        );
    }
}

#[test]
fn unlistable_objects_warn_unless_right_missing() {
    let crd = ObservedCrd { objects: Lookup::Unknown("no answer".into()), ..healthy_crd(Family::Llsd) };
    let cluster = with_crd(Family::Llsd, Lookup::Known(Some(crd)));
    assert_finding(
        &cluster,
        Warning,
        "ObjectsUnreadable",
        "Cannot list the LlamaStackDistribution objects: no answer.",
        "Check why `kubectl get llamastackdistributions.llamastack.io -A` fails, then run preflight again.",
    );
    let denied = ClusterSnapshot { rights: vec![list_right(Lookup::Known(false))], ..cluster };
    assert_eq!(only_finding(&denied).reason, "RightMissing");
}

#[test]
fn unreadable_crd_warns() {
    assert_finding(
        &with_crd(Family::Va, Lookup::Unknown("no answer".into())),
        Warning,
        "CrdUnreadable",
        "Cannot read the CRD variantautoscalings.llmd.ai: no answer.",
        "Check why `kubectl get crd variantautoscalings.llmd.ai` fails, then run preflight again.",
    );
}

#[test]
fn active_operator_warns_abandoned_one_informs() {
    let [dynamo, ..] = LEGACY_LEASES;
    let assert_active = |lease: ObservedLease, renewed: &str| {
        assert_finding(
            &with_lease(dynamo, Lookup::Known(vec![lease])),
            Warning,
            "OtherOperatorActive",
            &format!(
                "Lease elsewhere/dynamo.nvidia.com is held by pod-a, {renewed}: NVIDIA's Dynamo operator is running."
            ),
            "Stop it before Steersman acts on DynamoGraphDeploymentRequest and DynamoGraphDeployment: two operators must not \
             act on the same objects.",
        );
    };
    assert_active(lease_held_by("pod-a", 3), "renewed 3 s ago");
    assert_active(lease_held_by("pod-a", 75), "renewed 75 s ago");
    assert_active(lease_held_by("pod-a", -30), "renewed 0 s ago");
    assert_active(ObservedLease { lasts_seconds: None, ..lease_held_by("pod-a", 75) }, "renewed 75 s ago");
    assert_active(ObservedLease { renewed: None, ..lease_held_by("pod-a", 0) }, "never renewed");
    assert_finding(
        &with_lease(dynamo, Lookup::Known(vec![lease_held_by("pod-a", 76)])),
        Info,
        "LeaseAbandoned",
        "Lease elsewhere/dynamo.nvidia.com names pod-a as holder but was renewed 76 s ago: NVIDIA's Dynamo operator seems to \
         be stopped.",
        "No action is needed if NVIDIA's Dynamo operator was uninstalled.",
    );
}

#[test]
fn released_lease_is_ignored() {
    for holder in [None, Some(String::new())] {
        let lease = ObservedLease { holder, ..lease_held_by("", 1) };
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
        "Cannot determine whether the Llama Stack operator runs in this cluster: no answer.",
        "Make sure that it does not act on the same LlamaStackDistribution.",
    );
    let mut right = list_right(Lookup::Known(false));
    right.right.group = "coordination.k8s.io".into();
    right.right.resource = "leases".into();
    right.right.name = Some(LEGACY_LEASES[2].name.into());
    assert_eq!(only_finding(&ClusterSnapshot { rights: vec![right], ..cluster }).reason, "RightMissing");
}
