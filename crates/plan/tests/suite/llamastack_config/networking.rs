use serde_json::json;
use steersman_plan::llamastack::config::{Source, TLS_CERT, TLS_KEY, source, without_effect};

use super::{config, config_for, errors, generate_starter, spec};

#[test]
fn fr_060_default_port_is_8321() {
    assert_eq!(config_for("{disabled: [eval]}")["server"]["port"], 8321);
    assert_eq!(config_for("{disabled: [eval], networking: {}}")["server"]["port"], 8321);
    let generated = generate_starter("{networking: {port: 9000}}");
    assert_eq!(config(&generated)["server"]["port"], 9000);
}

#[test]
fn fr_060_invalid_ports_are_rejected() {
    assert_eq!(
        errors("{networking: {port: 80}}"),
        ["spec.networking.port: the port is 80, but the server refuses ports below 1024"]
    );
    assert_eq!(errors("{networking: {port: 65536}}"), ["spec.networking.port: 65536 is not a valid port"]);
    assert_eq!(errors("{networking: {port: -1}}"), ["spec.networking.port: -1 is not a valid port"]);
}

#[test]
fn fr_061_062_tls_names_certificate_files() {
    let generated = generate_starter("{networking: {tls: {enabled: true, secretName: cert}}}");
    assert_eq!(config(&generated)["server"], json!({"port": 8321, "tls_certfile": TLS_CERT, "tls_keyfile": TLS_KEY}));
    let plain = generate_starter("{networking: {tls: {enabled: false, secretName: cert}}}");
    assert_eq!(config(&plain)["server"], json!({"port": 8321}));
}

#[test]
fn fr_079_tls_needs_a_secret() {
    for text in ["{networking: {tls: {enabled: true}}}", "{networking: {tls: {enabled: true, secretName: ''}}}"] {
        assert_eq!(errors(text), ["spec.networking.tls.secretName: secretName is required when TLS is enabled"]);
    }
}

#[test]
fn workers_reach_configuration() {
    assert_eq!(config_for("{workload: {workers: 4}}")["server"], json!({"port": 8321, "workers": 4}));
}

#[test]
fn ineffective_fields_are_reported() {
    let ineffective_paths =
        |text: &str| without_effect(&spec(text)).iter().map(|one| one.path.to_string()).collect::<Vec<_>>();
    assert_eq!(ineffective_paths("{networking: {tls: {secretName: cert}}}"), ["spec.networking.tls.secretName"]);
    assert_eq!(ineffective_paths("{networking: {tls: {caBundle: {configMapName: x}}}}"), [""; 0]);
    assert_eq!(
        ineffective_paths("{networking: {expose: {enabled: false, hostname: h, host: h}}}"),
        ["spec.networking.expose.host", "spec.networking.expose.hostname"]
    );
    assert_eq!(ineffective_paths("{networking: {expose: true}}"), [""; 0]);
}

#[test]
fn spec_decides_configuration_source() {
    for (text, expected) in [
        ("{}", Source::Distribution),
        ("{networking: {port: 9000, expose: true}, workload: {replicas: 2}}", Source::Distribution),
        ("{disabled: []}", Source::Distribution),
        ("{overrideConfig: {configMapName: x}}", Source::Override),
        (
            "{overrideConfig: {configMapName: x}, externalProviders: {inference: [{providerId: a, image: b}]}}",
            Source::Override,
        ),
        ("{providers: {inference: {provider: vllm}}}", Source::Generated),
        ("{resources: {models: [m]}}", Source::Generated),
        ("{storage: {kv: {}}}", Source::Generated),
        ("{disabled: [eval]}", Source::Generated),
        ("{networking: {tls: {enabled: true, secretName: s}}}", Source::Generated),
        ("{externalProviders: {inference: [{providerId: a, image: b}]}}", Source::Generated),
        ("{externalProviders: {inference: []}}", Source::Distribution),
    ] {
        assert_eq!(source(&spec(text), false), expected, "{text}");
    }
    assert_eq!(source(&spec("{}"), true), Source::Generated, "remote-vllm always mounts its configuration");
}

#[test]
fn fr_070_fr_002_all_conflicts_are_reported() {
    assert_eq!(
        errors(
            "{distribution: {name: a, image: b}, overrideConfig: {configMapName: x}, providers: {}, resources: {}, storage: {}, \
             disabled: []}"
        ),
        [
            "spec.distribution: only one of name or image can be specified",
            "spec.providers: providers and overrideConfig are mutually exclusive",
            "spec.resources: resources and overrideConfig are mutually exclusive",
            "spec.storage: storage and overrideConfig are mutually exclusive",
            "spec.disabled: disabled and overrideConfig are mutually exclusive",
        ]
    );
    assert_eq!(errors("{distribution: {}}"), ["spec.distribution: one of name or image must be specified"]);
}
