//! Generates load: users who write and read objects in both versions. Counts answered and failed requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kube::api::{Api, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::{object, wait};
use tokio::task::JoinSet;

use super::WebhookEnv;
use crate::schemas::api_resource;

/// Users that send requests until [`LoadGenerator::stop`].
pub struct LoadGenerator {
    users: JoinSet<()>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    answered: AtomicUsize,
    failed: std::sync::Mutex<Vec<String>>,
}

fn manifest(family: Family, name: &str) -> Value {
    let spec = match family {
        Family::Llsd => json!({ "server": { "distribution": { "name": "starter" } } }),
        _ => json!({ "model": "m", "backend": "vllm", "profilingConfig": { "profilerImage": "example.com/p:1" } }),
    };
    let api_version = format!("{}/{}", family.group(), family.served_versions()[0]);
    json!({ "apiVersion": api_version, "kind": family.kind(), "metadata": { "name": name }, "spec": spec })
}

impl LoadGenerator {
    /// Starts two users per family once an object was converted, because API servers notice CRDs with a delay.
    pub async fn start(env: &WebhookEnv, families: &[Family]) -> Self {
        let namespace = env.cluster.namespace("load").await.unwrap();
        let shared = Arc::new(Shared::default());
        let mut users = JoinSet::new();
        for family in families {
            let objects = |version| -> Api<DynamicObject> {
                Api::namespaced_with(env.admin.clone(), namespace.name(), &api_resource(*family, version))
            };
            let (old, new) = (objects(family.served_versions()[0]), objects(family.storage_version()));
            let first: DynamicObject = object(manifest(*family, "first"));
            let created = async || match old.create(&PostParams::default(), &first).await {
                Ok(_) => Some(()),
                Err(kube::Error::Api(status)) if status.code == 409 => Some(()),
                Err(_) => None,
            };
            wait::eventually("an object of the old version is created", created).await.unwrap();
            for user in 0..2 {
                users.spawn(run_user(shared.clone(), *family, user, old.clone(), new.clone()));
            }
        }
        Self { users, shared }
    }

    pub fn answered(&self) -> usize {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Waits until `count` more requests are answered.
    pub async fn wait_for_requests(&self, count: usize) {
        let goal = self.answered() + count;
        wait::eventually("more requests are answered", async || (self.answered() >= goal).then_some(())).await.unwrap();
    }

    /// Stops the users. Returns the number of answered requests and the errors of the failed ones.
    pub async fn stop(mut self) -> (usize, Vec<String>) {
        self.shared.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.users.join_next().await {
            ended.unwrap();
        }
        (self.answered(), self.shared.failed.lock().unwrap().clone())
    }
}

async fn run_user(shared: Arc<Shared>, family: Family, user: usize, old: Api<DynamicObject>, new: Api<DynamicObject>) {
    let record = |what: &str, answer: Result<(), kube::Error>| match answer {
        Ok(()) => _ = shared.answered.fetch_add(1, Ordering::Relaxed),
        Err(error) => shared.failed.lock().unwrap().push(format!("{what} {family}: {error}")),
    };
    for round in 0.. {
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        // Names repeat, so that lists stay short during a long run.
        let name = format!("user-{user}-{}", round % 5);
        let manifest: DynamicObject = object(manifest(family, &name));
        record("create", old.create(&PostParams::default(), &manifest).await.map(|_| ()));
        record(
            "read old",
            old.get(&name).await.map(|read| assert_eq!(read.types.unwrap().api_version, old_version(family))),
        );
        record("read new", new.get(&name).await.map(|_| ()));
        record("list old", old.list(&ListParams::default()).await.map(|_| ()));
        record("delete", old.delete(&name, &Default::default()).await.map(|_| ()));
    }
}

fn old_version(family: Family) -> String {
    format!("{}/{}", family.group(), family.served_versions()[0])
}
