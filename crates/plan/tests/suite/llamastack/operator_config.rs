//! The operator's ConfigMap: its effect on every object, and the fallback for keys that cannot be read.

use serde_json::{Value, json};
use steersman_plan::llamastack;
use steersman_plan::llamastack::{DefaultPolicy, Images, ObservedReference, OperatorConfig, Snapshot, plan};
use steersman_reconcile::{EventType, Outcome, Requeue, Severity};

use super::{STARTER, planned_object, settle, stored_status, v1alpha2_snapshot, yaml};

const PLACE: &str = "steersman-system/llama-stack-operator-config";
const GENERATED: &str = "{distribution: {name: starter}, resources: {models: [{name: m, provider: openai}]}}";

fn read_config(data: &[(&str, &str)], before: Option<&OperatorConfig>) -> OperatorConfig {
    let data = data.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    OperatorConfig::read(PLACE, &data, before)
}

fn config_with_overrides(text: &str) -> OperatorConfig {
    read_config(&[("image-overrides", text)], None)
}

fn config_with_flags(text: &str) -> OperatorConfig {
    read_config(&[("featureFlags", text)], None)
}

fn with_config(snapshot: &Snapshot, config: OperatorConfig) -> Snapshot {
    Snapshot { settings: snapshot.settings.under(config), ..snapshot.clone() }
}

fn planned_image(snapshot: &Snapshot) -> Value {
    let deployment =
        planned_object(&plan(snapshot), "Deployment").unwrap_or_else(|| panic!("{:?}", plan(snapshot).findings));
    deployment["spec"]["template"]["spec"]["containers"][0]["image"].clone()
}

#[test]
fn images_and_flags_default_when_absent() {
    let known = |images: &[(&str, &str)]| {
        Images::Known(images.iter().map(|(name, image)| ((*name).to_owned(), (*image).to_owned())).collect())
    };
    for (text, images) in [
        ("", known(&[])),
        ("# none yet\n", known(&[])),
        ("{}", known(&[])),
        ("starter: quay.io/x/starter:1", known(&[("starter", "quay.io/x/starter:1")])),
        ("starter: a:1\nremote-vllm: b:2\n", known(&[("starter", "a:1"), ("remote-vllm", "b:2")])),
    ] {
        let config = config_with_overrides(text);
        assert_eq!((config.images, config.faults), (images, vec![]), "{text:?}");
    }
    for (text, policy) in [
        ("", DefaultPolicy::Off),
        ("{}", DefaultPolicy::Off),
        ("enableNetworkPolicy: {}", DefaultPolicy::Off),
        ("enableNetworkPolicy:\n  enabled: true\n", DefaultPolicy::On),
        ("enableNetworkPolicy: {enabled: false}", DefaultPolicy::Off),
        ("enableNetworkPolicy: {enabled: true}\nanother: {enabled: true}", DefaultPolicy::On),
    ] {
        let config = config_with_flags(text);
        assert_eq!((config.policy, config.faults), (policy, vec![]), "{text:?}");
    }
    assert_eq!(
        read_config(&[("else", "x")], None),
        OperatorConfig { place: PLACE.into(), ..OperatorConfig::default() }
    );
}

#[test]
fn unreadable_key_keeps_previous_value() {
    let good = read_config(
        &[("image-overrides", "starter: a:1"), ("featureFlags", "enableNetworkPolicy: {enabled: true}")],
        None,
    );
    for text in ["starter: [", "- starter", "just words", "starter: a:1\n starter: b:2"] {
        let config = read_config(&[("image-overrides", text)], Some(&good));
        assert_eq!(config.images, good.images, "{text:?}");
        assert_eq!(config.policy, DefaultPolicy::Off, "{text:?}: the other key is readable");
        let part = &config.faults[0].message;
        assert!(part.starts_with(&format!("ConfigMap {PLACE}, key image-overrides: the value is not YAML")), "{part}");
        assert_eq!(config_with_overrides(text).images, Images::Unknown, "{text:?}: there is no previous value");
    }
    for text in ["enableNetworkPolicy: true", "enableNetworkPolicy: {enabled: maybe}", "["] {
        let config = read_config(&[("featureFlags", text)], Some(&good));
        assert_eq!((config.policy, config.faults.len()), (DefaultPolicy::On, 1), "{text:?}");
        assert_eq!(config_with_flags(text).policy, DefaultPolicy::Unknown, "{text:?}");
    }
    let forbidden = OperatorConfig::unknown(PLACE, "no right", Some(&good));
    assert_eq!((forbidden.images, forbidden.policy), (good.images, good.policy));
    let unread_before = OperatorConfig::unknown(PLACE, "no right", None);
    assert_eq!((unread_before.images, unread_before.policy), (Images::Unknown, DefaultPolicy::Unknown));
}

