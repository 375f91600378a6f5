//! Runs the reconciles of one controller: every object at the start, and then each object that changed or whose children
//! did. Never two at once for the same object.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use steersman_reconcile::{Event, NamespacedName, ObjectId, Requeue};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::fair_queue::FairQueue;
use super::object_cache::CacheBudget;
use super::priority::{DEFER_INTERVAL, Priority};
use super::reconcile::{ReconcileContext, ReconcileError, ReconcileOutcome, Reconciler, reconcile};
use super::{invalid_objects, object_cache};
use crate::apply::Owner;
use crate::backoff::backoff;
use crate::client::Server;
use crate::store::cache::Touched;
use crate::store::relist::watch_with_relists;
use crate::store::watching::Watching;
use crate::store::{SMALL_PAGE, Scope, served};
use crate::telemetry::metrics::{Metrics, ReconcileResult};

/// A burst of changes to one object and its children causes one reconcile. Our own writes come back as such a burst.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Reconciles in progress at once. They wait for the API server most of the time.
const CONCURRENCY: u16 = 16;

/// Delay of the first retry. It doubles with each failure, up to the longest.
const MIN_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Retry interval for a failure that only a person can fix, if none of our watches covers the fix.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Bounds the wait for the watch event that follows a conflict or a stale object, in case that event is lost.
const CONFLICT_RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The panic itself is in the log: its text may quote the object.
const PANICKED: &str = "The reconcile panicked, which is a defect of the operator. What runs stays as it is, other objects are \
                        not affected, and the reconcile is retried with backoff. Find \"panicked\" in the operator's log and \
                        report it; a change of the object may avoid it.";

/// Dependencies that the process passes to a controller.
#[derive(Clone)]
pub struct ControllerContext {
    /// Behind the fence of the term: it writes nothing after the Lease is lost.
    pub server: Server,
    pub scope: Scope,
    /// The name of this process in events.
    pub identity: String,
    pub metrics: Arc<Metrics>,
}

struct Runner<R> {
    reconciler: R,
    context: ReconcileContext,
    resource: ApiResource,
    metrics: Arc<Metrics>,
    waiting: Arc<FairQueue>,
    /// Consecutive failures of each object.
    failures: Mutex<HashMap<NamespacedName, u32>>,
    priority: Priority,
}

