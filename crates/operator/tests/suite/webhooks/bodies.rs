//! A process that is sent everything but reviews: random bytes, truncated and wrong reviews, ten of ten megabytes at once.

use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::certs::WebhookEnv;
use crate::process::operator::Operator;

const ROUTES: [&str; 3] = ["/convert", "/validate/llsd", "/mutate/dgdr"];

const TEN_MEGABYTES: usize = 10 * 1024 * 1024;

/// The same bytes on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.roll() >> 32).unwrap() % bound
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.roll().to_le_bytes()[5]).collect()
    }
}

fn client(operator: &Operator) -> Client {
    let mut config = Config::new(operator.address("webhook").unwrap().parse().unwrap());
    config.accept_invalid_certs = true;
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// Whether the review that comes back is a success.
async fn post(client: &Client, route: &str, body: Vec<u8>) -> bool {
    let request = http::Request::post(route).body(Body::from(body)).unwrap();
    let answer = client.send(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let bytes = answer.into_body().collect_bytes().await.unwrap();
    let review: Value = serde_json::from_slice(&bytes).unwrap();
    let response = &review["response"];
    assert!(response["uid"].is_string(), "{response}");
    let (good, message) = match review["kind"].as_str().unwrap() {
        "ConversionReview" => (response["result"]["status"] == "Success", &response["result"]["message"]),
        "AdmissionReview" => (response["allowed"] == true, &response["status"]["message"]),
        other => panic!("{other} is no review"),
    };
    assert!(good || message.as_str().is_some_and(|message| message.len() > 20), "a clear message: {response}");
    good
}

fn review(route: &str) -> Vec<u8> {
    let object = json!({
        "apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution", "metadata": { "name": "a" },
        "spec": { "server": { "distribution": { "name": "starter" } } },
    });
    let review = match route {
        "/convert" => json!({
            "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "request": { "uid": "u-1", "desiredAPIVersion": "llamastack.io/v1alpha2", "objects": [object] },
        }),
        _ => json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "u-1", "kind": { "group": "llamastack.io", "version": "v1alpha1", "kind": "LlamaStackDistribution" },
                "resource": { "group": "llamastack.io", "version": "v1alpha1", "resource": "llamastackdistributions" },
                "operation": "CREATE", "userInfo": {}, "object": object,
            },
        }),
    };
    review.to_string().into_bytes()
}

/// Ten megabytes in the three forms that cost most: nothing to read, millions of small values where an object belongs, and
/// many good objects.
fn large(route: &str, form: usize, dice: &mut Dice) -> Vec<u8> {
    let good = String::from_utf8(review(route)).unwrap();
    match form {
        0 => dice.bytes(1024).repeat(TEN_MEGABYTES / 1024),
        1 => good.replace("\"starter\"", &format!("[0{}]", ",0".repeat(TEN_MEGABYTES / 2))).into_bytes(),
        _ => {
            let (before, rest) = good.split_at(good.find("\"starter\"").unwrap() + 1);
            format!("{before}{}{rest}", "x".repeat(TEN_MEGABYTES)).into_bytes()
        }
    }
}

async fn ten_at_once(client: &Client, route: &'static str, form: usize, dice: &mut Dice) {
    let body = large(route, form, dice);
    let sent = (0..10).map(|_| post(client, route, body.clone()));
    let good = futures::future::join_all(sent).await;
    assert!(good.iter().all(|good| !good), "{route}, form {form}: {good:?}");
}

/// Random bytes, reviews that end too early, reviews with changed bytes, and one of another version.
async fn small(client: &Client, route: &'static str, dice: &mut Dice) -> usize {
    let good = review(route);
    for _ in 0..50 {
        let length = dice.below(4096);
        assert!(!post(client, route, dice.bytes(length)).await);
        let cut = dice.below(good.len() - 1);
        assert!(!post(client, route, good[..cut].to_vec()).await, "cut at {cut}");
        let mut changed = good.clone();
        for _ in 0..=dice.below(4) {
            let place = dice.below(changed.len());
            changed[place] = dice.roll().to_le_bytes()[3];
        }
        // Some changes do no harm, such as one in a name; an answer comes in any case.
        post(client, route, changed).await;
    }
    let beta = String::from_utf8(good).unwrap().replace("k8s.io/v1\"", "k8s.io/v1beta1\"");
    assert!(!post(client, route, beta.into_bytes()).await);
    151
}

#[tokio::test]
async fn no_body_brings_the_process_down() {
    let Some(env) = WebhookEnv::prepare().await else { return };
    let operator = env.start("target", &[]).await;
    operator.until_answer("/readyz", 200).await;
    let client = client(&operator);
    let mut dice = Dice(0x5eed);
    println!("resident at the start: {} MiB", operator.memory().0);
    // What the allocator keeps for the next large review is kept once.
    for form in 0..3 {
        ten_at_once(&client, "/convert", form, &mut dice).await;
    }
    let before = operator.memory().0;
    let mut reviews = 0;
    for round in 1..=2 {
        for route in ROUTES {
            reviews += small(&client, route, &mut dice).await;
            for form in 0..3 {
                ten_at_once(&client, route, form, &mut dice).await;
                reviews += 10;
            }
        }
        println!("round {round}: resident {} MiB after {reviews} reviews", operator.memory().0);
    }
    assert!(post(&client, "/convert", review("/convert")).await, "and it still converts");
    let (after, most) = operator.memory();
    // For whoever looks for a leak: 1.8 GB went through.
    println!("{reviews} bad reviews; resident before {before} MiB, after {after} MiB, at most {most} MiB");
    operator.assert_log_is_json();
    operator.until_answer("/readyz", 200).await;
}
