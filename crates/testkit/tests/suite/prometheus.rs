use steersman_testkit::{Cluster, FakePodMetrics, wait};

use crate::support::full_cluster;

/// Prometheus scrapes on its own schedule, so its answers are polled.
async fn until_value(cluster: &Cluster, query: &str, expected: &str) {
    let has_value = async || (cluster.query(query).await.unwrap()[0]["value"][1] == expected).then_some(());
    wait::eventually(&format!("{query} is {expected}"), has_value).await.unwrap();
}

#[tokio::test]
async fn prometheus_scrapes_the_api_server() {
    let cluster = full_cluster!();
    until_value(cluster, r#"up{job="kubernetes-apiserver"}"#, "1").await;
}

#[tokio::test]
async fn prometheus_scrapes_added_targets() {
    let cluster = full_cluster!();
    let pods = FakePodMetrics::start().await.unwrap();
    pods.set("a", "one", "vllm:num_requests_waiting 42\n");
    pods.set("a", "two", "vllm:num_requests_waiting 7\n");
    for name in ["one", "two"] {
        let labels = FakePodMetrics::target_labels("a", name);
        cluster.add_scrape_target(&format!("added-by-a-test-{name}"), &pods.address().to_string(), &labels).unwrap();
    }
    until_value(cluster, r#"vllm:num_requests_waiting{namespace="a",pod="one"}"#, "42").await;
    until_value(cluster, r#"vllm:num_requests_waiting{namespace="a",pod="two"}"#, "7").await;
    pods.remove("a", "one");
    until_value(cluster, r#"up{namespace="a",pod="one"}"#, "0").await;
}
