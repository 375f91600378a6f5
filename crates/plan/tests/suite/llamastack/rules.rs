//! Rules of fields that the API server or a kubelet would refuse in a child of the server. Each row is refused by the plan,
//! and so by admission and the commands, which apply the same rules.

use steersman_plan::llamastack::plan;
use steersman_reconcile::Severity::Blocker;

use super::configuration::with_references;
use super::trust::CERTIFICATE;
use super::v1alpha2_snapshot;

const BUNDLE: &str = "networking: {tls: {caBundle: {configMapName: ca}}}";
const TLS: &str = "networking: {tls: {enabled: true, secretName: cert}}";
const PROVIDER: &str = "providers: {inference: {provider: vllm, endpoint: http://x}}";
const POSTGRES: &str = "storage: {sql: {type: postgres, connectionString: {name: s, key: k}}}";

/// Reasons and messages of the blockers of a v1alpha2 spec.
fn blockers(spec: &str) -> Vec<(&'static str, String)> {
    let mut snapshot = with_references(v1alpha2_snapshot(spec));
    snapshot.trust.named = Some([("ca-bundle.crt".to_owned(), CERTIFICATE.to_owned())].into());
    let findings = plan(&snapshot).findings;
    let blockers = findings.into_iter().filter(|finding| finding.severity == Blocker);
    blockers.map(|finding| (finding.reason, finding.message)).collect()
}

fn starter(fields: &str) -> String {
    format!("{{distribution: {{name: starter}}, {fields}}}")
}

fn hostname(name: &str) -> String {
    starter(&format!("networking: {{expose: {{hostname: '{name}'}}}}"))
}

fn resources(fields: &str) -> String {
    starter(&format!("workload: {{resources: {{{fields}}}}}"))
}

fn overrides(more: &str, fields: &str) -> String {
    let comma = if more.is_empty() { "" } else { ", " };
    starter(&format!("{more}{comma}workload: {{overrides: {{{fields}}}}}"))
}

fn volume(more: &str, name: &str) -> String {
    overrides(more, &format!("volumes: [{{name: {name}, emptyDir: {{}}}}]"))
}

fn mount(more: &str, path: &str) -> String {
    overrides(more, &format!("volumeMounts: [{{name: lls-storage, mountPath: {path}}}]"))
}

fn spread(field: &str, second: &str) -> String {
    let one = |key: &str| format!("{{topologyKey: {key}, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}}");
    starter(&format!("workload: {{{field}: [{}, {}]}}", one("zone"), one(second)))
}

#[track_caller]
fn assert_refused(spec: &str, reason: &str, texts: &[&str]) {
    let found = blockers(spec);
    let [(found_reason, message)] = &found[..] else { panic!("{spec}: {found:?}") };
    assert_eq!(*found_reason, reason, "{spec}: {message}");
    for text in texts {
        assert!(message.contains(text), "{spec}: {text:?} is not in {message:?}");
    }
}

#[test]
fn host_name_must_be_a_dns_name() {
    let long = ["a"; 127].join(".") + ".a";
    assert_eq!(long.len(), 255);
    for name in
        ["Llama.example.com", "llama_x.example.com", "10.0.0.1", "a..b", "-a.example.com", "a-.b", "a.*.b", &long]
    {
        assert_refused(&hostname(name), "HostnameInvalid", &["spec.networking.expose.hostname", "is not a DNS name"]);
    }
    for name in ["llama.example.com", "*.example.com", "a", "1.example.com", &["a"; 127].join(".")] {
        assert_eq!(blockers(&hostname(name)), [], "{name}");
    }
}

#[test]
fn image_must_be_a_reference() {
    assert_refused(
        "{distribution: {image: 'registry.example/X Y'}}",
        "ImageInvalid",
        &["spec.distribution.image", "\"registry.example/X Y\" is not an image reference"],
    );
    let external =
        |image: &str| starter(&format!("externalProviders: {{inference: [{{providerId: own, image: '{image}'}}]}}"));
    assert_refused(
        &external("Not An Image"),
        "ImageInvalid",
        &["spec.externalProviders.inference[0].image", "is not an image reference"],
    );
    assert_eq!(blockers(&external("reg/own:1")), []);
    let digest = "0123456789abcdef".repeat(4);
    assert_eq!(blockers(&format!("{{distribution: {{image: 'registry.example/x@sha256:{digest}'}}}}")), []);
}

