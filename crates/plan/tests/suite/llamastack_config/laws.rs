//! Properties that hold for every spec.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use steersman_plan::llamastack::config::{Base, FieldError, Input, Merge, generate, parse_sql, storage_exports};
use steersman_plan::llamastack::validate::{Facts, Missing, ReferenceState, references, validate};
use steersman_reconcile::{Message, path};

use super::{config, starter};

/// Part of every value that may be a secret. No output may contain it.
const SECRET: &str = "hush";

fn optional(value: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Option<Value>> {
    prop::option::weighted(0.5, value).boxed()
}

fn one_of(items: Vec<Value>) -> impl Strategy<Value = Value> {
    prop::sample::select(items)
}

/// A JSON object of the fields that have a value.
fn object(fields: Vec<(&'static str, Option<Value>)>) -> Value {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<Map<_, _>>().into()
}

fn one_text_of(texts: &[&str]) -> impl Strategy<Value = Value> + use<> {
    one_of(texts.iter().map(|text| json!(text)).collect())
}

fn secret_references() -> BoxedStrategy<Value> {
    let name = one_text_of(&["s", "t"]);
    let key = one_text_of(&["k", "l"]);
    (name, key, any::<bool>())
        .prop_map(|(name, key, nested)| {
            let flat = json!({"name": name, "key": key});
            if nested { json!({"secretKeyRef": flat}) } else { flat }
        })
        .boxed()
}

fn provider_entries() -> BoxedStrategy<Value> {
    let names = ["vllm", "openai", "pgvector", "faiss", "llama-guard", "inline::x", "nobody", "sqlite-vec", "", "::"];
    let settings = one_of(vec![
        json!({}),
        json!({"a": 1, "b": {"secretKeyRef": {"name": "s", "key": "k"}}, "url": "x"}),
        json!({"deep": [{"secretKeyRef": {"name": "s", "key": "k"}}], "${env.X}": "${env.A_B} ${env.c}"}),
        json!("text"),
        json!(null),
    ]);
    let references = prop::collection::btree_map("[a-z_.]{1,4}", secret_references(), 1..3).prop_map(|map| json!(map));
    (
        optional(one_text_of(&["a", "a-b", "a_b", "vllm", "faiss", "größe", ""])),
        one_text_of(&names),
        optional(one_text_of(&["http://x", ""])),
        optional(secret_references()),
        optional(references),
        optional(settings),
        optional(one_of(vec![json!(1)])),
    )
        .prop_map(|(id, provider, endpoint, key, references, settings, unknown)| {
            object(vec![
                ("id", id),
                ("provider", Some(provider)),
                ("endpoint", endpoint),
                ("apiKey", key),
                ("secretRefs", references),
                ("settings", settings),
                ("odd", unknown),
            ])
        })
        .boxed()
}

fn provider_fields() -> BoxedStrategy<Value> {
    prop_oneof![provider_entries(), prop::collection::vec(provider_entries(), 0..4).prop_map(Value::from)].boxed()
}

fn provider_sections() -> BoxedStrategy<Value> {
    (
        optional(provider_fields()),
        optional(provider_fields()),
        optional(provider_fields()),
        optional(provider_fields()),
        optional(provider_fields()),
    )
        .prop_map(|(inference, safety, vector_io, tool_runtime, telemetry)| {
            object(vec![
                ("inference", inference),
                ("safety", safety),
                ("vectorIo", vector_io),
                ("toolRuntime", tool_runtime),
                ("telemetry", telemetry),
            ])
        })
        .boxed()
}

fn resource_sections() -> BoxedStrategy<Value> {
    let model = prop_oneof![
        one_text_of(&["m", "n", ""]),
        (
            one_text_of(&["m", "n"]),
            optional(one_text_of(&["a", "openai", "nope", ""])),
            optional(one_text_of(&["llm", "chat"])),
            optional(any::<i64>().prop_map(Value::from))
        )
            .prop_map(|(name, provider, type_, length)| {
                object(vec![
                    ("name", Some(name)),
                    ("provider", provider),
                    ("modelType", type_),
                    ("contextLength", length),
                ])
            }),
    ];
    let names = || prop::collection::vec(one_text_of(&["x", "llama-guard", "${env.X}"]), 0..3).prop_map(Value::from);
    (optional(prop::collection::vec(model, 0..5).prop_map(Value::from)), optional(names()), optional(names()))
        .prop_map(|(models, tools, shields)| object(vec![("models", models), ("tools", tools), ("shields", shields)]))
        .boxed()
}

fn storage_sections() -> BoxedStrategy<Value> {
    let endpoint = one_text_of(&["redis://r:1", "r", "redis://u:hush@r", "rediss://r", "", "[::1]:5"]);
    let kv = (optional(one_text_of(&["sqlite", "redis"])), optional(endpoint), optional(secret_references())).prop_map(
        |(type_, endpoint, password)| object(vec![("type", type_), ("endpoint", endpoint), ("password", password)]),
    );
    let sql = (optional(one_text_of(&["sqlite", "postgres"])), optional(secret_references()))
        .prop_map(|(type_, dsn)| object(vec![("type", type_), ("connectionString", dsn)]));
    (optional(kv), optional(sql)).prop_map(|(kv, sql)| object(vec![("kv", kv), ("sql", sql)])).boxed()
}

fn specs() -> BoxedStrategy<Value> {
    let names =
        one_text_of(&["eval", "safety", "vectorIo", "vector_io", "inference", "agents", "files", "none", "telemetry"]);
    let networking = one_of(vec![
        json!({}),
        json!({"port": 80}),
        json!({"port": -5, "expose": {"enabled": false, "hostname": "h"}}),
        json!({"tls": {"enabled": true}}),
        json!({"tls": {"enabled": true, "secretName": "cert"}, "expose": true}),
    ]);
    let external = one_of(vec![
        json!({}),
        json!({"inference": [{"providerId": "a", "image": "i", "config": {"x": 1}}]}),
        json!({"safety": [{"providerId": "a", "image": "i"}, {"providerId": "A", "image": ""}], "eval": []}),
    ]);
    let distribution =
        one_of(vec![json!({"name": "starter"}), json!({"name": "starter"}), json!({"image": "x"}), json!({})]);
    let workload =
        one_of(vec![json!({"overrides": {"env": [{"name": "A_B", "value": SECRET}], "command": ["x"]}, "workers": 3})]);
    (
        distribution,
        optional(provider_sections()),
        optional(resource_sections()),
        optional(storage_sections()),
        optional(prop::collection::vec(names, 0..4).prop_map(Value::from)),
        optional(networking),
        optional(external),
        optional(workload),
    )
        .prop_map(|(distribution, providers, resources, storage, disabled, networking, external, workload)| {
            object(vec![
                ("distribution", Some(distribution)),
                ("providers", providers),
                ("resources", resources),
                ("storage", storage),
                ("disabled", disabled),
                ("networking", networking),
                ("externalProviders", external),
                ("workload", workload),
            ])
        })
        .boxed()
}

fn bases() -> impl Strategy<Value = Base> {
    let version = prop::sample::select(vec!["0.7.1", "0.2.12", "0.3.0", "", "1.5.0"]);
    let removed = prop::collection::btree_set(
        prop::sample::select(vec![
            "apis",
            "providers",
            "storage",
            "registered_resources",
            "server",
            "safety",
            "version",
        ]),
        0..2,
    );
    let replaced =
        prop::option::weighted(0.2, prop::sample::select(vec!["apis", "providers", "storage", "vector_stores"]));
    (version, removed, replaced).prop_map(|(version, removed, replaced)| {
        let mut base = Base { server_version: version.into(), ..starter() };
        let config = base.config.as_object_mut().unwrap();
        removed.iter().for_each(|key| drop(config.remove(*key)));
        replaced.into_iter().for_each(|key| drop(config.insert(key.to_owned(), json!(5))));
        base
    })
}

fn generate_config(
    spec: &Value,
    base: &Base,
    replace: bool,
) -> Result<steersman_plan::llamastack::config::Generated, Vec<FieldError>> {
    let spec = serde_json::from_value(spec.clone()).unwrap();
    let merge = if replace { Merge::Replace } else { Merge::Overlay };
    generate(&Input { spec: &spec, base: Some(base), merge, operator_image: "operator:1" })
}

/// The value with the keys of every map reversed, in case the JSON library preserves key order.
fn reverse_maps(value: &Value) -> Value {
    match value {
        Value::Object(map) => map.iter().rev().map(|(key, value)| (key.clone(), reverse_maps(value))).collect(),
        Value::Array(items) => items.iter().map(reverse_maps).collect(),
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn generation_is_total_deterministic_and_sound(spec in specs(), base in bases(), replace in any::<bool>()) {
        let result = generate_config(&spec, &base, replace);
        let other = Base { config: reverse_maps(&base.config), ..base.clone() };
        prop_assert_eq!(&result, &generate_config(&reverse_maps(&spec), &other, replace));
        let generated = match result {
            Err(problems) => {
                prop_assert!(!problems.is_empty());
                for problem in problems {
                    prop_assert!(problem.path.below(&path!(spec)).is_some() && problem.message != Message::default(), "{problem:?}");
                    prop_assert!(problem.remedy != Message::default() && !problem.text().to_string().contains(SECRET), "{problem:?}");
                }
                return Ok(());
            }
            Ok(generated) => generated,
        };
        let dump = format!("{generated:?}");
        prop_assert!(!dump.contains(SECRET), "{}", dump);
        let names: BTreeSet<&str> = generated.env.iter().map(|variable| variable.name.as_str()).collect();
        prop_assert_eq!(names.len(), generated.env.len(), "variables are unique");
        for name in names {
            prop_assert!(name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'), "{name}");
        }
        let file = config(&generated);
        check_references(&file, &spec)?;
    }

    #[test]
    fn generation_on_own_output_is_stable(spec in specs()) {
        let Ok(generated) = generate_config(&spec, &starter(), false) else { return Ok(()) };
        let mut own_base = Base { config: config(&generated), ..starter() };
        let second = generate_config(&spec, &own_base, false);
        let second = second.map_err(|problems| TestCaseError::fail(format!("{problems:#?}")))?;
        prop_assert_eq!(&second.config_yaml, &generated.config_yaml);
        own_base.config = reverse_maps(&own_base.config);
        prop_assert_eq!(generate_config(&spec, &own_base, false).unwrap().hash, generated.hash);
    }

    #[test]
    fn admission_rejects_exactly_ungeneratable_specs(mut spec in specs(), replace in any::<bool>()) {
        spec["distribution"] = json!({"name": "starter"});
        // `resources` forces a generated configuration.
        if spec.get("resources").is_none() {
            spec["resources"] = json!({});
        }
        let base = starter();
        let no_lookups = BTreeMap::new();
        let facts = Facts {
            config_namespace: None,
            namespace: "n", distributions: &["starter"], base: Some(&base), always_mounted: false, found: &no_lookups,
            missing: Missing::Refuse,
        };
        let annotations = if replace { json!({"steersman.dev/provider-merge": "replace"}) } else { json!({}) };
        let object = json!({"metadata": {"annotations": annotations}, "spec": spec});
        let review = validate(&object, None, &facts);
        prop_assert_eq!(review.errors, generate_config(&spec, &base, replace).err().unwrap_or_default());
    }

    #[test]
    fn admission_never_panics_on_any_json(spec in any_json(), old in any_json()) {
        let no_lookups = BTreeMap::new();
        let facts = Facts {
            config_namespace: None,
            namespace: "n", distributions: &["starter"], base: None, always_mounted: true, found: &no_lookups,
            missing: Missing::Warn,
        };
        let review = validate(&json!({"spec": spec}), Some(&json!({"spec": old})), &facts);
        let dump = format!("{review:?}");
        prop_assert!(!dump.contains(SECRET), "{}", dump);
    }

    #[test]
    fn each_missing_reference_is_reported(spec in specs()) {
        let typed_spec = serde_json::from_value(spec).unwrap();
        let all = references(&typed_spec, "n");
        let lookups: BTreeMap<_, _> = all.iter().map(|item| (item.named.clone(), ReferenceState::Missing)).collect();
        let problems = steersman_plan::llamastack::validate::missing(&all, &lookups);
        prop_assert_eq!(problems.len(), all.len());
    }

    #[test]
    fn connection_strings_round_trip(
        user in "[a-z0-9@:/?# %']{1,6}", password in ".{0,8}", host in "[a-z.]{1,6}", db in "[a-z]{1,5}", port in 1..=u16::MAX,
    ) {
        let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let text = format!("postgresql://{}:{}@{host}:{port}/{db}", encode(&user), encode(&password));
        let parts = parse_sql(&text).unwrap();
        prop_assert_eq!((parts.user, parts.password, parts.host, parts.port, parts.db), (user, password, host, port, db));
        let script = storage_exports(Some(&text), None).unwrap();
        prop_assert_eq!(script.lines().count(), 5, "each export is one line");
    }

    #[test]
    fn any_connection_string_is_parsed_or_rejected(text in ".{0,40}") {
        let _ = (parse_sql(&text), storage_exports(Some(&format!("postgres://{text}")), Some(&text)));
    }
}

/// Arbitrary JSON that uses field names of the spec.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        Just(json!("name")),
        Just(json!("")),
        // Users may write the secret itself instead of a reference.
        Just(json!({"apiKey": SECRET, "provider": "vllm", "secretRefs": {"a": SECRET}})),
        Just(json!({"kv": {"password": SECRET}, "sql": {"connectionString": {"name": SECRET}}})),
    ];
    let names = prop::sample::select(vec![
        "providers",
        "inference",
        "provider",
        "id",
        "apiKey",
        "name",
        "key",
        "secretKeyRef",
        "secretRefs",
        "resources",
        "models",
        "networking",
        "expose",
        "storage",
        "kv",
        "password",
        "distribution",
        "workload",
        "settings",
        "port",
    ]);
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..6).prop_map(|map| json!(map)),
        ]
    })
}

