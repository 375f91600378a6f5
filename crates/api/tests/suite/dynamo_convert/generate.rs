//! Generates objects of both versions from random bytes: complete ones and parts, with unknown fields and wrong values.
//! Missing bytes count as 0, which makes a field absent, so that a counterexample shrinks to few fields.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{ALPHA, BETA, KIND};

pub struct Generator {
    bytes: std::vec::IntoIter<u8>,
    /// Whether fields may have values of a wrong type.
    wrong_types: bool,
}

type FieldGenerator = fn(&mut Generator) -> Value;

impl Generator {
    pub fn new(bytes: Vec<u8>, wrong_types: bool) -> Self {
        Self { bytes: bytes.into_iter(), wrong_types }
    }

    pub fn number_below(&mut self, bound: u8) -> u8 {
        self.bytes.next().unwrap_or(0) % bound
    }

    fn one_of(&mut self, values: &[Value]) -> Value {
        let bound = u8::try_from(values.len()).unwrap();
        values[usize::from(self.number_below(bound))].clone()
    }

    fn object(&mut self, fields: &[(&str, FieldGenerator)]) -> Value {
        let mut object = Map::new();
        for (name, make) in fields {
            match self.number_below(16) {
                0..=7 => {}
                15 if self.wrong_types => {
                    object.insert((*name).to_owned(), arbitrary_value(self));
                }
                _ => {
                    object.insert((*name).to_owned(), make(self));
                }
            }
        }
        if self.number_below(8) == 7 {
            object.insert("fieldOfTheFuture".to_owned(), arbitrary_value(self));
        }
        Value::Object(object)
    }
}

