//! Field paths in the version that the user wrote.
//! Comes in: a message about a LlamaStackDistribution as it is stored; goes out: the same message with the paths of
//! v1alpha1, and a word where that one has no such field.

use crate::webhooks::places::in_older;

/// Where a field or a section of v1alpha2 stands in v1alpha1; the more exact ones first. A test holds it against the
/// conversion.
pub(super) const SAME: [(&str, &str); 14] = [
    ("spec.distribution", "spec.server.distribution"),
    ("spec.overrideConfig.configMapName", "spec.server.userConfig.configMapName"),
    ("spec.networking.port", "spec.server.containerSpec.port"),
    ("spec.networking.tls.caBundle", "spec.server.tlsConfig.caBundle"),
    ("spec.networking.expose", "spec.network.exposeRoute"),
    ("spec.networking.allowedFrom", "spec.network.allowedFrom"),
    ("spec.workload.replicas", "spec.replicas"),
    ("spec.workload.resources", "spec.server.containerSpec.resources"),
    ("spec.workload.overrides.env", "spec.server.containerSpec.env"),
    ("spec.workload.overrides.command", "spec.server.containerSpec.command"),
    ("spec.workload.overrides.args", "spec.server.containerSpec.args"),
    ("spec.workload.overrides", "spec.server.podOverrides"),
    ("spec.overrideConfig", "spec.server.userConfig"),
    ("spec.workload", "spec.server"),
];

/// The message with the paths of v1alpha1.
pub fn in_v1alpha1(message: &str) -> String {
    in_older(message, &SAME, "v1alpha2")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use steersman_api::convert::convert;

    use super::*;

    #[test]
    fn paths_in_a_sentence_are_those_of_the_version() {
        assert_eq!(
            in_v1alpha1("spec.networking.port: 0 is not a port. Set spec.networking.port, or spec.workload.workers."),
            "spec.server.containerSpec.port: 0 is not a port. Set spec.server.containerSpec.port, or spec.server.workers."
        );
        assert_eq!(
            in_v1alpha1("spec.providers.inference[0].id: no"),
            "spec.providers.inference[0].id (of v1alpha2): no"
        );
        assert_eq!(in_v1alpha1("nothing here"), "nothing here");
        assert_eq!(
            in_v1alpha1("names \"spec.distribution\", myspec.workload"),
            "names \"spec.distribution\", myspec.workload"
        );
        assert_eq!(in_v1alpha1("spec.workloads: x"), "spec.workloads (of v1alpha2): x");
    }

    /// A field at the old place must be at the new one after the conversion.
    #[test]
    fn the_table_says_what_the_conversion_does() {
        for (new, old) in SAME {
            let (new, old, value) = match new {
                "spec.networking.expose" => (new.to_owned(), old.to_owned(), json!(true)),
                "spec.networking.port" => (new.to_owned(), old.to_owned(), json!(9000)),
                "spec.workload" => (format!("{new}.workers"), format!("{old}.workers"), json!(3)),
                "spec.workload.overrides" => {
                    (format!("{new}.volumes"), format!("{old}.volumes"), json!([{"name": "v"}]))
                }
                "spec.overrideConfig" | "spec.networking.tls.caBundle" => {
                    (format!("{new}.configMapName"), format!("{old}.configMapName"), json!("c"))
                }
                _ => (new.to_owned(), old.to_owned(), json!("c")),
            };
            let mut object = json!({"apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution", "metadata": {}, "spec": {}});
            let mut place = &mut object;
            for step in old.split('.') {
                place = &mut place[step];
            }
            *place = value.clone();
            let converted = convert(object, "llamastack.io/v1alpha2").unwrap();
            let found: &Value = new.split('.').fold(&converted.object, |value, step| &value[step]);
            assert_eq!(*found, value, "{old} -> {new}: {}", converted.object);
        }
    }
}
