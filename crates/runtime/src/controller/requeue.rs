//! Reconciles that no watch of the objects or their children triggers, because something that an object only refers to has
//! changed.

use std::sync::{Mutex, PoisonError};

use futures::Stream;
use steersman_reconcile::NamespacedName;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Unbounded, because objects are enqueued on changes alone: there are never more entries than objects times sources.
pub struct ReconcileQueue {
    sender: UnboundedSender<NamespacedName>,
    receiver: Mutex<Option<UnboundedReceiver<NamespacedName>>>,
}

impl Default for ReconcileQueue {
    fn default() -> Self {
        let (sender, receiver) = unbounded_channel();
        Self { sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl ReconcileQueue {
    pub fn enqueue(&self, object: NamespacedName) {
        // Without a receiver the controller has stopped.
        let _ = self.sender.send(object);
    }

    /// The enqueued objects. There is one receiver: a second stream is empty.
    pub fn stream(&self) -> impl Stream<Item = NamespacedName> + Send + use<> {
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        futures::stream::unfold(receiver, async |receiver| {
            let mut receiver = receiver?;
            let object = receiver.recv().await?;
            Some((object, Some(receiver)))
        })
    }
}
