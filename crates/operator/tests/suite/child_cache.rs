//! The cache of children on a real API server, filled beyond the bytes that it keeps of one namespace.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::core::GroupVersionKind;
use serde_json::json;
use steersman_runtime::store::Scope;
use steersman_runtime::store::cache::{Cache, Watched};
use steersman_testkit::fault_injection::FaultInjector;
use steersman_testkit::{Flavour, object, shared_cluster};

use crate::server::server;

#[tokio::test]
async fn full_cache_reads_children_from_api_server() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("full").await.unwrap();
    let kind = GroupVersionKind::gvk("", "v1", "ConfigMap");
    let names: Vec<_> = (0..35).map(|index| (kind.clone(), format!("large-{index:02}"))).collect();
    let text = "x".repeat(250_000);
    for (_, name) in &names {
        let map: ConfigMap =
            object(json!({ "metadata": { "name": name, "labels": { "large": "true" } }, "data": { "text": text } }));
        namespace.api::<ConfigMap>().create(&PostParams::default(), &map).await.unwrap();
    }
    let admin = cluster.admin().await.unwrap();
    let cache = Cache::new(vec![Watched { kind: kind.clone(), labels: "large=true", naming: None }]);
    cache.fill(&server(cluster, admin.clone()), &Scope::Namespace(namespace.name().to_owned())).await.unwrap();

    let counter = FaultInjector::without_fault().include_reads();
    let server = server(cluster, counter.wrap(&admin));
    let live = cache.children(&server, namespace.name(), "no-uid", &names).await.unwrap();
    for (_, name) in &names {
        let child = live.get(&kind, name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(child.data["data"]["text"].as_str().map(str::len), Some(text.len()), "{name}");
    }
    assert_eq!(counter.call_count(), 2, "8 MiB hold 33 of them; the others are read");
}
