//! One case for each rule of the spec, with the exact text of its finding.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;
use steersman_plan::llamastack;
use steersman_plan::llamastack::{ObservedClaim, Snapshot, plan};
use steersman_reconcile::Severity::{Blocker, Warning};
use steersman_reconcile::{EventType, Outcome, Severity};

use super::{settled_snapshot, stored_status, v1alpha1_snapshot, v1alpha2_snapshot};

fn server(fields: &str) -> Snapshot {
    v1alpha1_snapshot(&format!("{{server: {{distribution: {{name: starter}}, {fields}}}}}"))
}

fn distribution(fields: &str) -> Snapshot {
    v1alpha1_snapshot(&format!("{{server: {{distribution: {{{fields}}}}}}}"))
}

fn network(fields: &str) -> Snapshot {
    v1alpha1_snapshot(&format!("{{server: {{distribution: {{name: starter}}}}, network: {{{fields}}}}}"))
}

/// An invalid spec with the severity, reason, message and remedy of its finding.
type InvalidSpec = (Snapshot, Severity, &'static str, &'static str, &'static str);

fn invalid_specs() -> Vec<InvalidSpec> {
    let names = "Set spec.distribution.name to one of postgres-demo, starter, or spec.distribution.image.";
    vec![
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
            "Remove spec.distribution.name or spec.distribution.image.",
        ),
        (
            server("containerSpec: {port: 70000}"),
            Blocker,
            "PortInvalid",
            "spec.networking.port is 70000, which is not a valid port.",
            "Set it to a number from 1024 to 65535, or remove it to use 8321.",
        ),
        (
            v1alpha1_snapshot("{replicas: -1, server: {distribution: {name: starter}}}"),
            Blocker,
            "ReplicasInvalid",
            "spec.workload.replicas is -1, but must be 0 or more.",
            "Set spec.workload.replicas to 0 or more.",
        ),
        (
            server("podOverrides: {volumes: [{name: lls-storage, emptyDir: {}}]}"),
            Blocker,
            "VolumeNameTaken",
            "spec.workload.overrides.volumes has a volume \"lls-storage\", which is the name of the server's storage \
             volume.",
            "Give each volume a unique name.",
        ),
        (
            server("podOverrides: {volumes: [{name: a, emptyDir: {}}, {name: a, emptyDir: {}}]}"),
            Blocker,
            "VolumeNameTaken",
            "spec.workload.overrides.volumes has two volumes \"a\".",
            "Give each volume a unique name.",
        ),
        (
            server("podOverrides: {volumes: [{name: a, emptyDir: {}}], volumeMounts: [{name: a, mountPath: /.llama}]}"),
            Blocker,
            "MountPathTaken",
            "spec.workload.overrides.volumeMounts has a mount at \"/.llama\", where the server's storage is mounted.",
            "Mount each volume at a unique path. To move the server's storage, set spec.workload.storage.mountPath.",
        ),
        (
            server("userConfig: {configMapName: mine}"),
            Blocker,
            "ConfigMapNotFound",
            "spec.overrideConfig.configMapName: failed to find overrideConfig ConfigMap \"mine\" in namespace \"team-a\"",
            "Create it in namespace team-a, or reference another one.",
        ),
        (
            server("userConfig: {configMapName: mine, configMapNamespace: b}"),
            Blocker,
            "ConfigMapNotFound",
            "spec.overrideConfig.configMapName: failed to find overrideConfig ConfigMap \"mine\" in namespace \"b\"",
            "Create it in namespace b with the label steersman.dev/shared-with=team-a, by which its owner lets objects of \
             namespace team-a use it, or reference another one.",
        ),
        (
            server("tlsConfig: {caBundle: {configMapName: mine, configMapNamespace: b}}"),
            Blocker,
            "ConfigMapNotFound",
            "spec.networking.tls.caBundle.configMapName: failed to find caBundle ConfigMap \"mine\" in namespace \"b\"",
            "Create it in namespace b with the label steersman.dev/shared-with=team-a, by which its owner lets objects of \
             namespace team-a use it, or reference another one.",
        ),
        (
            server("autoscaling: {maxReplicas: 0}"),
            Warning,
            "AutoscalingIgnored",
            "spec.workload.autoscaling.maxReplicas is 0, so no HorizontalPodAutoscaler is created.",
            "Set it to the maximum number of pods, or remove spec.workload.autoscaling.",
        ),
        (
            server("autoscaling: {maxReplicas: 2, minReplicas: 3}"),
            Blocker,
            "AutoscalingInvalid",
            "spec.workload.autoscaling.maxReplicas is 2, less than 3, the larger of minReplicas and \
             spec.workload.replicas.",
            "Raise maxReplicas, or lower minReplicas and replicas.",
        ),
        (
            server("podDisruptionBudget: {minAvailable: 1, maxUnavailable: 1}"),
            Blocker,
            "PodDisruptionBudgetInvalid",
            "spec.workload.podDisruptionBudget has both minAvailable and maxUnavailable.",
            "Remove one of them.",
        ),
        (
            server("containerSpec: {env: [{name: B, value: s}, {name: A}, {name: B}, {name: A}, {name: A}]}"),
            Warning,
            "EnvRepeated",
            "spec.workload.overrides.env sets A, B more than once; the last value is used.",
            "Keep one entry for each name.",
        ),
        (
            Snapshot {
                volume_claim: Some(ObservedClaim { size: Some(Quantity("10Gi".into())), ..ObservedClaim::default() }),
                ..server("storage: {size: 20Gi}")
            },
            Warning,
            "StorageSizeIgnored",
            "spec.workload.storage.size is 20Gi, but PersistentVolumeClaim starter-pvc requests 10Gi, and Steersman \
             does not change existing claims.",
            "To grow the volume, edit the claim (its StorageClass must allow expansion), then set the same size here.",
        ),
    ]
}

