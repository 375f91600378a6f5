//! The custom resources of the families, as the runtime knows them.

use steersman_api::Family;
use steersman_runtime::resource::CustomResource;

/// In the stored version, which a controller reads without conversion.
pub fn custom_resource(family: Family) -> CustomResource {
    CustomResource {
        short_name: family.short_name(),
        group: family.group(),
        version: family.storage_version(),
        kind: family.kind(),
        plural: family.plural(),
        crd_name: family.crd_name(),
    }
}
