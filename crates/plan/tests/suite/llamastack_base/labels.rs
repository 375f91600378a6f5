//! Labels of an image, as somebody wrote them.

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

fn inline(text: impl AsRef<[u8]>) -> BTreeMap<String, String> {
    labels(&[(LABEL_BASE64, &STANDARD.encode(text))])
}

fn in_layer(path: &str) -> BTreeMap<String, String> {
    labels(&[(LABEL_LAYER, &digest()), (LABEL_PATH, path)])
}

/// What labels say that must not need a layer.
fn alone(labels: &BTreeMap<String, String>) -> Result<serde_json::Value, String> {
    let base = from_labels("own", "0.7.1", labels, |file| panic!("{file:?} was asked for"));
    base.map(|base| base.unwrap().config).map_err(|error| error.to_string())
}

#[test]
fn fr_027f_a_configuration_in_a_label_is_a_base() {
    let base = from_labels("own", "0.7.1", &inline(CONFIG), |_| Err("not asked".into())).unwrap().unwrap();
    assert_eq!((base.name.as_str(), base.server_version.as_str()), ("own", "0.7.1"));
    assert_eq!(base.config, json!({ "version": 2, "distro_name": "own", "providers": { "inference": [] } }));
}

#[test]
fn fr_027f_a_configuration_in_a_layer_is_a_base() {
    for (given, wanted) in [
        ("/app/config.yaml", "app/config.yaml"),
        ("./app/config.yaml", "app/config.yaml"),
        ("config.yaml", "config.yaml"),
    ] {
        let file = LayerFile { digest: digest(), path: wanted.into() };
        assert_eq!(layer_file(&in_layer(given)), Ok(Some(file.clone())));
        let read = |asked: &LayerFile| {
            assert_eq!(*asked, file);
            Ok(CONFIG.as_bytes().to_vec())
        };
        let base = from_labels("own", "", &in_layer(given), read).unwrap().unwrap();
        assert_eq!(base.config["distro_name"], "own");
    }
}

#[test]
fn the_label_with_the_whole_configuration_comes_first() {
    let mut both = in_layer("config.yaml");
    both.extend(inline(CONFIG));
    assert_eq!(layer_file(&both), Ok(None));
    assert_eq!(alone(&both).unwrap()["distro_name"], "own");
}

#[test]
fn an_image_without_these_labels_carries_no_base() {
    for none in [labels(&[]), labels(&[("maintainer", "x"), (LABEL_BASE64, ""), (LABEL_PATH, " ")])] {
        assert_eq!(layer_file(&none), Ok(None));
        assert_eq!(from_labels("own", "", &none, |_| Err("not asked".into())), Ok(None));
    }
}

#[test]
fn half_of_a_pair_is_refused_with_the_name_of_the_other_half() {
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
fn places_that_cannot_be_are_refused() {
    for wrong in ["sha256:", "sha1:00", "latest", &digest().to_uppercase(), &format!("{}0", digest())] {
        let labels = labels(&[(LABEL_LAYER, wrong), (LABEL_PATH, "config.yaml")]);
        assert_eq!(layer_file(&labels), Err(LabelError::NotADigest { digest: wrong.to_owned() }));
    }
    for wrong in ["/", ".", "../config.yaml", "app/../../config.yaml", "app/"] {
        assert_eq!(layer_file(&in_layer(wrong)), Err(LabelError::NotAPath { path: wrong.to_owned() }));
    }
}

#[test]
fn too_much_is_refused_before_it_is_read() {
    let of = |bytes: usize| format!("{CONFIG}# {}", "x".repeat(bytes - CONFIG.len() - 2));
    assert!(alone(&inline(of(LABEL_TEXT_LIMIT))).is_ok());
    for bytes in [LABEL_TEXT_LIMIT + 1, LABEL_TEXT_LIMIT * 20] {
        let refused = alone(&inline(of(bytes))).unwrap_err();
        assert!(refused.contains("more than 51200 bytes") && refused.contains(LABEL_LAYER), "{refused}");
    }
    // Too long already in its letters: whether they are base64 does not matter any more.
    assert_eq!(
        from_labels("own", "", &labels(&[(LABEL_BASE64, &"!".repeat(1 << 20))]), |_| Err("not asked".into())),
        Err(LabelError::TextTooLong)
    );
    let read = |bytes: usize| from_labels("own", "", &in_layer("c.yaml"), |_| Ok(of(bytes).into_bytes()));
    assert!(read(LAYER_FILE_LIMIT).is_ok());
    assert_eq!(
        read(LAYER_FILE_LIMIT + 1).unwrap_err().to_string(),
        format!("\"c.yaml\" in layer {} has 1048577 bytes, more than the 1048576 allowed", digest())
    );
}

#[test]
fn what_is_no_configuration_is_refused_with_its_place() {
    let place = "label io.llamastack.config.base64 is no configuration of a Llama Stack server";
    for (text, why) in [
        ("version: 2\n", "it has no mapping `providers`"),
        ("providers: []\n", "it has no mapping `providers`"),
        ("- version: 2\n", "it is not a mapping of keys to values"),
        ("\n", "it is not a mapping of keys to values"),
    ] {
        assert_eq!(alone(&inline(text)).unwrap_err(), format!("{place}: {why}"));
    }
    assert_eq!(alone(&inline([0xff, 0xfe, 0xff])).unwrap_err(), format!("{place}: it is not UTF-8"));
    let not_encoded = labels(&[(LABEL_BASE64, "version: 2")]);
    assert_eq!(from_labels("own", "", &not_encoded, |_| Err("not asked".into())), Err(LabelError::NotBase64));
}

/// Somebody's configuration may hold a password, and the reason ends up in a condition.
#[test]
fn a_reason_quotes_nothing_of_the_text() {
    let text = "providers: {}\npassword: hunter2\n  wrong: [hunter2\n";
    let refused = alone(&inline(text)).unwrap_err();
    assert!(refused.contains("it is not YAML that can be read (line "), "{refused}");
    assert!(!refused.contains("hunter2"), "{refused}");
}

#[test]
fn aliases_that_multiply_are_refused() {
    let mut text = "providers: {}\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let above = format!("*a{}", level - 1);
        text += &format!("a{level}: &a{level} [{}]\n", [above.as_str(); 10].join(", "));
    }
    let refused = alone(&inline(text)).unwrap_err();
    assert!(refused.contains("it is not YAML that can be read"), "{refused}");
}

#[test]
fn an_unreadable_layer_says_why() {
    let failed = from_labels("own", "", &in_layer("app/c.yaml"), |_| Err("the registry did not answer".into()));
    assert_eq!(
        failed.unwrap_err().to_string(),
        format!("cannot read \"app/c.yaml\" in layer {}: the registry did not answer", digest())
    );
}

proptest! {
    /// Labels are written by strangers.
    #[test]
    fn no_label_makes_it_panic(inside in proptest::option::of(".{0,80}"), layer in proptest::option::of("(sha256:)?[0-9a-f]{0,64}"),
                               path in proptest::option::of("[a-z./]{0,20}"), text in proptest::collection::vec(any::<u8>(), 0..200)) {
        let given = [(LABEL_BASE64, inside), (LABEL_LAYER, layer), (LABEL_PATH, path)];
        let labels: BTreeMap<_, _> = given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
        let answer = from_labels("own", "", &labels, |_| Ok(text.clone()));
        prop_assert_eq!(&answer, &from_labels("own", "", &labels, |_| Ok(text.clone())));
        if let Ok(Some(base)) = answer {
            prop_assert!(base.config["providers"].is_object());
        }
    }
}
