//! Polling of Llama Stack servers: how answers and failures are observed, and that no server delays another.

pub mod fake;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use steersman::llamastack::observe::server::{PollSchedule, Servers};
use steersman_plan::llamastack::ObservedServer;
use steersman_plan::llamastack::server::PollTarget;
use steersman_reconcile::NamespacedName;
use steersman_runtime::http::{Http, HttpRequest, HttpSettings, Inside, Reach};
use steersman_testkit::ports::ReservedPort;
use steersman_testkit::wait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use fake::{Behaviour, FakeServers};

const FAST_RHYTHM: PollSchedule = PollSchedule {
    interval: Duration::from_millis(5),
    first_retry: Duration::from_millis(5),
    last_retry: Duration::from_millis(20),
    max_concurrent: 8,
    max_concurrent_failing: 4,
};

/// Response timeout that no test reaches.
const UNREACHED_TIMEOUT: Duration = Duration::from_secs(3600);

fn settings(address: SocketAddr) -> HttpSettings {
    let inside = Inside { through: Some(address.to_string().parse().unwrap()) };
    HttpSettings { answer: Duration::from_secs(20), reach: Reach::Inside(inside), ..HttpSettings::default() }
}

fn host(name: &str) -> String {
    format!("{name}-service.ns.svc.cluster.local:8321")
}

fn key(name: &str) -> NamespacedName {
    NamespacedName::new("ns", name)
}

fn target(name: &str) -> Option<PollTarget> {
    Some(PollTarget { url: format!("http://{}", host(name)), generation: Some(1) })
}

/// A running poller, and the keys that it enqueued.
struct Poller {
    servers: Servers,
    enqueued: Arc<Mutex<Vec<NamespacedName>>>,
    _stop: DropGuard,
}

fn start_poller(settings: HttpSettings, schedule: PollSchedule) -> Poller {
    let servers = Servers::new(Http::new(settings).unwrap(), schedule);
    let (enqueued, stop) = (Arc::<Mutex<Vec<NamespacedName>>>::default(), CancellationToken::new());
    let (polling, pushed, until) = (servers.clone(), enqueued.clone(), stop.clone());
    tokio::spawn(async move { polling.run(move |key| pushed.lock().unwrap().push(key), until).await });
    Poller { servers, enqueued, _stop: stop.drop_guard() }
}

impl Poller {
    fn observe(&self, name: &str) -> ObservedServer {
        self.servers.observe(&key(name), target(name))
    }

    async fn until(&self, name: &str, holds: impl Fn(&ObservedServer) -> bool) -> ObservedServer {
        let observed = async || Some(self.observe(name)).filter(&holds);
        wait::eventually(&format!("an observation of {name}"), observed).await.unwrap()
    }

    async fn until_observed(&self, name: &str) -> ObservedServer {
        self.until(name, |observed| *observed != ObservedServer::Pending).await
    }
}

fn providers_with_config(config: &Value) -> Value {
    json!([{ "api": "inference", "provider_id": "vllm", "provider_type": "remote::vllm", "config": config,
        "health": { "status": "OK", "time": 12.5 } }])
}

#[tokio::test]
async fn server_is_polled_by_service_name_without_credentials() {
    let fake = FakeServers::start().await;
    fake.set(&host("a"), Behaviour::Healthy(providers_with_config(&json!({ "api_token": "hush" }))));
    let poller = start_poller(settings(fake.address), PollSchedule::default());
    assert_eq!(poller.observe("a"), ObservedServer::Pending, "the first observation must not wait for the answer");
    let ObservedServer::Answered { version, providers } = poller.until_observed("a").await else {
        panic!("expected an answer")
    };
    assert_eq!(version.as_deref(), Some("0.7.1"));
    let providers = providers.unwrap();
    assert_eq!(providers[0].config, json!({ "api_token": "********" }));
    assert_eq!(*poller.enqueued.lock().unwrap(), [key("a")]);
    let requests = fake.take_requests();
    let paths: Vec<&str> = requests.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(paths, ["/v1/health", "/v1/version", "/v1/providers"]);
    for request in requests {
        assert_eq!(request.host, host("a"));
        assert!(!request.headers.contains_key("authorization") && !request.headers.contains_key("cookie"));
    }
}

#[tokio::test]
async fn self_signed_server_is_polled_over_https() {
    let fake = FakeServers::start_with_tls().await;
    fake.set(&host("a"), Behaviour::Healthy(json!([])));
    let poller = start_poller(settings(fake.address), PollSchedule::default());
    let secure = PollTarget { url: format!("https://{}", host("a")), generation: Some(1) };
    let answer = async || {
        Some(poller.servers.observe(&key("a"), Some(secure.clone())))
            .filter(|observed| *observed != ObservedServer::Pending)
    };
    let observed = wait::eventually("an answer by https", answer).await.unwrap();
    assert_eq!(observed, ObservedServer::Answered { version: Some("0.7.1".into()), providers: Some(vec![]) });
}

