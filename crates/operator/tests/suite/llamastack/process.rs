//! `steersman run` as a process, as the operator's account with exactly the rights that are shipped: what it makes of
//! objects, and what an idle one does.

mod labels;
mod routes;
mod servers;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::audit::Written;
use steersman_testkit::{Cluster, Flavour, Namespace, Turn, condition, object, turn, wait};

use crate::process::operator::{Operator, Place};
use crate::schemas::{install, only, resource, uninstall};
use crate::servers::fake::{Fake, Plays};

const VERSION: &str = "v1alpha2";

pub struct World {
    pub cluster: &'static Cluster,
    pub admin: Client,
    pub place: Place,
    pub namespace: Namespace,
    _turn: Turn,
}

/// The shipped roles, the CRD as it is after a detachment (so that no conversion is needed), and a namespace.
pub async fn world(flavour: Flavour, prefix: &str) -> Option<World> {
    let turn = turn(flavour).await?;
    let cluster = turn.cluster;
    let place = Place::of(cluster).await;
    let admin = cluster.admin().await.unwrap();
    install(&admin, &only(Family::Llsd, VERSION), &resource(Family::Llsd, VERSION)).await;
    let namespace = cluster.namespace(prefix).await.unwrap();
    Some(World { cluster, admin, place, namespace, _turn: turn })
}

impl World {
    pub fn objects(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), self.namespace.name(), &resource(Family::Llsd, VERSION))
    }

    pub async fn create(&self, name: &str, spec: Value) {
        let wish: DynamicObject = object(json!({ "apiVersion": "llamastack.io/v1alpha2",
            "kind": "LlamaStackDistribution", "metadata": { "name": name }, "spec": spec }));
        self.objects().create(&PostParams::default(), &wish).await.unwrap();
    }

    async fn until_phase(&self, name: &str, phase: &str, operator: &Operator) {
        let is = |object: &DynamicObject| object.data["status"]["phase"] == phase;
        let what = format!("{name} is {phase}");
        let reached = wait::eventually(&what, async || self.objects().get_opt(name).await.ok()?.filter(is));
        reached.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    }

    /// The writes of one operator.
    pub fn writes_of(&self, identity: &str) -> Vec<Written> {
        let agent = format!(" {identity}");
        let writes = self.cluster.writes().unwrap();
        writes.into_iter().filter(|written| written.user_agent.ends_with(&agent)).collect()
    }
}

pub fn starter() -> Value {
    json!({ "distribution": { "name": "starter" }, "networking": { "port": 8321 } })
}

#[tokio::test]
async fn an_object_comes_to_life_and_its_trouble_is_told() {
    let Some(world) = world(Flavour::Full, "acting").await else { return };
    let operator = world.place.start("acting", &[]).await;
    let mut spec = starter();
    spec["workload"] = json!({ "storage": { "size": "20Gi" } });
    world.create("starter", spec).await;
    world.until_phase("starter", "Ready", &operator).await;
    operator.until_metric("controller_runtime_reconcile_total{controller=\"llsd\",result=\"success\"}").await;

    // A name that nobody knows: what runs stays, the status and an event say what to do.
    let before = world.namespace.all::<Deployment>().get("starter").await.unwrap();
    let wrong = Patch::Merge(json!({ "spec": { "distribution": { "name": "startr" } } }));
    world.objects().patch("starter", &PatchParams::default(), &wrong).await.unwrap();
    world.until_phase("starter", "Failed", &operator).await;
    let events: Api<Event> = world.namespace.all();
    let told = wait::eventually("an event tells of it", async || {
        let listed = events.list(&ListParams::default()).await.ok()?;
        listed.items.into_iter().find(|event| event.reason.as_deref() == Some("DistributionUnknown"))
    });
    let told = told.await.unwrap();
    let said = told.message.unwrap();
    assert!(said.contains("startr") && said.contains("Set spec.distribution.name to one of"), "{said}");
    let after = world.namespace.all::<Deployment>().get("starter").await.unwrap();
    assert_eq!(after.metadata.generation, before.metadata.generation);

    let right = Patch::Merge(json!({ "spec": { "distribution": { "name": "starter" } } }));
    world.objects().patch("starter", &PatchParams::default(), &right).await.unwrap();
    world.until_phase("starter", "Ready", &operator).await;

    // What somebody else removes comes back.
    let deployments: Api<Deployment> = world.namespace.all();
    deployments.delete("starter", &kube::api::DeleteParams::default()).await.unwrap();
    let back = wait::eventually("the Deployment is back", async || {
        deployments.get_opt("starter").await.ok()?.filter(|made| made.metadata.uid != before.metadata.uid)
    });
    back.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    world.until_phase("starter", "Ready", &operator).await;
    operator.assert_log_is_json();
    uninstall(&world.admin, Family::Llsd).await;
}

#[tokio::test]
async fn a_controller_without_its_crd_says_what_to_do_and_begins_when_it_is_there() {
    let Some(turn) = turn(Flavour::Bare).await else { return };
    let cluster = turn.cluster;
    let place = Place::of(cluster).await;
    let operator = place.start("early", &[]).await;
    operator.until_said("the controller waits for its CRD").await;
    assert!(operator.log().contains("install it with: steersman crds --apply"), "{}", operator.log());
    operator.until_answer("/readyz", 200).await;
    let admin = cluster.admin().await.unwrap();
    install(&admin, &only(Family::Llsd, VERSION), &resource(Family::Llsd, VERSION)).await;
    operator.until_said("controller started").await;
    uninstall(&admin, Family::Llsd).await;
    drop(turn);
}

#[tokio::test]
async fn a_settled_operator_writes_nothing_but_its_lease() {
    let Some(world) = world(Flavour::Full, "idle").await else { return };
    for index in 0..3 {
        world.create(&format!("idle-{index}"), starter()).await;
    }
    // With servers that answer, and one that does not: neither is worth a write more than once.
    let fake = Fake::start().await;
    for index in 0..2 {
        let host = format!("idle-{index}-service.{}.svc.cluster.local:8321", world.namespace.name());
        fake.play(&host, Plays::Well(json!([])));
    }
    let operator = world.place.start("idle", &["--reach-through", &fake.address.to_string()]).await;
    for index in 0..3 {
        let (name, heard) = (format!("idle-{index}"), if index < 2 { "True" } else { "False" });
        world.until_phase(&name, "Ready", &operator).await;
        let said = async || {
            let object = world.objects().get(&name).await.ok()?;
            (condition(&object.data, "HealthCheck")["status"] == heard).then_some(())
        };
        wait::eventually("the server was heard", said).await.unwrap();
    }
    // Its own last write comes back to it once more; what follows a few renewals of the Lease follows of itself.
    let renewals = || world.writes_of("idle").iter().filter(|written| written.is_lease()).count();
    let more_renewals = async |count: usize| {
        let before = renewals();
        wait::eventually("the Lease is renewed", async || (renewals() >= before + count).then_some(())).await.unwrap();
    };
    more_renewals(1).await;
    let before = world.writes_of("idle").into_iter().filter(|written| !written.is_lease()).count();
    more_renewals(4).await;
    let after: Vec<_> = world.writes_of("idle").into_iter().filter(|written| !written.is_lease()).collect();
    assert_eq!(after.len(), before, "{:#?}", &after[before.min(after.len())..]);
    uninstall(&world.admin, Family::Llsd).await;
}