#[test]
fn resource_requests_must_fit_their_limits() {
    let path = "spec.workload.resources.requests";
    for (fields, why) in [
        ("requests: {cpu: '3'}, limits: {cpu: '2'}", "the request of 3 cpu is above the limit of 2"),
        ("requests: {memory: 2Gi}, limits: {memory: 2000Mi}", "the request of 2Gi memory is above the limit of 2000Mi"),
        ("requests: {nvidia.com/gpu: '1'}", "the request of 1 nvidia.com/gpu has no limit"),
        (
            "requests: {nvidia.com/gpu: '1'}, limits: {nvidia.com/gpu: '2'}",
            "the request of 1 nvidia.com/gpu differs from the limit of 2",
        ),
    ] {
        assert_refused(&resources(fields), "ResourcesInvalid", &[path, why]);
    }
    for fields in [
        "requests: {cpu: '2'}, limits: {cpu: 2000m}",
        "requests: {nvidia.com/gpu: '1'}, limits: {nvidia.com/gpu: '1'}",
        "limits: {nvidia.com/gpu: '1'}",
        "limits: {memory: 512Mi}",
    ] {
        assert_eq!(blockers(&resources(fields)), [], "{fields}");
    }
}

#[test]
fn numbers_of_children_must_be_in_range() {
    for size in ["'0'", "-1Gi"] {
        let spec = starter(&format!("workload: {{storage: {{size: {size}}}}}"));
        assert_refused(&spec, "StorageSizeInvalid", &["spec.workload.storage.size", "is not the size of a volume"]);
    }
    for field in ["targetCPUUtilizationPercentage", "targetMemoryUtilizationPercentage"] {
        let spec =
            |percent: i32| starter(&format!("workload: {{autoscaling: {{maxReplicas: 3, {field}: {percent}}}}}"));
        let path = format!("spec.workload.autoscaling.{field}");
        assert_refused(&spec(0), "AutoscalingInvalid", &[&path, "0 is not a utilization"]);
        assert_eq!(blockers(&spec(1)), [], "{field}");
    }
    let period =
        |seconds: i32| starter(&format!("workload: {{overrides: {{terminationGracePeriodSeconds: {seconds}}}}}"));
    let found = blockers(&period(-1));
    assert!(
        matches!(&found[..], [(_, message)] if message.contains("spec.workload.overrides.terminationGracePeriodSeconds")
            && message.contains("-1 is not a number of seconds")),
        "{found:?}"
    );
    assert_eq!(blockers(&period(0)), []);
}

#[test]
fn spread_constraint_must_not_be_repeated() {
    for field in ["topologySpreadConstraints", "topologySpread"] {
        assert_refused(
            &spread(field, "zone"),
            "SpreadConstraintRepeated",
            &[&format!("spec.workload.{field}"), "zone (DoNotSchedule) twice"],
        );
        assert_eq!(blockers(&spread(field, "host")), [], "{field}");
    }
}

/// Steersman's own volumes and mounts are taken only in a pod that has them.
#[test]
fn names_of_own_volumes_are_taken() {
    for (more, name) in [
        (BUNDLE, "ca-bundle"),
        (TLS, "server-certificate"),
        (PROVIDER, "user-config"),
        (POSTGRES, "storage-env"),
        ("externalProviders: {inference: [{providerId: own, image: 'reg/own:1'}]}", "final-config"),
    ] {
        let words = format!("\"{name}\", which is the name of a volume that Steersman adds");
        assert_refused(&volume(more, name), "VolumeNameTaken", &["spec.workload.overrides.volumes", &words]);
        assert_eq!(blockers(&volume("", name)), [], "{name}");
        assert_eq!(blockers(&volume(more, "own")), [], "{more}");
    }
}

#[test]
fn paths_of_own_mounts_are_taken() {
    for (more, path) in [(PROVIDER, "/etc/llama-stack"), (BUNDLE, "/etc/ssl/certs/ca-bundle")] {
        let words = format!("{path:?}, where Steersman mounts a volume");
        assert_refused(&mount(more, path), "MountPathTaken", &["spec.workload.overrides.volumeMounts", &words]);
        assert_eq!(blockers(&mount(more, "/own")), [], "{more}");
    }
}
