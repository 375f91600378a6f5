//! Passes that no watch of objects or children asks for: something that an object only refers to has changed.
//! Comes in: the places of such objects, from whoever looks after what they refer to; goes out: the same, one by one.

use std::sync::{Mutex, PoisonError};

use futures::Stream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Namespace and name of an object.
pub type Place = (String, String);

/// There are never more places under way than objects times sources, because who wakes does so on changes alone.
pub struct Wakes {
    sender: UnboundedSender<Place>,
    receiver: Mutex<Option<UnboundedReceiver<Place>>>,
}

impl Default for Wakes {
    fn default() -> Self {
        let (sender, receiver) = unbounded_channel();
        Self { sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Wakes {
    /// Asks for a pass over the object.
    pub fn wake(&self, place: Place) {
        // Where nobody listens any more, nobody makes passes.
        let _ = self.sender.send(place);
    }

    /// For one listener: a second one hears nothing.
    pub fn listen(&self) -> impl Stream<Item = Place> + Send + use<> {
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        futures::stream::unfold(receiver, async |receiver| {
            let mut receiver = receiver?;
            let place = receiver.recv().await?;
            Some((place, Some(receiver)))
        })
    }
}
