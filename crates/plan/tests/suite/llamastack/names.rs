//! Names that children can have, and quantities however they are written.

use steersman_plan::llamastack::plan;

use super::a_new_object;

const RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
    and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

#[test]
fn a_name_is_refused_where_one_of_the_children_could_not_be_named() {
    let of_length = |length| "n".repeat(length);
    let refused = |name: &str, why: &str| {
        Some(format!("failed to make valid prefixed name: failed to validate name \"{name}\": {why}"))
    };
    let long = "must be no more than 63 characters";
    for (name, expected) in [
        ("starter".to_owned(), None),
        ("network".to_owned(), None),
        (of_length(48), None),
        (of_length(49), refused(&format!("{}-network-policy", of_length(49)), long)),
        (of_length(56), refused(&format!("{}-service", of_length(56)), long)),
        (of_length(60), refused(&format!("{}-pvc", of_length(60)), long)),
        ("a.b".to_owned(), refused("a.b-pvc", RULE)),
        (format!("{}.b", of_length(60)), refused(&format!("{}.b-pvc", of_length(60)), &format!("{long}, {RULE}"))),
    ] {
        let mut seen = a_new_object("{server: {distribution: {name: starter}}}");
        seen.object.name = name.clone();
        let found = plan(&seen).findings;
        assert_eq!(found.first().map(|finding| finding.message.clone()), expected, "{name}");
        assert!(found.iter().all(|finding| finding.reason == "NameInvalid"));
    }
}
