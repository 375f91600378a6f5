use serde_json::json;
use steersman_testkit::{Cluster, wait};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::full_cluster;

/// Prometheus scrapes on its own schedule, so its answers are polled.
async fn until_value(cluster: &Cluster, query: &str, wanted: &str) {
    let has_value = async || (cluster.query(query).await.unwrap()[0]["value"][1] == wanted).then_some(());
    wait::eventually(&format!("{query} is {wanted}"), has_value).await.unwrap();
}

#[tokio::test]
async fn prometheus_scrapes_the_api_server() {
    let cluster = full_cluster!();
    until_value(cluster, r#"up{job="kubernetes-apiserver"}"#, "1").await;
}

#[tokio::test]
async fn prometheus_scrapes_what_a_test_adds() {
    let cluster = full_cluster!();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let body = "vllm:num_requests_waiting 42\n";
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
            let _ = stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).await;
        }
    });
    cluster.scrape("added-by-a-test", &address, &json!({ "model_name": "m" })).unwrap();
    until_value(cluster, r#"vllm:num_requests_waiting{model_name="m"}"#, "42").await;
}
