//! Merges external providers into the mounted file, inside the pod: their metadata is known only once their images
//! are there.

use serde_json::{Map, Value, json};
use steersman_api::llamastack::v1alpha2::ExternalProviders;
use steersman_reconcile::{FieldPath, path};

use super::{External, FieldError, apis, duplicate};
use crate::llamastack::config::draft::{self, id_of, text};
use crate::llamastack::config::problem::reason;
use crate::llamastack::config::render;

const API_VERSION: &str = "llamastack.io/v1alpha1";
const KIND: &str = "ProviderPackage";

/// An external provider after its installation.
#[derive(Clone, Debug, PartialEq)]
pub struct Installed {
    pub external: External,
    /// The content of `lls-provider-spec.yaml`. None: the image has none.
    pub metadata: Option<Value>,
}

/// Adds the providers and changes nothing else of the file. An entry with the same id is replaced and reported.
pub fn merge(config: &Value, installed: &[Installed]) -> Result<(Value, Vec<FieldError>), Vec<FieldError>> {
    let mut config = config.as_object().cloned().unwrap_or_default();
    let mut providers = draft::take(&mut config, "providers");
    let listed = config.contains_key("apis");
    let mut apis = draft::take_list(&mut config, "apis");
    let (mut errors, mut remarks) = (Vec::new(), Vec::new());
    for (place, one) in installed.iter().enumerate() {
        let external = &one.external;
        let same = |known: &&Installed| known.external.provider_id == external.provider_id;
        errors.extend(installed[..place].iter().find(same).map(|first| duplicate(&first.external, external)));
        let wrong = faults(one);
        if !wrong.is_empty() {
            errors.extend(wrong);
            continue;
        }
        let said = |key: &str| one.metadata.as_ref().and_then(|metadata| metadata.get("spec")?.get(key)).cloned();
        let mut list = draft::take_list(&mut providers, &external.api);
        list.retain(|entry| {
            let stays = id_of(entry).is_none_or(|known| known.id != external.provider_id);
            if !stays {
                remarks.push(overridden(external, entry, said("providerType").as_ref()));
            }
            stays
        });
        let mut entry = Map::new();
        entry.insert("provider_id".to_owned(), Value::from(external.provider_id.as_str()));
        entry.extend(said("providerType").map(|type_| ("provider_type".to_owned(), type_)));
        entry.extend(said("packageName").map(|module| ("module".to_owned(), module)));
        entry.insert("config".to_owned(), external.config.clone().unwrap_or_else(|| json!({})));
        list.push(Value::Object(entry));
        providers.insert(external.api.clone(), Value::Array(list));
        if !apis.is_empty() && !apis.iter().any(|name| name.as_str() == Some(&external.api)) {
            apis.push(Value::from(external.api.as_str()));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    config.insert("providers".to_owned(), Value::Object(providers));
    if listed {
        config.insert("apis".to_owned(), Value::Array(apis));
    }
    Ok((Value::Object(config), remarks))
}

/// Merges the files of the pod: the mounted configuration, the list of providers in `EXTERNAL_VARIABLE`, and the
/// metadata that was copied from each image.
pub fn merge_files(
    config_yaml: &str,
    providers_json: &str,
    metadata: impl Fn(&External) -> Option<String>,
) -> Result<(String, Vec<FieldError>), Vec<FieldError>> {
    let stop =
        |path: FieldPath, message: String, remedy: &str| vec![FieldError::new(path, reason::FAILED, message, remedy)];
    let report = "This is a bug in Steersman; report it with the spec of the object.";
    // A generated file can always be read; this one is the user's.
    let correct = "Correct the configuration in the ConfigMap of overrideConfig.";
    let config =
        render::read(config_yaml).map_err(|error| stop(FieldPath::default().field("config.yaml"), error, correct))?;
    let externals: Vec<External> = serde_json::from_str(providers_json).map_err(|error| {
        stop(path!(spec.externalProviders), format!("the list of external providers cannot be parsed: {error}"), report)
    })?;
    let (mut installed, mut unreadable) = (Vec::new(), Vec::new());
    for external in externals {
        let metadata = metadata(&external).map(|text| render::read(&text)).transpose().unwrap_or_else(|error| {
            let message = format!("/lls-provider/lls-provider-spec.yaml in image {}: {error}", external.image);
            unreadable.extend(stop(external.path.clone(), message, "Rebuild the image with valid metadata."));
            None
        });
        installed.push(Installed { external, metadata });
    }
    if !unreadable.is_empty() {
        return Err(unreadable);
    }
    let (merged, remarks) = merge(&config, &installed)?;
    Ok((render::yaml(&merged).map_err(|problem| vec![problem])?, remarks))
}

fn overridden(external: &External, entry: &Value, type_: Option<&Value>) -> FieldError {
    let before = text(entry, "provider_type").unwrap_or("none");
    let after = type_.and_then(Value::as_str).unwrap_or("none");
    FieldError::new(
        external.path.field("providerId"),
        reason::OVERRIDDEN,
        format!(
            "External provider '{}' overrides base provider in API '{}' (base {before}, external {after})",
            external.provider_id, external.api
        ),
        "Give it another providerId to keep both.",
    )
}

/// All errors in the metadata of an image.
fn faults(one: &Installed) -> Vec<FieldError> {
    let external = &one.external;
    let fault = |message: String, remedy: &str| {
        let id = &external.provider_id;
        let who = format!("external provider {id} (image {}, container {}{id})", external.image, super::INSTALL);
        FieldError::new(external.path.clone(), reason::FAILED, format!("{who}: {message}"), remedy)
    };
    let rebuild = "Rebuild the image with a complete /lls-provider/lls-provider-spec.yaml.";
    let Some(metadata) = &one.metadata else {
        let missing = format!("Missing /lls-provider/lls-provider-spec.yaml in image {}", external.image);
        return vec![fault(missing, rebuild)];
    };
    let word = |path: &str| {
        let value = metadata.pointer(&format!("/{}", path.replace('.', "/")));
        value.and_then(Value::as_str).filter(|word| !word.is_empty())
    };
    let mut faults = Vec::new();
    for (key, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let got = word(key).unwrap_or("nothing");
        if got != wanted {
            faults.push(fault(format!("{key}: expected {wanted}, got {got}"), rebuild));
        }
    }
    let required = [
        "metadata.name",
        "metadata.version",
        "metadata.vendor",
        "spec.packageName",
        "spec.providerType",
        "spec.api",
        "spec.wheelPath",
    ];
    for path in required.into_iter().filter(|path| word(path).is_none()) {
        faults.push(fault(format!("{path}: is required"), rebuild));
    }
    if let Some(type_) = word("spec.providerType").filter(|type_| !is_type(type_)) {
        let message = format!("spec.providerType: must match pattern (remote|inline)::[a-z0-9-]+, got {type_}");
        faults.push(fault(message, rebuild));
    }
    let apis = apis::of_external(&ExternalProviders::default()).map(|(api, _)| api.key);
    match word("spec.api") {
        Some(api) if !apis.contains(&api) => {
            faults.push(fault(format!("spec.api: must be one of [{}], got {api}", apis.join(" ")), rebuild));
        }
        Some(api) if api != external.api => {
            let section = apis::field(api);
            faults.push(fault(
                format!(
                    "ERROR: Provider API type mismatch: its metadata declares api={api}, but it is placed under \
                     externalProviders.{}",
                    external.section
                ),
                &format!("Resolution: Move the provider to externalProviders.{section} section in the LLSD spec."),
            ));
        }
        _ => {}
    }
    faults
}

fn is_type(text: &str) -> bool {
    let name = text.strip_prefix("remote::").or_else(|| text.strip_prefix("inline::"));
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.is_some_and(|name| !name.is_empty() && name.chars().all(inner))
}
