//! Each rule: one departure from a good spec, one finding, word by word.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use steersman_plan::Severity::{Blocker, Warning};
use steersman_plan::llamastack::{ClaimSeen, Seen, plan, report};
use steersman_plan::{NoteKind, Outcome};

use super::{a_new_object, a_settled_object, stored};

fn server(fields: &str) -> Seen {
    a_new_object(&format!("{{server: {{distribution: {{name: starter}}, {fields}}}}}"))
}

fn distribution(fields: &str) -> Seen {
    a_new_object(&format!("{{server: {{distribution: {{{fields}}}}}}}"))
}

fn network(fields: &str) -> Seen {
    a_new_object(&format!("{{server: {{distribution: {{name: starter}}}}, network: {{{fields}}}}}"))
}

#[test]
fn each_departure_gives_its_finding() {
    let names =
        "Set spec.server.distribution.name to one of postgres-demo, starter, or spec.server.distribution.image.";
    for (seen, severity, reason, message, remedy) in [
        (
            distribution("name: nobody"),
            Blocker,
            "DistributionUnknown",
            "failed to validate distribution: nobody. Distribution name not supported",
            names,
        ),
        (
            distribution("name: ''"),
            Blocker,
            "DistributionMissing",
            "failed to validate distribution: either distribution.name or distribution.image must be set",
            names,
        ),
        (
            distribution("name: starter, image: x"),
            Blocker,
            "DistributionAmbiguous",
            "Only one of name or image can be specified",
            "Remove spec.server.distribution.name or spec.server.distribution.image.",
        ),
        (
            server("containerSpec: {port: 70000}"),
            Blocker,
            "PortInvalid",
            "spec.server.containerSpec.port is 70000, which is not a port.",
            "Set it to a number from 1 to 65535, or leave it out for 8321.",
        ),
        (
            a_new_object("{replicas: -1, server: {distribution: {name: starter}}}"),
            Blocker,
            "ReplicasInvalid",
            "spec.replicas is -1; there cannot be fewer than 0.",
            "Set spec.replicas to 0 or more.",
        ),
        (
            server("podOverrides: {volumes: [{name: lls-storage, emptyDir: {}}]}"),
            Blocker,
            "VolumeNameTaken",
            "spec.server.podOverrides.volumes has \"lls-storage\", the name of the server's own storage.",
            "Give each volume a name of its own.",
        ),
        (
            server("podOverrides: {volumes: [{name: a, emptyDir: {}}, {name: a, emptyDir: {}}]}"),
            Blocker,
            "VolumeNameTaken",
            "spec.server.podOverrides.volumes has \"a\" twice.",
            "Give each volume a name of its own.",
        ),
        (
            server("podOverrides: {volumes: [{name: a, emptyDir: {}}], volumeMounts: [{name: a, mountPath: /.llama}]}"),
            Blocker,
            "MountPathTaken",
            "spec.server.podOverrides.volumeMounts has \"/.llama\", where the server's own storage is.",
            "Give each mount a path of its own; spec.server.storage.mountPath moves the server's.",
        ),
        (
            server("userConfig: {configMapName: mine}"),
            Blocker,
            "UserConfigNotSupported",
            "spec.server.userConfig names ConfigMap \"mine\", which this version of Steersman cannot mount yet; nothing \
             is changed.",
            "Remove spec.server.userConfig to run with the configuration inside the image.",
        ),
        (
            server("tlsConfig: {caBundle: {configMapName: mine}}"),
            Blocker,
            "CABundleNotSupported",
            "spec.server.tlsConfig.caBundle names ConfigMap \"mine\", which this version of Steersman cannot mount yet; \
             nothing is changed.",
            "Remove spec.server.tlsConfig to run with the certificates inside the image.",
        ),
        (
            network("exposeRoute: true"),
            Warning,
            "ExposeRouteIgnored",
            "spec.network.exposeRoute is ignored by this version of Steersman: no Ingress is made.",
            "Make an Ingress yourself, or set it to false.",
        ),
        (
            network("allowedFrom: {namespaces: [a]}"),
            Warning,
            "AllowedFromIgnored",
            "spec.network.allowedFrom is ignored by this version of Steersman: no NetworkPolicy is made, and every pod of \
             the cluster can reach the server.",
            "Make a NetworkPolicy yourself, or remove the field.",
        ),
        (
            server("autoscaling: {maxReplicas: 3}"),
            Warning,
            "AutoscalingIgnored",
            "spec.server.autoscaling is ignored by this version of Steersman: no HorizontalPodAutoscaler is made.",
            "Make a HorizontalPodAutoscaler yourself, or remove the field and set spec.replicas.",
        ),
        (
            server("podDisruptionBudget: {minAvailable: 1}"),
            Warning,
            "PodDisruptionBudgetIgnored",
            "spec.server.podDisruptionBudget is ignored by this version of Steersman: no PodDisruptionBudget is made.",
            "Make a PodDisruptionBudget yourself, or remove the field.",
        ),
        (
            server("containerSpec: {env: [{name: B, value: s}, {name: A}, {name: B}, {name: A}, {name: A}]}"),
            Warning,
            "EnvRepeated",
            "spec.server.containerSpec.env has more than one A, B; the last one counts.",
            "Keep one entry of each name.",
        ),
        (
            Seen {
                volume_claim: Some(ClaimSeen { phase: None, size: Some(Quantity("10Gi".into())) }),
                ..server("storage: {size: 20Gi}")
            },
            Warning,
            "StorageSizeIgnored",
            "spec.server.storage.size is 20Gi, but PersistentVolumeClaim starter-pvc was made with 10Gi and is left as it \
             is.",
            "Change the claim itself where its storage class can expand it, then set the same size here.",
        ),
    ] {
        let plan = plan(&seen);
        assert_eq!(plan.findings.len(), 1, "{reason}: {:#?}", plan.findings);
        let finding = &plan.findings[0];
        assert_eq!((finding.severity, finding.reason), (severity, reason));
        assert_eq!(finding.message, message);
        assert_eq!(finding.remedy, remedy);
        assert_eq!(plan.writes.is_empty(), severity == Blocker, "{reason}");
        assert_eq!(plan.sweep.is_empty(), severity == Blocker, "{reason}");
    }
}

