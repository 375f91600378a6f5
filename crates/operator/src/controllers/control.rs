//! When a pass is made: for every object at the start, and then for each one that changed or whose children did.
//! Comes in: what the watches see; goes out: passes, never two at once over the same object, and the count of how they went.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt, stream};
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use steersman_reconcile::Requeue;
use tokio_util::sync::CancellationToken;

use super::Given;
use super::driver::{Family, PassError, Passed, Tools, pass, stored_kind};
use super::turns::{self, Turns};
use super::unreadable;
use super::wakes::Place;
use crate::observe::served;
use crate::observe::watching::Watching;
use crate::telemetry::metrics::{Metrics, PassResult};

/// A burst of changes to one object and its children becomes one pass. Our own writes come back as such a burst.
const SETTLE: Duration = Duration::from_millis(100);

/// Passes under way at once. They wait for the API server most of the time.
const AT_ONCE: u16 = 16;

/// How soon a failed pass is made again; twice as late each time, up to the last.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// How soon to look again at what only a person can mend, in places that no watch of ours sees.
const RECHECK: Duration = Duration::from_secs(60);

/// Should the watch that overtook a pass be lost.
const OVERTAKEN: Duration = Duration::from_secs(5);

struct Control<F> {
    family: F,
    tools: Tools,
    metrics: Arc<Metrics>,
    /// How often the passes over an object have failed in a row.
    failures: Mutex<HashMap<Place, u32>>,
    turns: Turns,
}

/// Runs until `stop`, and until the passes under way have ended.
pub async fn run<F: Family + Send + Sync + 'static>(family: F, given: Given, stop: CancellationToken)
where
    F::Seen: Send + Sync,
{
    let Given { server, scope, identity, metrics, .. } = given;
    let api = family.api();
    tokio::select! {
        () = stop.cancelled() => return,
        () = served::until_served(&server, api) => {}
    }
    let kind = stored_kind(api);
    let resource = ApiResource::from_gvk_with_plural(&kind, api.plural());
    let (store, writer) = own_store(&resource);
    let changes = watcher(scope.api(&server, &resource), watcher::Config::default()).default_backoff();
    // Who manages which field of the user's object is nothing to us, and half of its size.
    let changes = changes.modify(|object: &mut DynamicObject| object.metadata.managed_fields = None).reflect(writer);
    let own = own_changes(changes, resource.clone());
    let tools = Tools::new(&family, server.clone(), &identity);
    let owners = {
        let (resource, kind) = (resource.clone(), api.kind());
        let children =
            tools.cache.follow(&server, &scope).filter(move |touched| std::future::ready(touched.owner_kind == kind));
        children.map(move |touched| ObjectRef::new_with(&touched.owner, resource.clone()).within(&touched.namespace))
    };
    let woken = {
        let resource = resource.clone();
        let places = tools.wakes.listen();
        places.map(move |(namespace, name)| ObjectRef::new_with(&name, resource.clone()).within(&namespace))
    };
    let queue = stream::select(own, stream::select(owners, woken)).map(Ok::<_, std::convert::Infallible>);
    let queue = queue.take_until(stop.clone().cancelled_owned());
    let control = Arc::new(Control { family, tools, metrics, failures: Mutex::default(), turns: Turns::default() });
    tracing::info!(controller = %api, "controller started");
    let config = controller::Config::default().debounce(SETTLE).concurrency(AT_ONCE);
    let passes = controller::applier(
        |object, control: Arc<Control<F>>| Box::pin(control_pass(object, control)),
        |object, error: &PassError, control| control.again(&object, error),
        control.clone(),
        store,
        queue,
        config,
    );
    let passes = passes.for_each(|passed| {
        if let Err(controller::Error::ObjectNotFound(gone)) = passed {
            let gone = (gone.namespace.unwrap_or_default(), gone.name);
            control.forget(&gone);
            control.tools.outdated.forget(&gone);
            control.tools.left_alone.forget(&gone);
            control.family.forget(&gone);
        }
        std::future::ready(())
    });
    tokio::join!(passes, control.family.beside(&control.tools, &scope, stop));
    control.family.stopped();
    tracing::info!(controller = %api, "controller stopped");
}

