//! Runs `steersman merge-providers`, which adds providers from images to the server's configuration.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, bail};
use clap::Args;
use steersman_plan::llamastack::config::{EXTERNAL_VARIABLE, External, merge_external_files};

use crate::init::write;

/// Mode of the configuration, which holds no secrets: it refers to their values by variables.
const MODE: u32 = 0o644;
const METADATA: &str = "lls-provider-spec.yaml";

#[derive(Clone, Debug, Args)]
pub struct MergeProvidersArgs {
    /// Configuration of the server without these providers
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Folder with a subfolder per provider id, each with the file lls-provider-spec.yaml
    #[arg(long, value_name = "FOLDER")]
    pub metadata: PathBuf,
    /// File to write the configuration with these providers to
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Returns a line for the log for each provider that replaced another.
pub fn merge_providers(args: &MergeProvidersArgs) -> anyhow::Result<Vec<String>> {
    let list = std::env::var(EXTERNAL_VARIABLE)
        .with_context(|| format!("cannot read {EXTERNAL_VARIABLE}, the list of providers as JSON"))?;
    let config = fs::read_to_string(&args.config).with_context(|| format!("cannot read {}", args.config.display()))?;
    let failed = RefCell::new(None);
    let metadata = |external: &External| {
        read(&args.metadata, &external.provider_id).unwrap_or_else(|error| {
            *failed.borrow_mut() = Some(error);
            None
        })
    };
    let merged = merge_external_files(&config, &list, metadata);
    if let Some(error) = failed.into_inner() {
        return Err(error);
    }
    match merged {
        Ok((text, remarks)) => {
            write::atomically(&args.out, &text, MODE)?;
            Ok(remarks.iter().map(|remark| remark.text().to_string()).collect())
        }
        Err(problems) => {
            bail!("{}", problems.iter().map(|error| error.text().to_string()).collect::<Vec<_>>().join("\n"))
        }
    }
}

/// None if the image has no metadata, which the merge reports with its other problems.
fn read(folder: &Path, id: &str) -> anyhow::Result<Option<String>> {
    let mut parts = Path::new(id).components();
    if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
        bail!("the provider id {id:?} is not the name of a folder; use lower-case letters, digits and dashes");
    }
    let path = folder.join(id).join(METADATA);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err::<_, io::Error>(error).with_context(|| format!("cannot read {}", path.display())),
    }
}
