//! Images in the format of the Open Container Initiative (OCI), as a folder and as an archive that container runtimes import.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use steersman_plan::oci::ImageReference;

use super::layer::{Entry, EntryContent, Layer, digest_of, hex_of, write_archive_file};
use crate::go_programs::host_architecture;

pub const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";

/// Version of the format of the folder.
const LAYOUT_VERSION: &str = "1.0.0";
/// File by which a folder with an image is recognized.
const LAYOUT_FILE: &str = "oci-layout";

/// Settings of the containers of an image.
#[derive(Clone, Debug, Default)]
pub struct ImageConfig {
    /// Time of creation. It is part of the digest, so that it must not be the current time. `None` is 1970.
    pub created: Option<Timestamp>,
    /// User and group of the program, such as `65532:65532`.
    pub user: String,
    /// Variables of the environment, by name.
    pub environment: BTreeMap<String, String>,
    /// Program with its first arguments; `args` of a container follow.
    pub entrypoint: Vec<String>,
    /// Arguments of a container without `args`.
    pub arguments: Vec<String>,
    pub working_folder: String,
    /// Labels, which become annotations of the manifest too.
    pub labels: BTreeMap<String, String>,
}

/// A part of an image other than a layer.
#[derive(Clone, Debug)]
pub struct Document {
    pub digest: String,
    pub bytes: Vec<u8>,
}

impl Document {
    fn new(value: &impl Serialize) -> Result<Self> {
        let bytes = serde_json::to_vec(value)?;
        Ok(Self { digest: digest_of(&bytes), bytes })
    }
}

/// An image for the architecture of this machine.
#[derive(Clone, Debug)]
pub struct Image {
    /// Name under which container runtimes import the image.
    pub name: ImageReference,
    pub layers: Vec<Layer>,
    pub config: Document,
    /// Its digest is that of the image.
    pub manifest: Document,
}