#[test]
fn each_invalid_spec_yields_its_finding() {
    for (snapshot, severity, reason, message, remedy) in invalid_specs() {
        let plan = plan(&snapshot);
        assert_eq!(plan.findings.len(), 1, "{reason}: {:#?}", plan.findings);
        let finding = &plan.findings[0];
        assert_eq!((finding.severity, finding.reason), (severity, reason));
        assert_eq!(finding.message, message);
        assert_eq!(finding.remedy, remedy);
        assert_eq!(plan.writes.is_empty(), severity == Blocker, "{reason}");
        assert_eq!(plan.prune.is_empty(), severity == Blocker, "{reason}");
    }
}

/// Names of fields that only v1alpha2 has, without the remark that says so.
fn foreign_fields(text: &str) -> Vec<&str> {
    let sections = ["distribution", "workload", "networking", "overrideConfig", "providers", "resources", "storage"];
    let starts = text.match_indices("spec.").map(|(start, _)| &text[start..]);
    let fields = starts.filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !".[]".contains(c)).unwrap_or(rest.len());
        let (field, rest) = rest.split_at(end);
        let of_v1alpha2 = sections.iter().any(|section| field["spec.".len()..].starts_with(section));
        (of_v1alpha2 && !rest.starts_with(" (of v1alpha2)")).then_some(field)
    });
    fields.collect()
}

#[test]
fn findings_name_fields_of_their_author() {
    assert_eq!(foreign_fields("set spec.workload.replicas, or spec.replicas"), ["spec.workload.replicas"]);
    for (mut snapshot, _, reason, ..) in invalid_specs() {
        snapshot.object.written_in = "v1alpha1".to_owned();
        let plan = plan(&snapshot);
        let status = llamastack::status(&snapshot, &plan, &Outcome::default());
        let texts = format!("{:?} {}", plan.events, json!(status.conditions));
        assert!(texts.contains("spec."), "{reason}: {texts}");
        assert_eq!(foreign_fields(&texts), [""; 0], "{reason}: {texts}");
    }
}

