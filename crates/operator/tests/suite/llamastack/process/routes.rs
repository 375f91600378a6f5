//! Routes: the operator as it is shipped, on a cluster to which their API comes and from which it goes.

use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::{Flavour, object, wait};

use super::{World, world};
use crate::process::operator::Operator;
use crate::schemas::{install, uninstall};

/// As much of OpenShift's as a Route needs.
fn crd() -> CustomResourceDefinition {
    object(json!({
        "metadata": { "name": "routes.route.openshift.io" },
        "spec": {
            "group": "route.openshift.io",
            "scope": "Namespaced",
            "names": { "kind": "Route", "listKind": "RouteList", "plural": "routes", "singular": "route" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                } } },
            }],
        },
    }))
}

fn resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("route.openshift.io", "v1", "Route"))
}

struct Ways<'a> {
    world: &'a World,
    operator: &'a Operator,
    routes: Api<DynamicObject>,
    ingresses: Api<Ingress>,
}

impl Ways<'_> {
    async fn until<T>(&self, what: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
        wait::eventually(what, ask).await.unwrap_or_else(|error| panic!("{error}\n{}", self.operator.log()))
    }

    async fn route(&self) -> DynamicObject {
        self.until("there is a Route", async || self.routes.get_opt("starter-route").await.ok()?).await
    }

    async fn ingress(&self) -> Ingress {
        self.until("there is an Ingress", async || self.ingresses.get_opt("starter-ingress").await.ok()?).await
    }

    async fn until_no_ingress(&self) {
        let gone = async || self.ingresses.get_opt("starter-ingress").await.ok()?.is_none().then_some(());
        self.until("the Ingress is gone", gone).await;
    }

    async fn until_status(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let reached = async || {
            let own = self.world.objects().get("starter").await.unwrap();
            holds(&own.data["status"]).then_some(())
        };
        self.until(what, reached).await;
    }

    /// As a router says it.
    async fn answer(&self, admitted: &str) {
        let condition = json!({ "type": "Admitted", "status": admitted, "reason": "HostAlreadyClaimed",
            "message": "route other has it" });
        let entry = json!({ "host": "llama.apps.example.com", "routerName": "default", "conditions": [condition] });
        let status = Patch::Merge(json!({ "status": { "ingress": [entry] } }));
        self.routes.patch_status("starter-route", &PatchParams::default(), &status).await.unwrap();
    }

    async fn expose(&self, expose: Value) {
        let wish = Patch::Merge(json!({ "spec": { "networking": { "expose": expose } } }));
        self.world.objects().patch("starter", &PatchParams::default(), &wish).await.unwrap();
    }
}

#[tokio::test]
async fn a_route_takes_the_place_of_the_ingress_where_a_router_answers() {
    let Some(world) = world(Flavour::Bare, "routes").await else { return };
    let crds: Api<CustomResourceDefinition> = Api::all(world.admin.clone());
    // One that a failed test has left.
    if crds.delete(&crd().name_any(), &DeleteParams::default()).await.is_ok() {
        wait::until_gone(crds.clone(), &crd().name_any()).await.unwrap();
    }
    let operator = world.place.start("routes", &[]).await;
    let ways = Ways {
        routes: Api::namespaced_with(world.admin.clone(), world.namespace.name(), &resource()),
        ingresses: world.namespace.all(),
        world: &world,
        operator: &operator,
    };
    world.create("starter", json!({ "distribution": { "name": "starter" }, "networking": { "expose": true } })).await;
    ways.ingress().await;

    // The API comes while the operator runs; until some router answers, the Ingress stays.
    install(&world.admin, &crd(), &resource()).await;
    let route = ways.route().await;
    assert_eq!(route.data["spec"]["to"], json!({ "kind": "Service", "name": "starter-service" }));
    assert_eq!(route.owner_references()[0].name, "starter");
    ways.ingress().await;
    ways.answer("True").await;
    ways.until_no_ingress().await;
    let address = |status: &Value| status["routeURL"] == "https://llama.apps.example.com";
    ways.until_status("the address is the router's", address).await;

    // A host name of the user's own, which another Route has.
    ways.expose(json!({ "hostname": "taken.example.com" })).await;
    let asked = async || {
        let route = ways.routes.get("starter-route").await.unwrap();
        (route.data["spec"]["host"] == "taken.example.com").then_some(())
    };
    ways.until("the Route has the host", asked).await;
    ways.answer("False").await;
    let told = |status: &Value| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        status["routeURL"] == "" && conditions.into_iter().any(|known| known["reason"] == "RouteRefused")
    };
    ways.until_status("it is told that the host is taken", told).await;

    // Somebody removes the Route: it comes back. Nobody asks for it any more: it goes.
    ways.routes.delete("starter-route", &DeleteParams::default()).await.unwrap();
    let again =
        async || ways.routes.get_opt("starter-route").await.ok()?.filter(|new| new.metadata.uid != route.metadata.uid);
    ways.until("the Route is back", again).await;
    ways.expose(json!(false)).await;
    let gone = async || ways.routes.get_opt("starter-route").await.ok()?.is_none().then_some(());
    ways.until("the Route is gone", gone).await;
    ways.until_no_ingress().await;

    // The API goes, and an Ingress is the way again.
    ways.expose(json!(true)).await;
    ways.route().await;
    ways.answer("True").await;
    ways.until_no_ingress().await;
    crds.delete(&crd().name_any(), &DeleteParams::default()).await.unwrap();
    ways.ingress().await;
    wait::until_gone(crds, &crd().name_any()).await.unwrap();
    operator.assert_log_is_json();
    uninstall(&world.admin, Family::Llsd).await;
}