#[tokio::test]
async fn failed_poll_reports_request_cause_and_next_step() {
    let fake = FakeServers::start().await;
    let poller = start_poller(settings(fake.address), PollSchedule::default());
    let log = "kubectl logs -n ns deployment/";
    for (name, behaviour, expected) in [
        (
            "ill",
            Behaviour::Override("/v1/health", 500, "Traceback: hush".into()),
            "GET /v1/health failed: the server answered HTTP 500. Check",
        ),
        (
            "odd",
            Behaviour::Override("/v1/health", 200, "hush".into()),
            "GET /v1/health failed: the response is not JSON. Check that",
        ),
        (
            "sad",
            Behaviour::Override("/v1/health", 200, r#"{"status":"Error"}"#.into()),
            "GET /v1/health failed: the server reports the status \"Error\". Check that",
        ),
        (
            "old",
            Behaviour::Override("/v1/version", 404, "hush".into()),
            "GET /v1/version failed: the server answered HTTP 404. Check",
        ),
        (
            "list",
            Behaviour::Override("/v1/providers", 200, r#"["hush"]"#.into()),
            "GET /v1/providers failed: the response is not a list of providers. Check that",
        ),
        (
            "long",
            Behaviour::Override("/v1/providers", 200, "h".repeat(600_000)),
            "GET /v1/providers failed: the response of long-service.ns.svc.cluster.local:8321 is longer than 524288 \
             bytes. Check",
        ),
        // A redirect is not followed: the operator may reach addresses that the user's server may not.
        (
            "away",
            Behaviour::Override("/v1/providers", 307, String::new()),
            "GET /v1/providers failed: the server answered HTTP 307. Check",
        ),
    ] {
        fake.set(&host(name), behaviour);
        // Only a response that is too long may be a limit of the operator alone.
        let cause = match (poller.until_observed(name).await, name) {
            (ObservedServer::Failed(cause), "long") => cause,
            (ObservedServer::Unhealthy(cause), name) if name != "long" => cause,
            (other, name) => panic!("{name}: {other:?}"),
        };
        assert!(cause.starts_with(&format!("The pods are ready, but {expected}")), "{cause}");
        assert!(cause.contains(&format!("{log}{name}")) && !cause.contains("hush"), "{cause}");
    }
    assert!(fake.take_requests().iter().all(|request| request.path != "/x"), "redirects are not followed");
}

#[tokio::test]
async fn refused_or_hanging_poll_reports_next_step() {
    let port = ReservedPort::any_free().unwrap();
    let refusing = start_poller(settings(SocketAddr::from(([127, 0, 0, 1], port.number()))), PollSchedule::default());
    let ObservedServer::Unhealthy(cause) = refusing.until_observed("a").await else { panic!("expected no answer") };
    let host = "a-service.ns.svc.cluster.local:8321";
    assert!(cause.contains(&format!("GET /v1/health failed: {host} refuses connections. Check its log")), "{cause}");
    assert!(cause.contains("set the port in the spec to it"), "{cause}");

    let fake = FakeServers::start().await;
    fake.set(host, Behaviour::Hangs);
    let hanging = start_poller(
        HttpSettings { answer: Duration::from_millis(50), ..settings(fake.address) },
        PollSchedule::default(),
    );
    let ObservedServer::Unhealthy(cause) = hanging.until_observed("a").await else { panic!("expected no answer") };
    assert!(
        cause.contains(&format!("GET /v1/health failed: {host} did not respond within 50ms. Check its log")),
        "{cause}"
    );
    assert!(cause.contains("whether a NetworkPolicy blocks Steersman's namespace"), "{cause}");
}

/// The way to the server may be broken for the operator alone, so that its users need not notice.
#[tokio::test]
async fn broken_route_is_no_fault_of_server() {
    let fake = FakeServers::start().await;
    let elsewhere = Inside { through: Some("nowhere.invalid:1".parse().unwrap()) };
    let unresolved = HttpSettings { reach: Reach::Inside(elsewhere), ..settings(fake.address) };
    for (case, scheme, settings) in [("TLS", "https", settings(fake.address)), ("DNS", "http", unresolved)] {
        let poller = start_poller(settings, PollSchedule::default());
        let target = PollTarget { url: format!("{scheme}://{}", host("a")), generation: Some(1) };
        let observed = async || {
            Some(poller.servers.observe(&key("a"), Some(target.clone())))
                .filter(|observed| *observed != ObservedServer::Pending)
        };
        let observed = wait::eventually("an observation", observed).await.unwrap();
        let ObservedServer::Failed(cause) = observed else { panic!("{case}: {observed:?}") };
        assert!(cause.contains("GET /v1/health failed: the request to a-service.ns.svc"), "{case}: {cause}");
    }
}

#[tokio::test]
async fn server_requiring_credentials_counts_as_answered() {
    let fake = FakeServers::start().await;
    for (name, status) in [("a", 401), ("b", 403)] {
        fake.set(&host(name), Behaviour::Override("/v1/providers", status, String::new()));
    }
    let poller = start_poller(settings(fake.address), PollSchedule::default());
    for name in ["a", "b"] {
        let expected = ObservedServer::Answered { version: Some("0.7.1".into()), providers: None };
        assert_eq!(poller.until_observed(name).await, expected);
    }
}

#[tokio::test]
async fn cluster_proxy_refuses_hosts_outside_the_cluster() {
    let fake = FakeServers::start().await;
    let http = Http::new(settings(fake.address)).unwrap();
    for (url, host) in [
        ("http://169.254.169.254/latest", "169.254.169.254"),
        ("http://svc.cluster.local.evil.example/", "svc.cluster.local.evil.example"),
        ("ftp://a-service.ns.svc.cluster.local/", "a-service.ns.svc.cluster.local"),
    ] {
        let error = http.send(HttpRequest::get(url.parse().unwrap(), 10)).await.unwrap_err().to_string();
        assert_eq!(error, format!("{host} is not the address of a Service or a pod in this cluster"));
    }
    assert!(fake.take_requests().is_empty());
}

#[tokio::test]
async fn only_changed_answers_enqueue_the_object() {
    let fake = FakeServers::start().await;
    fake.set(&host("a"), Behaviour::Healthy(providers_with_config(&json!({}))));
    let poller = start_poller(settings(fake.address), FAST_RHYTHM);
    poller.until_observed("a").await;
    let mut polls = 0;
    let polled = async || {
        polls += fake.take_requests().iter().filter(|request| request.path == "/v1/providers").count();
        (polls > 5).then_some(())
    };
    wait::eventually("more polls", polled).await.unwrap();
    assert_eq!(*poller.enqueued.lock().unwrap(), [key("a")]);
    fake.set(&host("a"), Behaviour::Healthy(json!([])));
    poller
        .until(
            "a",
            |observed| matches!(observed, ObservedServer::Answered { providers: Some(list), .. } if list.is_empty()),
        )
        .await;
    wait::eventually("a second enqueue", async || (poller.enqueued.lock().unwrap().len() == 2).then_some(()))
        .await
        .unwrap();

    // A removed server is polled at most once more, for a poll in progress, however often others are polled.
    poller.servers.observe(&key("a"), None);
    fake.take_requests();
    fake.set(&host("b"), Behaviour::Healthy(json!([])));
    poller.until_observed("b").await;
    let (mut removed, mut other) = (0, 0);
    let polled = async || {
        for request in fake.take_requests().iter().filter(|request| request.path == "/v1/health") {
            *if request.host == host("a") { &mut removed } else { &mut other } += 1;
        }
        (other > 10).then_some(())
    };
    wait::eventually("polls of the other server", polled).await.unwrap();
    assert!(removed <= 1, "the removed server was polled {removed} more times");
    assert_eq!(*poller.enqueued.lock().unwrap(), [key("a"), key("a"), key("b")]);
}

#[tokio::test]
async fn dead_servers_do_not_delay_healthy_one() {
    let fake = FakeServers::start().await;
    let poller = start_poller(HttpSettings { answer: UNREACHED_TIMEOUT, ..settings(fake.address) }, FAST_RHYTHM);
    let dead: Vec<String> = (0..50).map(|number| format!("dead-{number}")).collect();
    for name in &dead {
        assert_eq!(poller.observe(name), ObservedServer::Pending);
    }
    for name in &dead {
        assert!(matches!(poller.until_observed(name).await, ObservedServer::Unhealthy(_)), "{name}");
    }
    for name in &dead {
        fake.set(&host(name), Behaviour::Hangs);
    }
    fake.take_requests();
    // The poller sends at most this many requests to failing servers at once; wait until all of them hang.
    let mut pending = 0;
    let all_hang = async || {
        pending += fake.take_requests().len();
        (pending >= FAST_RHYTHM.max_concurrent_failing).then_some(())
    };
    wait::eventually("requests to dead servers hang", all_hang).await.unwrap();
    for name in ["healthy", "another"] {
        fake.set(&host(name), Behaviour::Healthy(json!([])));
        assert!(matches!(poller.until_observed(name).await, ObservedServer::Answered { .. }), "{name}");
    }
}

/// A connection that is never closed holds memory and a file descriptor for each host.
#[tokio::test]
async fn idle_connection_is_closed() {
    for idle in [Duration::ZERO, Duration::from_millis(100)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let server = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(connection.read_u8().await.unwrap());
            }
            connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            connection.read(&mut [0]).await.unwrap()
        });
        let http = Http::new(HttpSettings { plain: true, idle, ..HttpSettings::default() }).unwrap();
        assert_eq!(http.send(HttpRequest::get(url, 1_000)).await.unwrap().status, 200);
        let read = tokio::time::timeout(wait::TIMEOUT, server).await;
        assert_eq!(read.expect("the connection must be closed").unwrap(), 0, "{idle:?}");
    }
}
