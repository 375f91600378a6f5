//! The arguments of the commands that need no cluster.

use std::path::PathBuf;

use clap::Args;

use crate::args::ManifestFormat;

pub const EXIT_STATUS: &str = "Exit status: 0 success, 1 a document is invalid or none has a supported kind, 2 wrong usage or a file that cannot be read.";

/// The manifests to read.
#[derive(Clone, Debug, Args)]
pub struct FileArgs {
    /// Manifest file, folder of manifests (*.yaml, *.yml, *.json), or - for standard input; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Include the subfolders of a folder
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ConvertArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// Target version, such as v1alpha2 or llamastack.io/v1alpha2; default: the storage version
    #[arg(long, value_name = "VERSION")]
    pub to: Option<String>,
    /// Output format: YAML documents, or JSON (a List if there are several)
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = ManifestFormat::Yaml)]
    pub output: ManifestFormat,
}

#[derive(Clone, Debug, Args)]
pub struct ValidateArgs {
    #[command(flatten)]
    pub files: FileArgs,
}

#[derive(Clone, Debug, Args)]
pub struct RenderArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// The config.yaml inside the image, for objects with spec.distribution.image instead of a name
    #[arg(long, value_name = "FILE")]
    pub base: Option<PathBuf>,
    /// Output format: YAML documents with comments, or one JSON List
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = ManifestFormat::Yaml)]
    pub output: ManifestFormat,
}
