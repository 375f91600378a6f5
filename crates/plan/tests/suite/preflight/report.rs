//! The report as people and scripts read it.

use serde_json::json;
use steersman_api::{Family, LEGACY_LEASES};
use steersman_plan::preflight::{Conversion, CrdSeen, Seen, plan, report};
use steersman_reconcile::Lookup;

use super::{a_crd, a_good_cluster, a_lease, a_right, with_crd};

#[test]
fn people_see_facts_a_table_and_what_to_do() {
    let dgd = CrdSeen {
        served: vec!["v1alpha1".into(), "v1beta1".into()],
        conversion: Conversion::Service { namespace: "dynamo-system".into(), name: "webhook".into() },
        objects: Lookup::Known(12),
        ..a_crd(Family::Dgd)
    };
    let mut seen = with_crd(Family::Dgd, Lookup::Known(Some(dgd)));
    seen.families[0].crd = Lookup::Known(None);
    seen.families[3].crd = Lookup::Unknown("no answer".into());
    seen.leases[2].found = Lookup::Known(vec![a_lease("pod-a", 3)]);
    seen.rights = vec![a_right(Lookup::Known(true)), a_right(Lookup::Known(false))];
    let findings = plan(&seen);
    let expected = "\
Server  Kubernetes 1.36 (1.33 or newer is needed)
User    ada
Rights  1 of 2 allowed

FAMILY  KIND                          CRD          SERVED             STORED    CONVERSION             OBJECTS
dgdr    DynamoGraphDeploymentRequest  absent       -                  -         -                      -
dgd     DynamoGraphDeployment         established  v1alpha1,v1beta1   v1beta1   dynamo-system/webhook  12
llsd    LlamaStackDistribution        established  v1alpha1,v1alpha2  v1alpha2  none                   0
va      VariantAutoscaling            unknown      -                  -         -                      -

BLOCKER  ada may not list llamastackdistributions.llamastack.io in all namespaces; Steersman needs it to count the objects.
         Bind a ClusterRole with the rule {apiGroups: [\"llamastack.io\"], resources: [\"llamastackdistributions\"], verbs: [\"list\"]}; deploy/rbac.yaml, printed by `steersman rbac`, has it.
WARNING  CRD dynamographdeployments.nvidia.com is converted by Service dynamo-system/webhook, which is not Steersman's: when nothing answers there, objects can be neither read nor written in any version but the one they are stored in.
         Keep Service dynamo-system/webhook running for as long as the CRD names it.
WARNING  CRD variantautoscalings.llmd.ai could not be read: no answer.
         Make `kubectl get crd variantautoscalings.llmd.ai` work, then run preflight again.
WARNING  Lease elsewhere/54e06e98.llamastack.io is held by pod-a, renewed 3 s ago: the Llama Stack operator is at work here.
         Stop it before Steersman acts on LlamaStackDistribution: two operators must not act on the same objects.
INFO     CRD dynamographdeploymentrequests.nvidia.com is not installed: there can be no DynamoGraphDeploymentRequest here.
         Install it with `steersman crds --apply dgdr` to use dgdr; the other families do not need it.

Not ready: 1 blocker, 3 warnings.";
    let report = report(seen, findings);
    assert_eq!(report.lines.join("\n"), expected);
    assert!(!report.ready);
}

#[test]
fn a_good_cluster_is_called_ready_without_further_words() {
    let report = report(a_good_cluster(), vec![]);
    assert!(report.ready);
    assert_eq!(report.lines.last().unwrap(), "Ready: 0 blockers, 0 warnings.");
    assert_eq!(report.lines.len(), 3 + 1 + 5 + 2);
}

#[test]
fn scripts_get_the_same_as_data() {
    let mut seen = Seen { server: Lookup::Unknown("no answer".into()), ..a_good_cluster() };
    seen.families.truncate(1);
    seen.leases = seen.leases.into_iter().skip(3).collect();
    assert_eq!(seen.leases[0].lease, LEGACY_LEASES[3]);
    let findings = plan(&seen);
    assert_eq!(
        serde_json::to_value(report(seen, findings)).unwrap(),
        json!({
            "ready": false,
            "findings": [{
                "severity": "blocker",
                "reason": "ServerVersionUnknown",
                "message": "The version of the API server could not be read: no answer.",
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

/// Whoever can write a Lease can put anything into its holder; it must not reach the terminal as a command.
#[test]
fn control_characters_of_others_are_shown_not_sent() {
    let mut seen = a_good_cluster();
    seen.leases[2].found = Lookup::Known(vec![a_lease("\u{1b}[31mred\nBLOCKER  forged", 3)]);
    let findings = plan(&seen);
    let lines = report(seen, findings).lines;
    assert!(lines.iter().all(|line| !line.contains(char::is_control)), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("\\u{1b}[31mred\\nBLOCKER  forged")), "{lines:#?}");
}
