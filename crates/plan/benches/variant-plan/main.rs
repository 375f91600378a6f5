//! Measures the plan and all statuses of settled fleets of growing size. Run by `cargo xtask bench variant-plan`; fails
//! if a goal is missed.

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
use steersman_testkit::measure::{Measurement, measure, table};

const FLEET_SIZES: [usize; 5] = [10, 100, 500, 1_000, 10_000];
const PODS_PER_VARIANT: usize = 10;
const VARIANTS_PER_MODEL: usize = 2;
const VARIANTS_PER_NAMESPACE: usize = 100;

/// KV cache utilization at which a fleet neither grows nor shrinks.
const KV_UTILIZATION: f64 = 0.68;

/// Time per object: a fleet of 1,000 is planned within 0.1 s.
const GOAL_PER_VARIANT: Duration = Duration::from_micros(100);

fn main() -> ExitCode {
    let engines = [("shares", None), ("tokens", Some("saturation"))];
    let fleets = engines.into_iter().flat_map(|(case, engine)| FLEET_SIZES.map(|size| (case, engine, size)));
    let rows: Vec<Measurement> =
        fleets.map(|(case, engine, size)| measure_plan(case, size, &settle(new_fleet(size, engine)))).collect();
    println!("{}", table(&rows));
    match rows.iter().find(|row| row.median > row.goal) {
        Some(row) => {
            eprintln!("{} on {} takes longer than its goal", row.case, row.input);
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

/// Measures the plan and the status of every object.
fn measure_plan(case: &'static str, size: usize, fleet_snapshot: &Seen) -> Measurement {
    let input_size = format!("{size} objects, {} pods", size * PODS_PER_VARIANT);
    let goal = GOAL_PER_VARIANT * u32::try_from(size).unwrap();
    measure(case, input_size, goal, || (), |()| changed_statuses(fleet_snapshot, &plan(fleet_snapshot)))
}

fn changed_statuses(fleet_snapshot: &Seen, plan: &FleetPlan) -> usize {
    let changed = fleet_snapshot.variants.iter().filter(|variant| {
        let status =
            report(variant, &plan.decisions[&variant.key], true, fleet_snapshot.settings.mode, fleet_snapshot.now);
        variant.status.as_deref() != Some(&status)
    });
    changed.count()
}

/// The fleet after a reconcile: no status has to be written.
fn settle(mut fleet_snapshot: Seen) -> Seen {
    let FleetPlan { decisions, memory } = plan(&fleet_snapshot);
    for variant in &mut fleet_snapshot.variants {
        let status = report(variant, &decisions[&variant.key], true, fleet_snapshot.settings.mode, fleet_snapshot.now);
        variant.status = Some(status.into());
    }
    fleet_snapshot.memory = memory;
    assert_eq!(changed_statuses(&fleet_snapshot, &plan(&fleet_snapshot)), 0, "a settled fleet has no status to write");
    fleet_snapshot
}

fn new_fleet(size: usize, engine: Option<&str>) -> Seen {
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
        model.pods.as_mut().unwrap().extend((0..PODS_PER_VARIANT).map(|number| pod(object, number)));
    }
    Seen {
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

fn variant(object: usize) -> VariantSeen {
    let spec = json!({
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": target(object) },
        "modelID": format!("meta-llama/Llama-3.1-{}B-Instruct", object / VARIANTS_PER_MODEL),
        "accelerator": "H100",
        "variantCost": if object.is_multiple_of(VARIANTS_PER_MODEL) { "10" } else { "40" },
        "minReplicas": 1,
        "maxReplicas": 20,
    });
    let container = Container { args: vec!["--max-num-seqs=256".to_owned()], ..Container::default() };
    let replicas = i32::try_from(PODS_PER_VARIANT).unwrap();
    VariantSeen {
        key: NamespacedName::new(
            format!("fleet-{:03}", object / VARIANTS_PER_NAMESPACE),
            format!("variant-{object:05}"),
        ),
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
        kv: Some(KV_UTILIZATION),
        queue: Some(0.0),
        total_kv: Some(432_000),
        input: Some(512.0),
        output: Some(128.0),
        hit_rate: Some(0.125),
    }
}
