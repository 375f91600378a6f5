//! Rotation by expiry, with a lifetime of seconds, in this process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use steersman::certs::decide::RotationTiming;
use steersman::certs::served::ServedCertificate;
use steersman::certs::{Certificates, SECRET, check};
use steersman::webhooks::endpoint::Reach;
use steersman_runtime::leader::Fence;
use steersman_runtime::serve::health::Readiness;
use steersman_runtime::telemetry::metrics::Metrics;
use steersman_testkit::{Flavour, shared_cluster, wait};
use tokio_util::sync::CancellationToken;

use crate::server::server;

#[tokio::test]
async fn certificate_is_replaced_before_it_expires() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("clock").await.unwrap();
    let server = server(cluster, cluster.admin().await.unwrap());
    let reach = Reach { namespace: namespace.name().into(), service: "nobody-names-it".into(), url: None };
    let (validity, tick) = (Duration::from_secs(9), Duration::from_millis(100));
    let timing = RotationTiming { validity, settle: tick, retire: 10 * tick, check: tick };
    let metrics = Arc::new(Metrics::new(Timestamp::now(), |_| ()).0);
    let certificates = Certificates::new(
        server,
        reach.clone(),
        timing,
        Arc::new(ServedCertificate::new(metrics)),
        Readiness::default(),
    );
    let (fence, stop) = (Fence::default(), CancellationToken::new());
    fence.open_until(Instant::now() + Duration::from_secs(300));
    let (keeper, end) = (certificates.clone(), stop.clone());
    let keeping = tokio::spawn(async move { keeper.rotate(fence, end).await });
    let following = tokio::spawn(async move { certificates.follow().await });

    let certificate = |secret: &Secret| secret.data.as_ref().unwrap()["tls.crt"].clone();
    let secrets = || namespace.api::<Secret>();
    let mut last = wait::until(secrets(), SECRET, "exists", wait::TIMEOUT, |_| true).await.unwrap();
    for _ in 0..2 {
        let replaced = |secret: &Secret| certificate(secret) != certificate(&last);
        let next = wait::until(secrets(), SECRET, "holds another", wait::TIMEOUT, replaced).await.unwrap();
        let text = |name: &str| String::from_utf8(next.data.as_ref().unwrap()[name].0.clone()).unwrap();
        let bundle = [text("ca.crt")];
        check::verify(&text("tls.crt"), &bundle, &reach.names(), Timestamp::now()).unwrap();
        last = next;
    }
    stop.cancel();
    keeping.await.unwrap();
    following.abort();
}
