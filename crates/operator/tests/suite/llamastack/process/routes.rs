//! Routes of OpenShift in a running operator, while their API is installed and removed.

use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::{Flavour, object, wait};

use super::{TestEnv, test_env};
use crate::process::operator::OperatorProcess;
use crate::schemas::{install_crd, uninstall_crd};

/// A minimal CRD of OpenShift's Route.
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

struct ExposureTest<'a> {
    env: &'a TestEnv,
    operator: &'a OperatorProcess,
    routes: Api<DynamicObject>,
    ingresses: Api<Ingress>,
}

impl ExposureTest<'_> {
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
            let own = self.env.objects().get("starter").await.unwrap();
            holds(&own.data["status"]).then_some(())
        };
        self.until(what, reached).await;
    }

    /// Sets the status of the Route as a router does.
    async fn set_admitted(&self, admitted: &str) {
        let condition = json!({ "type": "Admitted", "status": admitted, "reason": "HostAlreadyClaimed",
            "message": "route other has it" });
        let entry = json!({ "host": "llama.apps.example.com", "routerName": "default", "conditions": [condition] });
        let status = Patch::Merge(json!({ "status": { "ingress": [entry] } }));
        self.routes.patch_status("starter-route", &PatchParams::default(), &status).await.unwrap();
    }

    async fn expose(&self, expose: Value) {
        let patch = Patch::Merge(json!({ "spec": { "networking": { "expose": expose } } }));
        self.env.objects().patch("starter", &PatchParams::default(), &patch).await.unwrap();
    }
}

#[tokio::test]
async fn admitted_route_replaces_ingress() {
    let Some(env) = test_env(Flavour::Bare, "routes").await else { return };
    let crds: Api<CustomResourceDefinition> = Api::all(env.admin.clone());
    // A failed test may have left the CRD installed.
    if crds.delete(&crd().name_any(), &DeleteParams::default()).await.is_ok() {
        wait::until_gone(crds.clone(), &crd().name_any()).await.unwrap();
    }
    let operator = env.installation.start("routes", &[]).await;
    let test = ExposureTest {
        routes: Api::namespaced_with(env.admin.clone(), env.namespace.name(), &resource()),
        ingresses: env.namespace.api(),
        env: &env,
        operator: &operator,
    };
    env.create("starter", json!({ "distribution": { "name": "starter" }, "networking": { "expose": true } })).await;
    test.ingress().await;

    // The API is installed while the operator runs. The Ingress stays until a router admits the Route.
    install_crd(&env.admin, &crd(), &resource()).await;
    let route = test.route().await;
    assert_eq!(route.data["spec"]["to"], json!({ "kind": "Service", "name": "starter-service" }));
    assert_eq!(route.owner_references()[0].name, "starter");
    test.ingress().await;
    test.set_admitted("True").await;
    test.until_no_ingress().await;
    let address = |status: &Value| status["routeURL"] == "https://llama.apps.example.com";
    test.until_status("the address is that of the router", address).await;

    // The user sets a host name that belongs to another Route.
    test.expose(json!({ "hostname": "taken.example.com" })).await;
    let has_host = async || {
        let route = test.routes.get("starter-route").await.unwrap();
        (route.data["spec"]["host"] == "taken.example.com").then_some(())
    };
    test.until("the Route has the host", has_host).await;
    test.set_admitted("False").await;
    let refused = |status: &Value| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        status["routeURL"] == "" && conditions.into_iter().any(|known| known["reason"] == "RouteRefused")
    };
    test.until_status("the refused host is reported", refused).await;

    // A Route that a user deletes is recreated. The operator deletes it when the spec no longer exposes the server.
    test.routes.delete("starter-route", &DeleteParams::default()).await.unwrap();
    let recreated =
        async || test.routes.get_opt("starter-route").await.ok()?.filter(|new| new.metadata.uid != route.metadata.uid);
    test.until("the Route is recreated", recreated).await;
    test.expose(json!(false)).await;
    let gone = async || test.routes.get_opt("starter-route").await.ok()?.is_none().then_some(());
    test.until("the Route is gone", gone).await;
    test.until_no_ingress().await;

    // When the API is removed, the Ingress is created again.
    test.expose(json!(true)).await;
    test.route().await;
    test.set_admitted("True").await;
    test.until_no_ingress().await;
    crds.delete(&crd().name_any(), &DeleteParams::default()).await.unwrap();
    test.ingress().await;
    wait::until_gone(crds, &crd().name_any()).await.unwrap();
    operator.assert_log_is_json();
    uninstall_crd(&env.admin, Family::Llsd).await;
}
