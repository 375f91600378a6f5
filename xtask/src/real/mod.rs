//! Builds what a real cluster runs: the programs of the node, and the images.

mod images;
mod model;
mod python_images;
mod system;
pub mod up;

use std::path::Path;

use anyhow::{Context, Result};
use steersman_testkit::binaries::{CONTAINERS, NODE};
use steersman_testkit::cache;
use steersman_testkit::real_node::{self, NodeBinaries, Parts};

use crate::{go_programs, operator, python};

/// Disk space for the programs, packages and images of a first run, and for its containers.
const FIRST_RUN_BYTES: u64 = 10 << 30;

/// Disk space for the containers of a later run, and for the tests.
const LATER_RUN_BYTES: u64 = 5 << 30;

/// Why a real node cannot run on this machine, if it cannot.
pub fn missing_requirement() -> Result<Option<String>> {
    if let Some(why) = real_node::missing_requirement() {
        return Ok(Some(why));
    }
    let cache = cache::folder()?;
    std::fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let free = free_space(&cache);
    let required = if images::are_written(&cache) { LATER_RUN_BYTES } else { FIRST_RUN_BYTES };
    if free < required {
        let gib = |bytes: u64| bytes >> 30;
        return Ok(Some(format!(
            "it needs {} GiB of free disk space in {}, which has {}",
            gib(required),
            cache.display(),
            gib(free)
        )));
    }
    if python::find().is_none() {
        return Ok(Some("its servers need Python 3.12, which was not found: install it as `python3.12`".to_owned()));
    }
    Ok(system::prepare().err().map(|error| format!("{error:#}")))
}

fn free_space(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Builds and downloads everything that a real cluster runs and the cache does not have. The image has the operator as it is built for tests, or as a release.
pub fn prepare(release: bool) -> Result<Parts> {
    let python = python::find().context(
        "Python 3.12 was not found, but the servers run with it: install it as `python3.12` and run this again",
    )?;
    let system = system::prepare()?;
    let control_plane = go_programs::cluster_programs()?;
    let pkg_config = system.pkg_config.iter().map(|folder| ("PKG_CONFIG_PATH", folder.display().to_string()));
    let containers = go_programs::build_once(&CONTAINERS, &pkg_config.collect::<Vec<_>>())?;
    let kubernetes = go_programs::build_once(&NODE, &[])?;
    let helm = go_programs::helm()?;
    let binaries = NodeBinaries { control_plane, kubernetes, containers, system: system.tools };
    let base_images = images::of_node(&binaries)?;
    let server_images = images::of_servers(&binaries, &python)?;
    let operator = images::of_operator(&operator::build(release)?)?;
    Ok(Parts { binaries, helm, base_images, server_images, operator })
}
