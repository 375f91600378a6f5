//! Clusters that all tests of a run share. `cargo xtask test` starts them and passes their folder to the tests; with a
//! plain `cargo test`, each test process starts its own on first use.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use tokio::sync::OnceCell;

use crate::binaries::Binaries;
use crate::cache::{self, RunFolder};
use crate::cluster::{Cluster, Flavour, Options};
use crate::skip;

/// Environment variable with the folder of the shared clusters, which has one sub-folder per flavour.
pub const CLUSTERS_VARIABLE: &str = "STEERSMAN_CLUSTERS";

/// The shared cluster of this flavour, or `None` after reporting a skip if the cluster's programs are not built.
#[track_caller]
#[allow(clippy::panic, reason = "a test whose cluster does not start has failed, with the reason")]
pub fn shared_cluster(flavour: Flavour) -> impl Future<Output = Option<&'static Cluster>> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    async move {
        static FULL: OnceCell<Option<Cluster>> = OnceCell::const_new();
        static BARE: OnceCell<Option<Cluster>> = OnceCell::const_new();
        static REAL: OnceCell<Option<Cluster>> = OnceCell::const_new();
        let cell = match flavour {
            Flavour::Full => &FULL,
            Flavour::Bare => &BARE,
            Flavour::Real => &REAL,
        };
        match cell.get_or_try_init(|| find_or_start(flavour)).await {
            Ok(Some(cluster)) => Some(cluster),
            Ok(None) => {
                skip::skip(&test, "the local cluster is not built; `cargo xtask test` builds it");
                None
            }
            Err(error) => panic!("cannot use the local cluster: {error:?}"),
        }
    }
}

async fn find_or_start(flavour: Flavour) -> Result<Option<Cluster>> {
    if let Some(folder) = std::env::var_os(CLUSTERS_VARIABLE) {
        return Cluster::open(&PathBuf::from(folder).join(flavour.folder_name())).map(Some);
    }
    Ok(start_process_cluster(&Options::new(flavour)).await?.map(|started| started.cluster))
}

/// A cluster of this process only.
pub struct ProcessCluster {
    pub cluster: Cluster,
    /// A folder for files of programs that use the cluster.
    pub folder: PathBuf,
}

/// The cluster of the tests that share `cell`. It is started and prepared on first use. `None` after reporting a skip if
/// the cluster's programs are not built.
#[allow(clippy::panic, reason = "a test whose cluster does not start has failed, with the reason")]
pub async fn prepared_cluster(
    cell: &'static OnceCell<Option<Cluster>>,
    prepare: impl AsyncFnOnce(&Cluster) -> Result<()>,
) -> Option<&'static Cluster> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let start = async || {
        let Some(started) = start_process_cluster(&Options::new(Flavour::Bare)).await? else { return Ok(None) };
        prepare(&started.cluster).await?;
        anyhow::Ok(Some(started.cluster))
    };
    let cluster = cell.get_or_try_init(start).await.unwrap_or_else(|error| panic!("cannot start a cluster: {error:?}"));
    if cluster.is_none() {
        skip::skip(&test, "the local cluster is not built; `cargo xtask test` builds it");
    }
    cluster.as_ref()
}

/// Starts a cluster that lives as long as the test process. `None` if the cluster's programs are not built.
pub async fn start_process_cluster(options: &Options) -> Result<Option<ProcessCluster>> {
    let Some(binaries) = Binaries::find()? else { return Ok(None) };
    let run = RunFolder::create(&cache::runs_folder()?)?;
    let folder = run.path().join(options.flavour.folder_name());
    // The cluster lives as long as the test process, which never drops it. Its programs die with the process, and the next
    // run removes the folder.
    std::mem::forget(run);
    // The programs do not depend on the runtime of the test that starts them, which ends with that test.
    let started = Cluster::start(&binaries, &folder, options).await;
    let cluster = started.map_err(|error| anyhow!(error)).context("cannot start the local cluster")?;
    Ok(Some(ProcessCluster { cluster, folder }))
}
