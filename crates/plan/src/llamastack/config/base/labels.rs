//! Reads a base from the labels of an image, which hold it whole or name a file in one of the layers.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Base, parse};
use crate::oci::is_digest;

/// The whole `config.yaml`, in standard base64.
pub const LABEL_BASE64: &str = "io.llamastack.config.base64";
/// Digest of the layer with `config.yaml`; goes with [`LABEL_PATH`].
pub const LABEL_LAYER: &str = "io.llamastack.config.layer";
/// Path of `config.yaml` inside that layer.
pub const LABEL_PATH: &str = "io.llamastack.config.path";

/// Maximum size of the configuration in a label. A larger one belongs in a layer.
pub const LABEL_TEXT_LIMIT: usize = 50 * 1024;
/// Maximum size of the file in a layer. The generated ConfigMap could not hold more.
pub const LAYER_FILE_LIMIT: usize = 1024 * 1024;

/// Longest path of a file in a layer, in bytes.
const MAX_PATH_BYTES: usize = 1024;
/// Most characters of a label that a message quotes. The author of the image controls the length of the label.
const MAX_QUOTED_CHARS: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerFile {
    pub digest: String,
    /// Path as tar archives spell it: without a leading `/` or `./`.
    pub path: String,
}

/// Why an image's labels give no base. The messages name the label and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    #[error("label {LABEL_BASE64} is not standard base64; encode config.yaml with `base64 -w0`")]
    NotBase64,
    #[error(
        "label {LABEL_BASE64} holds more than {LABEL_TEXT_LIMIT} bytes of configuration; put the file into a layer and \
         name it with {LABEL_LAYER} and {LABEL_PATH}"
    )]
    TextTooLong,
    #[error("label {given} is set without {missing}; set both, or {LABEL_BASE64} alone")]
    HalfGiven { given: &'static str, missing: &'static str },
    #[error("label {LABEL_LAYER} is {digest:?}, which is not a digest like sha256:<64 hex digits>")]
    NotADigest { digest: String },
    #[error(
        "label {LABEL_PATH} is {path:?}, which is not the path of a file in a layer; use a path without `..` of at most {MAX_PATH_BYTES} bytes"
    )]
    NotAPath { path: String },
    #[error("cannot read {path:?} in layer {digest}: {why}")]
    Unreadable { digest: String, path: String, why: String },
    #[error("{path:?} in layer {digest} has {bytes} bytes, more than the {LAYER_FILE_LIMIT} allowed")]
    FileTooLong { digest: String, path: String, bytes: usize },
    #[error("{place} is not a configuration of a Llama Stack server: {why}")]
    NotAConfig { place: String, why: String },
}

/// The file that [`from_labels`] needs. None: the labels alone suffice.
pub fn layer_file(labels: &BTreeMap<String, String>) -> Result<Option<LayerFile>, LabelError> {
    if given(labels, LABEL_BASE64).is_some() {
        return Ok(None);
    }
    match (given(labels, LABEL_LAYER), given(labels, LABEL_PATH)) {
        (None, None) => Ok(None),
        (Some(digest), Some(_)) if !is_digest(digest) => Err(LabelError::NotADigest { digest: quoted(digest) }),
        (Some(digest), Some(path)) => Ok(Some(LayerFile { digest: digest.to_owned(), path: checked_path(path)? })),
        (Some(_), None) => Err(LabelError::HalfGiven { given: LABEL_LAYER, missing: LABEL_PATH }),
        (None, Some(_)) => Err(LabelError::HalfGiven { given: LABEL_PATH, missing: LABEL_LAYER }),
    }
}

/// The base of an image. None: its labels name none. `read` reads a file of a layer; it is called only if the
/// configuration is not in a label.
pub fn from_labels(
    name: &str,
    server_version: &str,
    labels: &BTreeMap<String, String>,
    read: impl FnOnce(&LayerFile) -> Result<Vec<u8>, String>,
) -> Result<Option<Base>, LabelError> {
    let (text, place) = match (given(labels, LABEL_BASE64), layer_file(labels)?) {
        (Some(encoded), _) => (decoded(encoded)?, format!("label {LABEL_BASE64}")),
        (None, Some(file)) => {
            let text = from_layer(&file, read)?;
            (text, format!("{:?} in layer {}", file.path, file.digest))
        }
        (None, None) => return Ok(None),
    };
    let config = String::from_utf8(text)
        .map_err(|_| "it is not UTF-8".to_owned())
        .and_then(|text| parse(&text))
        .map_err(|why| LabelError::NotAConfig { place, why })?;
    Ok(Some(Base { name: name.to_owned(), server_version: server_version.to_owned(), config }))
}

fn decoded(encoded: &str) -> Result<Vec<u8>, LabelError> {
    // The size is checked before decoding: the author of the image controls the length of the label.
    if encoded.len() > LABEL_TEXT_LIMIT.div_ceil(3) * 4 {
        return Err(LabelError::TextTooLong);
    }
    let text = STANDARD.decode(encoded).map_err(|_| LabelError::NotBase64)?;
    if text.len() > LABEL_TEXT_LIMIT { Err(LabelError::TextTooLong) } else { Ok(text) }
}

fn from_layer(
    file: &LayerFile,
    read: impl FnOnce(&LayerFile) -> Result<Vec<u8>, String>,
) -> Result<Vec<u8>, LabelError> {
    let LayerFile { digest, path } = file.clone();
    match read(file) {
        Err(why) => Err(LabelError::Unreadable { digest, path, why }),
        Ok(text) if text.len() > LAYER_FILE_LIMIT => Err(LabelError::FileTooLong { digest, path, bytes: text.len() }),
        Ok(text) => Ok(text),
    }
}

/// An empty label counts as absent.
fn given<'a>(labels: &'a BTreeMap<String, String>, label: &str) -> Option<&'a str> {
    labels.get(label).map(|value| value.trim()).filter(|value| !value.is_empty())
}

fn checked_path(path: &str) -> Result<String, LabelError> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.is_empty() || parts.contains(&"..") || path.ends_with('/') || path.len() > MAX_PATH_BYTES {
        return Err(LabelError::NotAPath { path: quoted(path) });
    }
    Ok(parts.join("/"))
}

fn quoted(label: &str) -> String {
    label.chars().take(MAX_QUOTED_CHARS).collect()
}
