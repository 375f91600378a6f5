//! Runs `steersman dgd-apply-overrides`, with which the profiler merges `overrides.dgd` into every graph that it writes.
//!
//! The program is installed in the profiler's container under the name of this command. Standard input holds one JSON object
//! with the members `blueprint` and `override`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value};
use steersman_api::Family;
use steersman_plan::dynamo::graph::merge::{Merged, merge};

pub const NAME: &str = "dgd-apply-overrides";

/// Version that the profiler checks before it uses the program.
const PROTOCOL: &str = "1";

/// Far more bytes than a graph has, and still little memory.
const MAX_REQUEST_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Clone, Debug, Default, Args)]
pub struct OverridesArgs {
    /// Copy this program to this path, and do nothing else
    #[arg(long, value_name = "PATH", conflicts_with = "protocol_version")]
    pub install_to: Option<PathBuf>,
    /// Print the version of the protocol, and do nothing else
    #[arg(long)]
    pub protocol_version: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OverrideRequest {
    blueprint: Option<Map<String, Value>>,
    #[serde(rename = "override")]
    wanted: Option<Map<String, Value>>,
}

/// Text for standard output, and lines for standard error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverridesOutput {
    pub out: String,
    pub remarks: Vec<String>,
}

/// The arguments as if the program had been called `steersman`: in the profiler's container it has the name of the command.
pub fn with_command_name(mut args: Vec<OsString>) -> Vec<OsString> {
    let name = args.first().map(Path::new).and_then(Path::file_name);
    if name == Some(OsStr::new(NAME)) {
        args.splice(..1, ["steersman", NAME].map(OsString::from));
    }
    args
}

pub fn run(args: &OverridesArgs, input: impl Read) -> anyhow::Result<OverridesOutput> {
    if args.protocol_version {
        return Ok(OverridesOutput { out: format!("{PROTOCOL}\n"), ..OverridesOutput::default() });
    }
    if let Some(path) = &args.install_to {
        install(path).with_context(|| format!("install {NAME} to {path:?}"))?;
        return Ok(OverridesOutput::default());
    }
    let mut text = Vec::new();
    input.take(MAX_REQUEST_BYTES + 1).read_to_end(&mut text).context("cannot read standard input")?;
    if text.len() as u64 > MAX_REQUEST_BYTES {
        bail!("the request on standard input has more than {MAX_REQUEST_BYTES} bytes");
    }
    answer(&text)
}

fn answer(text: &[u8]) -> anyhow::Result<OverridesOutput> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<OverrideRequest>();
    let first = values.next().context("decode request JSON: standard input is empty")?;
    let OverrideRequest { blueprint, wanted } = first.context("decode request JSON")?;
    let blueprint = blueprint.context("request blueprint is required")?;
    let wanted = wanted.context("request override is required")?;
    if values.next().is_some() {
        bail!("decode request JSON: multiple JSON values are not allowed");
    }
    if let Some(problem) = problem(&blueprint) {
        bail!("apply DGD override: {problem}");
    }
    let Merged { graph, warnings } =
        merge(&blueprint, &wanted).map_err(|error| anyhow!("apply DGD override: {error}"))?;
    let remarks = warnings.into_iter().map(|warning| format!("warning: {warning}")).collect();
    Ok(OverridesOutput { out: format!("{}\n", Value::Object(graph)), remarks })
}

/// Why the blueprint is no graph that can be merged into. The merge itself validates the override.
fn problem(blueprint: &Map<String, Value>) -> Option<String> {
    let text = |name: &str| blueprint.get(name).and_then(Value::as_str).unwrap_or_default();
    let (group, kind) = (Family::Dgd.group(), Family::Dgd.kind());
    let versions: Vec<String> =
        Family::Dgd.served_versions().iter().map(|version| format!("{group}/{version}")).collect();
    if text("kind") == kind && versions.iter().any(|version| version == text("apiVersion")) {
        return None;
    }
    Some(format!(
        "blueprint must be a {kind} of {}, not {:?} of {:?}",
        versions.join(" or "),
        text("kind"),
        text("apiVersion")
    ))
}

/// Copies the program by a rename, so that `path` is never incomplete, even after an interrupted run.
fn install(path: &Path) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let name = path.file_name().context("the path must end with the name of a file")?;
    let mut part = OsString::from(".");
    part.push(name);
    part.push(".part");
    let part = path.with_file_name(part);
    let copied = copy(&own, &part).and_then(|()| fs::rename(&part, path));
    if copied.is_err() {
        // The error of the copy is the one to report.
        let _ = fs::remove_file(&part);
    }
    Ok(copied?)
}

fn copy(own: &Path, part: &Path) -> io::Result<()> {
    match fs::remove_file(part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut target = OpenOptions::new().write(true).create_new(true).mode(0o700).open(part)?;
    io::copy(&mut File::open(own)?, &mut target)?;
    // The profiler may run as another user, and the umask must not take the right to execute.
    target.set_permissions(Permissions::from_mode(0o755))
}
