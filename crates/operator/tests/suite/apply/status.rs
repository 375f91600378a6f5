//! Status writes replace the whole status of a user's object, and are skipped if nothing differs.

use steersman_runtime::apply::{StatusWrite, Stored, write_status};
use steersman_testkit::wait;

use super::*;

const WIDGETS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: widgets.apply.test.steersman.dev }
spec:
  group: apply.test.steersman.dev
  scope: Namespaced
  names: { kind: Widget, plural: widgets }
  versions:
  - name: v1
    served: true
    storage: true
    subresources: { status: {} }
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec: { type: object, required: [size], properties: { size: { type: integer } } }
          status: { type: object, x-kubernetes-preserve-unknown-fields: true }
"#;

#[tokio::test]
async fn status_write_needs_the_observed_version() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("status").await.unwrap();
    namespace.apply(WIDGETS).await.unwrap();
    let admin = cluster.admin().await.unwrap();
    let kind = GroupVersionKind::gvk("apply.test.steersman.dev", "v1", "Widget");
    let widgets: Api<DynamicObject> =
        Api::namespaced_with(admin.clone(), namespace.name(), &ApiResource::from_gvk(&kind));
    let widget: DynamicObject = object(json!({ "apiVersion": "apply.test.steersman.dev/v1", "kind": "Widget",
        "metadata": { "name": "w" }, "spec": { "size": 3 } }));
    let created =
        wait::eventually("the new kind is served", async || widgets.create(&PostParams::default(), &widget).await.ok())
            .await
            .unwrap();
    let owner = Owner {
        kind,
        namespace: namespace.name().to_owned(),
        name: "w".into(),
        uid: created.uid().unwrap(),
        legacy: None,
    };
    let counter = FaultInjector::without_fault();
    let server = server(cluster, counter.wrap(&admin));
    let write = async |current: &DynamicObject, status: Value| {
        let version = current.resource_version().unwrap();
        let stored = Stored { resource_version: &version, status: current.data.get("status") };
        write_status(&server, MANAGER, &owner, stored, &status).await
    };

    let outcome = write(&created, json!({ "phase": "Pending", "old": 1 })).await.unwrap();
    assert_eq!(outcome, StatusWrite::Written(widgets.get("w").await.unwrap().resource_version().unwrap()));
    assert_eq!(write(&created, json!({ "phase": "Ready" })).await, Ok(StatusWrite::Conflict));
    let current = widgets.get("w").await.unwrap();
    let outcome = write(&current, json!({ "phase": "Ready" })).await.unwrap();
    let current = widgets.get("w").await.unwrap();
    assert_eq!(outcome, StatusWrite::Written(current.resource_version().unwrap()));
    assert_eq!(
        current.data,
        json!({ "spec": { "size": 3 }, "status": { "phase": "Ready" } }),
        "old fields are removed"
    );
    let before = counter.call_count();
    assert_eq!(write(&current, json!({ "phase": "Ready", "note": null })).await, Ok(StatusWrite::Unchanged));
    assert_eq!(counter.call_count(), before);
}
