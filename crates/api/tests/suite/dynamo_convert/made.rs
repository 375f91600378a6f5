//! Objects made of random bytes, so that a law's counterexample shrinks to few fields.
//! Comes in: bytes, of which an early end means "nothing more"; goes out: an object of either version, whole or in
//! part, with unknown fields and wrong values among the others.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{ALPHA, BETA, KIND};

pub struct Dice {
    bytes: std::vec::IntoIter<u8>,
    /// Whether fields may hold values of a wrong kind.
    odd: bool,
}

type Make = fn(&mut Dice) -> Value;

impl Dice {
    pub fn new(bytes: Vec<u8>, odd: bool) -> Self {
        Self { bytes: bytes.into_iter(), odd }
    }

    pub fn roll(&mut self, sides: u8) -> u8 {
        self.bytes.next().unwrap_or(0) % sides
    }

    fn one_of(&mut self, values: &[Value]) -> Value {
        let sides = u8::try_from(values.len()).unwrap();
        values[usize::from(self.roll(sides))].clone()
    }

    fn object(&mut self, fields: &[(&str, Make)]) -> Value {
        let mut object = Map::new();
        for (name, make) in fields {
            match self.roll(16) {
                0..=7 => {}
                15 if self.odd => {
                    object.insert((*name).to_owned(), odd(self));
                }
                _ => {
                    object.insert((*name).to_owned(), make(self));
                }
            }
        }
        if self.roll(8) == 7 {
            object.insert("fieldOfTheFuture".to_owned(), odd(self));
        }
        Value::Object(object)
    }
}

fn odd(dice: &mut Dice) -> Value {
    dice.one_of(&[
        json!({}),
        json!(null),
        json!(""),
        json!([]),
        json!(0),
        json!(1.5),
        json!("word"),
        json!(true),
        json!(false),
        json!([null, {}]),
        json!({ "a": { "b": [] }, "name": "" }),
        json!(0.300_000_000_000_000_04),
        json!(9_007_199_254_740_993_u64),
    ])
}

fn word(dice: &mut Dice) -> Value {
    dice.one_of(&[json!("a"), json!("b"), json!("registry.example.com/planner:1.2.0")])
}

fn flag(dice: &mut Dice) -> Value {
    dice.one_of(&[json!(false), json!(true)])
}

fn number(dice: &mut Dice) -> Value {
    dice.one_of(&[json!(0), json!(30), json!(12.5), json!(500.0), json!(0.123_456_789_012_345_68), json!(1e300)])
}

fn length(dice: &mut Dice) -> Value {
    dice.one_of(&[json!(0), json!(4000), json!(-1), json!(i32::MAX)])
}

fn loose_length(dice: &mut Dice) -> Value {
    dice.one_of(&[json!(0), json!(4000), json!(4000.7), json!(-0.5), json!(4000.0), json!(5e9), json!("4000")])
}

fn optimization(dice: &mut Dice) -> Value {
    dice.one_of(&[json!("latency"), json!("throughput"), json!("speed")])
}

fn labels(dice: &mut Dice) -> Value {
    dice.one_of(&[json!({}), json!({ "team": "search" }), json!({ "a": "b", "c": "" })])
}

fn opaque(dice: &mut Dice) -> Value {
    dice.one_of(&[json!({}), json!({ "x": 1 }), json!({ "enable_load_scaling": true, "deep": { "a": [1, null] } })])
}

fn resources(dice: &mut Dice) -> Value {
    dice.one_of(&[json!({}), json!({ "limits": { "cpu": 2 } }), json!({ "requests": {}, "claims": [] })])
}

fn tolerations(dice: &mut Dice) -> Value {
    dice.one_of(&[json!([]), json!([{ "operator": "Exists" }]), json!([{ "key": "a" }, { "key": "b" }])])
}

fn selector(dice: &mut Dice) -> Value {
    dice.one_of(&[json!({}), json!({ "pool": "gpu" })])
}