/// Runs until `stop`, and until the reconciles in progress have ended.
pub async fn run<R: Reconciler + Send + Sync + 'static>(
    reconciler: R,
    context: ControllerContext,
    stop: CancellationToken,
) where
    R::Snapshot: Send + Sync,
{
    let ControllerContext { server, scope, identity, metrics } = context;
    let controller = reconciler.resource();
    tokio::select! {
        () = stop.cancelled() => return,
        () = served::until_served(&server, &controller) => {}
    }
    let resource = controller.api_resource();
    let writer = reflector::store::Writer::new(resource.clone());
    let store: Store<DynamicObject> = writer.as_reader();
    let config = watcher::Config::default().page_size(SMALL_PAGE);
    let changes = watch_with_relists(scope.api(&server, &resource), config);
    let mut budget = CacheBudget::default();
    let changes = changes.map_ok(move |event| budget.receive(event)).reflect(writer);
    let own = own_changes(changes, controller.kind);
    let context = ReconcileContext::new(&reconciler, server.clone(), &identity);
    let triggers = stream::select(own, context.queue.stream());
    let (queue_metrics, name) = (metrics.clone(), controller.short_name);
    let waiting = Arc::new(FairQueue::new(move |waiting, started| queue_metrics.queued(name, waiting, started)));
    let of_kind = resource.clone();
    let queue = waiting.clone().stream().map(move |object| {
        Ok::<_, Infallible>(ObjectRef::new_with(&object.name, of_kind.clone()).within(&object.namespace))
    });
    let queue = queue.take_until(stop.clone().cancelled_owned());
    let runner = Arc::new(Runner {
        reconciler,
        context,
        resource,
        metrics,
        waiting,
        failures: Mutex::default(),
        priority: Priority::default(),
    });
    tracing::info!(%controller, "controller started");
    let config = controller::Config::default().debounce(DEBOUNCE).concurrency(CONCURRENCY);
    let reconciles = controller::applier(
        |object, runner: Arc<Runner<R>>| Box::pin(reconcile_object(object, runner)),
        |object, error: &ReconcileError, runner| runner.error_policy(&object, error),
        runner.clone(),
        store,
        queue,
        config,
    );
    let reconciles = reconciles.for_each(|reconciled| {
        if let Err(controller::Error::ObjectNotFound(gone)) = reconciled {
            let gone = NamespacedName::new(gone.namespace.unwrap_or_default(), gone.name);
            runner.waiting.end(&gone);
            runner.forget(&gone);
            runner.context.expectations.forget(&gone);
            runner.context.invalid_objects.forget(&gone);
            runner.reconciler.forget(&gone);
        }
        std::future::ready(())
    });
    let children = async {
        let ReconcileContext { cache, queue, .. } = &runner.context;
        let touched = |touched: Touched| {
            if touched.owner_kind == controller.kind {
                queue.enqueue(NamespacedName::new(touched.namespace, touched.owner));
            }
        };
        cache.follow(&server, &scope, touched).await;
        // A controller without children goes on.
        std::future::pending::<()>().await;
    };
    let waiting = runner.waiting.clone();
    let triggers = triggers.for_each(move |object| {
        waiting.push(object);
        std::future::ready(())
    });
    let reconciles = async {
        tokio::select! { () = reconciles => {}, () = children => {}, () = triggers => {} }
    };
    tokio::join!(reconciles, runner.reconciler.run_watches(&runner.context, &scope, stop));
    runner.reconciler.on_stop();
    tracing::info!(%controller, "controller stopped");
}

/// The objects that changed themselves. A watch that breaks is logged and started again.
fn own_changes(
    changes: impl Stream<Item = watcher::Result<watcher::Event<DynamicObject>>>,
    kind: &'static str,
) -> impl Stream<Item = NamespacedName> {
    let mut watching = Watching::new(kind);
    changes
        .touched_objects()
        .filter_map(move |object| std::future::ready(watching.receive(object).map(|object| name_of(&object))))
}

async fn reconcile_object<R: Reconciler + Send + Sync + 'static>(
    object: Arc<DynamicObject>,
    runner: Arc<Runner<R>>,
) -> Result<Action, ReconcileError>
where
    R::Snapshot: Send + Sync,
{
    let name = name_of(&object);
    let reconciled = reconcile_now(object, runner.clone()).await;
    runner.waiting.end(&name);
    reconciled
}

