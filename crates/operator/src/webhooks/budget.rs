//! A budget that the clients of the webhook share. One address gets a part of it at most, so that others are served.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
pub struct FairBudget {
    total: Arc<Semaphore>,
    per_address: u32,
    /// The part of each address that holds units or waits for some.
    addresses: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

/// Units of the budget, held until they are dropped.
#[derive(Debug)]
pub struct Share {
    of_address: OwnedSemaphorePermit,
    of_total: OwnedSemaphorePermit,
}

impl Share {
    /// Adds units of the same budget and address.
    pub fn merge(&mut self, more: Self) {
        self.of_address.merge(more.of_address);
        self.of_total.merge(more.of_total);
    }
}

impl FairBudget {
    pub fn new(total: u32, per_address: u32) -> Self {
        let total = Arc::new(Semaphore::new(total as usize));
        Self { total, per_address, addresses: Mutex::default() }
    }

    /// Waits until `units` are free, first in the part of the address. Clients are served in the order of their requests.
    pub async fn acquire(&self, address: IpAddr, units: u32) -> Option<Share> {
        let units = units.min(self.per_address);
        // The errors cannot happen: the semaphores are never closed.
        let of_address = self.part_of(address).acquire_many_owned(units).await.ok()?;
        let of_total = self.total.clone().acquire_many_owned(units).await.ok()?;
        Some(Share { of_address, of_total })
    }

    fn part_of(&self, address: IpAddr) -> Arc<Semaphore> {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = addresses.get(&address).and_then(Weak::upgrade) {
            return part;
        }
        addresses.retain(|_, part| part.strong_count() > 0);
        let part = Arc::new(Semaphore::new(self.per_address as usize));
        addresses.insert(address, Arc::downgrade(&part));
        part
    }

    #[cfg(test)]
    pub fn free(&self) -> usize {
        self.total.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn one_address_leaves_room_for_others() {
        let budget = FairBudget::new(10, 6);
        let [first, second] = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
        let mut held = budget.acquire(first, 4).now_or_never().flatten().unwrap();
        held.merge(budget.acquire(first, 2).now_or_never().flatten().unwrap());
        assert!(budget.acquire(first, 1).now_or_never().is_none(), "the address has its part");
        let other = budget.acquire(second, 4).now_or_never().flatten().unwrap();
        assert!(budget.acquire(second, 1).now_or_never().is_none(), "the budget is used up");
        drop((held, other));
        assert_eq!(budget.free(), 10);
        drop(budget.acquire(second, 1).await);
        assert_eq!(budget.addresses.lock().unwrap().len(), 1, "addresses without units are forgotten");
    }
}