#[test]
fn what_amounts_to_nothing_gives_no_finding() {
    for (name, seen) in [
        ("an image", distribution("image: x")),
        ("an empty name beside an image", distribution("name: '', image: x")),
        ("port 0", server("containerSpec: {port: 0}")),
        ("no replicas", a_new_object("{replicas: 0, server: {distribution: {name: starter}}}")),
        ("a user config without a name", server("userConfig: {configMapName: ''}")),
        ("a bundle without a name", server("tlsConfig: {caBundle: {configMapName: ''}}")),
        ("no bundle", server("tlsConfig: {}")),
        ("not exposed", network("exposeRoute: false")),
        ("an env that repeats one of ours", server("containerSpec: {env: [{name: LLS_PORT, value: '1'}]}")),
        (
            "the same size in other words",
            Seen {
                volume_claim: Some(ClaimSeen { phase: None, size: Some(Quantity("10Gi".into())) }),
                ..server("storage: {size: 10240Mi}")
            },
        ),
    ] {
        assert_eq!(plan(&seen).findings, [], "{name}");
    }
}

#[test]
fn several_findings_are_told_most_serious_first_and_once() {
    let mut seen = server("autoscaling: {maxReplicas: 3}, containerSpec: {port: -1}");
    let first = plan(&seen);
    let reasons: Vec<_> = first.findings.iter().map(|finding| finding.reason).collect();
    assert_eq!(reasons, ["PortInvalid", "AutoscalingIgnored"]);
    assert_eq!(first.notes.len(), 1);
    assert_eq!((first.notes[0].kind, first.notes[0].reason), (NoteKind::Warning, "PortInvalid"));
    assert!(first.notes[0].message.contains("is not a port. Set it to"), "{}", first.notes[0].message);

    seen.object.status = Some(stored(&report(&seen, &first, &Outcome::default())));
    assert_eq!(plan(&seen).notes, []);
    assert_eq!(plan(&seen).findings, first.findings);
}

#[test]
fn a_blocker_leaves_what_runs_alone() {
    let mut seen = a_settled_object("{server: {distribution: {name: starter}, containerSpec: {port: 80}}}");
    assert!(!plan(&seen).writes.is_empty());
    seen.settings.distributions.clear();
    let plan = plan(&seen);
    assert!(plan.writes.is_empty() && plan.sweep.is_empty());
}
