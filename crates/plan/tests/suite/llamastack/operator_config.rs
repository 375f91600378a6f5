//! The operator's own ConfigMap: what it changes for every object, and what becomes of one that cannot be read.

use serde_json::{Value, json};
use steersman_plan::llamastack;
use steersman_plan::llamastack::{DefaultPolicy, Images, ObservedReference, OperatorConfig, Snapshot, plan};
use steersman_reconcile::{EventType, Outcome, Requeue, Severity};

use super::{STARTER, an_object, settled, stored, written, yaml};

const PLACE: &str = "steersman-system/llama-stack-operator-config";
const GENERATED: &str = "{distribution: {name: starter}, resources: {models: [{name: m, provider: openai}]}}";

fn read(data: &[(&str, &str)], before: Option<&OperatorConfig>) -> OperatorConfig {
    let data = data.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    OperatorConfig::read(PLACE, &data, before)
}

fn overrides(text: &str) -> OperatorConfig {
    read(&[("image-overrides", text)], None)
}

fn flag(text: &str) -> OperatorConfig {
    read(&[("featureFlags", text)], None)
}

fn under(seen: &Snapshot, config: OperatorConfig) -> Snapshot {
    Snapshot { settings: seen.settings.under(config), ..seen.clone() }
}

fn image(seen: &Snapshot) -> Value {
    let deployment = written(&plan(seen), "Deployment").unwrap_or_else(|| panic!("{:?}", plan(seen).findings));
    deployment["spec"]["template"]["spec"]["containers"][0]["image"].clone()
}

#[test]
fn images_and_flags_are_read_and_what_is_absent_is_the_default() {
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
        let config = overrides(text);
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
        let config = flag(text);
        assert_eq!((config.policy, config.faults), (policy, vec![]), "{text:?}");
    }
    assert_eq!(read(&[("else", "x")], None), OperatorConfig { place: PLACE.into(), ..OperatorConfig::default() });
}

#[test]
fn a_part_that_cannot_be_read_counts_as_it_did_before() {
    let good =
        read(&[("image-overrides", "starter: a:1"), ("featureFlags", "enableNetworkPolicy: {enabled: true}")], None);
    for text in ["starter: [", "- starter", "just words", "starter: a:1\n starter: b:2"] {
        let config = read(&[("image-overrides", text)], Some(&good));
        assert_eq!(config.images, good.images, "{text:?}");
        assert_eq!(config.policy, DefaultPolicy::Off, "{text:?}: the other part can be read");
        let said = &config.faults[0].message;
        assert!(said.starts_with(&format!("ConfigMap {PLACE}, key image-overrides: this is not YAML")), "{said}");
        assert_eq!(overrides(text).images, Images::Unknown, "{text:?}: nothing is known from before");
    }
    for text in ["enableNetworkPolicy: true", "enableNetworkPolicy: {enabled: maybe}", "["] {
        let config = read(&[("featureFlags", text)], Some(&good));
        assert_eq!((config.policy, config.faults.len()), (DefaultPolicy::On, 1), "{text:?}");
        assert_eq!(flag(text).policy, DefaultPolicy::Unknown, "{text:?}");
    }
    let forbidden = OperatorConfig::unknown(PLACE, "no right", Some(&good));
    assert_eq!((forbidden.images, forbidden.policy), (good.images, good.policy));
    let never = OperatorConfig::unknown(PLACE, "no right", None);
    assert_eq!((never.images, never.policy), (Images::Unknown, DefaultPolicy::Unknown));
}

#[test]
fn an_entry_that_is_no_image_is_passed_over_and_told_to_those_it_concerns() {
    let config = overrides("starter: 'not an image'\npostgres-demo: 7\nstartr: a:1\nremote-vllm: b:2");
    assert_eq!(config.images, Images::Known([("remote-vllm".to_owned(), "b:2".to_owned())].into()));
    assert_eq!(config.faults.len(), 3, "{:?}", config.faults);
    let seen = under(&an_object("{distribution: {name: starter}}"), config.clone());
    assert_eq!(image(&seen), STARTER);
    let made = plan(&seen);
    let [finding] = &made.findings[..] else { panic!("{:?}", made.findings) };
    assert_eq!((finding.severity, finding.reason), (Severity::Warning, "OperatorConfigInvalid"));
    let start =
        format!("ConfigMap {PLACE}, key image-overrides, entry starter: \"not an image\" is not an image reference");
    assert!(finding.message.starts_with(&start), "{}", finding.message);
    assert_eq!((made.events[0].type_, made.events[0].reason), (EventType::Warning, "OperatorConfigInvalid"));
    let other = under(&an_object("{distribution: {image: x}}"), config);
    assert_eq!(plan(&other).findings, []);
}

