//! Hostile bodies: random bytes, truncated and changed reviews, and ten bodies of ten megabytes at once.

use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::certs::WebhookEnv;
use crate::process::operator::OperatorProcess;

const ROUTES: [&str; 3] = ["/convert", "/validate/llsd", "/mutate/dgdr"];

const TEN_MEGABYTES: usize = 10 * 1024 * 1024;

/// A random number generator with a fixed seed, so that every run sends the same bytes.
struct Random(u64);

impl Random {
    fn next_u64(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next_u64() >> 32).unwrap() % bound
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next_u64().to_le_bytes()[5]).collect()
    }
}

fn client(operator: &OperatorProcess) -> Client {
    let mut config = Config::new(operator.address("webhook").unwrap().parse().unwrap());
    config.accept_invalid_certs = true;
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// Posts a body and returns whether the returned review is a success.
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
        other => panic!("{other} is not a review"),
    };
    assert!(good || message.as_str().is_some_and(|message| message.len() > 20), "the message is too short: {response}");
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

/// Ten megabytes in the three most expensive forms: random bytes, millions of small values in place of an object, and one long
/// string.
fn large_body(route: &str, form: usize, random: &mut Random) -> Vec<u8> {
    let good = String::from_utf8(review(route)).unwrap();
    match form {
        0 => random.bytes(1024).repeat(TEN_MEGABYTES / 1024),
        1 => good.replace("\"starter\"", &format!("[0{}]", ",0".repeat(TEN_MEGABYTES / 2))).into_bytes(),
        _ => {
            let (before, rest) = good.split_at(good.find("\"starter\"").unwrap() + 1);
            format!("{before}{}{rest}", "x".repeat(TEN_MEGABYTES)).into_bytes()
        }
    }
}

async fn post_ten_at_once(client: &Client, route: &'static str, form: usize, random: &mut Random) {
    let body = large_body(route, form, random);
    let sent = (0..10).map(|_| post(client, route, body.clone()));
    let good = futures::future::join_all(sent).await;
    assert!(good.iter().all(|good| !good), "{route}, form {form}: {good:?}");
}

/// Posts random bytes, truncated reviews, reviews with changed bytes, and one of another version. Returns their number.
async fn post_small_bodies(client: &Client, route: &'static str, random: &mut Random) -> usize {
    let good = review(route);
    for _ in 0..50 {
        let length = random.below(4096);
        assert!(!post(client, route, random.bytes(length)).await);
        let cut = random.below(good.len() - 1);
        assert!(!post(client, route, good[..cut].to_vec()).await, "cut at {cut}");
        let mut changed = good.clone();
        for _ in 0..=random.below(4) {
            let place = random.below(changed.len());
            changed[place] = random.next_u64().to_le_bytes()[3];
        }
        // Some changes are harmless, such as one in a name; there must be a response in any case.
        post(client, route, changed).await;
    }
    let beta = String::from_utf8(good).unwrap().replace("k8s.io/v1\"", "k8s.io/v1beta1\"");
    assert!(!post(client, route, beta.into_bytes()).await);
    151
}

#[tokio::test]
async fn hostile_bodies_do_not_crash_the_process() {
    let Some(env) = WebhookEnv::prepare().await else { return };
    let operator = env.start("target", &[]).await;
    operator.until_answer("/readyz", 200).await;
    let client = client(&operator);
    let mut random = Random(0x5eed);
    println!("resident at the start: {} MiB", operator.memory().0);
    // The allocator keeps memory of the first large reviews; measure after that.
    for form in 0..3 {
        post_ten_at_once(&client, "/convert", form, &mut random).await;
    }
    let before = operator.memory().0;
    let mut reviews = 0;
    for round in 1..=2 {
        for route in ROUTES {
            reviews += post_small_bodies(&client, route, &mut random).await;
            for form in 0..3 {
                post_ten_at_once(&client, route, form, &mut random).await;
                reviews += 10;
            }
        }
        println!("round {round}: resident {} MiB after {reviews} reviews", operator.memory().0);
    }
    assert!(post(&client, "/convert", review("/convert")).await, "the process no longer converts");
    let (after, most) = operator.memory();
    // Printed to find leaks: the process has received 1.8 GB.
    println!("{reviews} bad reviews; resident before {before} MiB, after {after} MiB, at most {most} MiB");
    operator.assert_log_is_json();
    operator.until_answer("/readyz", 200).await;
}