#[test]
fn invalid_image_entry_warns_affected_objects() {
    let config = config_with_overrides("starter: 'not an image'\npostgres-demo: 7\nstartr: a:1\nremote-vllm: b:2");
    assert_eq!(config.images, Images::Known([("remote-vllm".to_owned(), "b:2".to_owned())].into()));
    assert_eq!(config.faults.len(), 3, "{:?}", config.faults);
    let snapshot = with_config(&v1alpha2_snapshot("{distribution: {name: starter}}"), config.clone());
    assert_eq!(planned_image(&snapshot), STARTER);
    let new_plan = plan(&snapshot);
    let [finding] = &new_plan.findings[..] else { panic!("{:?}", new_plan.findings) };
    assert_eq!((finding.severity, finding.reason), (Severity::Warning, "OperatorConfigInvalid"));
    let start =
        format!("ConfigMap {PLACE}, key image-overrides, entry starter: \"not an image\" is not an image reference");
    assert!(finding.message.starts_with(&start), "{}", finding.message);
    assert_eq!((new_plan.events[0].type_, new_plan.events[0].reason), (EventType::Warning, "OperatorConfigInvalid"));
    let other = with_config(&v1alpha2_snapshot("{distribution: {image: x}}"), config);
    assert_eq!(plan(&other).findings, []);
}

/// FR-020, FR-020b, FR-020c: an override of the image changes the image and the base of the configuration together.
#[test]
fn image_override_updates_server_and_configuration() {
    let snapshot = settle(v1alpha2_snapshot(GENERATED));
    assert_eq!(planned_image(&snapshot), STARTER);
    let overridden = with_config(&snapshot, config_with_overrides("starter: mirror.example.com/starter:0.7.3"));
    assert_eq!(planned_image(&overridden), "mirror.example.com/starter:0.7.3");
    let new_plan = plan(&overridden);
    let [finding] = &new_plan.findings[..] else { panic!("{:?}", new_plan.findings) };
    assert_eq!((finding.severity, finding.reason), (Severity::Info, "ImageReplaced"));
    for part in [PLACE, "mirror.example.com/starter:0.7.3", STARTER, "llama-stack 0.7.1"] {
        assert!(finding.message.contains(part), "{part} in {}", finding.message);
    }
    let status = llamastack::status(&overridden, &new_plan, &Outcome { written: 1, failure: None });
    let resolved = status.resolved_distribution.clone().unwrap();
    assert_eq!(resolved.image.as_deref(), Some("mirror.example.com/starter:0.7.3"));
    let listed_images = status.distribution_config.clone().unwrap().available_distributions.unwrap();
    assert_eq!(listed_images["starter"], "mirror.example.com/starter:0.7.3");
    // The image's own configuration needs no warning.
    let plain =
        with_config(&v1alpha2_snapshot("{distribution: {name: starter}}"), config_with_overrides("starter: a:1"));
    assert_eq!((planned_image(&plain), plan(&plain).findings), (json!("a:1"), vec![]));
    let direct =
        with_config(&v1alpha2_snapshot("{distribution: {image: mine}}"), config_with_overrides("starter: a:1"));
    assert_eq!(planned_image(&direct), "mine");

    // After a restart with unreadable overrides, the server keeps its image.
    let mut running = overridden;
    running.object.status = Some(stored_status(&status));
    running.settings.distributions.insert("starter".into(), STARTER.into());
    let unread = with_config(&running, config_with_overrides("starter: ["));
    assert_eq!(planned_image(&unread), "mirror.example.com/starter:0.7.3");
    assert_eq!(plan(&unread).findings.len(), 2, "{:?}", plan(&unread).findings);
    // Nothing is written if this version would pair that image with the configuration of another one.
    let mut upgraded = unread;
    let known = upgraded.object.status.as_mut().unwrap().resolved_distribution.as_mut().unwrap();
    known.config_hash = Some("of an earlier base".into());
    let new_plan = plan(&upgraded);
    assert!(new_plan.writes.is_empty() && new_plan.prune.is_empty());
    assert!(new_plan.findings[0].message.contains("The server stays unchanged"), "{:?}", new_plan.findings);
    let new_object = with_config(&v1alpha2_snapshot(GENERATED), config_with_overrides("starter: ["));
    assert_eq!(planned_image(&new_object), STARTER, "a new object has no image to keep");
}