#[test]
fn valid_spec_yields_no_finding() {
    for (name, snapshot) in [
        ("an image", distribution("image: x")),
        ("an empty name with an image", distribution("name: '', image: x")),
        ("port 0", server("containerSpec: {port: 0}")),
        ("no replicas", v1alpha1_snapshot("{replicas: 0, server: {distribution: {name: starter}}}")),
        ("a user config without a name", server("userConfig: {configMapName: ''}")),
        ("a bundle without a name", server("tlsConfig: {caBundle: {configMapName: ''}}")),
        ("no bundle", server("tlsConfig: {}")),
        ("exposed", network("exposeRoute: true")),
        ("not exposed", network("exposeRoute: false")),
        ("a policy", network("allowedFrom: {namespaces: [a]}")),
        ("an autoscaler", server("autoscaling: {maxReplicas: 3}")),
        ("a budget", server("podDisruptionBudget: {minAvailable: 1}")),
        ("an env that repeats one of ours", server("containerSpec: {env: [{name: LLS_PORT, value: '1'}]}")),
        (
            "the same size in another unit",
            Snapshot {
                volume_claim: Some(ObservedClaim { size: Some(Quantity("10Gi".into())), ..ObservedClaim::default() }),
                ..server("storage: {size: 10240Mi}")
            },
        ),
    ] {
        assert_eq!(plan(&snapshot).findings, [], "{name}");
    }
}

#[test]
fn findings_are_sorted_by_severity_and_reported_once() {
    let mut snapshot = server("autoscaling: {maxReplicas: 0}, containerSpec: {port: 70000}");
    let first = plan(&snapshot);
    let reasons: Vec<_> = first.findings.iter().map(|finding| finding.reason).collect();
    assert_eq!(reasons, ["PortInvalid", "AutoscalingIgnored"]);
    assert_eq!(first.events.len(), 1);
    assert_eq!((first.events[0].type_, first.events[0].reason), (EventType::Warning, "PortInvalid"));
    assert!(first.events[0].message.contains("is not a valid port. Set it to"), "{}", first.events[0].message);

    snapshot.object.status = Some(stored_status(&llamastack::status(&snapshot, &first, &Outcome::default())));
    assert_eq!(plan(&snapshot).events, []);
    assert_eq!(plan(&snapshot).findings, first.findings);
}

#[test]
fn blocker_leaves_running_objects_unchanged() {
    let mut snapshot = settled_snapshot("{server: {distribution: {name: starter}, containerSpec: {port: 80}}}");
    assert!(!plan(&snapshot).writes.is_empty());
    snapshot.settings.distributions.clear();
    let plan = plan(&snapshot);
    assert!(plan.writes.is_empty() && plan.prune.is_empty());
}

#[test]
fn long_lists_block_plan() {
    let models = (0..20_000).map(|place| format!("m{place}")).collect::<Vec<_>>().join(", ");
    let env = (0..20_000).map(|place| format!("{{name: E{place}}}")).collect::<Vec<_>>().join(", ");
    for (spec, message) in [
        (
            format!("{{distribution: {{name: starter}}, resources: {{models: [{models}]}}}}"),
            "spec.resources.models: it has 20000 entries, but at most 2000 are allowed",
        ),
        (
            format!("{{distribution: {{name: starter}}, workload: {{overrides: {{env: [{env}]}}}}}}"),
            "spec.workload.overrides.env: it has 20000 entries, but at most 1000 are allowed",
        ),
    ] {
        let plan = plan(&v1alpha2_snapshot(&spec));
        let blockers: Vec<_> = plan.findings.iter().filter(|finding| finding.severity == Blocker).collect();
        assert_eq!((blockers.len(), plan.writes.len()), (1, 0), "{:?}", plan.findings);
        assert_eq!(blockers[0].message, message);
    }
}
