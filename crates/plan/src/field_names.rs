//! Field paths in the API version of an object's author, from the conversion tables.

use steersman_api::Family;
use steersman_api::convert::{StoredLocation, shared_fields};
use steersman_reconcile::{FieldNames, MovedField, path};

/// Paths for objects written in `version`. An unknown version counts as the stored one.
pub fn field_names(family: Family, version: &str) -> FieldNames {
    let below_spec = |fields: &[&'static str]| fields.iter().fold(path!(spec), |path, field| path.field(*field));
    let fields: Vec<MovedField> = shared_fields(family, version)
        .into_iter()
        .map(|field| MovedField {
            stored: match field.stored {
                StoredLocation::Spec(fields) => below_spec(fields),
                StoredLocation::Annotation(key) => path!(metadata.annotations).key(key),
            },
            written: below_spec(field.written),
            with_content: field.with_content,
        })
        .collect();
    if fields.is_empty() { FieldNames::default() } else { FieldNames::new(family.storage_version(), fields) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_authors_version() {
        let cases = [
            (Family::Llsd, path!(spec.networking.port), "spec.server.containerSpec.port"),
            (Family::Llsd, path!(spec.workload.workers), "spec.server.workers"),
            (Family::Llsd, path!(spec.workload.overrides), "spec.server.podOverrides"),
            (Family::Llsd, path!(spec.distribution.image), "spec.server.distribution.image"),
            (Family::Llsd, path!(spec.networking.expose), "spec.network.exposeRoute"),
            (Family::Llsd, path!(spec.networking.expose.hostname), "spec.networking.expose.hostname (of v1alpha2)"),
            (
                Family::Llsd,
                path!(spec.providers.inference).index(0).field("id"),
                "spec.providers.inference[0].id (of v1alpha2)",
            ),
            (Family::Dgdr, path!(spec.image), "spec.profilingConfig.profilerImage"),
            (Family::Dgdr, path!(spec.runtimeVersionOverride), "spec.runtimeVersionOverride"),
            (Family::Dgdr, path!(spec.hardware), "spec.hardware (of v1beta1)"),
            (
                Family::Dgdr,
                path!(metadata.annotations).key("nvidia.com/dgdr-config-map-ref"),
                "spec.profilingConfig.configMapRef",
            ),
        ];
        for (family, path, wanted) in cases {
            assert_eq!(field_names(family, "v1alpha1").render(&path), wanted);
            assert_eq!(field_names(family, family.storage_version()).render(&path), path.to_string());
        }
    }
}
