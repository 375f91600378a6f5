//! Answers that no Prometheus gives: of proxies before it, of servers that are none, and of a token that is refused.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use futures::StreamExt;
use http::header::{AUTHORIZATION, LOCATION};
use http::{Method, Response};
use jiff::Timestamp;
use steersman_plan::variant::MetricsError;
use steersman_plan::variant::config::prometheus;

use super::{NOBODY, asked, failure, look, place, way};

const TOKEN: &str = "token-of-this-test";

#[derive(Clone)]
struct Plays {
    status: u16,
    location: Option<&'static str>,
    body: Arc<dyn Fn() -> Body + Send + Sync>,
    posts: bool,
    /// The first question is answered with this.
    first: Option<u16>,
}

impl Plays {
    fn new(status: u16, body: &str) -> Self {
        let body = body.to_owned();
        Self { status, location: None, body: Arc::new(move || Body::from(body.clone())), posts: true, first: None }
    }
}

/// How, and with which authorization.
type Asked = Arc<Mutex<Vec<(Method, Option<String>)>>>;

/// A server in the test's own process, by plain http, and what it was asked.
struct Server {
    url: String,
    asked: Asked,
}

type Shared = (Asked, Plays);

async fn serve(plays: Plays) -> Server {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Asked::default();
    let router = Router::new().fallback(answer).with_state((asked.clone(), plays));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Server { url, asked }
}

async fn answer(State((asked, plays)): State<Shared>, request: Request) -> Response<Body> {
    let token = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    let nth = {
        let mut asked = asked.lock().unwrap();
        asked.push((request.method().clone(), token));
        asked.len()
    };
    if let Some(status) = plays.first.filter(|_| nth == 1) {
        return Response::builder().status(status).body(Body::empty()).unwrap();
    }
    if !plays.posts && request.method() == Method::POST {
        return Response::builder().status(405).body(Body::empty()).unwrap();
    }
    let mut response = Response::builder().status(plays.status);
    if let Some(location) = plays.location {
        response = response.header(LOCATION, location);
    }
    response.body((plays.body)()).unwrap()
}

fn settings(server: &Server) -> prometheus::PrometheusConfig {
    let map = [("PROMETHEUS_BASE_URL", server.url.as_str()), ("PROMETHEUS_BEARER_TOKEN", TOKEN)];
    let map = map.map(|(key, value)| (key.to_owned(), value.to_owned()));
    prometheus::read(&map.into(), &Default::default(), true).unwrap()
}

const NOTHING: &str = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;

#[tokio::test]
async fn each_failure_says_what_to_do_and_never_the_token() {
    let page = "<html>please log in</html>";
    let long = "x".repeat(1000);
    let cases = [
        (Plays::new(401, page), "401: it rejects the token from PROMETHEUS_BEARER_TOKEN; replace the token"),
        (Plays::new(403, page), "403: the account of the token may not read metrics; give it that permission"),
        (Plays::new(404, page), "404: there is no Prometheus API at /api/v1/query; set PROMETHEUS_BASE_URL"),
        (Plays::new(200, page), "200, but not as the Prometheus API does; check PROMETHEUS_BASE_URL"),
        (Plays::new(200, ""), "200, but not as the Prometheus API does"),
        (Plays::new(503, page), "503; check the log of Prometheus"),
        (Plays { location: Some("https://login.example/x?y"), ..Plays::new(302, page) }, "redirects to login.example"),
        (
            Plays::new(422, &format!(r#"{{"status":"error","errorType":"execution","error":"for {TOKEN} \n{long}"}}"#)),
            "422: execution: for …  xxx",
        ),
        (
            Plays::new(200, &NOTHING.replace("]}}", r#"]},"warnings":["store a is down"]}"#)),
            "returned only part of the data: store a is down",
        ),
    ];
    for (plays, expected) in cases {
        let server = serve(plays).await;
        let said = failure(&look(&way(&settings(&server)), "a", &[place("a", "one")]).await).to_owned();
        assert!(said.contains(expected), "{said:?} is not about {expected:?}");
        assert!(!said.contains(TOKEN) && !said.contains("log in") && said.len() < 400, "{said}");
        let host = server.url.trim_start_matches("http://");
        assert!(said.starts_with(host), "{said}");
        assert!(
            server.asked.lock().unwrap().iter().all(|(_, token)| token.as_deref() == Some("Bearer token-of-this-test"))
        );
    }
}

#[tokio::test]
async fn what_may_pass_is_tried_again_and_what_will_not_is_not() {
    for (status, times) in [(503, 3), (429, 3), (401, 1), (400, 1)] {
        let server = serve(Plays::new(status, "")).await;
        failure(&look(&way(&settings(&server)), "a", &[]).await);
        assert_eq!(server.asked.lock().unwrap().len(), times, "{status}");
    }
    // One that recovers in between is not told of.
    let server = serve(Plays { first: Some(503), ..Plays::new(200, NOTHING) }).await;
    assert_eq!(look(&way(&settings(&server)), "a", &[]).await.pods, Err(MetricsError::NotFound));
}

#[tokio::test]
async fn a_server_that_only_knows_get_is_asked_so() {
    let server = serve(Plays { posts: false, ..Plays::new(200, NOTHING) }).await;
    assert_eq!(look(&way(&settings(&server)), "a", &[]).await.pods, Err(MetricsError::NotFound));
    let asked = server.asked.lock().unwrap();
    assert_eq!(asked[0].0, Method::POST);
    assert_eq!(asked[1].0, Method::GET);
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let endless = Plays {
        body: Arc::new(|| {
            let piece = "{\"metric\":{},\"value\":[1,\"1\"]},".repeat(4096);
            let start = "{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[".to_owned();
            let pieces = futures::stream::iter([start]).chain(futures::stream::repeat(piece));
            Body::from_stream(pieces.map(Ok::<_, std::io::Error>))
        }),
        ..Plays::new(200, "")
    };
    let server = serve(endless).await;
    let said = failure(&look(&way(&settings(&server)), "a", &[]).await).to_owned();
    assert!(said.contains("is longer than 67108864 bytes") || said.contains("no answer within 10s"), "{said}");
}

#[tokio::test]
async fn nobody_is_asked_where_there_is_no_model() {
    let server = serve(Plays::new(200, NOTHING)).await;
    let way = way(&settings(&server));
    assert!(way.query(&[], &[place("a", "one")], Timestamp::now()).await.is_empty());
    assert!(server.asked.lock().unwrap().is_empty());
    let both = way.query(&[asked("a", "m"), asked("b", "m")], NOBODY, Timestamp::now()).await;
    assert_eq!(both.len(), 2);
}
