//! Waits for the state that a test expects, by watching the object instead of polling. The error after a timeout shows the
//! last state of the object.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Timeout of tests. It is long, because it only matters for a test that fails.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Pause between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Waits until the object `name` exists and `holds` returns true for it, and returns the object.
pub async fn until<K>(api: Api<K>, name: &str, what: &str, limit: Duration, holds: impl Fn(&K) -> bool) -> Result<K>
where
    K: kube::Resource + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    let deadline = Instant::now() + limit;
    match watch_until(&api, name, deadline, |object| object.is_some_and(&holds)).await {
        Ok(Some(object)) => Ok(object),
        Ok(None) => Err(anyhow!("{} {name} vanished while waiting until it {what}", kind::<K>())),
        Err(watch_error) => {
            let last = match tokio::time::timeout(Duration::from_secs(10), api.get_opt(name)).await {
                Ok(Ok(Some(object))) => serde_json::to_string_pretty(&object)?,
                Ok(Ok(None)) => "it does not exist".to_owned(),
                Ok(Err(error)) => format!("it cannot be read: {error}"),
                Err(_) => "it cannot be read: the API server does not answer".to_owned(),
            };
            Err(anyhow!(
                "after {limit:?}, {} {name} is not in the expected state ({what}){watch_error}. Last state:\n{last}",
                kind::<K>()
            ))
        }
    }
}

/// Waits until `holds` returns true, and returns the object. A broken watch is restarted, because a busy API server rejects
/// some. The error after the deadline is the last failure of a watch, or empty.
async fn watch_until<K>(
    api: &Api<K>,
    name: &str,
    deadline: Instant,
    holds: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>, String>
where
    K: kube::Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    let mut watch_error = String::new();
    loop {
        let watch = await_condition(api.clone(), name, &holds);
        match tokio::time::timeout_at(deadline.into(), watch).await {
            Ok(Ok(object)) => return Ok(object),
            Ok(Err(error)) if Instant::now() < deadline => {
                watch_error = format!("; the last watch that broke: {error}");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            Ok(Err(error)) => return Err(format!("; the last watch that broke: {error}")),
            Err(_) => return Err(watch_error),
        }
    }
}

/// Polls until `ask` returns a value, for state that cannot be watched, such as Prometheus or a cache of the API server.
pub async fn eventually<T>(what: &str, ask: impl AsyncFnMut() -> Option<T>) -> Result<T> {
    eventually_within(TIMEOUT, what, ask).await
}

/// Polls with a timeout other than [`TIMEOUT`].
pub async fn eventually_within<T>(limit: Duration, what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        match tokio::time::timeout_at(deadline.into(), ask()).await {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) if Instant::now() < deadline => tokio::time::sleep(RETRY_INTERVAL).await,
            Ok(None) | Err(_) => return Err(anyhow!("not seen within {limit:?}: {what}")),
        }
    }
}

/// Waits until the user of `client` may `verb` the resource. The authorizer reads roles from a cache, which is updated with
/// a delay.
pub async fn until_allowed(
    client: &Client,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: Option<&str>,
) -> Result<()> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let question = SelfSubjectAccessReview { spec, ..Default::default() };
    eventually(&format!("the right to {verb} {resource}"), async || {
        let answer = reviews.create(&PostParams::default(), &question).await.ok()?;
        answer.status.is_some_and(|status| status.allowed).then_some(())
    })
    .await
}

/// Waits until the object `name` is deleted.
pub async fn until_gone<K>(api: Api<K>, name: &str) -> Result<()>
where
    K: kube::Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    let gone = watch_until(&api, name, Instant::now() + TIMEOUT, |object: Option<&K>| object.is_none()).await;
    gone.map(|_| ())
        .map_err(|watch_error| anyhow!("{} {name} still exists after {TIMEOUT:?}{watch_error}", kind::<K>()))
}

fn kind<K: kube::Resource>() -> String
where
    K::DynamicType: Default,
{
    K::kind(&K::DynamicType::default()).into_owned()
}
