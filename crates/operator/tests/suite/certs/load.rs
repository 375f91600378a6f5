//! Users who write and read objects in both versions, and count what fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kube::api::{Api, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::{object, wait};
use tokio::task::JoinSet;

use super::Site;
use crate::schemas::resource;

/// Requests under way until [`Load::stop`].
pub struct Load {
    users: JoinSet<()>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    good: AtomicUsize,
    failed: std::sync::Mutex<Vec<String>>,
}

fn wish(family: Family, name: &str) -> Value {
    let spec = match family {
        Family::Llsd => json!({ "server": { "distribution": { "name": "starter" } } }),
        _ => json!({ "model": "m", "backend": "vllm", "profilingConfig": { "profilerImage": "example.com/p:1" } }),
    };
    let api_version = format!("{}/{}", family.group(), family.served_versions()[0]);
    json!({ "apiVersion": api_version, "kind": family.kind(), "metadata": { "name": name }, "spec": spec })
}

impl Load {
    /// Two users for each family, after the first conversion has succeeded: API servers follow CRDs in their own time.
    pub async fn start(site: &Site, families: &[Family]) -> Self {
        let namespace = site.cluster.namespace("load").await.unwrap();
        let shared = Arc::new(Shared::default());
        let mut users = JoinSet::new();
        for family in families {
            let of = |version| -> Api<DynamicObject> {
                Api::namespaced_with(site.admin.clone(), namespace.name(), &resource(*family, version))
            };
            let (old, new) = (of(family.served_versions()[0]), of(family.storage_version()));
            let first: DynamicObject = object(wish(*family, "first"));
            let created = async || match old.create(&PostParams::default(), &first).await {
                Ok(_) => Some(()),
                Err(kube::Error::Api(status)) if status.code == 409 => Some(()),
                Err(_) => None,
            };
            wait::eventually("an object of the old version is created", created).await.unwrap();
            for user in 0..2 {
                users.spawn(work(shared.clone(), *family, user, old.clone(), new.clone()));
            }
        }
        Self { users, shared }
    }

    pub fn done(&self) -> usize {
        self.shared.good.load(Ordering::Relaxed)
    }

    /// Waits for this many more requests.
    pub async fn more(&self, count: usize) {
        let until = self.done() + count;
        wait::eventually("more requests are answered", async || (self.done() >= until).then_some(())).await.unwrap();
    }

    /// How many were answered, and how those that were not failed.
    pub async fn stop(mut self) -> (usize, Vec<String>) {
        self.shared.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.users.join_next().await {
            ended.unwrap();
        }
        (self.done(), self.shared.failed.lock().unwrap().clone())
    }
}

async fn work(shared: Arc<Shared>, family: Family, user: usize, old: Api<DynamicObject>, new: Api<DynamicObject>) {
    let note = |what: &str, answer: Result<(), kube::Error>| match answer {
        Ok(()) => _ = shared.good.fetch_add(1, Ordering::Relaxed),
        Err(error) => shared.failed.lock().unwrap().push(format!("{what} {family}: {error}")),
    };
    for round in 0.. {
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        // Few objects, so that lists stay short however long it takes.
        let name = format!("user-{user}-{}", round % 5);
        let wish: DynamicObject = object(wish(family, &name));
        note("create", old.create(&PostParams::default(), &wish).await.map(|_| ()));
        note(
            "read old",
            old.get(&name).await.map(|read| assert_eq!(read.types.unwrap().api_version, old_version(family))),
        );
        note("read new", new.get(&name).await.map(|_| ()));
        note("list old", old.list(&ListParams::default()).await.map(|_| ()));
        note("delete", old.delete(&name, &Default::default()).await.map(|_| ()));
    }
}

fn old_version(family: Family) -> String {
    format!("{}/{}", family.group(), family.served_versions()[0])
}
