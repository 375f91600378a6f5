//! The images of a real cluster, as archives in the cache folder. The name of an archive has a hash of its inputs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use steersman_plan::oci::ImageReference;
use steersman_testkit::cache::{self, RunFolder};
use steersman_testkit::real_node::scenario::PROMETHEUS_IMAGE;
use steersman_testkit::real_node::{DNS_IMAGE, NodeBinaries, PAUSE_IMAGE};

use super::python_images;
use crate::go_programs::lock;
use crate::image::{self, Compression, Entry, Image, ImageConfig, Layer};
use crate::progress::Progress;
use crate::python::Python;

/// Folder of the archives in the cache folder.
const FOLDER: &str = "images";

/// Changes when the code that writes images changes them.
const FORMAT: &str = "1";

/// The archives of the images without which no pod can run.
pub fn of_node(binaries: &NodeBinaries) -> Result<Vec<PathBuf>> {
    let parent = Store::open()?;
    let program = |name: &str| binaries.kubernetes.path(name);
    Ok(vec![parent.program(PAUSE_IMAGE, &program("pause"))?, parent.program(DNS_IMAGE, &program("coredns"))?])
}

/// The archives of the images of Prometheus, llama-stack and Dynamo.
pub fn of_servers(binaries: &NodeBinaries, python: &Python) -> Result<Vec<PathBuf>> {
    let (llama, dynamo) = (python.packages()?, python.dynamo()?);
    let store = Store::open()?;
    let prometheus = store.program(PROMETHEUS_IMAGE, &binaries.control_plane.path("prometheus"))?;
    let inputs = [python.program(), &llama.shared(), &dynamo].map(|path| path.display().to_string());
    let archives = ["llama-stack", "dynamo"].map(|name| store.archive(name, &inputs));
    store.write_missing(&archives.each_ref(), "llama-stack and Dynamo", |folder| {
        Ok(python_images::build(python, &llama, &dynamo, folder)?.into())
    })?;
    Ok([prometheus].into_iter().chain(archives).collect())
}

/// Whether an earlier run has written the largest image, and so has built everything that takes much space.
pub fn are_written(cache: &Path) -> bool {
    let entries = fs::read_dir(cache.join(FOLDER)).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().starts_with("dynamo-"))
}

/// The name of the operator's image, and its archive. `program` is the operator.
pub fn of_operator(program: &Path) -> Result<(String, PathBuf)> {
    let name = format!("localhost/{}", steersman::install::IMAGE);
    let archive = image::write_local_archive(program, &name, &crate::target_folder().join("real"))?;
    Ok((name, archive))
}

/// The folder of the archives, which one run at a time changes.
struct Store {
    folder: PathBuf,
    _lock: File,
}

impl Store {
    fn open() -> Result<Self> {
        let folder = cache::folder()?.join(FOLDER);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let lock = lock(&folder.join("build.lock"), "writing images")?;
        Ok(Self { folder, _lock: lock })
    }

    /// The archive of an image with one static program.
    fn program(&self, name: &str, program: &Path) -> Result<PathBuf> {
        let short = name.rsplit('/').next().unwrap_or(name).split(':').next().unwrap_or(name);
        // The folder of the program has the hash of its sources in its name.
        let archive = self.archive(short, &[program.display().to_string()]);
        self.write_missing(&[&archive], short, |folder| Ok(vec![of_program(name, program, folder)?]))?;
        Ok(archive)
    }

    fn archive(&self, name: &str, inputs: &[String]) -> PathBuf {
        let mut hash = Sha256::new();
        for part in [FORMAT].into_iter().chain(inputs.iter().map(String::as_str)) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let short: String = hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(format!("{name}-{short}.tar"))
    }

    /// Writes the images if one of their archives does not exist.
    fn write_missing(
        &self,
        archives: &[&PathBuf],
        what: &str,
        build: impl FnOnce(&Path) -> Result<Vec<Image>>,
    ) -> Result<()> {
        if archives.iter().all(|archive| archive.is_file()) {
            return Ok(());
        }
        let progress = Progress::start(&format!("writing the image of {what}"));
        // The layers are removed with the run; the archives have them.
        let run = RunFolder::create(&cache::runs_folder()?)?;
        for (image, archive) in build(run.path())?.iter().zip(archives) {
            self.remove_older(archive)?;
            image.write_tarball(archive)?;
        }
        progress.done();
        Ok(())
    }

    /// An archive of an earlier version takes much space, and no later run reads it.
    fn remove_older(&self, archive: &Path) -> Result<()> {
        let name = |path: &Path| path.file_name()?.to_str()?.rsplit_once('-').map(|(name, _)| name.to_owned());
        let folder = &self.folder;
        for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?.flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "tar") && name(&path) == name(archive) {
                fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }
}

/// The image of a static program.
fn of_program(name: &str, program: &Path, store: &Path) -> Result<Image> {
    let file = program.file_name().with_context(|| format!("{} has no name", program.display()))?;
    let path = Path::new("/").join(file);
    let entries = [Entry::host_file(&path, program)?, Entry::folder("/tmp", 0o1777)];
    let layer = Layer::from_entries(entries, Compression::Uncompressed, store)?;
    let settings = ImageConfig { entrypoint: vec![path.display().to_string()], ..ImageConfig::default() };
    let reference = ImageReference::parse(name).with_context(|| format!("{name} is not the name of an image"))?;
    Image::new(reference, &settings, vec![layer])
}
