//! Validation of object names against the names of all children.

use steersman_plan::llamastack::plan;

use super::v1alpha1_snapshot;

const RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
    and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

#[test]
fn object_name_must_fit_all_child_names() {
    let name_of_length = |length| "n".repeat(length);
    let expected_error = |name: &str, why: &str| {
        Some(format!("failed to make valid prefixed name: failed to validate name \"{name}\": {why}"))
    };
    let long = "must be no more than 63 characters";
    for (name, expected) in [
        ("starter".to_owned(), None),
        ("network".to_owned(), None),
        (name_of_length(48), None),
        (name_of_length(49), expected_error(&format!("{}-network-policy", name_of_length(49)), long)),
        (name_of_length(56), expected_error(&format!("{}-service", name_of_length(56)), long)),
        (name_of_length(60), expected_error(&format!("{}-pvc", name_of_length(60)), long)),
        ("a.b".to_owned(), expected_error("a.b-pvc", RULE)),
        (
            format!("{}.b", name_of_length(60)),
            expected_error(&format!("{}.b-pvc", name_of_length(60)), &format!("{long}, {RULE}")),
        ),
    ] {
        let mut snapshot = v1alpha1_snapshot("{server: {distribution: {name: starter}}}");
        snapshot.object.name = name.clone();
        let found = plan(&snapshot).findings;
        assert_eq!(found.first().map(|finding| finding.message.clone()), expected, "{name}");
        assert!(found.iter().all(|finding| finding.reason == "NameInvalid"));
    }
}
