//! The arguments of the commands that need no cluster.

use std::path::PathBuf;

use clap::Args;

use crate::args::Manifests;

pub const EXIT_STATUS: &str =
    "Exit status: 0 all is well, 1 a document is invalid, 2 wrong usage or a file that is not there.";

/// Which manifests.
#[derive(Clone, Debug, Args)]
pub struct FileArgs {
    /// A manifest, a folder of them (*.yaml, *.yml, *.json), or - for standard input; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Look into the folders of a folder too
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ConvertArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// The version wanted, such as v1alpha2 or llamastack.io/v1alpha2; without it, the one that is stored
    #[arg(long, value_name = "VERSION")]
    pub to: Option<String>,
    /// Form of the manifests: YAML documents, or JSON (a list if there are several)
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = Manifests::Yaml)]
    pub output: Manifests,
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
    /// The config.yaml inside the image, for objects that name an image instead of a distribution
    #[arg(long, value_name = "FILE")]
    pub base: Option<PathBuf>,
    /// Form of the objects: YAML documents with comments, or one JSON list
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = Manifests::Yaml)]
    pub output: Manifests,
}
