//! Error responses: from proxies in front of Prometheus, from servers that are not Prometheus, and for refused tokens.

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

use super::{NO_PODS, client, failure, model_query, query_model, ready_pod};

const TOKEN: &str = "token-of-this-test";

#[derive(Clone)]
struct FakeResponse {
    status: u16,
    location: Option<&'static str>,
    body: Arc<dyn Fn() -> Body + Send + Sync>,
    accepts_post: bool,
    /// Status of the response to the first request.
    first_status: Option<u16>,
}

impl FakeResponse {
    fn new(status: u16, body: &str) -> Self {
        let body = body.to_owned();
        Self {
            status,
            location: None,
            body: Arc::new(move || Body::from(body.clone())),
            accepts_post: true,
            first_status: None,
        }
    }
}

/// Method and authorization of each request.
type RecordedRequests = Arc<Mutex<Vec<(Method, Option<String>)>>>;

/// A fake server over plain HTTP, with its recorded requests.
struct FakeServer {
    url: String,
    requests: RecordedRequests,
}

type Shared = (RecordedRequests, FakeResponse);

async fn serve(response: FakeResponse) -> FakeServer {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = RecordedRequests::default();
    let router = Router::new().fallback(answer).with_state((requests.clone(), response));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    FakeServer { url, requests }
}

async fn answer(State((requests, fake)): State<Shared>, request: Request) -> Response<Body> {
    let token = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    let nth = {
        let mut requests = requests.lock().unwrap();
        requests.push((request.method().clone(), token));
        requests.len()
    };
    if let Some(status) = fake.first_status.filter(|_| nth == 1) {
        return Response::builder().status(status).body(Body::empty()).unwrap();
    }
    if !fake.accepts_post && request.method() == Method::POST {
        return Response::builder().status(405).body(Body::empty()).unwrap();
    }
    let mut response = Response::builder().status(fake.status);
    if let Some(location) = fake.location {
        response = response.header(LOCATION, location);
    }
    response.body((fake.body)()).unwrap()
}

fn settings(server: &FakeServer) -> prometheus::PrometheusConfig {
    let map = [("PROMETHEUS_BASE_URL", server.url.as_str()), ("PROMETHEUS_BEARER_TOKEN", TOKEN)];
    let map = map.map(|(key, value)| (key.to_owned(), value.to_owned()));
    prometheus::read(&map.into(), &Default::default(), true).unwrap()
}

const EMPTY_RESULT: &str = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;

#[tokio::test]
async fn failure_reports_next_step_without_token() {
    let page = "<html>please log in</html>";
    let long = "x".repeat(1000);
    let cases = [
        (FakeResponse::new(401, page), "401: it rejects the token from PROMETHEUS_BEARER_TOKEN; replace the token"),
        (FakeResponse::new(403, page), "403: the account of the token may not read metrics; give it that permission"),
        (FakeResponse::new(404, page), "404: there is no Prometheus API at /api/v1/query; set PROMETHEUS_BASE_URL"),
        (FakeResponse::new(200, page), "200, but not as the Prometheus API does; check PROMETHEUS_BASE_URL"),
        (FakeResponse::new(200, ""), "200, but not as the Prometheus API does"),
        (FakeResponse::new(503, page), "503; check the log of Prometheus"),
        (
            FakeResponse { location: Some("https://login.example/x?y"), ..FakeResponse::new(302, page) },
            "redirects to login.example",
        ),
        (
            FakeResponse::new(
                422,
                &format!(r#"{{"status":"error","errorType":"execution","error":"for {TOKEN} \n{long}"}}"#),
            ),
            "422: execution: for …  xxx",
        ),
        (
            FakeResponse::new(200, &EMPTY_RESULT.replace("]}}", r#"]},"warnings":["store a is down"]}"#)),
            "returned only part of the data: store a is down",
        ),
    ];
    for (response, expected) in cases {
        let server = serve(response).await;
        let message =
            failure(&query_model(&client(&settings(&server)), "a", &[ready_pod("a", "one")]).await).to_owned();
        assert!(message.contains(expected), "{message:?} does not contain {expected:?}");
        assert!(!message.contains(TOKEN) && !message.contains("log in") && message.len() < 400, "{message}");
        let host = server.url.trim_start_matches("http://");
        assert!(message.starts_with(host), "{message}");
        assert!(
            server
                .requests
                .lock()
                .unwrap()
                .iter()
                .all(|(_, token)| token.as_deref() == Some("Bearer token-of-this-test"))
        );
    }
}

#[tokio::test]
async fn only_transient_failures_are_retried() {
    for (status, times) in [(503, 3), (429, 3), (401, 1), (400, 1)] {
        let server = serve(FakeResponse::new(status, "")).await;
        failure(&query_model(&client(&settings(&server)), "a", &[]).await);
        assert_eq!(server.requests.lock().unwrap().len(), times, "{status}");
    }
    // A failure followed by a successful retry is not reported.
    let server = serve(FakeResponse { first_status: Some(503), ..FakeResponse::new(200, EMPTY_RESULT) }).await;
    assert_eq!(query_model(&client(&settings(&server)), "a", &[]).await.pods, Err(MetricsError::NotFound));
}

#[tokio::test]
async fn refused_post_falls_back_to_get() {
    let server = serve(FakeResponse { accepts_post: false, ..FakeResponse::new(200, EMPTY_RESULT) }).await;
    assert_eq!(query_model(&client(&settings(&server)), "a", &[]).await.pods, Err(MetricsError::NotFound));
    let requests = server.requests.lock().unwrap();
    assert_eq!(requests[0].0, Method::POST);
    assert_eq!(requests[1].0, Method::GET);
}

#[tokio::test]
async fn endless_response_is_cut_off() {
    let endless = FakeResponse {
        body: Arc::new(|| {
            let piece = "{\"metric\":{},\"value\":[1,\"1\"]},".repeat(4096);
            let start = "{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[".to_owned();
            let pieces = futures::stream::iter([start]).chain(futures::stream::repeat(piece));
            Body::from_stream(pieces.map(Ok::<_, std::io::Error>))
        }),
        ..FakeResponse::new(200, "")
    };
    let server = serve(endless).await;
    let message = failure(&query_model(&client(&settings(&server)), "a", &[]).await).to_owned();
    assert!(
        message.contains("is longer than 67108864 bytes") || message.contains("did not respond within 10s"),
        "{message}"
    );
}

#[tokio::test]
async fn no_models_means_no_query() {
    let server = serve(FakeResponse::new(200, EMPTY_RESULT)).await;
    let client = client(&settings(&server));
    assert!(client.query(&[], &[ready_pod("a", "one")], Timestamp::now()).await.is_empty());
    assert!(server.requests.lock().unwrap().is_empty());
    let both = client.query(&[model_query("a", "m"), model_query("b", "m")], NO_PODS, Timestamp::now()).await;
    assert_eq!(both.len(), 2);
}
