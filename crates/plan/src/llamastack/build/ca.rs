//! Bundles the CA certificates that the server trusts besides those of its image.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::DynamicObject;
use serde_json::json;
use steersman_api::llamastack::v1alpha2::{CaBundle, LlamaStackDistributionSpec};
use steersman_reconcile::path;

use super::labelled_child;
use crate::llamastack::config::FieldError;
use crate::llamastack::config::problem::reason;
use crate::llamastack::names;
use crate::llamastack::snapshot::{ObservedObject, Snapshot};

/// The key of the bundle, and the default key of a ConfigMap in the spec.
pub const KEY: &str = "ca-bundle.crt";
/// The ConfigMap that Open Data Hub maintains in every namespace.
pub const CLUSTER_BUNDLE: &str = "odh-trusted-ca-bundle";

const KEY_LIMIT: usize = 253;
const SIZE_LIMIT: usize = 10_485_760;
const COUNT_LIMIT: usize = 1000;
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// A bundle with an empty name counts as unset.
pub fn reference(spec: &LlamaStackDistributionSpec) -> Option<&CaBundle> {
    let bundle = spec.networking.as_ref()?.tls.as_ref()?.ca_bundle.as_ref()?;
    Some(bundle).filter(|bundle| !bundle.config_map_name.is_empty())
}

pub fn keys(bundle: &CaBundle) -> Vec<String> {
    bundle.config_map_keys.clone().filter(|keys| !keys.is_empty()).unwrap_or_else(|| vec![KEY.to_owned()])
}

/// All certificates as one PEM text. None: no certificates besides those of the image.
pub fn bundle(snapshot: &Snapshot) -> Result<Option<String>, FieldError> {
    let mut certificates = Vec::new();
    let named = reference(&snapshot.object.spec);
    if let Some(bundle) = named {
        let keys = keys(bundle);
        keys.iter().try_for_each(|key| valid_key(key))?;
        // A missing ConfigMap or key is reported by the check of references.
        let Some(data) = &snapshot.trust.named else { return Ok(None) };
        for key in keys {
            certificates.extend(read(&key, data.get(&key).map(String::as_str).unwrap_or_default())?);
        }
    }
    // A bad key in the cluster's ConfigMap is skipped: the user did not ask for it.
    let offered = snapshot.trust.cluster.iter().flatten();
    certificates.extend(offered.filter_map(|(key, text)| read(key, text).ok()).flatten());
    let fewer = "Use fewer keys, or remove certificates that the server does not need.";
    let size = certificates.iter().map(String::len).sum::<usize>();
    if size > SIZE_LIMIT {
        let message =
            format!("failed to process CA bundle: total size exceeds maximum allowed size of {SIZE_LIMIT} bytes");
        return Err(invalid_bundle(message, fewer));
    }
    if certificates.len() > COUNT_LIMIT {
        let message =
            format!("failed to process CA bundle: contains more than {COUNT_LIMIT} certificates (maximum allowed)");
        return Err(invalid_bundle(message, fewer));
    }
    if certificates.is_empty() && named.is_some() {
        let message = "failed to find valid certificates in CA bundle ConfigMaps".to_owned();
        return Err(invalid_bundle(message, "Put at least one PEM certificate into the ConfigMap."));
    }
    Ok((!certificates.is_empty()).then(|| certificates.join("\n")))
}

pub fn config_map(object: &ObservedObject, bundle: &str) -> DynamicObject {
    let name = names::ca_bundle(&object.name);
    labelled_child::<ConfigMap>(object, name, Some(names::TRUST), json!({ "data": { KEY: bundle } }))
}

fn invalid_bundle(message: String, remedy: &str) -> FieldError {
    FieldError::new(path!(spec.networking.tls.caBundle), reason::INVALID, message, remedy)
}

/// The keys that cannot be keys of a ConfigMap.
pub fn invalid_keys(spec: &LlamaStackDistributionSpec) -> Vec<FieldError> {
    let keys = reference(spec).map(keys).unwrap_or_default();
    keys.iter().filter_map(|key| valid_key(key).err()).collect()
}

fn valid_key(key: &str) -> Result<(), FieldError> {
    let refuse = |why: String| {
        Err(FieldError::new(
            path!(spec.networking.tls.caBundle.configMapKeys),
            reason::INVALID,
            format!("failed to validate CA bundle ConfigMap keys: {why}"),
            "Use keys of the ConfigMap, such as ca-bundle.crt.",
        ))
    };
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    if key.is_empty() {
        return refuse("ConfigMap key cannot be empty".to_owned());
    }
    let fault = if key.len() > KEY_LIMIT {
        "too long (max 253 characters)"
    } else if key.contains("..") || key.contains('/') {
        "contains invalid path characters"
    } else if !key.chars().all(inner) || !outer(key.chars().next()) || !outer(key.chars().next_back()) {
        "contains invalid characters. Only alphanumeric characters, hyphens, underscores, and dots are allowed"
    } else {
        return Ok(());
    };
    refuse(format!("failed to validate ConfigMap key '{key}': {fault}"))
}

/// The certificates of one key, encoded again. Other PEM blocks, such as private keys, are skipped.
fn read(key: &str, text: &str) -> Result<Vec<String>, FieldError> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(BEGIN) {
        let Some((body, after)) = after.split_once(END) else { break };
        let packed: String = body.chars().filter(|c| !c.is_whitespace()).collect();
        let der = STANDARD.decode(packed).ok().filter(|der| is_certificate(der)).ok_or_else(|| {
            let message =
                format!("failed to parse X.509 certificate from key '{key}': certificate {}", found.len() + 1);
            invalid_bundle(message, "Replace it in the ConfigMap with a PEM certificate.")
        })?;
        let encoded = STANDARD.encode(&der);
        let lines: Vec<&str> =
            (0..encoded.len()).step_by(64).filter_map(|at| encoded.get(at..encoded.len().min(at + 64))).collect();
        found.push(format!("{BEGIN}\n{}\n{END}\n", lines.join("\n")));
        rest = after;
    }
    if found.is_empty() && !text.trim().is_empty() {
        let message = format!("failed to find valid certificates in CA bundle key '{key}'");
        return Err(invalid_bundle(
            message,
            "Put PEM certificates under this key, or list other keys in configMapKeys.",
        ));
    }
    Ok(found)
}

/// Checks the outer form of X.509: a sequence of the signed part (sequence), the algorithm (sequence) and the signature
/// (bit string), without trailing bytes.
fn is_certificate(der: &[u8]) -> bool {
    let Some((0x30, mut rest, [])) = element(der) else { return false };
    for expected in [0x30, 0x30, 0x03] {
        match element(rest) {
            Some((tag, body, after)) if tag == expected && !body.is_empty() => rest = after,
            _ => return false,
        }
    }
    rest.is_empty()
}

/// Splits DER into tag, content and the remaining bytes.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let digits = usize::from(first & 0x7f);
        let bytes = rest.get(..digits).filter(|bytes| (1..=4).contains(&bytes.len()))?;
        length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        rest = rest.get(digits..)?;
    }
    Some((tag, rest.get(..length)?, rest.get(length..)?))
}
