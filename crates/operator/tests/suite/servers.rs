//! Servers that are asked what they serve: what becomes of their answers and of their silence, and that none waits for
//! another.

pub mod fake;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use steersman::llamastack::observe::server::{Rhythm, Servers};
use steersman_plan::llamastack::ObservedServer;
use steersman_plan::llamastack::server::Question;
use steersman_reconcile::NamespacedName;
use steersman_runtime::http::{Http, HttpRequest, HttpSettings, Inside};
use steersman_testkit::ports::HeldPort;
use steersman_testkit::wait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use fake::{Fake, Plays};

const QUICK: Rhythm = Rhythm {
    again: Duration::from_millis(5),
    first_retry: Duration::from_millis(5),
    last_retry: Duration::from_millis(20),
    at_once: 8,
    silent_at_once: 4,
};

/// Nobody waits so long in a test.
const NEVER: Duration = Duration::from_secs(3600);

fn settings(address: SocketAddr) -> HttpSettings {
    let inside = Inside { through: Some(address.to_string().parse().unwrap()) };
    HttpSettings { answer: Duration::from_secs(20), inside: Some(inside), ..HttpSettings::default() }
}

fn host(name: &str) -> String {
    format!("{name}-service.ns.svc.cluster.local:8321")
}

fn place(name: &str) -> NamespacedName {
    NamespacedName::new("ns", name)
}

fn question(name: &str) -> Option<Question> {
    Some(Question { url: format!("http://{}", host(name)), generation: Some(1) })
}

/// Servers with somebody who asks them, and the objects that were woken.
struct Running {
    servers: Servers,
    woken: Arc<Mutex<Vec<NamespacedName>>>,
    _stop: DropGuard,
}

fn running(settings: HttpSettings, rhythm: Rhythm) -> Running {
    let servers = Servers::new(Http::new(settings).unwrap(), rhythm);
    let (woken, stop) = (Arc::<Mutex<Vec<NamespacedName>>>::default(), CancellationToken::new());
    let (asking, heard, until) = (servers.clone(), woken.clone(), stop.clone());
    tokio::spawn(async move { asking.run(move |place| heard.lock().unwrap().push(place), until).await });
    Running { servers, woken, _stop: stop.drop_guard() }
}

impl Running {
    fn seen(&self, name: &str) -> ObservedServer {
        self.servers.seen(&place(name), question(name))
    }

    async fn until(&self, name: &str, holds: impl Fn(&ObservedServer) -> bool) -> ObservedServer {
        let seen = async || Some(self.seen(name)).filter(&holds);
        wait::eventually(&format!("news of {name}"), seen).await.unwrap()
    }

    async fn until_heard(&self, name: &str) -> ObservedServer {
        self.until(name, |seen| *seen != ObservedServer::Awaited).await
    }
}

fn a_provider(config: &Value) -> Value {
    json!([{ "api": "inference", "provider_id": "vllm", "provider_type": "remote::vllm", "config": config,
        "health": { "status": "OK", "time": 12.5 } }])
}

#[tokio::test]
async fn a_server_is_asked_three_things_by_the_name_of_its_service_and_without_credentials() {
    let fake = Fake::start().await;
    fake.play(&host("a"), Plays::Well(a_provider(&json!({ "api_token": "hush" }))));
    let running = running(settings(fake.address), Rhythm::default());
    assert_eq!(running.seen("a"), ObservedServer::Awaited, "nobody waits for the answer");
    let ObservedServer::Answered { version, providers } = running.until_heard("a").await else { panic!("no answer") };
    assert_eq!(version.as_deref(), Some("0.7.1"));
    let providers = providers.unwrap();
    assert_eq!(providers[0].config, json!({ "api_token": "********" }));
    assert_eq!(*running.woken.lock().unwrap(), [place("a")]);
    let asked = fake.asked();
    let paths: Vec<&str> = asked.iter().map(|asked| asked.path.as_str()).collect();
    assert_eq!(paths, ["/v1/health", "/v1/version", "/v1/providers"]);
    for asked in asked {
        assert_eq!(asked.host, host("a"));
        assert!(!asked.headers.contains_key("authorization") && !asked.headers.contains_key("cookie"));
    }
}

