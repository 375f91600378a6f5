//! Describes the custom resource of a family to the runtime.

use steersman_api::Family;
use steersman_runtime::resource::CustomResource;

/// The resource in its storage version, which a controller reads without conversion.
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