/// Expects unique provider ids, and resources that refer to existing providers.
fn check_references(file: &Value, spec: &Value) -> Result<(), TestCaseError> {
    let effective_id = |id: &str| id.rsplit(":+").next().unwrap_or_default().trim_end_matches('}').to_owned();
    let mut provider_ids: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (api, list) in file["providers"].as_object().into_iter().flatten() {
        let ids =
            list.as_array().into_iter().flatten().filter_map(|entry| entry["provider_id"].as_str()).map(effective_id);
        provider_ids.insert(api, ids.collect());
    }
    for (api, ids) in &provider_ids {
        prop_assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{}", api);
    }
    for (api, field) in [("inference", "inference"), ("safety", "safety")] {
        let external = spec["externalProviders"][field].as_array().into_iter().flatten();
        let external = external.filter_map(|item| item["providerId"].as_str()).map(ToOwned::to_owned);
        provider_ids.entry(api).or_default().extend(external);
    }
    let lists = [("models", "inference"), ("shields", "safety"), ("tool_groups", "tool_runtime")];
    for (list, api) in lists {
        let section =
            if file["registered_resources"].is_null() { &file[list] } else { &file["registered_resources"][list] };
        for resource in section.as_array().into_iter().flatten() {
            let provider = effective_id(resource["provider_id"].as_str().unwrap_or_default());
            prop_assert!(provider_ids.get(api).is_some_and(|ids| ids.contains(&provider)), "{} {}", list, resource);
        }
    }
    Ok(())
}
