//! Generates objects of both versions from random bytes: complete ones and parts, valid and invalid. A byte of 0 makes a
//! field absent, so that proptest shrinks to small objects.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{V1ALPHA1, V1ALPHA1_FIELDS, V1ALPHA2, V1ALPHA2_FIELDS};

/// Corresponding fields of both versions, independent of the table of the conversion, so that the laws test that table.
pub const COMMON_FIELDS: [(&str, &str); 20] = [
    ("/replicas", "/workload/replicas"),
    ("/server/distribution", "/distribution"),
    ("/server/containerSpec/port", "/networking/port"),
    ("/server/containerSpec/resources", "/workload/resources"),
    ("/server/containerSpec/env", "/workload/overrides/env"),
    ("/server/containerSpec/command", "/workload/overrides/command"),
    ("/server/containerSpec/args", "/workload/overrides/args"),
    ("/server/userConfig", "/overrideConfig"),
    ("/server/storage", "/workload/storage"),
    ("/server/tlsConfig/caBundle", "/networking/tls/caBundle"),
    ("/server/autoscaling", "/workload/autoscaling"),
    ("/server/workers", "/workload/workers"),
    ("/server/podDisruptionBudget", "/workload/podDisruptionBudget"),
    ("/server/topologySpreadConstraints", "/workload/topologySpreadConstraints"),
    ("/server/podOverrides/serviceAccountName", "/workload/overrides/serviceAccountName"),
    ("/server/podOverrides/terminationGracePeriodSeconds", "/workload/overrides/terminationGracePeriodSeconds"),
    ("/server/podOverrides/volumes", "/workload/overrides/volumes"),
    ("/server/podOverrides/volumeMounts", "/workload/overrides/volumeMounts"),
    ("/network/exposeRoute", "/networking/expose"),
    ("/network/allowedFrom", "/networking/allowedFrom"),
];

/// Sections and fields of this version only, fields of no version, and fields of the other version.
const V1ALPHA1_ONLY: [&str; 11] = [
    "/server",
    "/server/containerSpec",
    "/server/containerSpec/name",
    "/server/podOverrides",
    "/server/tlsConfig",
    "/network",
    "/novelty",
    "/server/novelty",
    "/network/novelty",
    "/providers",
    "/workload",
];
const V1ALPHA2_ONLY: [&str; 17] = [
    "/providers",
    "/resources",
    "/storage",
    "/disabled",
    "/externalProviders",
    "/networking",
    "/networking/tls",
    "/networking/tls/enabled",
    "/networking/tls/secretName",
    "/workload",
    "/workload/overrides",
    "/novelty",
    "/networking/novelty",
    "/workload/novelty",
    "/workload/overrides/novelty",
    "/server",
    "/replicas",
];

pub struct Generator<'a>(pub &'a [u8]);

