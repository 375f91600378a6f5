//! The attacker's registry leads the operator to addresses that the attacker cannot reach: the operator's own machine, a
//! metadata service, and the API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use steersman_testkit::wait;
use tokio::net::TcpListener;

use crate::fake_registry::RequiredAuth;
use crate::network::{LURING_REGISTRY, RUNTIME};
use crate::tenants::{HostileCase, server};

/// A server whose configuration is generated from the one in a label of its image.
fn labelled(name: &str) -> Value {
    let image = format!("{LURING_REGISTRY}/attacker/{name}:1");
    server(name, json!({ "distribution": { "image": image }, "disabled": ["eval"] }))
}

/// A port of this machine, and the number of connections to it.
async fn count_connections() -> (u16, Arc<AtomicUsize>) {
    let listening = RUNTIME.spawn(async {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::<AtomicUsize>::default();
        let counter = connections.clone();
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        (port, connections)
    });
    listening.await.unwrap()
}

/// Neither a redirect nor the realm of a token leads there, and the object names the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_reaches_no_inner_address() {
    let Some(case) = HostileCase::open("lured").await else { return };
    let (port, connections) = count_connections().await;
    let registry = &case.env.network.luring_registry;
    let api_server: http::Uri = case.env.cluster.description().api_url.parse().unwrap();
    let api_server = api_server.authority().unwrap().to_string();
    let targets =
        [format!("127.0.0.1:{port}"), format!("localhost:{port}"), "169.254.169.254:443".to_owned(), api_server];
    for (number, target) in targets.iter().enumerate() {
        for kind in ["redirect", "realm"] {
            let name = format!("{kind}-{number}");
            registry.push(
                &format!("attacker/{name}"),
                "1",
                json!({ "io.llamastack.config.base64": STANDARD.encode("version: 2\nproviders: {}\n") }),
                &[],
            );
            registry.change(|state| {
                state.redirects_blobs = kind == "redirect";
                state.store.clone_from(target);
                state.realm = format!("https://{target}/token");
            });
            let auth = if kind == "realm" { RequiredAuth::Token } else { RequiredAuth::Nothing };
            registry.require_auth(auth, "u", "p");
            let lured = labelled(&name);
            case.attacker.apply(lured.clone()).await.unwrap();
            let expected = format!("registry {LURING_REGISTRY}: {target} is at an address of this machine");
            let what = format!("the {kind} to {target} is refused");
            let refused = wait::eventually(&what, async || {
                let status = case.attacker.read(&lured).await["status"].to_string();
                status.contains(&expected).then_some(())
            });
            if let Err(error) = refused.await {
                panic!("{error}: {:#}", case.attacker.read(&lured).await["status"]);
            }
        }
    }
    assert_eq!(connections.load(Ordering::Relaxed), 0, "the operator connects to its own machine");
    let lured: Vec<String> = case.env.network.refused_hosts();
    assert!(targets.iter().all(|target| !lured.contains(target)), "the proxy is asked for {lured:?}");
    case.expect_victim_served().await;
}
