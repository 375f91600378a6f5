//! How long it takes to decide on a whole fleet, and to say so. Run by `cargo xtask bench variant-plan`.
//! Comes in: fleets of growing size in which nothing changes; goes out: a table, and a failure where the
//! goal is missed.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its user")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the inputs are our own")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use steersman_plan::variant::config::Config;
use steersman_plan::variant::config::thresholds::Entry;
use steersman_plan::variant::saturation::engine_args::Container;
use steersman_plan::variant::saturation::tokens::capacity::Memory;
use steersman_plan::variant::{
    FleetPlan, ModelSeen, PodSeen, Seen, Settings, TargetName, TargetSeen, VariantSeen, plan, report,
};
use steersman_reconcile::{Lookup, NamespacedName};
use steersman_testkit::measure::{Row, measured, table};

const SIZES: [usize; 5] = [10, 100, 500, 1_000, 10_000];
const PODS: usize = 10;
const OF_MODEL: usize = 2;
const IN_NAMESPACE: usize = 100;

/// So full that nothing is missing, and that none can go.
const KV: f64 = 0.68;

/// For each object, so that a fleet of a thousand is decided on within a tenth of a second.
const GOAL: Duration = Duration::from_micros(100);

fn main() -> ExitCode {
    let engines = [("shares", None), ("tokens", Some("saturation"))];
    let fleets = engines.into_iter().flat_map(|(case, engine)| SIZES.map(|size| (case, engine, size)));
    let rows: Vec<Row> =
        fleets.map(|(case, engine, size)| decided(case, size, &settled(fleet(size, engine)))).collect();
    println!("{}", table(&rows));
    match rows.iter().find(|row| row.median > row.goal) {
        Some(row) => {
            eprintln!("{} on {} takes longer than its goal", row.case, row.of);
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

/// The decision and every object's status.
fn decided(case: &'static str, size: usize, seen: &Seen) -> Row {
    let of = format!("{size} objects, {} pods", size * PODS);
    let goal = GOAL * u32::try_from(size).unwrap();
    measured(case, of, goal, || (), |()| say(seen, &plan(seen)))
}

fn say(seen: &Seen, plan: &FleetPlan) -> usize {
    let news = seen.variants.iter().filter(|variant| {
        let status = report(variant, &plan.decisions[&variant.key], true, seen.settings.mode, seen.now);
        variant.status.as_deref() != Some(&status)
    });
    news.count()
}

/// As the pass before has left it: nothing is to be written.
fn settled(mut seen: Seen) -> Seen {
    let FleetPlan { decisions, memory } = plan(&seen);
    for variant in &mut seen.variants {
        let status = report(variant, &decisions[&variant.key], true, seen.settings.mode, seen.now);
        variant.status = Some(status.into());
    }
    seen.memory = memory;
    assert_eq!(say(&seen, &plan(&seen)), 0, "a settled fleet has nothing to say");
    seen
}

fn fleet(size: usize, engine: Option<&str>) -> Seen {
    let mut config = Config::default();
    if let Some(engine) = engine {
        let entry = Entry { analyzer_name: Some(engine.to_owned()), ..Entry::default() };
        config.saturation.entries.insert("default".to_owned(), entry);
    }
    let variants: Vec<VariantSeen> = (0..size).map(variant).collect();
    let mut models: BTreeMap<NamespacedName, ModelSeen> = BTreeMap::new();
    for (object, variant) in variants.iter().enumerate() {
        let key = NamespacedName::new(&variant.key.namespace, &variant.spec.model_id);
        let model = models.entry(key).or_insert_with(|| ModelSeen {
            pods: Ok(Vec::new()),
            requests: Lookup::Known(1_200.0),
            queue: Lookup::Known(None),
        });
        model.pods.as_mut().unwrap().extend((0..PODS).map(|number| pod(object, number)));
    }
    Seen {
        now: "2026-11-16T00:00:00Z".parse().unwrap(),
        settings: Settings::default(),
        config,
        variants,
        models,
        gpus: Lookup::Unknown("nobody has counted".to_owned()),
        memory: Memory::default(),
        defective: Default::default(),
    }
}

fn target(object: usize) -> String {
    format!("variant-{object:05}-decode")
}

fn variant(object: usize) -> VariantSeen {
    let spec = json!({
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": target(object) },
        "modelID": format!("meta-llama/Llama-3.1-{}B-Instruct", object / OF_MODEL),
        "accelerator": "H100",
        "variantCost": if object.is_multiple_of(OF_MODEL) { "10" } else { "40" },
        "minReplicas": 1,
        "maxReplicas": 20,
    });
    let container = Container { args: vec!["--max-num-seqs=256".to_owned()], ..Container::default() };
    let replicas = i32::try_from(PODS).unwrap();
    VariantSeen {
        key: NamespacedName::new(format!("fleet-{:03}", object / IN_NAMESPACE), format!("variant-{object:05}")),
        generation: Some(1),
        created: "2026-11-15T00:00:00Z".parse().unwrap(),
        deleting: false,
        labels: BTreeMap::new(),
        spec: serde_json::from_value(spec).unwrap(),
        status: None,
        target: Lookup::Known(Some(TargetSeen {
            replicas: Some(replicas),
            status_replicas: Some(replicas),
            ready: replicas,
            gpus: 1,
            containers: vec![container],
            ..TargetSeen::default()
        })),
        config: [].into(),
    }
}

fn pod(object: usize, number: usize) -> PodSeen {
    PodSeen {
        name: format!("{}-6d4cf56db6-{number:05}", target(object)).into(),
        target: TargetName::new("apps", "Deployment", &target(object)).into(),
        ready: true,
        kv: Some(KV),
        queue: Some(0.0),
        total_kv: Some(432_000),
        input: Some(512.0),
        output: Some(128.0),
        hit_rate: Some(0.125),
    }
}
