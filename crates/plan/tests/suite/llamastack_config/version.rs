use serde_json::json;
use steersman_plan::llamastack::config::{Base, Input, Merge, SUPPORTED, detect_version, generate, hash_of_base};

use super::{a_base, errors_on, made_on, spec, starter};

const ANY: &str = "{providers: {inference: {provider: vllm}}}";

#[test]
fn fr_027_the_version_is_found_as_number_or_text() {
    for (written, version) in [(json!(2), 2), (json!(1), 1), (json!(2.0), 2), (json!("2"), 2), (json!(" 1 "), 1)] {
        assert_eq!(detect_version(&json!({"version": written})).unwrap(), version, "{written}");
    }
}

#[test]
fn fr_028_the_last_two_versions_are_supported() {
    assert_eq!(SUPPORTED, [1, 2]);
    for version in SUPPORTED {
        let base = a_base(|config| config["version"] = json!(version));
        assert_eq!(made_on(&base, ANY).config_version, version);
    }
}

#[test]
fn fr_029_other_versions_are_refused_with_the_list() {
    for (written, said) in
        [(json!(3), "3"), (json!(0), "0"), (json!("two"), "two"), (json!(1.5), "1.5"), (json!([]), "[]")]
    {
        let base = a_base(|config| config["version"] = written);
        let wanted = format!("spec.distribution: Unsupported config.yaml version {said}. Supported versions: 1, 2");
        assert_eq!(errors_on(&base, ANY), [wanted]);
    }
}

#[test]
fn fr_027_a_base_without_version_is_refused() {
    let base = a_base(|config| config["version"] = json!(null));
    assert_eq!(errors_on(&base, ANY), ["spec.distribution: config.yaml missing required 'version' field"]);
}

#[test]
fn fr_027c_an_image_without_base_asks_for_a_configuration() {
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
fn a_name_without_base_names_the_distribution() {
    let spec = spec(ANY);
    let input = Input { spec: &spec, base: None, merge: Merge::Overlay, operator_image: "" };
    let problems = generate(&input).unwrap_err();
    assert_eq!(problems[0].message.to_string(), "failed to load embedded config for distribution \"starter\"");
}

#[test]
fn a_wrong_version_is_told_together_with_the_errors_of_the_spec() {
    let base = a_base(|config| config["version"] = json!(3));
    let errors = errors_on(&base, "{providers: {inference: {provider: vllm, id: ''}}}");
    assert_eq!(errors.len(), 2, "{errors:?}");
}

#[test]
fn the_hash_of_a_base_depends_on_its_content_alone() {
    let Base { config, .. } = starter();
    let other = a_base(|config| config["connectors"] = json!(["x"]));
    assert_eq!(hash_of_base(&config), hash_of_base(&starter().config));
    assert_ne!(hash_of_base(&config), hash_of_base(&other.config));
    assert!(hash_of_base(&config).starts_with("sha256:"));
    assert_eq!(hash_of_base(&config).len(), "sha256:".len() + 64);
}
