//! The attacker plants small YAML texts that expand to millions of nodes, wherever the operator parses YAML of tenants.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::batch::v1::Job;
use rustix::process::Signal;
use serde_json::{Map, Value, json};
use steersman_plan::dynamo::names;
use steersman_testkit::{condition_parts, process, wait};
use tokio::time::{MissedTickBehavior, interval};

use crate::fake_registry::HOST;
use crate::tenants::{HostileCase, Tenant, config_map, request, server, variant, workload};

/// Documents of an annotation of 250 kB.
const DOCUMENTS: usize = 1_500;

/// Time until the operator ends after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Memory after the attack, compared to that before it.
const MAX_GROWTH: u64 = 2;

/// 160 bytes that stand for 37,000 nodes.
fn bomb() -> String {
    let mut text = "a: &a [x,x,x,x,x,x,x,x]\n".to_owned();
    for (level, below) in ["b", "c", "d", "e"].into_iter().zip(["a", "b", "c", "d"]) {
        let aliases = vec![format!("*{below}"); 8].join(",");
        text.push_str(&format!("{level}: &{level} [{aliases}]\n"));
    }
    text
}

/// Bombs as documents of one text.
fn documents(count: usize, round: usize) -> String {
    format!("# {round}\n---\n{}", vec![bomb(); count].join("---\n"))
}

/// Bombs in one document.
fn document(count: usize, round: usize) -> String {
    let indented: String = bomb().lines().map(|line| format!("  {line}\n")).collect();
    let bombs: String = (0..count).map(|number| format!("k{number}:\n{indented}")).collect();
    format!("# {round}\napiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\n{bombs}")
}

/// The texts are different in each round, so that the operator cannot reuse the result of the last one.
fn annotated(name: &str, annotation: &str, text: String) -> Value {
    let mut annotated = request(name);
    annotated["metadata"]["annotations"] = json!({ annotation: text });
    annotated
}

fn additional(round: usize) -> Value {
    annotated("additional", names::ADDITIONAL, documents(DOCUMENTS, round))
}

fn generated(round: usize) -> Value {
    annotated("generated", names::GENERATED_GRAPH, document(1_300, round))
}

/// The settings of the attacker's namespace.
fn scale_to_zero(round: usize) -> Value {
    let entries = (0..1_200).map(|number| (format!("model.{number}"), bomb().into()));
    let entries: Map<String, Value> =
        entries.chain([("model.round".to_owned(), format!("modelID: m{round}").into())]).collect();
    config_map("model-scale-to-zero-config", Value::Object(entries))
}

/// The result of the profiler of request `profiled`.
fn output(tenant: &Tenant, round: usize) -> Value {
    let mut output = config_map(
        &names::output("profiled"),
        json!({ "profiler_status": "success", "final_config.yaml": documents(90, round) }),
    );
    output["metadata"]["labels"] = json!(names::labels("profiled", tenant.name()));
    output
}

fn labelled() -> Value {
    let image = format!("{HOST}/attacker/bomb:1");
    server("labelled", json!({ "distribution": { "image": image }, "disabled": ["eval"] }))
}

async fn plant(case: &HostileCase) {
    let attacker = &case.attacker;
    attacker.apply(workload("model", 1, json!({}))).await.unwrap();
    attacker.apply(variant("model", json!({}))).await.unwrap();
    let labels = json!({ "io.llamastack.config.base64": STANDARD.encode(document(200, 0)) });
    case.env.network.registry.push("attacker/bomb", "1", labels, &[]);
    attacker.apply(labelled()).await.unwrap();
    attacker.apply(request("profiled")).await.unwrap();
    let jobs = attacker.namespace.api::<Job>();
    wait::until(jobs, &names::profiling_job("profiled"), "exists", wait::TIMEOUT, |_| true).await.unwrap();
    plant_texts(attacker, 0).await;
}

async fn plant_texts(attacker: &Tenant, round: usize) {
    for manifest in [additional(round), generated(round), scale_to_zero(round), output(attacker, round)] {
        attacker.apply(manifest).await.unwrap();
    }
}

/// The attacker's own objects report each source that was not used, and the limit.
async fn expect_reported(case: &HostileCase) {
    for (object, type_, place, limit) in [
        (additional(0), "SpecAccepted", names::ADDITIONAL, "more than 100 YAML documents"),
        (generated(0), "SpecAccepted", names::GENERATED_GRAPH, "has more than"),
        (request("profiled"), "SpecGenerated", "final_config.yaml", "it has more than"),
        (
            variant("model", json!({})),
            "ConfigurationValid",
            "model-scale-to-zero-config",
            "the ConfigMap has more than",
        ),
        (labelled(), "ConfigGenerated", "label io.llamastack.config.base64", "it has more than"),
    ] {
        let (what, mut message) = (format!("{type_} names {place}"), String::new());
        let reported = wait::eventually(&what, async || {
            let object = case.attacker.read(&object).await;
            message = condition_parts(&object, type_).2.to_owned();
            (message.contains(place) && message.contains(limit)).then_some(())
        });
        reported.await.unwrap_or_else(|error| panic!("{error}, and {limit:?}: {message}"));
    }
}

/// Other tenants are served, memory stays flat, and the operator stops when it is told to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn yaml_bombs_stop_nobody() {
    let Some(case) = HostileCase::open_alone("yaml").await else { return };
    let before = case.env.memory_mib();
    plant(&case).await;
    let repeated = async {
        let mut ticks = interval(Duration::from_millis(500));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for round in 1.. {
            ticks.tick().await;
            plant_texts(&case.attacker, round).await;
        }
    };
    tokio::select! {
        () = repeated => {}
        () = async { case.expect_victim_served().await; expect_reported(&case).await } => {}
    }
    case.env.expect_undisturbed_leader(&case.admin).await;
    let (after, gap) = (case.env.memory_mib(), case.env.longest_renewal_gap());
    println!("resident before {before} MiB, after {after} MiB; the Lease was renewed every {gap:?} at least");
    assert!(after < before * MAX_GROWTH + 64, "resident before {before} MiB, after {after} MiB");

    let started = Instant::now();
    let operator = &case.env.operator;
    operator.signal(Signal::TERM).unwrap();
    let ended = async || (!process::is_running(operator.id())).then_some(());
    let stopped = wait::eventually_within(STOP_LIMIT, "the operator ends after SIGTERM", ended).await;
    stopped.unwrap_or_else(|error| panic!("{error}\n{}", operator.log_end()));
    println!("the operator ends {:?} after SIGTERM", started.elapsed());
}
