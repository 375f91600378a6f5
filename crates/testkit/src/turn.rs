//! Clusters that one test at a time has to itself: CRDs, roles and Leases belong to a whole cluster.
//! Comes in: a test that changes them; goes out: a cluster in which nobody else does so meanwhile.

use tokio::sync::{Mutex, MutexGuard, OnceCell, Semaphore, SemaphorePermit};

use crate::cluster::{Cluster, Flavour};
use crate::shared::{alone, shared};

/// Most of the time such tests wait for the cluster, so that there are more than processors.
const BARE: usize = 4;

struct Seat {
    lock: Mutex<()>,
    cluster: OnceCell<Option<Cluster>>,
}

static SEATS: [Seat; BARE] = [const { Seat { lock: Mutex::const_new(()), cluster: OnceCell::const_new() } }; BARE];
static FREE: Semaphore = Semaphore::const_new(BARE);

/// The full cluster is heavy: there is one, and its tests wait for each other.
static FULL: Mutex<()> = Mutex::const_new(());

/// The cluster is the holder's alone. What an earlier test left behind, because it failed, may be there.
pub struct Turn {
    pub cluster: &'static Cluster,
    // In this order: a seat is empty before another may look for it.
    _seat: MutexGuard<'static, ()>,
    _free: Option<SemaphorePermit<'static>>,
}

/// None (after saying so) where the cluster's programs are not built.
pub async fn turn(flavour: Flavour) -> Option<Turn> {
    if flavour == Flavour::Full {
        let cluster = shared(flavour).await?;
        return Some(Turn { cluster, _seat: FULL.lock().await, _free: None });
    }
    let free = FREE.acquire().await.ok()?;
    // Those that run already come first.
    let (seat, held) = SEATS.iter().find_map(|seat| Some((seat, seat.lock.try_lock().ok()?)))?;
    let cluster = alone(&seat.cluster, async |_| Ok(())).await?;
    Some(Turn { cluster, _seat: held, _free: Some(free) })
}
