//! `cargo xtask image`: writes a container image of the operator without a container engine. The same sources give the same
//! digest, in every clone and at any time. [`Layer`] and [`Image`] write images of other programs too.

mod contents;
mod layer;
mod layout;
mod libraries;
mod push;
mod release;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use steersman_plan::oci::ImageReference;

pub use layer::{Compression, Entry, Layer};
pub use layout::{Image, ImageConfig};
pub use libraries::shared_libraries;
use push::Pushed;
use release::{Metadata, Revision};
use sbom::Sbom;

use crate::go_programs::host_architecture;
use crate::progress::Progress;

/// Largest size of the compressed image: nodes download it when a replica moves.
const MAX_SIZE_BYTES: u64 = 25_000_000;

#[derive(Args)]
#[command(
    after_help = "The image has the architecture of this machine: the pinned toolchain has no standard library and no linker \
                        for others. Run this on a machine of each architecture."
)]
pub struct ImageCommand {
    /// Folder for the image: `layout` (OCI image layout), an archive of it (.tar), and the list of its components (.cdx.json);
    /// default: `image` in the folder in which cargo builds
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,

    /// Name under which container runtimes import the image
    #[arg(long, value_name = "NAME:TAG", default_value = steersman::install::IMAGE, value_parser = tagged)]
    name: ImageReference,

    /// Path of an operator that is already built; its size is not limited
    #[arg(long, value_name = "FILE")]
    operator: Option<PathBuf>,

    /// Leave the layers uncompressed: faster to write, and to import on the same machine
    #[arg(long, conflicts_with = "push")]
    uncompressed: bool,

    /// Upload the image, with the credentials of `docker login` ($DOCKER_CONFIG/config.json or ~/.docker/config.json)
    #[arg(long, value_name = "REGISTRY/NAME:TAG", value_parser = tagged)]
    push: Option<ImageReference>,

    /// Reach the registry by http, without encryption. Credentials are sent to this machine only
    #[arg(long, requires = "push")]
    plain_http: bool,
}

/// Writes the image of an operator that is already built, as an archive in `folder` for import on the same machine.
pub fn write_local_archive(program: &Path, name: &str, folder: &Path) -> Result<PathBuf> {
    let name = ImageReference::parse(name).with_context(|| format!("{name} is not the name of an image"))?;
    let output = Some(folder.to_owned());
    let command = ImageCommand { output, name, operator: None, uncompressed: true, push: None, plain_http: false };
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let store = tempfile::tempdir_in(folder).with_context(|| format!("cannot write to {}", folder.display()))?;
    command.write(program, Compression::Uncompressed, store.path(), folder)?;
    Ok(command.file(folder, "tar"))
}

/// An image with its list of components.
struct Written {
    image: Image,
    sbom: Sbom,
}

impl ImageCommand {
    pub fn run(self) -> Result<()> {
        let program = match &self.operator {
            Some(program) => {
                ensure!(program.is_file(), "--operator: file {} does not exist", program.display());
                program.clone()
            }
            None => release::build()?,
        };
        let output = self.output.clone().unwrap_or_else(release::folder);
        let compression = if self.uncompressed { Compression::Uncompressed } else { Compression::Gzip };
        let progress = Progress::start("writing the image");
        fs::create_dir_all(&output).with_context(|| format!("cannot create {}", output.display()))?;
        // In the same file system as the layout, so that its layers are links.
        let store = tempfile::tempdir_in(&output).with_context(|| format!("cannot write to {}", output.display()))?;
        let written = self.write(&program, compression, store.path(), &output)?;
        progress.done();
        let limited = self.operator.is_none() && compression == Compression::Gzip;
        self.report(&written, limited, &output);
        if limited {
            check_size(written.image.size())?;
        }
        if let Some(to) = &self.push {
            let Pushed { uploaded, present } = push::push(&written.image, to, self.plain_http)?;
            println!("pushed    {to}@{} ({uploaded} blobs uploaded, {present} were there)", written.image.digest());
        }
        self.suggest(&output);
        Ok(())
    }

    fn write(&self, program: &Path, compression: Compression, store: &Path, output: &Path) -> Result<Written> {
        let (libraries, ca_bundle) = (shared_libraries(program)?, contents::ca_bundle());
        let revision = Revision::read()?;
        let sbom = Sbom::new(&Metadata::read()?, &libraries, ca_bundle.as_bytes(), &revision)?;
        let base = Layer::from_entries(contents::base(&libraries, ca_bundle)?, compression, store)?;
        let top = Layer::from_entries(contents::program(program, sbom.bytes()?)?, compression, store)?;
        let image = Image::new(self.name.clone(), &contents::config(&revision), vec![base, top])?;
        image.write_layout(&output.join("layout"))?;
        image.write_tarball(&self.file(output, "tar"))?;
        let list = self.file(output, "cdx.json");
        fs::write(&list, sbom.bytes()?).with_context(|| format!("cannot write {}", list.display()))?;
        Ok(Written { image, sbom })
    }

    fn file(&self, output: &Path, ending: &str) -> PathBuf {
        output.join(format!("steersman-{}-{}.{ending}", self.name.version(), host_architecture()))
    }

    fn report(&self, Written { image, sbom }: &Written, limited: bool, output: &Path) {
        let limit = if limited { format!(" (limit {})", megabytes(MAX_SIZE_BYTES)) } else { String::new() };
        let compressed = if self.uncompressed { "uncompressed" } else { "compressed" };
        println!("image     {} for linux/{}", self.name, host_architecture());
        println!("digest    {}", image.digest());
        println!("size      {} {compressed}{limit}", megabytes(image.size()));
        println!("content   {} files in {} layers", image.files(), image.layers.len());
        println!("SBOM      {} components: {}", sbom.components(), self.file(output, "cdx.json").display());
        println!("layout    {}", output.join("layout").display());
        println!("archive   {}", self.file(output, "tar").display());
    }

    fn suggest(&self, output: &Path) {
        println!("\nNext:");
        match &self.push {
            Some(pushed) => println!(
                "  sed 's|{}|{pushed}|' deploy/install.yaml | kubectl apply --server-side -f -",
                steersman::install::IMAGE
            ),
            None => {
                println!(
                    "  ctr --namespace k8s.io images import {}    # on each node",
                    self.file(output, "tar").display()
                );
                println!("  cargo xtask image --push REGISTRY/{}    # for all nodes", steersman::install::IMAGE);
            }
        }
    }
}

fn check_size(bytes: u64) -> Result<()> {
    ensure!(
        bytes <= MAX_SIZE_BYTES,
        "the image has {}, which is more than the limit of {}; `cargo bloat --release` shows which crates take the space",
        megabytes(bytes),
        megabytes(MAX_SIZE_BYTES)
    );
    Ok(())
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn tagged(text: &str) -> Result<ImageReference, String> {
    let name = ImageReference::parse(text).map_err(|error| error.to_string())?;
    if name.digest.is_some() {
        return Err("the digest of the image is not known before; name a tag".to_owned());
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_image_than_limit_is_an_error() {
        check_size(MAX_SIZE_BYTES).unwrap();
        let error = check_size(26_000_000).unwrap_err().to_string();
        assert!(error.starts_with("the image has 26.0 MB, which is more than the limit of 25.0 MB"), "{error}");
    }
}
