//! Version texts as API servers of several vendors give them.

use steersman_api::meta::ServerVersion;

#[test]
fn git_versions_of_all_vendors_are_read() {
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
    for (given, (major, minor)) in cases {
        assert_eq!(given.parse(), Ok(ServerVersion::new(major, minor)), "{given}");
    }
}

#[test]
fn what_is_no_version_is_refused_with_its_text() {
    for given in
        ["", "v", "v1", "v1.", "1.x.3", "v1.33.5.1", "v+1.33", "v1.-33", "v1.33.", "v1.4294967296.0", "vv1.33.0"]
    {
        let error = given.parse::<ServerVersion>().unwrap_err();
        assert_eq!(error.to_string(), format!("{given:?} is not a Kubernetes version such as \"v1.33.5\""));
    }
}

#[test]
fn major_and_minor_are_read_with_the_vendors_plus() {
    assert_eq!(ServerVersion::from_parts("1", "33+"), Ok(ServerVersion::new(1, 33)));
    assert_eq!(ServerVersion::from_parts("1", "36"), Ok(ServerVersion::new(1, 36)));
    for (major, minor) in [("", ""), ("1", ""), ("", "33"), ("1", "+33"), ("1", "33++"), ("1", "x")] {
        assert!(ServerVersion::from_parts(major, minor).is_err(), "{major:?} {minor:?}");
    }
}

#[test]
fn versions_compare_as_numbers() {
    let read = |text: &str| text.parse::<ServerVersion>().unwrap();
    assert!(read("v1.9.0") < read("v1.10.0"));
    assert!(read("v1.36.0") < read("v2.0.0"));
    assert_eq!(read("v1.33.1"), read("v1.33.9"));
    assert_eq!(read("v1.33.1").to_string(), "1.33");
}
