//! Measures how long it takes to plan a settled fleet and to build its statuses, for fleets of growing size. Run by
//! `cargo xtask bench variant-plan`, which fails if a goal is missed.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its user")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the inputs are our own")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use steersman_plan::variant::analyze::engine_args::Container;
use steersman_plan::variant::config::Config;
use steersman_plan::variant::config::thresholds::SaturationEntry;
use steersman_plan::variant::memory::Memory;
use steersman_plan::variant::{
    FleetPlan, FleetSnapshot, ModelMetrics, ObservedTarget, ObservedVariant, PodMetrics, Settings, TargetName, plan,
    status,
};
use steersman_reconcile::{Lookup, NamespacedName};
use steersman_testkit::measure::{Measurement, measure, table};

const SIZES: [usize; 5] = [10, 100, 500, 1_000, 10_000];
const PODS: usize = 10;
const OF_MODEL: usize = 2;
const IN_NAMESPACE: usize = 100;

/// Usage at which replicas are neither added nor removed.
const KV: f64 = 0.68;

/// Per object: a fleet of a thousand is planned within a tenth of a second.
const GOAL: Duration = Duration::from_micros(100);

fn main() -> ExitCode {
    let engines = [("shares", None), ("tokens", Some("saturation"))];
    let fleets = engines.into_iter().flat_map(|(case, engine)| SIZES.map(|size| (case, engine, size)));
    let rows: Vec<Measurement> =
        fleets.map(|(case, engine, size)| decided(case, size, &settled(fleet(size, engine)))).collect();
    println!("{}", table(&rows));
    match rows.iter().find(|row| row.median > row.goal) {
        Some(row) => {
            eprintln!("{} on {} takes longer than its goal", row.case, row.input);
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

/// Plans the fleet and builds every status.
fn decided(case: &'static str, size: usize, snapshot: &FleetSnapshot) -> Measurement {
    let of = format!("{size} objects, {} pods", size * PODS);
    let goal = GOAL * u32::try_from(size).unwrap();
    measure(case, of, goal, || (), |()| changed_statuses(snapshot, &plan(snapshot)))
}

fn changed_statuses(snapshot: &FleetSnapshot, plan: &FleetPlan) -> usize {
    let changed = snapshot.variants.iter().filter(|variant| {
        let status = status(variant, &plan.decisions[&variant.key], true, snapshot.now);
        variant.status.as_deref() != Some(&status)
    });
    changed.count()
}

/// Stores the result of a first reconcile, so that nothing has to be written.
fn settled(mut snapshot: FleetSnapshot) -> FleetSnapshot {
    let FleetPlan { decisions, memory } = plan(&snapshot);
    for variant in &mut snapshot.variants {
        let status = status(variant, &decisions[&variant.key], true, snapshot.now);
        variant.status = Some(status.into());
    }
    snapshot.memory = memory;
    assert_eq!(changed_statuses(&snapshot, &plan(&snapshot)), 0, "a settled fleet must not change");
    snapshot
}

fn fleet(size: usize, engine: Option<&str>) -> FleetSnapshot {
    let mut config = Config::default();
    if let Some(engine) = engine {
        let entry = SaturationEntry { analyzer_name: Some(engine.to_owned()), ..SaturationEntry::default() };
        config.saturation.entries.insert("default".to_owned(), entry);
    }
    let variants: Vec<ObservedVariant> = (0..size).map(variant).collect();
    let mut models: BTreeMap<NamespacedName, ModelMetrics> = BTreeMap::new();
    for (object, variant) in variants.iter().enumerate() {
        let key = NamespacedName::new(&variant.key.namespace, &variant.spec.model_id);
        let model = models.entry(key).or_insert_with(|| ModelMetrics {
            pods: Ok(Vec::new()),
            requests: Lookup::Known(1_200.0),
            queue: Lookup::Known(None),
        });
        model.pods.as_mut().unwrap().extend((0..PODS).map(|number| pod(object, number)));
    }
    FleetSnapshot {
        now: "2026-11-16T00:00:00Z".parse().unwrap(),
        settings: Settings::default(),
        config,
        variants,
        models,
        gpus: Lookup::Unknown("not counted".to_owned()),
        memory: Memory::default(),
        defective: Default::default(),
    }
}

fn target(object: usize) -> String {
    format!("variant-{object:05}-decode")
}

fn variant(object: usize) -> ObservedVariant {
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
    ObservedVariant {
        key: NamespacedName::new(format!("fleet-{:03}", object / IN_NAMESPACE), format!("variant-{object:05}")),
        generation: Some(1),
        created: "2026-11-15T00:00:00Z".parse().unwrap(),
        deleting: false,
        labels: BTreeMap::new(),
        spec: serde_json::from_value(spec).unwrap(),
        status: None,
        target: Lookup::Known(Some(ObservedTarget {
            replicas: Some(replicas),
            status_replicas: Some(replicas),
            ready: replicas,
            gpus: 1,
            containers: vec![container],
            ..ObservedTarget::default()
        })),
        config: [].into(),
    }
}

fn pod(object: usize, number: usize) -> PodMetrics {
    PodMetrics {
        name: format!("{}-6d4cf56db6-{number:05}", target(object)).into(),
        target: TargetName::new("apps", "Deployment", &target(object)).into(),
        ready: true,
        kv: Some(KV),
        queue: Some(0.0),
        total_kv: Some(432_000),
        input: Some(512.0),
        output: Some(128.0),
        hit_rate: Some(0.125),
        waiting: Some(0.0),
        running: Some(12.0),
        completed: Some(10_000.0),
        completed_per_second: Some(1.5),
        service_seconds: Some(8.0),
        ttft_seconds: Some(0.25),
        itl_seconds: Some(0.02),
    }
}