impl Generator<'_> {
    pub fn byte(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }

    fn text(&mut self) -> Value {
        let texts = ["own", "", "shared", "~1/.", "ü", "{}", "8321", "h.example.com"];
        texts[self.byte() % texts.len()].into()
    }

    fn arbitrary_value(&mut self) -> Value {
        match self.byte() % 8 {
            0 => json!({}),
            1 => Value::Null,
            2 => json!([]),
            3 => self.text(),
            4 => json!(self.byte()),
            5 => json!(-0.300_000_000_000_000_04),
            6 => json!(self.byte() > 127),
            _ => json!({ "novelty": [self.byte(), { "name": null }] }),
        }
    }

    fn value(&mut self, path: &str) -> Value {
        if self.byte() % 16 == 15 {
            return self.arbitrary_value();
        }
        match path.rsplit('/').next().unwrap_or_default() {
            "replicas" | "port" | "workers" | "terminationGracePeriodSeconds" => json!(self.byte() % 4),
            "exposeRoute" | "enabled" => json!(self.byte() > 127),
            "expose" => match self.byte() % 6 {
                0 => json!(true),
                1 => json!(false),
                2 => json!({}),
                3 => json!({ "hostname": self.text() }),
                4 => json!({ "enabled": self.byte() > 127 }),
                _ => json!({ "enabled": self.arbitrary_value(), "hostname": self.text(), "novelty": 1 }),
            },
            "userConfig" | "overrideConfig" | "caBundle" => match self.byte() % 4 {
                0 => json!({ "configMapName": self.text() }),
                1 => json!({ "configMapName": self.text(), "configMapNamespace": self.text() }),
                2 => json!({ "configMapNamespace": self.text() }),
                _ => json!({ "configMapName": self.arbitrary_value(), "configMapKeys": ["a", self.text()] }),
            },
            "name" | "secretName" | "serviceAccountName" => self.text(),
            "distribution" => json!({ "name": self.text() }),
            "providers" => match self.byte() % 3 {
                0 => json!({ "inference": { "provider": self.text(), "apiKey": { "name": "s", "key": "k" } } }),
                1 => {
                    json!({ "safety": [{ "provider": "p", "apiKey": { "secretKeyRef": { "name": "s" } } }, self.arbitrary_value()] })
                }
                _ => json!({ "vectorIo": self.arbitrary_value(), "telemetry": [] }),
            },
            "resources" => {
                json!({ "models": [self.text(), { "name": self.text() }], "requests": { "cpu": self.text() } })
            }
            "env" | "volumes" | "volumeMounts" | "topologySpreadConstraints" => json!([{ "name": self.text() }]),
            "command" | "args" | "disabled" => json!([self.text()]),
            // A section by itself: empty, or no object.
            _ => self.arbitrary_value(),
        }
    }

    /// Sets a field and adds the sections above it, unless one of them has a value of another type.
    fn set(&mut self, spec: &mut Value, path: &str) {
        let value = self.value(path);
        set_at(spec, path, value);
    }

    fn metadata(&mut self) -> Option<Value> {
        Some(match self.byte() % 12 {
            0..=2 => json!({ "name": "stack" }),
            3 => json!({}),
            4 => json!({ "annotations": {} }),
            5 => json!({ "annotations": null }),
            6 => json!({ "labels": { "a": "b" }, "managedFields": [{ "apiVersion": V1ALPHA2 }] }),
            7 | 8 => json!({ "name": "stack", "annotations": { "mine": "1" }, "resourceVersion": "7" }),
            9 => json!({ "annotations": self.arbitrary_value() }),
            10 => self.arbitrary_value(),
            _ => return None,
        })
    }

    pub fn object(&mut self, version: &str) -> Value {
        let mut object = json!({ "apiVersion": version, "kind": "LlamaStackDistribution" });
        if let Some(metadata) = self.metadata() {
            object["metadata"] = metadata;
        }
        if self.byte() % 32 == 31 {
            object["novelty"] = self.arbitrary_value();
        }
        match self.byte() % 16 {
            14 => return object,
            15 => object["spec"] = self.arbitrary_value(),
            density => {
                let mut spec = json!({});
                for (old, new) in COMMON_FIELDS {
                    // All fields are set in 1 of 16 objects; the others have many or few.
                    if density == 13 || self.byte() % 16 > density {
                        self.set(&mut spec, if version == V1ALPHA1 { old } else { new });
                    }
                }
                let only: &[&str] = if version == V1ALPHA1 { &V1ALPHA1_ONLY } else { &V1ALPHA2_ONLY };
                for path in only {
                    if density == 13 || self.byte() % 16 > 11 {
                        self.set(&mut spec, path);
                    }
                }
                object["spec"] = spec;
            }
        }
        match self.byte() % 8 {
            0..=3 => {}
            4 => object["status"] = self.arbitrary_value(),
            density => {
                object["status"] = json!({ "phase": "Ready", "conditions": [self.arbitrary_value()] });
                for name in ["resolvedDistribution", "configGeneration", "novelty"] {
                    if density == 7 || self.byte() % 2 == 1 {
                        object["status"][name] = self.arbitrary_value();
                    }
                }
            }
        }
        object
    }

    /// Changes up to three fields of a spec as a client of `version` would.
    pub fn change(&mut self, version: &str, spec: &mut Value) {
        let only: &[&str] = if version == V1ALPHA1 { &V1ALPHA1_ONLY } else { &V1ALPHA2_ONLY };
        for _ in 0..=self.byte() % 3 {
            let index = self.byte() % (COMMON_FIELDS.len() + only.len());
            let path = match COMMON_FIELDS.get(index) {
                Some((old, new)) => {
                    if version == V1ALPHA1 {
                        *old
                    } else {
                        *new
                    }
                }
                None => only[index - COMMON_FIELDS.len()],
            };
            let (above, name) = path.rsplit_once('/').unwrap();
            if self.byte().is_multiple_of(2) {
                self.set(spec, path);
            } else if let Some(Value::Object(above)) = spec.pointer_mut(above) {
                above.remove(name);
            }
        }
    }

    /// Arbitrary JSON with names that the conversion knows.
    pub fn arbitrary_tree(&mut self, depth: usize) -> Value {
        let names = [
            "metadata",
            "annotations",
            "spec",
            "status",
            "server",
            "networking",
            "network",
            "workload",
            "expose",
            "tls",
            "containerSpec",
            "tlsConfig",
            "overrideConfig",
            "userConfig",
            "providers",
            "port",
            "configMapName",
            "enabled",
            V1ALPHA2_FIELDS,
            V1ALPHA1_FIELDS,
            "llamastack.io/v1alpha2-extras",
            "llamastack.io/v1alpha1-extras",
        ];
        match self.byte() % 8 {
            0 if depth < 6 => json!([self.arbitrary_tree(depth + 1)]),
            1 => self.arbitrary_value(),
            2 => Value::String(if depth < 6 { self.arbitrary_tree(depth + 3).to_string() } else { String::new() }),
            _ if depth < 6 => {
                let count = self.byte() % 6;
                let fields =
                    (0..count).map(|_| (names[self.byte() % names.len()].to_owned(), self.arbitrary_tree(depth + 1)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
            _ => Value::Null,
        }
    }
}

fn set_at(target: &mut Value, path: &str, value: Value) {
    let Some((_, path)) = path.split_once('/') else {
        *target = value;
        return;
    };
    let (name, rest) = path.find('/').map_or((path, ""), |end| path.split_at(end));
    if let Value::Object(fields) = target {
        set_at(fields.entry(name).or_insert_with(|| json!({})), rest, value);
    }
}

/// Random bytes, generated eight at a time because that is much faster.
pub fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u64>(), 0..25).prop_map(|words| words.into_iter().flat_map(u64::to_le_bytes).collect())
}