#[tokio::test]
async fn a_server_with_a_certificate_of_its_own_is_asked_by_https() {
    let fake = Fake::start_with_tls().await;
    fake.play(&host("a"), Plays::Well(json!([])));
    let running = running(settings(fake.address), Rhythm::default());
    let secure = Question { url: format!("https://{}", host("a")), generation: Some(1) };
    let heard = async || {
        Some(running.servers.seen(&place("a"), Some(secure.clone()))).filter(|seen| *seen != ObservedServer::Awaited)
    };
    let heard = wait::eventually("an answer by https", heard).await.unwrap();
    assert_eq!(heard, ObservedServer::Answered { version: Some("0.7.1".into()), providers: Some(vec![]) });
}

#[tokio::test]
async fn each_failure_says_what_failed_and_where_to_look() {
    let fake = Fake::start().await;
    let running = running(settings(fake.address), Rhythm::default());
    let log = "kubectl logs -n ns deployment/";
    for (name, plays, said) in [
        (
            "ill",
            Plays::But("/v1/health", 500, "Traceback: hush".into()),
            "GET /v1/health failed: the server answers 500. Look",
        ),
        ("odd", Plays::But("/v1/health", 200, "hush".into()), "GET /v1/health failed: the answer is not JSON. Is it"),
        (
            "sad",
            Plays::But("/v1/health", 200, r#"{"status":"Error"}"#.into()),
            "GET /v1/health failed: the server calls itself \"Error\". Is it",
        ),
        ("old", Plays::But("/v1/version", 404, "hush".into()), "GET /v1/version failed: the server answers 404. Look"),
        (
            "list",
            Plays::But("/v1/providers", 200, r#"["hush"]"#.into()),
            "GET /v1/providers failed: the answer is no list of providers. Is it",
        ),
        (
            "long",
            Plays::But("/v1/providers", 200, "h".repeat(600_000)),
            "GET /v1/providers failed: the answer of long-service.ns.svc.cluster.local:8321 is longer than 524288 bytes. Look",
        ),
        // Where users' servers may not reach, the operator might.
        (
            "away",
            Plays::But("/v1/providers", 307, String::new()),
            "GET /v1/providers failed: the server answers 307. Look",
        ),
    ] {
        fake.play(&host(name), plays);
        let ObservedServer::Silent(cause) = running.until_heard(name).await else { panic!("{name} has answered") };
        assert!(cause.starts_with(&format!("The pods are ready, but {said}")), "{cause}");
        assert!(cause.contains(&format!("{log}{name}")) && !cause.contains("hush"), "{cause}");
    }
    assert!(fake.asked().iter().all(|asked| asked.path != "/x"), "redirects are not followed");
}

#[tokio::test]
async fn a_server_that_refuses_or_hangs_is_given_up_with_what_to_do() {
    let port = HeldPort::any().unwrap();
    let refusing = running(settings(SocketAddr::from(([127, 0, 0, 1], port.number()))), Rhythm::default());
    let ObservedServer::Silent(cause) = refusing.until_heard("a").await else { panic!("it has answered") };
    let host = "a-service.ns.svc.cluster.local:8321";
    assert!(
        cause.contains(&format!("GET /v1/health failed: {host} refuses connections. Look into its log")),
        "{cause}"
    );
    assert!(cause.contains("set it as spec.networking.port"), "{cause}");

    let fake = Fake::start().await;
    fake.play(host, Plays::Hangs);
    let hanging =
        running(HttpSettings { answer: Duration::from_millis(50), ..settings(fake.address) }, Rhythm::default());
    let ObservedServer::Silent(cause) = hanging.until_heard("a").await else { panic!("it has answered") };
    assert!(
        cause.contains(&format!("GET /v1/health failed: {host} gave no answer within 50ms. Look into its log")),
        "{cause}"
    );
    assert!(cause.contains("whether a NetworkPolicy keeps Steersman's namespace from it"), "{cause}");
}

#[tokio::test]
async fn a_server_that_asks_for_credentials_has_answered_all_the_same() {
    let fake = Fake::start().await;
    for (name, status) in [("a", 401), ("b", 403)] {
        fake.play(&host(name), Plays::But("/v1/providers", status, String::new()));
    }
    let running = running(settings(fake.address), Rhythm::default());
    for name in ["a", "b"] {
        let closed = ObservedServer::Answered { version: Some("0.7.1".into()), providers: None };
        assert_eq!(running.until_heard(name).await, closed);
    }
}

#[tokio::test]
async fn only_services_are_asked_by_a_way_that_leads_inside() {
    let fake = Fake::start().await;
    let http = Http::new(settings(fake.address)).unwrap();
    for (url, host) in [
        ("http://169.254.169.254/latest", "169.254.169.254"),
        ("http://svc.cluster.local.evil.example/", "svc.cluster.local.evil.example"),
        ("ftp://a-service.ns.svc.cluster.local/", "a-service.ns.svc.cluster.local"),
    ] {
        let error = http.ask(HttpRequest::get(url.parse().unwrap(), 10)).await.unwrap_err().to_string();
        assert_eq!(error, format!("{host} is not the address of a Service or a pod in this cluster"));
    }
    assert!(fake.asked().is_empty());
}

#[tokio::test]
async fn the_same_answer_wakes_nobody_and_another_one_does() {
    let fake = Fake::start().await;
    fake.play(&host("a"), Plays::Well(a_provider(&json!({}))));
    let running = running(settings(fake.address), QUICK);
    running.until_heard("a").await;
    let mut polls = 0;
    let polled = async || {
        polls += fake.asked().iter().filter(|asked| asked.path == "/v1/providers").count();
        (polls > 5).then_some(())
    };
    wait::eventually("more polls", polled).await.unwrap();
    assert_eq!(*running.woken.lock().unwrap(), [place("a")]);
    fake.play(&host("a"), Plays::Well(json!([])));
    running
        .until("a", |seen| matches!(seen, ObservedServer::Answered { providers: Some(list), .. } if list.is_empty()))
        .await;
    wait::eventually("a second wake", async || (running.woken.lock().unwrap().len() == 2).then_some(())).await.unwrap();

    // Forgotten, it is left alone: what is under way may still come, and then nothing, however often others are asked.
    running.servers.seen(&place("a"), None);
    fake.asked();
    fake.play(&host("b"), Plays::Well(json!([])));
    running.until_heard("b").await;
    let (mut forgotten, mut other) = (0, 0);
    let polled = async || {
        for asked in fake.asked().iter().filter(|asked| asked.path == "/v1/health") {
            *if asked.host == host("a") { &mut forgotten } else { &mut other } += 1;
        }
        (other > 10).then_some(())
    };
    wait::eventually("polls of the other", polled).await.unwrap();
    assert!(forgotten <= 1, "it was asked {forgotten} times more");
    assert_eq!(*running.woken.lock().unwrap(), [place("a"), place("a"), place("b")]);
}

/// Fifty servers that hold on to every request for ever: whoever else there is gets asked all the same.
#[tokio::test]
async fn fifty_dead_servers_do_not_delay_a_healthy_one() {
    let fake = Fake::start().await;
    let running = running(HttpSettings { answer: NEVER, ..settings(fake.address) }, QUICK);
    let dead: Vec<String> = (0..50).map(|number| format!("dead-{number}")).collect();
    for name in &dead {
        assert_eq!(running.seen(name), ObservedServer::Awaited);
    }
    for name in &dead {
        assert!(matches!(running.until_heard(name).await, ObservedServer::Silent(_)), "{name}");
    }
    for name in &dead {
        fake.play(&host(name), Plays::Hangs);
    }
    fake.asked();
    // Exactly so many are held, and they need not come at once.
    let mut asked = 0;
    let held = async || {
        asked += fake.asked().len();
        (asked >= QUICK.silent_at_once).then_some(())
    };
    wait::eventually("dead servers hold on to requests", held).await.unwrap();
    for name in ["healthy", "another"] {
        fake.play(&host(name), Plays::Well(json!([])));
        assert!(matches!(running.until_heard(name).await, ObservedServer::Answered { .. }), "{name}");
    }
}

/// A connection that nobody closes takes room and a descriptor, once for each host that was ever asked.
#[tokio::test]
async fn who_is_not_asked_again_is_hung_up_on() {
    for idle in [Duration::ZERO, Duration::from_millis(100)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let served = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(connection.read_u8().await.unwrap());
            }
            connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            connection.read(&mut [0]).await.unwrap()
        });
        let http = Http::new(HttpSettings { plain: true, idle, ..HttpSettings::default() }).unwrap();
        assert_eq!(http.ask(HttpRequest::get(url, 1_000)).await.unwrap().status, 200);
        let left = tokio::time::timeout(wait::LIMIT, served).await;
        assert_eq!(left.expect("the connection stays open").unwrap(), 0, "{idle:?}");
    }
}