fn alpha_spec(dice: &mut Dice) -> Value {
    fn sla(dice: &mut Dice) -> Value {
        dice.object(&[
            ("ttft", number),
            ("itl", number),
            ("isl", loose_length),
            ("osl", loose_length),
            ("optimizationType", optimization),
        ])
    }
    fn cache(dice: &mut Dice) -> Value {
        dice.object(&[("pvcName", word), ("modelPathInPvc", word), ("pvcMountPath", word)])
    }
    fn deployment(dice: &mut Dice) -> Value {
        dice.object(&[("modelCache", cache), ("namespace", word)])
    }
    fn config(dice: &mut Dice) -> Value {
        dice.object(&[("sla", sla), ("deployment", deployment), ("planner", opaque), ("engine", opaque)])
    }
    fn reference(dice: &mut Dice) -> Value {
        dice.object(&[("name", word), ("key", word)])
    }
    fn profiling(dice: &mut Dice) -> Value {
        let mut profiling = dice.object(&[
            ("config", config),
            ("configMapRef", reference),
            ("profilerImage", word),
            ("outputPVC", word),
            ("resources", resources),
            ("tolerations", tolerations),
            ("nodeSelector", selector),
        ]);
        // Refused, not converted; see the table.
        let fields = profiling.as_object_mut().unwrap();
        if !fields.get("config").is_none_or(|config| config.is_object() || config.is_null()) {
            fields.remove("config");
        }
        profiling
    }
    fn overrides(dice: &mut Dice) -> Value {
        dice.object(&[
            ("name", word),
            ("namespace", word),
            ("labels", labels),
            ("annotations", labels),
            ("workersImage", word),
        ])
    }
    dice.object(&[
        ("model", word),
        ("backend", word),
        ("runtimeVersionOverride", word),
        ("autoApply", flag),
        ("useMocker", flag),
        ("enableGpuDiscovery", flag),
        ("profilingConfig", profiling),
        ("deploymentOverrides", overrides),
    ])
}

fn beta_spec(dice: &mut Dice) -> Value {
    fn cache(dice: &mut Dice) -> Value {
        dice.object(&[("pvcName", word), ("pvcModelPath", word), ("pvcMountPath", word)])
    }
    fn hardware(dice: &mut Dice) -> Value {
        dice.object(&[("gpuSku", word), ("vramMb", number), ("totalGpus", length), ("rdma", flag)])
    }
    fn workload(dice: &mut Dice) -> Value {
        dice.object(&[("isl", length), ("osl", length), ("concurrency", number), ("requestRate", number)])
    }
    fn sla(dice: &mut Dice) -> Value {
        dice.object(&[("ttft", number), ("itl", number), ("e2eLatency", number), ("optimizationType", optimization)])
    }
    fn container_name(dice: &mut Dice) -> Value {
        dice.one_of(&[json!("profiler"), json!("output-copier"), json!("")])
    }
    fn container(dice: &mut Dice) -> Value {
        dice.object(&[("name", container_name), ("image", word), ("resources", resources)])
    }
    fn containers(dice: &mut Dice) -> Value {
        let count = dice.roll(4);
        (0..count).map(|_| container(dice)).collect()
    }
    fn pod(dice: &mut Dice) -> Value {
        dice.object(&[
            ("containers", containers),
            ("tolerations", tolerations),
            ("nodeSelector", selector),
            ("serviceAccountName", word),
        ])
    }
    fn template(dice: &mut Dice) -> Value {
        dice.object(&[("spec", pod), ("metadata", labels)])
    }
    fn job(dice: &mut Dice) -> Value {
        dice.object(&[("template", template), ("backoffLimit", length)])
    }
    fn overrides(dice: &mut Dice) -> Value {
        dice.object(&[("profilingJob", job), ("dgd", opaque)])
    }
    fn mocker(dice: &mut Dice) -> Value {
        dice.object(&[("enabled", flag)])
    }
    fn features(dice: &mut Dice) -> Value {
        dice.object(&[("planner", opaque), ("mocker", mocker)])
    }
    dice.object(&[
        ("model", word),
        ("backend", word),
        ("runtimeVersionOverride", word),
        ("autoApply", flag),
        ("image", word),
        ("modelCache", cache),
        ("hardware", hardware),
        ("workload", workload),
        ("sla", sla),
        ("overrides", overrides),
        ("features", features),
        ("searchStrategy", word),
    ])
}

