//! The status of a user's object is replaced as a whole, and only where it differs.

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
async fn a_status_is_written_once_and_only_on_the_object_that_was_seen() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("status").await.unwrap();
    namespace.apply(WIDGETS).await.unwrap();
    let admin = cluster.admin().await.unwrap();
    let kind = GroupVersionKind::gvk("apply.test.steersman.dev", "v1", "Widget");
    let widgets: Api<DynamicObject> =
        Api::namespaced_with(admin.clone(), namespace.name(), &ApiResource::from_gvk(&kind));
    let wish: DynamicObject = object(json!({ "apiVersion": "apply.test.steersman.dev/v1", "kind": "Widget",
        "metadata": { "name": "w" }, "spec": { "size": 3 } }));
    let made =
        wait::eventually("the new kind is served", async || widgets.create(&PostParams::default(), &wish).await.ok())
            .await
            .unwrap();
    let owner = Owner {
        kind,
        namespace: namespace.name().to_owned(),
        name: "w".into(),
        uid: made.uid().unwrap(),
        legacy: None,
    };
    let counter = Cutter::counting();
    let server = server(cluster, counter.around(&admin));
    let write = async |seen: &DynamicObject, status: Value| {
        let version = seen.resource_version().unwrap();
        let stored = Stored { resource_version: &version, status: seen.data.get("status") };
        write_status(&server, MANAGER, &owner, stored, &status).await
    };

    let told = write(&made, json!({ "phase": "Pending", "old": 1 })).await.unwrap();
    assert_eq!(told, StatusWrite::Written(widgets.get("w").await.unwrap().resource_version().unwrap()));
    assert_eq!(write(&made, json!({ "phase": "Ready" })).await, Ok(StatusWrite::Conflict));
    let seen = widgets.get("w").await.unwrap();
    let told = write(&seen, json!({ "phase": "Ready" })).await.unwrap();
    let seen = widgets.get("w").await.unwrap();
    assert_eq!(told, StatusWrite::Written(seen.resource_version().unwrap()));
    assert_eq!(seen.data, json!({ "spec": { "size": 3 }, "status": { "phase": "Ready" } }), "fields of old go");
    let before = counter.calls();
    assert_eq!(write(&seen, json!({ "phase": "Ready", "note": null })).await, Ok(StatusWrite::Unchanged));
    assert_eq!(counter.calls(), before);
}