async fn reconcile_now<R: Reconciler + Send + Sync + 'static>(
    mut object: Arc<DynamicObject>,
    runner: Arc<Runner<R>>,
) -> Result<Action, ReconcileError>
where
    R::Snapshot: Send + Sync,
{
    let Runner { reconciler, context, .. } = &*runner;
    context.cache.synced().await;
    let name = name_of(&object);
    if context.expectations.is_stale(&name, object.metadata.resource_version.as_deref()) {
        // The watch event of our own write triggers the next reconcile.
        return Ok(Action::requeue(CONFLICT_RECHECK_INTERVAL));
    }
    let deferrable = object.metadata.deletion_timestamp.is_none() && reconciler.is_deferrable(context, &object);
    let Some(_permit) = runner.priority.admit(&name, deferrable, Instant::now()) else {
        return Ok(Action::requeue(DEFER_INTERVAL));
    };
    if object_cache::lacks_content(&object) {
        match object_cache::read(&context.server, &runner.resource, &name).await? {
            Some(read) => object = Arc::new(read),
            // Its deletion triggers what is left to do.
            None => return Ok(Action::await_change()),
        }
    }
    let started = Instant::now();
    reconciler.on_start(&object);
    let reconciled = runner.clone().reconcile_in_task(object.clone()).await;
    let result = match &reconciled {
        Ok(ReconcileOutcome::Reconciled { requeue: Requeue::After(_), .. } | ReconcileOutcome::Conflict) => {
            ReconcileResult::RequeueAfter
        }
        Ok(_) => ReconcileResult::Success,
        Err(_) => ReconcileResult::Error,
    };
    runner.metrics.reconciled(reconciler.resource().short_name, result, started.elapsed());
    reconciler.on_end(&object, &reconciled, started.elapsed());
    let action = match reconciled {
        // A correction of the object triggers a reconcile by itself; until then the report is repeated.
        Err(ReconcileError::Invalid { .. }) => Action::requeue(invalid_objects::RECHECK_INTERVAL),
        Err(error) => return Err(error),
        Ok(ReconcileOutcome::Reconciled { requeue: Requeue::After(time), .. }) => Action::requeue(time),
        Ok(ReconcileOutcome::Reconciled { requeue: Requeue::AwaitChange, .. } | ReconcileOutcome::Deleting) => {
            Action::await_change()
        }
        Ok(ReconcileOutcome::Conflict) => Action::requeue(CONFLICT_RECHECK_INTERVAL),
    };
    runner.forget(&name);
    Ok(action)
}

impl<R: Reconciler + Send + Sync + 'static> Runner<R>
where
    R::Snapshot: Send + Sync,
{
    /// Reconciles the object in a task of its own: a panic is an error of this object, and the controller goes on.
    async fn reconcile_in_task(
        self: Arc<Self>,
        object: Arc<DynamicObject>,
    ) -> Result<ReconcileOutcome, ReconcileError> {
        let (runner, task_object) = (self.clone(), object.clone());
        let task = tokio::spawn(async move { reconcile(&runner.reconciler, &runner.context, &task_object).await });
        // Aborted with the controller, which is dropped when the Lease is lost.
        match AbortOnDropHandle::new(task).await {
            Ok(reconciled) => reconciled,
            Err(_) => {
                let owner = Owner::of(self.reconciler.resource().gvk(), &object);
                self.context.recorder.publish(&owner, &Event::warning("ReconcilePanicked", PANICKED)).await;
                let kind = self.reconciler.resource().kind;
                Err(ReconcileError::Panicked { object: ObjectId { kind: kind.to_owned(), name: name_of(&object) } })
            }
        }
    }
}

impl<R: Reconciler> Runner<R> {
    fn forget(&self, object: &NamespacedName) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(object);
        self.priority.forget(object);
    }

    fn error_policy(&self, object: &DynamicObject, error: &ReconcileError) -> Action {
        let controller = self.reconciler.resource();
        let id = ObjectId { kind: controller.kind.to_owned(), name: name_of(object) };
        let failures = {
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            let count = failures.entry(id.name.clone()).or_default();
            *count = count.saturating_add(1);
            *count
        };
        let wait = if error.is_transient() { retry_delay(failures) } else { RECHECK_INTERVAL };
        tracing::warn!(%controller, object = %id, %error, retry_in_s = wait.as_secs_f64(), "reconcile failed");
        Action::requeue(wait)
    }
}

fn name_of(object: &DynamicObject) -> NamespacedName {
    NamespacedName::new(object.namespace().unwrap_or_default(), object.name_any())
}

/// The delay of the retry after this many consecutive failures.
pub fn retry_delay(failures: u32) -> Duration {
    backoff(MIN_BACKOFF, failures.saturating_sub(1), MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_retry_has_the_shortest_delay() {
        let delays: Vec<_> =
            [1, 2, 3, 7, 8, 100, u32::MAX].map(|failures| retry_delay(failures).as_secs_f64()).to_vec();
        assert_eq!(delays, [0.5, 1.0, 2.0, 32.0, 60.0, 60.0, 60.0]);
    }
}
