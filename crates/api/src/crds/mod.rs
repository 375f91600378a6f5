//! Builds the CustomResourceDefinitions of all APIs. The output is deterministic.

mod core;
mod schema;

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, CustomResourceValidation, WebhookClientConfig,
    WebhookConversion,
};
use kube_core::crd::CustomResourceExt;
use kube_core::crd::v1::merge_crds;
use schemars::JsonSchema;
use serde_json::Value;

use crate::{Family, dynamo, llamastack, variant};

pub use self::core::{INT_OR_STRING, QUANTITY, WRITTEN_BY_HAND, stored_definition};

pub const FAMILIES: [Family; 3] = [Family::Dgdr, Family::Llsd, Family::Va];

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The conversion webhook. Without one, an object in another version has only the fields with the same names.
    pub conversion: Option<WebhookClientConfig>,
}

#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    #[error("there is no CRD for {0} in this version of Steersman")]
    NotShipped(Family),
    #[error(
        "crates/api/schemas/core.json has no definition {0}; \
         generate the file with STEERSMAN_WRITE=1 cargo test -p steersman core_schema"
    )]
    UnknownDefinition(String),
    #[error("the definition {0} contains itself, which a structural schema cannot express")]
    Recursive(String),
    #[error("cannot parse crates/api/schemas/core.json: {0}")]
    Definitions(serde_json::Error),
    #[error("the schema of {crd} {version} is not valid in a CRD: {source}")]
    Schema { crd: &'static str, version: String, source: serde_json::Error },
    #[error("cannot merge the versions of {family} into one CRD: {source}")]
    Merge { family: Family, source: kube_core::crd::MergeError },
    #[error("cannot serialize {crd} as JSON: {source}")]
    Manifest { crd: String, source: serde_json::Error },
}

pub fn all(options: &Options) -> Result<Vec<CustomResourceDefinition>, CrdError> {
    FAMILIES.into_iter().map(|family| crd(family, options)).collect()
}

pub fn crd(family: Family, options: &Options) -> Result<CustomResourceDefinition, CrdError> {
    let versions = versions(family)?.into_iter().map(VersionSchema::build).collect::<Result<Vec<_>, _>>()?;
    let mut crd =
        merge_crds(versions, family.storage_version()).map_err(|source| CrdError::Merge { family, source })?;
    // The default of the API server is set here, so that the stored CRD equals ours.
    crd.spec.names.list_kind = Some(format!("{}List", family.kind()));
    crd.spec.conversion = Some(conversion(family, options));
    Ok(crd)
}

/// The CRD as JSON for files and the API server.
pub fn manifest(crd: &CustomResourceDefinition) -> Result<Value, CrdError> {
    let name = crd.metadata.name.clone().unwrap_or_default();
    let mut value = serde_json::to_value(crd).map_err(|source| CrdError::Manifest { crd: name, source })?;
    schema::whole_numbers(&mut value);
    Ok(value)
}

/// The definitions of Kubernetes that our types refer to, which the stored definitions must contain.
pub fn core_names() -> Result<BTreeSet<String>, CrdError> {
    let mut names = BTreeSet::new();
    for version in FAMILIES.into_iter().map(versions).collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
        core::names(&(version.schema)(), &mut names);
    }
    names.retain(|name| !WRITTEN_BY_HAND.contains(&name.as_str()));
    Ok(names)
}

fn conversion(family: Family, options: &Options) -> CustomResourceConversion {
    match &options.conversion {
        Some(client) if family.served_versions().len() > 1 => CustomResourceConversion {
            strategy: "Webhook".to_owned(),
            webhook: Some(WebhookConversion {
                client_config: Some(client.clone()),
                conversion_review_versions: vec!["v1".to_owned()],
            }),
        },
        _ => CustomResourceConversion { strategy: "None".to_owned(), webhook: None },
    }
}

/// A version of an API with its derived schema.
struct VersionSchema {
    crd: fn() -> CustomResourceDefinition,
    schema: fn() -> Value,
    name: &'static str,
    spec: SpecPresence,
}

/// Whether an object must have a `spec`, as in the CRD of the project that published the API.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SpecPresence {
    Required,
    Optional,
}

impl VersionSchema {
    fn of<K: CustomResourceExt + JsonSchema>(spec: SpecPresence) -> Self {
        Self { crd: K::crd, schema: schema::generate::<K>, name: K::crd_name(), spec }
    }

    fn build(self) -> Result<CustomResourceDefinition, CrdError> {
        let mut crd = (self.crd)();
        let definitions = core::Definitions::read()?;
        for version in &mut crd.spec.versions {
            let mut schema = definitions.resolve((self.schema)())?;
            schema::tidy(&mut schema);
            schema::complete_root(&mut schema, self.spec == SpecPresence::Required);
            let schema = serde_json::from_value(schema).map_err(|source| CrdError::Schema {
                crd: self.name,
                version: version.name.clone(),
                source,
            })?;
            version.schema = Some(CustomResourceValidation { open_api_v3_schema: Some(schema) });
        }
        Ok(crd)
    }
}

/// The versions in the order of [`Family::served_versions`].
fn versions(family: Family) -> Result<Vec<VersionSchema>, CrdError> {
    Ok(match family {
        Family::Dgdr => vec![
            VersionSchema::of::<dynamo::v1alpha1::DynamoGraphDeploymentRequest>(SpecPresence::Optional),
            VersionSchema::of::<dynamo::v1beta1::DynamoGraphDeploymentRequest>(SpecPresence::Optional),
        ],
        Family::Llsd => vec![
            VersionSchema::of::<llamastack::v1alpha1::LlamaStackDistribution>(SpecPresence::Required),
            VersionSchema::of::<llamastack::v1alpha2::LlamaStackDistribution>(SpecPresence::Required),
        ],
        Family::Va => vec![VersionSchema::of::<variant::v1alpha1::VariantAutoscaling>(SpecPresence::Optional)],
        Family::Dgd => return Err(CrdError::NotShipped(family)),
    })
}