/// FR-020, FR-020b, FR-020c.
#[test]
fn another_image_moves_the_server_and_its_configuration_in_one_write() {
    let seen = settled(an_object(GENERATED));
    assert_eq!(image(&seen), STARTER);
    let moved = under(&seen, overrides("starter: mirror.example.com/starter:0.7.3"));
    assert_eq!(image(&moved), "mirror.example.com/starter:0.7.3");
    let made = plan(&moved);
    let [finding] = &made.findings[..] else { panic!("{:?}", made.findings) };
    assert_eq!((finding.severity, finding.reason), (Severity::Info, "ImageReplaced"));
    for said in [PLACE, "mirror.example.com/starter:0.7.3", STARTER, "llama-stack 0.7.1"] {
        assert!(finding.message.contains(said), "{said} in {}", finding.message);
    }
    let status = llamastack::status(&moved, &made, &Outcome { written: 1, failure: None });
    let resolved = status.resolved_distribution.clone().unwrap();
    assert_eq!(resolved.image.as_deref(), Some("mirror.example.com/starter:0.7.3"));
    let shown = status.distribution_config.clone().unwrap().available_distributions.unwrap();
    assert_eq!(shown["starter"], "mirror.example.com/starter:0.7.3");
    // What the image itself brings is nothing to warn of.
    let plain = under(&an_object("{distribution: {name: starter}}"), overrides("starter: a:1"));
    assert_eq!((image(&plain), plan(&plain).findings), (json!("a:1"), vec![]));
    let direct = under(&an_object("{distribution: {image: mine}}"), overrides("starter: a:1"));
    assert_eq!(image(&direct), "mine");

    // An operator that starts and cannot read the overrides leaves the server on the image that it has.
    let mut running = moved;
    running.object.status = Some(stored(&status));
    running.settings.distributions.insert("starter".into(), STARTER.into());
    let unread = under(&running, overrides("starter: ["));
    assert_eq!(image(&unread), "mirror.example.com/starter:0.7.3");
    assert_eq!(plan(&unread).findings.len(), 2, "{:?}", plan(&unread).findings);
    // Unless this version would give it a configuration that was made for another image.
    let mut upgraded = unread;
    let known = upgraded.object.status.as_mut().unwrap().resolved_distribution.as_mut().unwrap();
    known.config_hash = Some("of an earlier base".into());
    let made = plan(&upgraded);
    assert!(made.writes.is_empty() && made.prune.is_empty());
    assert!(made.findings[0].message.contains("so that all stays as it is"), "{:?}", made.findings);
    let fresh = under(&an_object(GENERATED), overrides("starter: ["));
    assert_eq!(image(&fresh), STARTER, "a new one has none yet");
}

#[test]
fn the_flag_gives_every_server_a_policy_and_an_explicit_one_needs_no_flag() {
    let on = || flag("enableNetworkPolicy: {enabled: true}");
    let from = |spec: &str, config: OperatorConfig| {
        let policy = written(&plan(&under(&an_object(spec), config)), "NetworkPolicy");
        policy.map(|policy| policy["spec"]["ingress"][0]["from"].clone())
    };
    let own = yaml(
        "[{podSelector: {}}, {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: steersman-system}}}]",
    );
    let mut routed = own.clone();
    let routers = yaml("{namespaceSelector: {matchLabels: {network.openshift.io/policy-group: ingress}}}");
    routed.as_array_mut().unwrap().push(routers);
    let plain = "{distribution: {name: starter}}";
    let exposed = "{distribution: {name: starter}, networking: {expose: true}}";
    let explicit = "{distribution: {name: starter}, networking: {allowedFrom: {}}}";
    for (spec, config, expected) in [
        (plain, OperatorConfig::default(), None),
        (plain, on(), Some(&own)),
        (exposed, on(), Some(&routed)),
        (exposed, OperatorConfig::default(), None),
        (explicit, OperatorConfig::default(), Some(&routed)),
        (explicit, on(), Some(&routed)),
        (explicit, flag("["), Some(&routed)),
    ] {
        assert_eq!(from(spec, config.clone()).as_ref(), expected, "{spec} {:?}", config.policy);
    }
    let swept = |config: OperatorConfig| {
        let plan = plan(&under(&an_object(plain), config));
        plan.prune.iter().any(|kind| kind.kind == "NetworkPolicy")
    };
    assert!(swept(OperatorConfig::default()), "switched off, it goes");
    assert!(!swept(flag("[")), "where nobody knows, nothing is opened");
}

#[test]
fn faults_are_told_once() {
    let mut seen = under(&settled(an_object("{distribution: {name: starter}}")), flag("["));
    let first = plan(&seen);
    assert_eq!(first.events.len(), 1);
    seen.object.status = Some(stored(&llamastack::status(&seen, &first, &Outcome::default())));
    assert_eq!(plan(&seen).events, []);
}

/// What objects refer to is looked at by the clock only where no watch tells of it.
#[test]
fn the_clock_is_for_what_no_watch_tells() {
    use std::time::Duration;

    let reference = |there: bool| ObservedReference {
        secret: true,
        namespace: "team-a".into(),
        name: "cert".into(),
        keys: there.then(|| ["tls.crt".to_owned(), "tls.key".to_owned()].into()),
        content: None,
    };
    let spec = "{distribution: {name: starter}, networking: {tls: {enabled: true, secretName: cert}}}";
    for (followed, there, next) in [
        (true, true, Requeue::AwaitChange),
        (true, false, Requeue::AwaitChange),
        (false, true, Requeue::After(Duration::from_secs(300))),
        (false, false, Requeue::After(Duration::from_secs(15))),
    ] {
        let seen = settled(Snapshot { references: vec![reference(true)], ..an_object(spec) });
        let seen = Snapshot { followed, references: vec![reference(there)], ..seen };
        assert_eq!(plan(&seen).requeue, next, "followed: {followed}, there: {there}");
    }
}
