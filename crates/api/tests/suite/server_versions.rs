//! Parsing of the versions that API servers of several vendors report.

use steersman_api::meta::ServerVersion;

#[test]
fn git_version_parses_for_all_vendors() {
    let cases = [
        ("v1.36.3", (1, 36)),
        ("1.36.3", (1, 36)),
        ("v1.33", (1, 33)),
        ("v1.33.5-eks-3025e55", (1, 33)),
        ("v1.34.1+k3s1", (1, 34)),
        ("v1.33.4-gke.1172000", (1, 33)),
        ("v1.37.0-alpha.1.42+0123456789abcd-dirty", (1, 37)),
        ("v0.0.0-master+$Format:%H$", (0, 0)),
    ];
    for (text, (major, minor)) in cases {
        assert_eq!(text.parse(), Ok(ServerVersion::new(major, minor)), "{text}");
    }
}

#[test]
fn invalid_version_error_quotes_the_text() {
    for text in
        ["", "v", "v1", "v1.", "1.x.3", "v1.33.5.1", "v+1.33", "v1.-33", "v1.33.", "v1.4294967296.0", "vv1.33.0"]
    {
        let error = text.parse::<ServerVersion>().unwrap_err();
        let expected = format!("the API server reports the version {text:?}, which is not of the form \"v1.33.5\"");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn minor_version_may_end_with_plus() {
    assert_eq!(ServerVersion::from_parts("1", "33+"), Ok(ServerVersion::new(1, 33)));
    assert_eq!(ServerVersion::from_parts("1", "36"), Ok(ServerVersion::new(1, 36)));
    for (major, minor) in [("", ""), ("1", ""), ("", "33"), ("1", "+33"), ("1", "33++"), ("1", "x")] {
        assert!(ServerVersion::from_parts(major, minor).is_err(), "{major:?} {minor:?}");
    }
}

#[test]
fn versions_compare_as_numbers() {
    let parse = |text: &str| text.parse::<ServerVersion>().unwrap();
    assert!(parse("v1.9.0") < parse("v1.10.0"));
    assert!(parse("v1.36.0") < parse("v2.0.0"));
    assert_eq!(parse("v1.33.1"), parse("v1.33.9"));
    assert_eq!(parse("v1.33.1").to_string(), "1.33");
}
