//! Exclusive use of a cluster by one test at a time, for tests that change cluster-wide objects such as CRDs and roles.

use tokio::sync::{Mutex, MutexGuard, OnceCell, Semaphore, SemaphorePermit};

use crate::cluster::{Cluster, Flavour};
use crate::shared::{prepared_cluster, shared_cluster};

/// Number of bare clusters. It exceeds the number of processors, because such tests mostly wait for the cluster.
const BARE_CLUSTERS: usize = 4;

struct Slot {
    lock: Mutex<()>,
    cluster: OnceCell<Option<Cluster>>,
}

static SLOTS: [Slot; BARE_CLUSTERS] =
    [const { Slot { lock: Mutex::const_new(()), cluster: OnceCell::const_new() } }; BARE_CLUSTERS];
static FREE_SLOTS: Semaphore = Semaphore::const_new(BARE_CLUSTERS);

/// There is one full cluster, because it is expensive. Its tests wait for each other.
static FULL_CLUSTER: Mutex<()> = Mutex::const_new(());

/// Exclusive use of a cluster. Objects of an earlier test that failed may still exist.
pub struct ExclusiveCluster {
    pub cluster: &'static Cluster,
    // Dropped in this order: the lock must be free before another test gets the permit.
    _lock: MutexGuard<'static, ()>,
    _permit: Option<SemaphorePermit<'static>>,
}

/// Waits for exclusive use of a cluster. Returns `None` after reporting a skip if the cluster's programs are not built.
pub async fn exclusive_cluster(flavour: Flavour) -> Option<ExclusiveCluster> {
    if flavour == Flavour::Full {
        let cluster = shared_cluster(flavour).await?;
        return Some(ExclusiveCluster { cluster, _lock: FULL_CLUSTER.lock().await, _permit: None });
    }
    let permit = FREE_SLOTS.acquire().await.ok()?;
    // Clusters are started in this order, so the running ones are found first.
    let (slot, guard) = SLOTS.iter().find_map(|slot| Some((slot, slot.lock.try_lock().ok()?)))?;
    let cluster = prepared_cluster(&slot.cluster, async |_| Ok(())).await?;
    Some(ExclusiveCluster { cluster, _lock: guard, _permit: Some(permit) })
}