fn conditions(dice: &mut Dice) -> Value {
    dice.one_of(&[json!([]), json!([{ "type": "Succeeded", "status": "False" }])])
}

fn alpha_status(dice: &mut Dice) -> Value {
    fn state(dice: &mut Dice) -> Value {
        dice.one_of(&[
            json!("Pending"),
            json!("Ready"),
            json!("DeploymentDeleted"),
            json!("Initializing"),
            json!("Profiling"),
            json!("Deploying"),
            json!("Failed"),
            json!("Unheard"),
        ])
    }
    fn deployment(dice: &mut Dice) -> Value {
        dice.object(&[("name", word), ("namespace", word), ("created", flag), ("state", word)])
    }
    dice.object(&[
        ("state", state),
        ("backend", word),
        ("observedGeneration", length),
        ("conditions", conditions),
        ("profilingResults", word),
        ("generatedDeployment", opaque),
        ("deployment", deployment),
    ])
}

fn beta_status(dice: &mut Dice) -> Value {
    fn phase(dice: &mut Dice) -> Value {
        dice.one_of(&[
            json!("Pending"),
            json!("Ready"),
            json!("Deployed"),
            json!("Profiling"),
            json!("Deploying"),
            json!("Failed"),
            json!("Unheard"),
        ])
    }
    fn pareto(dice: &mut Dice) -> Value {
        dice.one_of(&[json!([]), json!([{ "config": { "tp": 2 } }])])
    }
    fn results(dice: &mut Dice) -> Value {
        dice.object(&[("selectedConfig", opaque), ("pareto", pareto)])
    }
    fn info(dice: &mut Dice) -> Value {
        dice.object(&[("replicas", length), ("availableReplicas", length)])
    }
    dice.object(&[
        ("phase", phase),
        ("profilingPhase", word),
        ("profilingJobName", word),
        ("dgdName", word),
        ("observedGeneration", length),
        ("conditions", conditions),
        ("profilingResults", results),
        ("deploymentInfo", info),
        ("reported", reported),
    ])
}

fn reported(dice: &mut Dice) -> Value {
    dice.one_of(&[
        json!([]),
        json!([{ "reason": "ImagePullFailed", "kind": "Pod", "name": "p", "container": "profiler" }]),
        json!([{ "reason": "FieldValueInvalid", "field": "spec.hardware.gpuSku", "generation": 3 }]),
    ])
}

/// Spec and status, each perhaps absent.
pub fn sections(dice: &mut Dice, version: &str) -> Map<String, Value> {
    let makes: [(&str, Make); 2] = match version {
        ALPHA => [("spec", alpha_spec), ("status", alpha_status)],
        _ => [("spec", beta_spec), ("status", beta_status)],
    };
    let mut sections = Map::new();
    for (name, make) in makes {
        if dice.roll(8) > 0 {
            let section = make(dice);
            sections.insert(name.to_owned(), section);
        }
    }
    sections
}

/// With metadata of a whole object or of a part, and no annotation of ours.
pub fn request(dice: &mut Dice, version: &str) -> Value {
    let metadata = dice.one_of(&[
        json!({ "name": "qwen" }),
        json!({ "name": "qwen", "labels": { "a": "b" }, "annotations": { "example.com/cost": "4711" } }),
        json!({ "generateName": "qwen-", "managedFields": [{ "manager": "kubectl" }], "uid": "1" }),
        json!({ "labels": { "a": "b" } }),
        json!({ "annotations": { "example.com/cost": "4711" } }),
    ]);
    let mut object = json!({ "apiVersion": version, "kind": KIND, "metadata": metadata });
    if dice.roll(8) == 7 {
        object["rootOfTheFuture"] = odd(dice);
    }
    object.as_object_mut().unwrap().extend(sections(dice, version));
    object
}

pub fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..260)
}

/// An object of either version; `odd` lets in values of wrong kinds.
pub fn any_request(odd: bool) -> impl Strategy<Value = Value> {
    (bytes(), any::<bool>()).prop_map(move |(bytes, alpha)| {
        let mut dice = Dice::new(bytes, odd);
        request(&mut dice, if alpha { ALPHA } else { BETA })
    })
}
