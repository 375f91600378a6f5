use serde_json::json;
use steersman_plan::llamastack::config::{Base, Input, Merge, SUPPORTED, detect_version, generate, hash_of_base};

use super::{errors_on, generate_on, modified_starter, spec, starter};

const ANY_SPEC: &str = "{providers: {inference: {provider: vllm}}}";

#[test]
fn fr_027_version_may_be_number_or_text() {
    for (version_value, version) in [(json!(2), 2), (json!(1), 1), (json!(2.0), 2), (json!("2"), 2), (json!(" 1 "), 1)]
    {
        assert_eq!(detect_version(&json!({"version": version_value})).unwrap(), version, "{version_value}");
    }
}

#[test]
fn fr_028_last_two_versions_are_supported() {
    assert_eq!(SUPPORTED, [1, 2]);
    for version in SUPPORTED {
        let base = modified_starter(|config| config["version"] = json!(version));
        assert_eq!(generate_on(&base, ANY_SPEC).config_version, version);
    }
}

#[test]
fn fr_029_other_versions_are_rejected_with_list() {
    for (version_value, shown_version) in
        [(json!(3), "3"), (json!(0), "0"), (json!("two"), "two"), (json!(1.5), "1.5"), (json!([]), "[]")]
    {
        let base = modified_starter(|config| config["version"] = version_value);
        let expected =
            format!("spec.distribution: Unsupported config.yaml version {shown_version}. Supported versions: 1, 2");
        assert_eq!(errors_on(&base, ANY_SPEC), [expected]);
    }
}

#[test]
fn fr_027_base_without_version_is_rejected() {
    let base = modified_starter(|config| config["version"] = json!(null));
    assert_eq!(errors_on(&base, ANY_SPEC), ["spec.distribution: config.yaml missing required 'version' field"]);
}

#[test]
fn fr_027c_image_without_base_needs_configuration() {
    let spec = spec("{distribution: {image: x}, providers: {inference: {provider: vllm}}}");
    let input = Input { spec: &spec, base: None, merge: Merge::Overlay, operator_image: "" };
    let problems = generate(&input).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].reason, "BaseConfigRequired");
    assert_eq!(problems[0].path.to_string(), "spec.distribution.image");
    assert_eq!(
        problems[0].sentence().to_string(),
        "Direct image references require either overrideConfig.configMapName or OCI config labels on the image. See \
         docs/configuration.md for details."
    );
}

#[test]
fn missing_base_names_distribution() {
    let spec = spec(ANY_SPEC);
    let input = Input { spec: &spec, base: None, merge: Merge::Overlay, operator_image: "" };
    let problems = generate(&input).unwrap_err();
    assert_eq!(problems[0].message.to_string(), "failed to load embedded config for distribution \"starter\"");
}

#[test]
fn version_error_is_reported_with_spec_errors() {
    let base = modified_starter(|config| config["version"] = json!(3));
    let errors = errors_on(&base, "{providers: {inference: {provider: vllm, id: ''}}}");
    assert_eq!(errors.len(), 2, "{errors:?}");
}

#[test]
fn base_hash_depends_on_content_alone() {
    let Base { config, .. } = starter();
    let other = modified_starter(|config| config["connectors"] = json!(["x"]));
    assert_eq!(hash_of_base(&config), hash_of_base(&starter().config));
    assert_ne!(hash_of_base(&config), hash_of_base(&other.config));
    assert!(hash_of_base(&config).starts_with("sha256:"));
    assert_eq!(hash_of_base(&config).len(), "sha256:".len() + 64);
}