fn arbitrary_value(generator: &mut Generator) -> Value {
    generator.one_of(&[
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

fn word(generator: &mut Generator) -> Value {
    generator.one_of(&[json!("a"), json!("b"), json!("registry.example.com/planner:1.2.0")])
}

fn flag(generator: &mut Generator) -> Value {
    generator.one_of(&[json!(false), json!(true)])
}

fn number(generator: &mut Generator) -> Value {
    generator.one_of(&[json!(0), json!(30), json!(12.5), json!(500.0), json!(0.123_456_789_012_345_68), json!(1e300)])
}

fn length(generator: &mut Generator) -> Value {
    generator.one_of(&[json!(0), json!(4000), json!(-1), json!(i32::MAX)])
}

fn loose_length(generator: &mut Generator) -> Value {
    generator.one_of(&[json!(0), json!(4000), json!(4000.7), json!(-0.5), json!(4000.0), json!(5e9), json!("4000")])
}

fn optimization(generator: &mut Generator) -> Value {
    generator.one_of(&[json!("latency"), json!("throughput"), json!("speed")])
}

fn labels(generator: &mut Generator) -> Value {
    generator.one_of(&[json!({}), json!({ "team": "search" }), json!({ "a": "b", "c": "" })])
}

fn opaque(generator: &mut Generator) -> Value {
    generator.one_of(&[
        json!({}),
        json!({ "x": 1 }),
        json!({ "enable_load_scaling": true, "deep": { "a": [1, null] } }),
    ])
}

fn resources(generator: &mut Generator) -> Value {
    generator.one_of(&[json!({}), json!({ "limits": { "cpu": 2 } }), json!({ "requests": {}, "claims": [] })])
}

fn tolerations(generator: &mut Generator) -> Value {
    generator.one_of(&[json!([]), json!([{ "operator": "Exists" }]), json!([{ "key": "a" }, { "key": "b" }])])
}

fn selector(generator: &mut Generator) -> Value {
    generator.one_of(&[json!({}), json!({ "pool": "gpu" })])
}

fn alpha_spec(generator: &mut Generator) -> Value {
    fn sla(generator: &mut Generator) -> Value {
        generator.object(&[
            ("ttft", number),
            ("itl", number),
            ("isl", loose_length),
            ("osl", loose_length),
            ("optimizationType", optimization),
        ])
    }
    fn cache(generator: &mut Generator) -> Value {
        generator.object(&[("pvcName", word), ("modelPathInPvc", word), ("pvcMountPath", word)])
    }
    fn deployment(generator: &mut Generator) -> Value {
        generator.object(&[("modelCache", cache), ("namespace", word)])
    }
    fn config(generator: &mut Generator) -> Value {
        generator.object(&[("sla", sla), ("deployment", deployment), ("planner", opaque), ("engine", opaque)])
    }
    fn reference(generator: &mut Generator) -> Value {
        generator.object(&[("name", word), ("key", word)])
    }
    fn profiling(generator: &mut Generator) -> Value {
        let mut profiling = generator.object(&[
            ("config", config),
            ("configMapRef", reference),
            ("profilerImage", word),
            ("outputPVC", word),
            ("resources", resources),
            ("tolerations", tolerations),
            ("nodeSelector", selector),
        ]);
        // A configuration that is no object is rejected; `spec.rs` tests that.
        let fields = profiling.as_object_mut().unwrap();
        if !fields.get("config").is_none_or(|config| config.is_object() || config.is_null()) {
            fields.remove("config");
        }
        profiling
    }
    fn overrides(generator: &mut Generator) -> Value {
        generator.object(&[
            ("name", word),
            ("namespace", word),
            ("labels", labels),
            ("annotations", labels),
            ("workersImage", word),
        ])
    }
    generator.object(&[
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

fn beta_spec(generator: &mut Generator) -> Value {
    fn cache(generator: &mut Generator) -> Value {
        generator.object(&[("pvcName", word), ("pvcModelPath", word), ("pvcMountPath", word)])
    }
    fn hardware(generator: &mut Generator) -> Value {
        generator.object(&[("gpuSku", word), ("vramMb", number), ("totalGpus", length), ("rdma", flag)])
    }
    fn workload(generator: &mut Generator) -> Value {
        generator.object(&[("isl", length), ("osl", length), ("concurrency", number), ("requestRate", number)])
    }
    fn sla(generator: &mut Generator) -> Value {
        generator.object(&[
            ("ttft", number),
            ("itl", number),
            ("e2eLatency", number),
            ("optimizationType", optimization),
        ])
    }
    fn container_name(generator: &mut Generator) -> Value {
        generator.one_of(&[json!("profiler"), json!("output-copier"), json!("")])
    }
    fn container(generator: &mut Generator) -> Value {
        generator.object(&[("name", container_name), ("image", word), ("resources", resources)])
    }
    fn containers(generator: &mut Generator) -> Value {
        let count = generator.number_below(4);
        (0..count).map(|_| container(generator)).collect()
    }
    fn pod(generator: &mut Generator) -> Value {
        generator.object(&[
            ("containers", containers),
            ("tolerations", tolerations),
            ("nodeSelector", selector),
            ("serviceAccountName", word),
        ])
    }
    fn template(generator: &mut Generator) -> Value {
        generator.object(&[("spec", pod), ("metadata", labels)])
    }
    fn job(generator: &mut Generator) -> Value {
        generator.object(&[("template", template), ("backoffLimit", length)])
    }
    fn overrides(generator: &mut Generator) -> Value {
        generator.object(&[("profilingJob", job), ("dgd", opaque)])
    }
    fn mocker(generator: &mut Generator) -> Value {
        generator.object(&[("enabled", flag)])
    }
    fn features(generator: &mut Generator) -> Value {
        generator.object(&[("planner", opaque), ("mocker", mocker)])
    }
    generator.object(&[
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

fn conditions(generator: &mut Generator) -> Value {
    generator.one_of(&[json!([]), json!([{ "type": "Succeeded", "status": "False" }])])
}

fn alpha_status(generator: &mut Generator) -> Value {
    fn state(generator: &mut Generator) -> Value {
        generator.one_of(&[
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
    fn deployment(generator: &mut Generator) -> Value {
        generator.object(&[("name", word), ("namespace", word), ("created", flag), ("state", word)])
    }
    generator.object(&[
        ("state", state),
        ("backend", word),
        ("observedGeneration", length),
        ("conditions", conditions),
        ("profilingResults", word),
        ("generatedDeployment", opaque),
        ("deployment", deployment),
    ])
}

fn beta_status(generator: &mut Generator) -> Value {
    fn phase(generator: &mut Generator) -> Value {
        generator.one_of(&[
            json!("Pending"),
            json!("Ready"),
            json!("Deployed"),
            json!("Profiling"),
            json!("Deploying"),
            json!("Failed"),
            json!("Unheard"),
        ])
    }
    fn pareto(generator: &mut Generator) -> Value {
        generator.one_of(&[json!([]), json!([{ "config": { "tp": 2 } }])])
    }
    fn results(generator: &mut Generator) -> Value {
        generator.object(&[("selectedConfig", opaque), ("pareto", pareto)])
    }
    fn info(generator: &mut Generator) -> Value {
        generator.object(&[("replicas", length), ("availableReplicas", length)])
    }
    generator.object(&[
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

fn reported(generator: &mut Generator) -> Value {
    generator.one_of(&[
        json!([]),
        json!([{ "reason": "ImagePullFailed", "kind": "Pod", "name": "p", "container": "profiler" }]),
        json!([{ "reason": "FieldValueInvalid", "field": "spec.hardware.gpuSku", "generation": 3 }]),
    ])
}

/// Spec and status. Each may be absent.
pub fn sections(generator: &mut Generator, version: &str) -> Map<String, Value> {
    let makes: [(&str, FieldGenerator); 2] = match version {
        ALPHA => [("spec", alpha_spec), ("status", alpha_status)],
        _ => [("spec", beta_spec), ("status", beta_status)],
    };
    let mut sections = Map::new();
    for (name, make) in makes {
        if generator.number_below(8) > 0 {
            let section = make(generator);
            sections.insert(name.to_owned(), section);
        }
    }
    sections
}

/// An object or a part of one, without annotations of the conversion.
pub fn request(generator: &mut Generator, version: &str) -> Value {
    let metadata = generator.one_of(&[
        json!({ "name": "qwen" }),
        json!({ "name": "qwen", "labels": { "a": "b" }, "annotations": { "example.com/cost": "4711" } }),
        json!({ "generateName": "qwen-", "managedFields": [{ "manager": "kubectl" }], "uid": "1" }),
        json!({ "labels": { "a": "b" } }),
        json!({ "annotations": { "example.com/cost": "4711" } }),
    ]);
    let mut object = json!({ "apiVersion": version, "kind": KIND, "metadata": metadata });
    if generator.number_below(8) == 7 {
        object["rootOfTheFuture"] = arbitrary_value(generator);
    }
    object.as_object_mut().unwrap().extend(sections(generator, version));
    object
}

pub fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..260)
}

/// An object of either version. `wrong_types` allows values of wrong types.
pub fn any_request(wrong_types: bool) -> impl Strategy<Value = Value> {
    (bytes(), any::<bool>()).prop_map(move |(bytes, alpha)| {
        let mut generator = Generator::new(bytes, wrong_types);
        request(&mut generator, if alpha { ALPHA } else { BETA })
    })
}
