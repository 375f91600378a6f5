//! Reads the digest of an image, its labels, and the file in a layer that they may name; content must match its digest.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use steersman_plan::llamastack::config::base::{LabelError, LayerFile, from_labels, layer_file};
use steersman_plan::oci::is_digest;
use steersman_runtime::cpu_bound;

use super::session::Session;
use super::{ImageLabels, RegistryError, layer};

/// Most bytes of a manifest, or of an image's configuration with all its labels.
pub const MANIFEST_LIMIT: usize = 4 * 1024 * 1024;
/// Most bytes of a layer, which is held in memory.
pub const LAYER_LIMIT: usize = 16 * 1024 * 1024;

const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";
const ANYTHING: &str = "*/*";

/// Preferred platforms, in this order. Labels are expected to be the same on each.
const PLATFORMS: [(&str, &str); 2] = [("linux", "amd64"), ("linux", "arm64")];

/// A manifest of an image or an index of several, as a registry sends it. A digest in it may be any text.
#[derive(Deserialize)]
pub struct Manifest {
    /// Images of an index, one for each platform.
    manifests: Option<Vec<ForPlatform>>,
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

#[derive(Clone, Deserialize)]
pub struct Descriptor {
    pub digest: String,
    #[serde(default)]
    pub size: u64,
}

#[derive(Deserialize)]
struct ForPlatform {
    digest: String,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

/// The configuration of an image, which has its labels.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    config: Option<Runtime>,
    rootfs: RootFs,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Runtime {
    #[serde(rename = "Labels")]
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RootFs {
    diff_ids: Vec<String>,
}

impl Manifest {
    /// `None`: it is not valid JSON or has values of other types.
    pub fn read(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// The digest of the image to read in an index. `None`: this is no index.
    pub fn platform_image(&self) -> Option<Result<&str, &'static str>> {
        let choices = self.manifests.as_deref()?;
        Some(for_platform(choices).ok_or("it has no image for Linux"))
    }

    pub fn config(&self) -> Option<&Descriptor> {
        self.config.as_ref()
    }

    /// The layer that a label names by its digest, or by the digest of its uncompressed content, which is known before a build.
    pub fn layer(&self, file: &LayerFile, config: &ImageConfig) -> Result<&Descriptor, LabelError> {
        let unreadable =
            |why: String| LabelError::Unreadable { digest: file.digest.clone(), path: file.path.clone(), why };
        let contents = &config.rootfs.diff_ids;
        let by_content = || self.layers.get(contents.iter().position(|content| *content == file.digest)?);
        let layer = self.layers.iter().find(|layer| layer.digest == file.digest).or_else(by_content);
        let layer = layer.ok_or_else(|| unreadable("the image has no such layer".to_owned()))?;
        if layer.size > LAYER_LIMIT as u64 {
            return Err(unreadable(format!(
                "the layer has {} bytes, more than the {LAYER_LIMIT} allowed; give config.yaml a layer of its own",
                layer.size
            )));
        }
        Ok(layer)
    }
}

impl ImageConfig {
    /// `None`: it is not valid JSON or has values of other types.
    pub fn read(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    pub fn labels(&self) -> BTreeMap<String, String> {
        self.config.as_ref().and_then(|runtime| runtime.labels.clone()).unwrap_or_default()
    }
}

/// The current digest of the reference. A HEAD request does not count against pull limits.
pub async fn digest(session: &mut Session<'_>) -> Result<String, RegistryError> {
    let reference = session.reference;
    let (path, what) = (format!("manifests/{}", reference.version()), reference.version().to_owned());
    let told = match session.ask(Method::HEAD, &path, MANIFESTS, &what, MANIFEST_LIMIT).await {
        Ok(answer) => {
            answer.headers.get("docker-content-digest").and_then(|told| told.to_str().ok()).map(str::to_owned)
        }
        Err(RegistryError::Answered { code: 405, .. }) => None,
        Err(error) => return Err(error),
    };
    match (&reference.digest, told) {
        (Some(pinned), _) => Ok(pinned.clone()),
        (None, Some(told)) if is_digest(&told) => Ok(told),
        _ => Ok(sum(&session.ask(Method::GET, &path, MANIFESTS, &what, MANIFEST_LIMIT).await?.body)),
    }
}

pub async fn labelled(session: &mut Session<'_>, digest: &str) -> Result<ImageLabels, RegistryError> {
    let mut manifest = manifest(session, digest).await?;
    if let Some(chosen) = manifest.platform_image() {
        let chosen = chosen.map_err(|why| session.unusable("an index", why))?.to_owned();
        manifest = self::manifest(session, &chosen).await?;
    }
    let Some(config) = manifest.config() else {
        return Err(session.unusable("a manifest", "it does not describe an image"));
    };
    let body = fetch(session, "blobs", &config.digest, "the image's configuration", MANIFEST_LIMIT).await?;
    let config =
        ImageConfig::read(&body).ok_or_else(|| session.unusable("a configuration", "it does not describe an image"))?;
    let labels = config.labels();
    let wanted = layer_file(&labels);
    let content = match &wanted {
        Ok(Some(file)) => match manifest.layer(file, &config) {
            Ok(layer) => {
                let blob =
                    fetch(session, "blobs", &layer.digest, "the layer that the labels name", LAYER_LIMIT).await?;
                let file = file.clone();
                // Decompression is CPU-bound, and must not block other tasks.
                let read = tokio::task::spawn_blocking(move || layer::file(&file, &blob)).await;
                read.map_err(|_| session.unusable("a layer", "reading it failed"))?
            }
            Err(error) => Err(error),
        },
        _ => Ok(vec![]),
    };
    let base = wanted.and(content).and_then(|content| {
        // The caller sets the name; the labels do not state the version of the server.
        cpu_bound::run(|| from_labels("", "", &labels, |_| Ok(content)))
    });
    Ok(ImageLabels { digest: digest.to_owned(), base })
}

async fn manifest(session: &mut Session<'_>, digest: &str) -> Result<Manifest, RegistryError> {
    let body = fetch(session, "manifests", digest, "a manifest", MANIFEST_LIMIT).await?;
    Manifest::read(&body).ok_or_else(|| session.unusable("a manifest", "it is not valid JSON"))
}

/// Reads content by its digest, and verifies it.
async fn fetch(
    session: &mut Session<'_>,
    kind: &str,
    digest: &str,
    what: &str,
    limit: usize,
) -> Result<Bytes, RegistryError> {
    if !is_digest(digest) {
        return Err(session.unusable(what, "its digest is not like sha256:<64 hex digits>"));
    }
    let accept = if kind == "manifests" { MANIFESTS } else { ANYTHING };
    let path = format!("{kind}/{digest}");
    let body = session.ask(Method::GET, &path, accept, &format!("{what} {digest}"), limit).await?.body;
    if sum(&body) == digest { Ok(body) } else { Err(session.unusable(what, "its content does not match its digest")) }
}

fn sum(content: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(content) {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn for_platform(choices: &[ForPlatform]) -> Option<&str> {
    let fits = |choice: &&ForPlatform, wanted: (&str, &str)| {
        choice.platform.as_ref().is_some_and(|found| (found.os.as_str(), found.architecture.as_str()) == wanted)
    };
    let known = PLATFORMS.iter().find_map(|wanted| choices.iter().find(|choice| fits(choice, *wanted)));
    // Attestations are listed in an index as images for the system `unknown`.
    let linux = |choice: &&ForPlatform| choice.platform.as_ref().is_none_or(|found| found.os == "linux");
    known.or_else(|| choices.iter().find(linux)).map(|choice| choice.digest.as_str())
}
