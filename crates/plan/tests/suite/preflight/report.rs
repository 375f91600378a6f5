//! The preflight report as text and as JSON.

use serde_json::json;
use steersman_api::{Family, LEGACY_LEASES};
use steersman_plan::preflight::{ClusterSnapshot, Conversion, ObservedCrd, plan, report};
use steersman_reconcile::Lookup;

use super::{healthy_cluster, healthy_crd, lease_held_by, list_right, with_crd};

#[test]
fn text_report_has_facts_table_and_remedies() {
    let dgd = ObservedCrd {
        served: vec!["v1alpha1".into(), "v1beta1".into()],
        conversion: Conversion::Service { namespace: "dynamo-system".into(), name: "webhook".into() },
        objects: Lookup::Known(12),
        ..healthy_crd(Family::Dgd)
    };
    let mut cluster = with_crd(Family::Dgd, Lookup::Known(Some(dgd)));
    cluster.families[0].crd = Lookup::Known(None);
    cluster.families[3].crd = Lookup::Unknown("no answer".into());
    cluster.leases[2].found = Lookup::Known(vec![lease_held_by("pod-a", 3)]);
    cluster.rights = vec![list_right(Lookup::Known(true)), list_right(Lookup::Known(false))];
    let findings = plan(&cluster);
    let expected = "\
Server       Kubernetes 1.36 (1.33 or newer is needed)
User         ada
Permissions  1 of 2 allowed

FAMILY  KIND                          CRD          SERVED             STORED    CONVERSION             OBJECTS
dgdr    DynamoGraphDeploymentRequest  absent       -                  -         -                      -
dgd     DynamoGraphDeployment         established  v1alpha1,v1beta1   v1beta1   dynamo-system/webhook  12
llsd    LlamaStackDistribution        established  v1alpha1,v1alpha2  v1alpha2  none                   0
va      VariantAutoscaling            unknown      -                  -         -                      -

BLOCKER  ada may not list llamastackdistributions.llamastack.io in all namespaces; Steersman needs it to count the objects.
         Bind a ClusterRole with the rule {apiGroups: [\"llamastack.io\"], resources: [\"llamastackdistributions\"], verbs: [\"list\"]}; deploy/rbac.yaml, printed by `steersman rbac`, contains it.
WARNING  CRD dynamographdeployments.nvidia.com is converted by Service dynamo-system/webhook, not by Steersman's Service steersman-webhook. While it does not respond, objects can be read and written only in the version in which they are stored.
         Keep Service dynamo-system/webhook running for as long as the CRD names it.
WARNING  Cannot read the CRD variantautoscalings.llmd.ai: no answer.
         Check why `kubectl get crd variantautoscalings.llmd.ai` fails, then run preflight again.
WARNING  Lease elsewhere/54e06e98.llamastack.io is held by pod-a, renewed 3 s ago: the Llama Stack operator is running.
         Stop it before Steersman acts on LlamaStackDistribution: two operators must not act on the same objects.
INFO     CRD dynamographdeploymentrequests.nvidia.com is not installed, so the cluster has no DynamoGraphDeploymentRequest.
         Install it with `steersman crds --apply dgdr` to use dgdr; the other families do not need it.

Not ready: 1 blocker, 3 warnings.";
    let report = report(cluster, findings);
    assert_eq!(report.lines.join("\n"), expected);
    assert!(!report.ready);
}

#[test]
fn healthy_cluster_is_reported_ready() {
    let report = report(healthy_cluster(), vec![]);
    assert!(report.ready);
    assert_eq!(report.lines.last().unwrap(), "Ready: 0 blockers, 0 warnings.");
    assert_eq!(report.lines.len(), 3 + 1 + 5 + 2);
}

#[test]
fn json_report_has_same_content() {
    let mut cluster = ClusterSnapshot { server: Lookup::Unknown("no answer".into()), ..healthy_cluster() };
    cluster.families.truncate(1);
    cluster.leases = cluster.leases.into_iter().skip(3).collect();
    assert_eq!(cluster.leases[0].lease, LEGACY_LEASES[3]);
    let findings = plan(&cluster);
    assert_eq!(
        serde_json::to_value(report(cluster, findings)).unwrap(),
        json!({
            "ready": false,
            "findings": [{
                "severity": "blocker",
                "reason": "ServerVersionUnknown",
                "message": "Cannot read the version of the API server: no answer.",
                "remedy": "Check that `kubectl version` shows a server of 1.33 or newer, then run preflight again.",
            }],
            "seen": {
                "now": "2026-11-15T23:00:00Z",
                "user": { "known": "ada" },
                "server": { "unknown": "no answer" },
                "families": [{
                    "family": "dgdr",
                    "crd": { "known": {
                        "served": ["v1alpha1", "v1beta1"],
                        "storage": "v1beta1",
                        "established": true,
                        "conversion": "none",
                        "objects": { "known": 0 },
                    } },
                }],
                "rights": [{
                    "group": "llamastack.io",
                    "resource": "llamastackdistributions",
                    "name": null,
                    "verb": "list",
                    "reach": "allNamespaces",
                    "why": "count the objects",
                    "allowed": { "known": true },
                }],
                "leases": [{
                    "name": "72dd1cf1.llm-d.ai",
                    "operator": "the workload-variant-autoscaler",
                    "families": ["va"],
                    "found": { "known": [] },
                }],
            },
        })
    );
}

/// The holder of a Lease is untrusted text: escape sequences must not reach the terminal.
#[test]
fn control_characters_are_escaped() {
    let mut cluster = healthy_cluster();
    cluster.leases[2].found = Lookup::Known(vec![lease_held_by("\u{1b}[31mred\nBLOCKER  forged", 3)]);
    let findings = plan(&cluster);
    let lines = report(cluster, findings).lines;
    assert!(lines.iter().all(|line| !line.contains(char::is_control)), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("\\u{1b}[31mred\\nBLOCKER  forged")), "{lines:#?}");
}