fn own_store(resource: &ApiResource) -> (Store<DynamicObject>, reflector::store::Writer<DynamicObject>) {
    let writer = reflector::store::Writer::new(resource.clone());
    (writer.as_reader(), writer)
}

/// The objects that changed themselves. A watch that breaks is told of and begun again.
fn own_changes(
    changes: impl Stream<Item = watcher::Result<watcher::Event<DynamicObject>>>,
    resource: ApiResource,
) -> impl Stream<Item = ObjectRef<DynamicObject>> {
    let mut watching = Watching::new(&resource.kind);
    changes.touched_objects().filter_map(move |object| {
        let object = watching.hear(object);
        std::future::ready(object.map(|object| ObjectRef::from_obj_with(&object, resource.clone())))
    })
}

async fn control_pass<F: Family>(object: Arc<DynamicObject>, control: Arc<Control<F>>) -> Result<Action, PassError> {
    control.tools.cache.synced().await;
    if control.tools.outdated.is(&place(&object), object.metadata.resource_version.as_deref()) {
        // The watch brings what we have written, and with it a pass.
        return Ok(Action::requeue(OVERTAKEN));
    }
    let can_wait = object.metadata.deletion_timestamp.is_none() && control.family.can_wait(&control.tools, &object);
    let Some(_turn) = control.turns.take(&place(&object), can_wait, Instant::now()) else {
        return Ok(Action::requeue(turns::LATER));
    };
    let began = Instant::now();
    control.family.began(&object);
    let passed = pass(&control.family, &control.tools, &object).await;
    let result = match &passed {
        Ok(Passed::Done { next: Requeue::After(_), .. } | Passed::Overtaken) => PassResult::RequeueAfter,
        Ok(_) => PassResult::Success,
        Err(_) => PassResult::Error,
    };
    control.metrics.passed(control.family.api(), result, began.elapsed());
    control.family.ended(&object, &passed, began.elapsed());
    let action = match passed {
        // Whoever corrects it brings the next pass; until then it has to be told.
        Err(PassError::Unreadable { .. }) => Action::requeue(unreadable::RECHECK),
        Err(error) => return Err(error),
        Ok(Passed::Leaving | Passed::Done { next: Requeue::AwaitChange, .. }) => Action::await_change(),
        Ok(Passed::Done { next: Requeue::After(time), .. }) => Action::requeue(time),
        Ok(Passed::Overtaken) => Action::requeue(OVERTAKEN),
    };
    control.forget(&place(&object));
    Ok(action)
}

impl<F: Family> Control<F> {
    fn forget(&self, place: &Place) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(place);
        self.turns.forget(place);
    }

    /// When to look again at an object whose pass failed.
    fn again(&self, object: &DynamicObject, error: &PassError) -> Action {
        let place = place(object);
        let described = format!("{} {}/{}", self.family.api().kind(), place.0, place.1);
        let failures = {
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            let count = failures.entry(place).or_default();
            *count = count.saturating_add(1);
            *count
        };
        let wait = if error.is_transient() { retry(failures) } else { RECHECK };
        let controller = self.family.api();
        tracing::warn!(%controller, object = described, %error, again_in_s = wait.as_secs_f64(), "a pass failed");
        Action::requeue(wait)
    }
}

fn place(object: &DynamicObject) -> Place {
    (object.namespace().unwrap_or_default(), object.name_any())
}

pub(super) fn retry(failures: u32) -> Duration {
    let doubled = FIRST_RETRY.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1).min(16)));
    doubled.min(LAST_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_pass_is_made_again_ever_more_rarely() {
        let waits: Vec<_> = [1, 2, 3, 7, 8, 100, u32::MAX].map(|failures| retry(failures).as_secs_f64()).to_vec();
        assert_eq!(waits, [0.5, 1.0, 2.0, 32.0, 60.0, 60.0, 60.0]);
    }
}