#[test]
fn network_policy_flag_applies_without_explicit_policy() {
    let enabled = || config_with_flags("enableNetworkPolicy: {enabled: true}");
    let from = |spec: &str, config: OperatorConfig| {
        let policy = planned_object(&plan(&with_config(&v1alpha2_snapshot(spec), config)), "NetworkPolicy");
        policy.map(|policy| policy["spec"]["ingress"][0]["from"].clone())
    };
    let own_peers = yaml(
        "[{podSelector: {}}, {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: steersman-system}}}]",
    );
    let mut own_and_routers = own_peers.clone();
    let routers = yaml("{namespaceSelector: {matchLabels: {network.openshift.io/policy-group: ingress}}}");
    own_and_routers.as_array_mut().unwrap().push(routers);
    let plain = "{distribution: {name: starter}}";
    let exposed = "{distribution: {name: starter}, networking: {expose: true}}";
    let explicit = "{distribution: {name: starter}, networking: {allowedFrom: {}}}";
    for (spec, config, expected) in [
        (plain, OperatorConfig::default(), None),
        (plain, enabled(), Some(&own_peers)),
        (exposed, enabled(), Some(&own_and_routers)),
        (exposed, OperatorConfig::default(), None),
        (explicit, OperatorConfig::default(), Some(&own_and_routers)),
        (explicit, enabled(), Some(&own_and_routers)),
        (explicit, config_with_flags("["), Some(&own_and_routers)),
    ] {
        assert_eq!(from(spec, config.clone()).as_ref(), expected, "{spec} {:?}", config.policy);
    }
    let prunes_policy = |config: OperatorConfig| {
        let plan = plan(&with_config(&v1alpha2_snapshot(plain), config));
        plan.prune.iter().any(|kind| kind.kind == "NetworkPolicy")
    };
    assert!(prunes_policy(OperatorConfig::default()), "a disabled flag removes the policy");
    assert!(!prunes_policy(config_with_flags("[")), "an unreadable flag keeps the policy");
}

#[test]
fn config_faults_are_reported_once() {
    let mut snapshot =
        with_config(&settle(v1alpha2_snapshot("{distribution: {name: starter}}")), config_with_flags("["));
    let first = plan(&snapshot);
    assert_eq!(first.events.len(), 1);
    snapshot.object.status = Some(stored_status(&llamastack::status(&snapshot, &first, &Outcome::default())));
    assert_eq!(plan(&snapshot).events, []);
}

/// Referenced objects are polled only if they are not watched.
#[test]
fn unwatched_references_are_polled() {
    use std::time::Duration;

    let reference = |present: bool| ObservedReference {
        secret: true,
        namespace: "team-a".into(),
        name: "cert".into(),
        keys: present.then(|| ["tls.crt".to_owned(), "tls.key".to_owned()].into()),
        content: None,
    };
    let spec = "{distribution: {name: starter}, networking: {tls: {enabled: true, secretName: cert}}}";
    for (followed, present, next) in [
        (true, true, Requeue::AwaitChange),
        (true, false, Requeue::AwaitChange),
        (false, true, Requeue::After(Duration::from_secs(300))),
        (false, false, Requeue::After(Duration::from_secs(15))),
    ] {
        let snapshot = settle(Snapshot { references: vec![reference(true)], ..v1alpha2_snapshot(spec) });
        let snapshot = Snapshot { followed, references: vec![reference(present)], ..snapshot };
        assert_eq!(plan(&snapshot).requeue, next, "followed: {followed}, present: {present}");
    }
}
