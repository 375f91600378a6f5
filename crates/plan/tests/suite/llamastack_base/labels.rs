//! Decoding of the image labels that hold a base.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::json;
use steersman_plan::llamastack::config::base::{
    LABEL_BASE64, LABEL_LAYER, LABEL_PATH, LABEL_TEXT_LIMIT, LAYER_FILE_LIMIT, LabelError, LayerFile, from_labels,
    layer_file,
};

const CONFIG: &str = "version: 2\ndistro_name: own\nproviders: {inference: []}\n";

fn digest() -> String {
    format!("sha256:{}", "0a".repeat(32))
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn inline_labels(text: impl AsRef<[u8]>) -> BTreeMap<String, String> {
    labels(&[(LABEL_BASE64, &STANDARD.encode(text))])
}

fn layer_labels(path: &str) -> BTreeMap<String, String> {
    labels(&[(LABEL_LAYER, &digest()), (LABEL_PATH, path)])
}

/// The configuration from labels that must not read a layer.
fn config_without_layer(labels: &BTreeMap<String, String>) -> Result<serde_json::Value, String> {
    let base = from_labels("own", "0.7.1", labels, |file| panic!("layer file {file:?} was read"));
    base.map(|base| base.unwrap().config).map_err(|error| error.to_string())
}

#[test]
fn fr_027f_configuration_in_label_is_base() {
    let base = from_labels("own", "0.7.1", &inline_labels(CONFIG), |_| Err("not asked".into())).unwrap().unwrap();
    assert_eq!((base.name.as_str(), base.server_version.as_str()), ("own", "0.7.1"));
    assert_eq!(base.config, json!({ "version": 2, "distro_name": "own", "providers": { "inference": [] } }));
}

#[test]
fn fr_027f_configuration_in_layer_is_base() {
    for (label_path, expected) in [
        ("/app/config.yaml", "app/config.yaml"),
        ("./app/config.yaml", "app/config.yaml"),
        ("config.yaml", "config.yaml"),
    ] {
        let file = LayerFile { digest: digest(), path: expected.into() };
        assert_eq!(layer_file(&layer_labels(label_path)), Ok(Some(file.clone())));
        let read = |requested_file: &LayerFile| {
            assert_eq!(*requested_file, file);
            Ok(CONFIG.as_bytes().to_vec())
        };
        let base = from_labels("own", "", &layer_labels(label_path), read).unwrap().unwrap();
        assert_eq!(base.config["distro_name"], "own");
    }
}

#[test]
fn inline_label_precedes_layer_label() {
    let mut both = layer_labels("config.yaml");
    both.extend(inline_labels(CONFIG));
    assert_eq!(layer_file(&both), Ok(None));
    assert_eq!(config_without_layer(&both).unwrap()["distro_name"], "own");
}

#[test]
fn image_without_labels_has_no_base() {
    for no_labels in [labels(&[]), labels(&[("maintainer", "x"), (LABEL_BASE64, ""), (LABEL_PATH, " ")])] {
        assert_eq!(layer_file(&no_labels), Ok(None));
        assert_eq!(from_labels("own", "", &no_labels, |_| Err("not asked".into())), Ok(None));
    }
}

#[test]
fn incomplete_label_pair_names_missing_label() {
    let layer = labels(&[(LABEL_LAYER, &digest())]);
    assert_eq!(
        layer_file(&layer).unwrap_err().to_string(),
        "label io.llamastack.config.layer is set without io.llamastack.config.path; set both, or \
         io.llamastack.config.base64 alone"
    );
    let path = labels(&[(LABEL_PATH, "config.yaml")]);
    assert_eq!(layer_file(&path), Err(LabelError::HalfGiven { given: LABEL_PATH, missing: LABEL_LAYER }));
}

#[test]
fn invalid_digest_or_path_is_rejected() {
    for invalid in ["sha256:", "sha1:00", "latest", &digest().to_uppercase(), &format!("{}0", digest())] {
        let labels = labels(&[(LABEL_LAYER, invalid), (LABEL_PATH, "config.yaml")]);
        assert_eq!(layer_file(&labels), Err(LabelError::NotADigest { digest: invalid.to_owned() }));
    }
    for invalid in ["/", ".", "../config.yaml", "app/../../config.yaml", "app/"] {
        assert_eq!(layer_file(&layer_labels(invalid)), Err(LabelError::NotAPath { path: invalid.to_owned() }));
    }
}

#[test]
fn oversized_configuration_is_rejected() {
    let config_of_length = |bytes: usize| format!("{CONFIG}# {}", "x".repeat(bytes - CONFIG.len() - 2));
    assert!(config_without_layer(&inline_labels(config_of_length(LABEL_TEXT_LIMIT))).is_ok());
    for bytes in [LABEL_TEXT_LIMIT + 1, LABEL_TEXT_LIMIT * 20] {
        let error = config_without_layer(&inline_labels(config_of_length(bytes))).unwrap_err();
        assert!(error.contains("more than 51200 bytes") && error.contains(LABEL_LAYER), "{error}");
    }
    // The encoded text is already too long, so that it is not decoded.
    assert_eq!(
        from_labels("own", "", &labels(&[(LABEL_BASE64, &"!".repeat(1 << 20))]), |_| Err("not asked".into())),
        Err(LabelError::TextTooLong)
    );
    let read =
        |bytes: usize| from_labels("own", "", &layer_labels("c.yaml"), |_| Ok(config_of_length(bytes).into_bytes()));
    assert!(read(LAYER_FILE_LIMIT).is_ok());
    assert_eq!(
        read(LAYER_FILE_LIMIT + 1).unwrap_err().to_string(),
        format!("\"c.yaml\" in layer {} has 1048577 bytes, more than the 1048576 allowed", digest())
    );
}

#[test]
fn invalid_configuration_is_rejected_with_label() {
    let place = "label io.llamastack.config.base64 is not a configuration of a Llama Stack server";
    for (text, why) in [
        ("version: 2\n", "it has no mapping `providers`"),
        ("providers: []\n", "it has no mapping `providers`"),
        ("- version: 2\n", "it is not a mapping of keys to values"),
        ("\n", "it is not a mapping of keys to values"),
    ] {
        assert_eq!(config_without_layer(&inline_labels(text)).unwrap_err(), format!("{place}: {why}"));
    }
    assert_eq!(
        config_without_layer(&inline_labels([0xff, 0xfe, 0xff])).unwrap_err(),
        format!("{place}: it is not UTF-8")
    );
    let not_encoded = labels(&[(LABEL_BASE64, "version: 2")]);
    assert_eq!(from_labels("own", "", &not_encoded, |_| Err("not asked".into())), Err(LabelError::NotBase64));
}

/// A configuration may contain a password, and the error is shown in a condition.
#[test]
fn yaml_error_quotes_no_content() {
    let text = "providers: {}\npassword: hunter2\n  wrong: [hunter2\n";
    let error = config_without_layer(&inline_labels(text)).unwrap_err();
    assert!(error.contains("it is not valid YAML (line "), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn alias_expansion_is_rejected() {
    let mut text = "providers: {}\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let above = format!("*a{}", level - 1);
        text += &format!("a{level}: &a{level} [{}]\n", [above.as_str(); 10].join(", "));
    }
    let error = config_without_layer(&inline_labels(text)).unwrap_err();
    assert!(error.contains("it has more than 100000 YAML nodes after aliases are expanded"), "{error}");
}

#[test]
fn unreadable_layer_is_reported_with_cause() {
    let failed = from_labels("own", "", &layer_labels("app/c.yaml"), |_| Err("the registry did not answer".into()));
    assert_eq!(
        failed.unwrap_err().to_string(),
        format!("cannot read \"app/c.yaml\" in layer {}: the registry did not answer", digest())
    );
}

proptest! {
    /// Labels come from untrusted images.
    #[test]
    fn any_label_is_handled_without_panic(base64 in proptest::option::of(".{0,80}"), layer in proptest::option::of("(sha256:)?[0-9a-f]{0,64}"),
                               path in proptest::option::of("[a-z./]{0,20}"), text in proptest::collection::vec(any::<u8>(), 0..200)) {
        let pairs = [(LABEL_BASE64, base64), (LABEL_LAYER, layer), (LABEL_PATH, path)];
        let labels: BTreeMap<_, _> = pairs.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
        let result = from_labels("own", "", &labels, |_| Ok(text.clone()));
        prop_assert_eq!(&result, &from_labels("own", "", &labels, |_| Ok(text.clone())));
        if let Ok(Some(base)) = result {
            prop_assert!(base.config["providers"].is_object());
        }
    }
}
