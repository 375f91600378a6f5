//! A full cluster for tests that install the operator as its users do, with cluster-wide objects. Other tests do not use it.

use steersman_testkit::{Cluster, Flavour, Options, ProcessCluster, skip, start_process_cluster};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

static CLUSTER: OnceCell<Option<ProcessCluster>> = OnceCell::const_new();
static LOCK: Mutex<()> = Mutex::const_new(());

/// Exclusive use of the cluster.
pub struct PrivateCluster {
    pub cluster: &'static Cluster,
    _lock: MutexGuard<'static, ()>,
}

/// Waits for exclusive use of the cluster. `None` after reporting a skip if the cluster's programs are not built.
pub async fn private_cluster() -> Option<PrivateCluster> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let lock = LOCK.lock().await;
    let start = async || start_process_cluster(&Options::new(Flavour::Full)).await;
    let Some(ProcessCluster { cluster, .. }) = CLUSTER.get_or_try_init(start).await.unwrap() else {
        skip::skip(&test, "the local cluster is not built; `cargo xtask test` builds it");
        return None;
    };
    Some(PrivateCluster { cluster, _lock: lock })
}
