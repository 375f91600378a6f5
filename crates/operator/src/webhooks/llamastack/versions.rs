//! The rules speak of v1alpha2; whoever writes v1alpha1 is told the places of v1alpha1.
//! Comes in: a text with places in it; goes out: the same text for the version that its reader wrote.

/// What is told of objects in the older version. The longer a place, the earlier it stands.
const PLACES: [(&str, &str); 9] = [
    ("spec.overrideConfig.configMapName", "spec.server.userConfig.configMapName"),
    ("spec.networking.tls.caBundle", "spec.server.tlsConfig.caBundle"),
    ("spec.networking.port", "spec.server.containerSpec.port"),
    ("spec.networking.expose", "spec.network.exposeRoute"),
    ("spec.networking.allowedFrom", "spec.network.allowedFrom"),
    ("spec.workload.overrides.env", "spec.server.containerSpec.env"),
    ("spec.workload.replicas", "spec.replicas"),
    ("spec.workload.autoscaling", "spec.server.autoscaling"),
    ("spec.distribution", "spec.server.distribution"),
];

pub fn words(text: &str, version: &str) -> String {
    if version != "v1alpha1" {
        return text.to_owned();
    }
    PLACES.iter().fold(text.to_owned(), |text, (newer, older)| text.replace(newer, older))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use steersman_api::convert::convert;

    use super::*;

    #[test]
    fn an_author_is_told_places_of_the_version_that_was_written() {
        let said = "spec.distribution.name: unknown. Name another, or give spec.distribution.image.";
        assert_eq!(words(said, "v1alpha2"), said);
        let older = "spec.server.distribution.name: unknown. Name another, or give spec.server.distribution.image.";
        assert_eq!(words(said, "v1alpha1"), older);
    }

    /// The table against the converter: what stands at the older place comes out at the newer.
    #[test]
    fn every_pair_of_places_is_one_field() {
        for (newer, older) in PLACES {
            let value = match newer.rsplit('.').next().unwrap() {
                "configMapName" => json!("name"),
                "port" | "replicas" => json!(3),
                "expose" => json!(true),
                "env" => json!([{ "name": "A" }]),
                _ => json!({ "configMapName": "name", "maxReplicas": 2, "namespaces": ["a"], "name": "starter" }),
            };
            let put = |older: &str| older.split('.').rev().fold(value.clone(), |inner, key| json!({ key: inner }));
            let mut object = put(older);
            object["apiVersion"] = json!("llamastack.io/v1alpha1");
            object["kind"] = json!("LlamaStackDistribution");
            let converted = convert(object, "llamastack.io/v1alpha2").unwrap().object;
            let at: &Value = newer.split('.').fold(&converted, |value, key| &value[key]);
            assert_eq!(*at, value, "{older} is {newer}");
        }
    }
}