impl Image {
    /// The layers are in the order in which they are applied: the base first.
    pub fn new(name: ImageReference, config: &ImageConfig, layers: Vec<Layer>) -> Result<Self> {
        let environment: Vec<String> =
            config.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let created = config.created.unwrap_or(Timestamp::UNIX_EPOCH);
        let settings = Document::new(&json!({
            "architecture": host_architecture(),
            "os": "linux",
            "created": created.to_string(),
            "config": {
                "User": config.user,
                "Env": environment,
                "Entrypoint": config.entrypoint,
                "Cmd": config.arguments,
                "WorkingDir": config.working_folder,
                "Labels": config.labels,
            },
            "rootfs": { "type": "layers", "diff_ids": layers.iter().map(|layer| &layer.diff_id).collect::<Vec<_>>() },
        }))?;
        let descriptors: Vec<_> =
            layers.iter().map(|layer| descriptor(layer.media_type(), &layer.digest, layer.size)).collect();
        let manifest = Document::new(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": descriptor(CONFIG_TYPE, &settings.digest, settings.bytes.len() as u64),
            "layers": descriptors,
            "annotations": config.labels,
        }))?;
        Ok(Self { name, layers, config: settings, manifest })
    }

    pub fn digest(&self) -> &str {
        &self.manifest.digest
    }

    /// Bytes that a registry stores and a node downloads.
    pub fn size(&self) -> u64 {
        let documents = [&self.config, &self.manifest].map(|document| document.bytes.len() as u64);
        self.layers.iter().map(|layer| layer.size).chain(documents).sum()
    }

    /// Number of regular files in all layers.
    pub fn files(&self) -> usize {
        self.layers.iter().map(|layer| layer.files).sum()
    }

    /// Writes the image as a folder with `index.json` and a file for each blob. Layers are hard links if `folder` is in the
    /// same file system. An image that the folder has already is replaced; a folder with anything else is an error.
    pub fn write_layout(&self, folder: &Path) -> Result<()> {
        let cannot_write = || format!("cannot write {}", folder.display());
        if folder.join(LAYOUT_FILE).is_file() {
            fs::remove_dir_all(folder).with_context(cannot_write)?;
        } else if folder.exists() && fs::read_dir(folder).with_context(cannot_write)?.next().is_some() {
            bail!("{} has files, but no image that could be replaced; name another folder", folder.display());
        }
        for entry in self.parts()? {
            let path = folder.join(entry.path());
            let parent = path.parent().unwrap_or(folder);
            fs::create_dir_all(parent).with_context(cannot_write)?;
            match entry.content() {
                EntryContent::Bytes(bytes) => fs::write(&path, bytes).with_context(cannot_write)?,
                EntryContent::HostFile(file) => {
                    if fs::hard_link(file, &path).is_err() {
                        fs::copy(file, &path).with_context(cannot_write)?;
                    }
                }
                EntryContent::Folder | EntryContent::SymbolicLink(_) => {}
            }
        }
        Ok(())
    }

    /// Writes the image as one archive, for `ctr images import` and `podman load`. The same image gives the same bytes.
    pub fn write_tarball(&self, file: &Path) -> Result<()> {
        write_archive_file(self.parts()?, file)
    }

    /// The files of a folder with this image.
    fn parts(&self) -> Result<Vec<Entry>> {
        let blob = |digest: &str| format!("blobs/sha256/{}", hex_of(digest));
        let mut parts = vec![
            Entry::bytes(LAYOUT_FILE, 0o644, serde_json::to_vec(&json!({ "imageLayoutVersion": LAYOUT_VERSION }))?),
            Entry::bytes("index.json", 0o644, serde_json::to_vec(&self.index())?),
        ];
        for document in [&self.config, &self.manifest] {
            parts.push(Entry::bytes(blob(&document.digest), 0o644, document.bytes.clone()));
        }
        let mut layers: Vec<&Layer> = self.layers.iter().collect();
        // The same content may be more than one layer of the image.
        layers.sort_by(|a, b| a.digest.cmp(&b.digest));
        layers.dedup_by(|a, b| a.digest == b.digest);
        for layer in layers {
            parts.push(Entry::host_file(blob(&layer.digest), &layer.path)?);
        }
        Ok(parts)
    }

    /// The annotations are the names under which runtimes import the image: the first for containerd, the second for others.
    fn index(&self) -> serde_json::Value {
        let mut manifest = descriptor(MANIFEST_TYPE, &self.manifest.digest, self.manifest.bytes.len() as u64);
        manifest["platform"] = json!({ "architecture": host_architecture(), "os": "linux" });
        manifest["annotations"] = json!({
            "io.containerd.image.name": self.name.to_string(),
            "org.opencontainers.image.ref.name": self.name.version(),
        });
        json!({ "schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [manifest] })
    }
}

fn descriptor(media_type: &str, digest: &str, size: u64) -> serde_json::Value {
    json!({ "mediaType": media_type, "digest": digest, "size": size })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::PathBuf;

    use super::*;
    use crate::image::layer::Compression;

    fn image(store: &Path, compression: Compression) -> Image {
        let layer = |path: &str, text: &str| {
            Layer::from_entries([Entry::bytes(path, 0o644, text)], compression, store).unwrap()
        };
        let layers = vec![layer("/base", "1"), layer("/program", "2"), layer("/base", "1")];
        let labels = BTreeMap::from([("org.opencontainers.image.title".to_owned(), "Test".to_owned())]);
        let config = ImageConfig {
            user: "65532:65532".to_owned(),
            entrypoint: vec!["/program".to_owned()],
            environment: BTreeMap::from([("PATH".to_owned(), "/usr/bin".to_owned())]),
            labels,
            ..ImageConfig::default()
        };
        Image::new(ImageReference::parse("steersman:1.2.3").unwrap(), &config, layers).unwrap()
    }

    fn json_file(path: &Path) -> serde_json::Value {
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    /// Follows the digests from the index, as a runtime does, and compares each with its content.
    #[test]
    fn layout_leads_from_index_to_layers() {
        let folder = tempfile::tempdir().unwrap();
        let image = image(folder.path(), Compression::Gzip);
        let layout = folder.path().join("layout");
        image.write_layout(&layout).unwrap();
        assert_eq!(json_file(&layout.join("oci-layout")), json!({ "imageLayoutVersion": "1.0.0" }));
        let index = json_file(&layout.join("index.json"));
        let [described] = index["manifests"].as_array().unwrap().as_slice() else { panic!("{index}") };
        assert_eq!(described["annotations"]["io.containerd.image.name"], "docker.io/library/steersman:1.2.3");
        assert_eq!(described["annotations"]["org.opencontainers.image.ref.name"], "1.2.3");
        assert_eq!(described["digest"], image.digest());
        let blob = |descriptor: &serde_json::Value| {
            let digest = descriptor["digest"].as_str().unwrap();
            let bytes = fs::read(layout.join("blobs/sha256").join(hex_of(digest))).unwrap();
            assert_eq!((digest_of(&bytes).as_str(), descriptor["size"].as_u64()), (digest, Some(bytes.len() as u64)));
            bytes
        };
        let manifest: serde_json::Value = serde_json::from_slice(&blob(described)).unwrap();
        assert_eq!(manifest["annotations"]["org.opencontainers.image.title"], "Test");
        let config: serde_json::Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
        assert_eq!(config["config"]["Entrypoint"], json!(["/program"]));
        assert_eq!(config["config"]["Env"], json!(["PATH=/usr/bin"]));
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["created"], "1970-01-01T00:00:00Z");
        let layers = manifest["layers"].as_array().unwrap();
        let diff_ids = config["rootfs"]["diff_ids"].as_array().unwrap();
        assert_eq!((layers.len(), diff_ids.len()), (3, 3));
        for (layer, diff_id) in layers.iter().zip(diff_ids) {
            let mut archive = Vec::new();
            flate2::read::GzDecoder::new(blob(layer).as_slice()).read_to_end(&mut archive).unwrap();
            assert_eq!(*diff_id, digest_of(&archive));
        }
        let count = fs::read_dir(layout.join("blobs/sha256")).unwrap().count();
        assert_eq!(count, 4, "configuration, manifest and two different layers");
    }

    #[test]
    fn tarball_has_files_of_layout() {
        let folder = tempfile::tempdir().unwrap();
        let image = image(folder.path(), Compression::Uncompressed);
        let (layout, file) = (folder.path().join("layout"), folder.path().join("image.tar"));
        image.write_layout(&layout).unwrap();
        image.write_tarball(&file).unwrap();
        let bytes = fs::read(&file).unwrap();
        let mut files = 0;
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            if entry.header().entry_type().is_file() {
                let path: PathBuf = entry.path().unwrap().into_owned();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                assert_eq!(content, fs::read(layout.join(&path)).unwrap(), "{}", path.display());
                files += 1;
            }
        }
        assert_eq!(files, 6);
        image.write_tarball(&file).unwrap();
        assert_eq!(fs::read(&file).unwrap(), bytes, "a second archive has the same bytes");
    }

    #[test]
    fn layout_replaces_images_only() {
        let folder = tempfile::tempdir().unwrap();
        let layout = folder.path().join("layout");
        image(folder.path(), Compression::Gzip).write_layout(&layout).unwrap();
        let plain = image(folder.path(), Compression::Uncompressed);
        plain.write_layout(&layout).unwrap();
        assert_eq!(fs::read_dir(layout.join("blobs/sha256")).unwrap().count(), 4, "the first image is gone");
        let home = folder.path().join("home");
        fs::create_dir(&home).unwrap();
        fs::write(home.join("letter"), "").unwrap();
        let error = plain.write_layout(&home).unwrap_err().to_string();
        assert!(error.ends_with("has files, but no image that could be replaced; name another folder"), "{error}");
        assert!(home.join("letter").is_file());
    }
}
