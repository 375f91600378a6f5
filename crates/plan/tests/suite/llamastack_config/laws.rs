//! What holds for every spec, however odd.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use steersman_plan::llamastack::config::{Base, FieldError, Input, Merge, generate, parse_sql, storage_exports};
use steersman_plan::llamastack::validate::{Facts, Found, Missing, references, validate};
use steersman_reconcile::{Message, path};

use super::{config, starter};

/// Stands in every value that a user might take for a secret, and may come up in no output.
const SECRET: &str = "hush";

fn maybe(value: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Option<Value>> {
    prop::option::weighted(0.5, value).boxed()
}

fn of(items: Vec<Value>) -> impl Strategy<Value = Value> {
    prop::sample::select(items)
}

/// An object of those fields that are there.
fn object(fields: Vec<(&'static str, Option<Value>)>) -> Value {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<Map<_, _>>().into()
}

fn texts(of: &[&str]) -> impl Strategy<Value = Value> + use<> {
    self::of(of.iter().map(|text| json!(text)).collect())
}

fn reference() -> BoxedStrategy<Value> {
    let name = texts(&["s", "t"]);
    let key = texts(&["k", "l"]);
    (name, key, any::<bool>())
        .prop_map(|(name, key, nested)| {
            let flat = json!({"name": name, "key": key});
            if nested { json!({"secretKeyRef": flat}) } else { flat }
        })
        .boxed()
}

fn provider() -> BoxedStrategy<Value> {
    let names = ["vllm", "openai", "pgvector", "faiss", "llama-guard", "inline::x", "nobody", "sqlite-vec", "", "::"];
    let settings = of(vec![
        json!({}),
        json!({"a": 1, "b": {"secretKeyRef": {"name": "s", "key": "k"}}, "url": "x"}),
        json!({"deep": [{"secretKeyRef": {"name": "s", "key": "k"}}], "${env.X}": "${env.A_B} ${env.c}"}),
        json!("text"),
        json!(null),
    ]);
    let references = prop::collection::btree_map("[a-z_.]{1,4}", reference(), 1..3).prop_map(|map| json!(map));
    (
        maybe(texts(&["a", "a-b", "a_b", "vllm", "faiss", "größe", ""])),
        texts(&names),
        maybe(texts(&["http://x", ""])),
        maybe(reference()),
        maybe(references),
        maybe(settings),
        maybe(of(vec![json!(1)])),
    )
        .prop_map(|(id, provider, endpoint, key, references, settings, odd)| {
            object(vec![
                ("id", id),
                ("provider", Some(provider)),
                ("endpoint", endpoint),
                ("apiKey", key),
                ("secretRefs", references),
                ("settings", settings),
                ("odd", odd),
            ])
        })
        .boxed()
}

fn providers() -> BoxedStrategy<Value> {
    prop_oneof![provider(), prop::collection::vec(provider(), 0..4).prop_map(Value::from)].boxed()
}

fn all_providers() -> BoxedStrategy<Value> {
    (maybe(providers()), maybe(providers()), maybe(providers()), maybe(providers()), maybe(providers()))
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

fn resources() -> BoxedStrategy<Value> {
    let model = prop_oneof![
        texts(&["m", "n", ""]),
        (
            texts(&["m", "n"]),
            maybe(texts(&["a", "openai", "nope", ""])),
            maybe(texts(&["llm", "chat"])),
            maybe(any::<i64>().prop_map(Value::from))
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
    let names = || prop::collection::vec(texts(&["x", "llama-guard", "${env.X}"]), 0..3).prop_map(Value::from);
    (maybe(prop::collection::vec(model, 0..5).prop_map(Value::from)), maybe(names()), maybe(names()))
        .prop_map(|(models, tools, shields)| object(vec![("models", models), ("tools", tools), ("shields", shields)]))
        .boxed()
}

fn storage() -> BoxedStrategy<Value> {
    let endpoint = texts(&["redis://r:1", "r", "redis://u:hush@r", "rediss://r", "", "[::1]:5"]);
    let kv = (maybe(texts(&["sqlite", "redis"])), maybe(endpoint), maybe(reference())).prop_map(
        |(type_, endpoint, password)| object(vec![("type", type_), ("endpoint", endpoint), ("password", password)]),
    );
    let sql = (maybe(texts(&["sqlite", "postgres"])), maybe(reference()))
        .prop_map(|(type_, dsn)| object(vec![("type", type_), ("connectionString", dsn)]));
    (maybe(kv), maybe(sql)).prop_map(|(kv, sql)| object(vec![("kv", kv), ("sql", sql)])).boxed()
}

fn spec() -> BoxedStrategy<Value> {
    let names =
        texts(&["eval", "safety", "vectorIo", "vector_io", "inference", "agents", "files", "none", "telemetry"]);
    let networking = of(vec![
        json!({}),
        json!({"port": 80}),
        json!({"port": -5, "expose": {"enabled": false, "hostname": "h"}}),
        json!({"tls": {"enabled": true}}),
        json!({"tls": {"enabled": true, "secretName": "cert"}, "expose": true}),
    ]);
    let external = of(vec![
        json!({}),
        json!({"inference": [{"providerId": "a", "image": "i", "config": {"x": 1}}]}),
        json!({"safety": [{"providerId": "a", "image": "i"}, {"providerId": "A", "image": ""}], "eval": []}),
    ]);
    let distribution =
        of(vec![json!({"name": "starter"}), json!({"name": "starter"}), json!({"image": "x"}), json!({})]);
    let workload =
        of(vec![json!({"overrides": {"env": [{"name": "A_B", "value": SECRET}], "command": ["x"]}, "workers": 3})]);
    (
        distribution,
        maybe(all_providers()),
        maybe(resources()),
        maybe(storage()),
        maybe(prop::collection::vec(names, 0..4).prop_map(Value::from)),
        maybe(networking),
        maybe(external),
        maybe(workload),
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

fn base() -> impl Strategy<Value = Base> {
    let version = prop::sample::select(vec!["0.7.1", "0.2.12", "0.3.0", "", "1.5.0"]);
    let gone = prop::collection::btree_set(
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
    let odd = prop::option::weighted(0.2, prop::sample::select(vec!["apis", "providers", "storage", "vector_stores"]));
    (version, gone, odd).prop_map(|(version, gone, odd)| {
        let mut base = Base { server_version: version.into(), ..starter() };
        let config = base.config.as_object_mut().unwrap();
        gone.iter().for_each(|key| drop(config.remove(*key)));
        odd.into_iter().for_each(|key| drop(config.insert(key.to_owned(), json!(5))));
        base
    })
}

fn run(
    spec: &Value,
    base: &Base,
    replace: bool,
) -> Result<steersman_plan::llamastack::config::Generated, Vec<FieldError>> {
    let spec = serde_json::from_value(spec.clone()).unwrap();
    let merge = if replace { Merge::Replace } else { Merge::Overlay };
    generate(&Input { spec: &spec, base: Some(base), merge, operator_image: "operator:1" })
}

/// The same with every map in another order, where the JSON library keeps orders at all.
fn turned(value: &Value) -> Value {
    match value {
        Value::Object(map) => map.iter().rev().map(|(key, value)| (key.clone(), turned(value))).collect(),
        Value::Array(items) => items.iter().map(turned).collect(),
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn generation_is_total_deterministic_and_sound(spec in spec(), base in base(), replace in any::<bool>()) {
        let result = run(&spec, &base, replace);
        let other = Base { config: turned(&base.config), ..base.clone() };
        prop_assert_eq!(&result, &run(&turned(&spec), &other, replace));
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
        let shown = format!("{generated:?}");
        prop_assert!(!shown.contains(SECRET), "{}", shown);
        let names: BTreeSet<&str> = generated.env.iter().map(|variable| variable.name.as_str()).collect();
        prop_assert_eq!(names.len(), generated.env.len(), "variables are unique");
        for name in names {
            prop_assert!(name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'), "{name}");
        }
        let file = config(&generated);
        sound(&file, &spec)?;
    }

    #[test]
    fn a_file_that_is_its_own_base_stays_as_it_is(spec in spec()) {
        let Ok(generated) = run(&spec, &starter(), false) else { return Ok(()) };
        let mut again = Base { config: config(&generated), ..starter() };
        let second = run(&spec, &again, false);
        let second = second.map_err(|problems| TestCaseError::fail(format!("{problems:#?}")))?;
        prop_assert_eq!(&second.config_yaml, &generated.config_yaml);
        again.config = turned(&again.config);
        prop_assert_eq!(run(&spec, &again, false).unwrap().hash, generated.hash);
    }

    #[test]
    fn admission_refuses_exactly_what_cannot_be_generated(mut spec in spec(), replace in any::<bool>()) {
        spec["distribution"] = json!({"name": "starter"});
        // Makes a file needed, whatever else there is.
        if spec.get("resources").is_none() {
            spec["resources"] = json!({});
        }
        let base = starter();
        let found = BTreeMap::new();
        let facts = Facts {
            config_namespace: None,
            namespace: "n", distributions: &["starter"], base: Some(&base), always_mounted: false, found: &found,
            missing: Missing::Refuse,
        };
        let annotations = if replace { json!({"steersman.dev/provider-merge": "replace"}) } else { json!({}) };
        let object = json!({"metadata": {"annotations": annotations}, "spec": spec});
        let verdict = validate(&object, None, &facts);
        prop_assert_eq!(verdict.errors, run(&spec, &base, replace).err().unwrap_or_default());
    }

    #[test]
    fn admission_never_fails_on_whatever_comes(spec in anything(), old in anything()) {
        let found = BTreeMap::new();
        let facts = Facts {
            config_namespace: None,
            namespace: "n", distributions: &["starter"], base: None, always_mounted: true, found: &found,
            missing: Missing::Warn,
        };
        let verdict = validate(&json!({"spec": spec}), Some(&json!({"spec": old})), &facts);
        let shown = format!("{verdict:?}");
        prop_assert!(!shown.contains(SECRET), "{}", shown);
    }

    #[test]
    fn missing_references_are_told_each_at_its_place(spec in spec()) {
        let typed = serde_json::from_value(spec).unwrap();
        let all = references(&typed, "n");
        let found: BTreeMap<_, _> = all.iter().map(|one| (one.named.clone(), Found::Absent)).collect();
        let told = steersman_plan::llamastack::validate::missing(&all, &found);
        prop_assert_eq!(told.len(), all.len());
    }

    #[test]
    fn connection_strings_never_fail_and_give_back_what_was_put_in(
        user in "[a-z0-9@:/?# %']{1,6}", password in ".{0,8}", host in "[a-z.]{1,6}", db in "[a-z]{1,5}", port in 1..=u16::MAX,
    ) {
        let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let text = format!("postgresql://{}:{}@{host}:{port}/{db}", encode(&user), encode(&password));
        let parts = parse_sql(&text).unwrap();
        prop_assert_eq!((parts.user, parts.password, parts.host, parts.port, parts.db), (user, password, host, port, db));
        let script = storage_exports(Some(&text), None).unwrap();
        prop_assert_eq!(script.lines().count(), 5, "one line each, whatever is in them");
    }

    #[test]
    fn any_text_is_taken_apart_or_refused(text in ".{0,40}") {
        let _ = (parse_sql(&text), storage_exports(Some(&format!("postgres://{text}")), Some(&text)));
    }
}

/// Anything that JSON can say, around the names that matter.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        Just(json!("name")),
        Just(json!("")),
        // Where a reference belongs, people write the secret itself.
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

/// Nothing in the file points to a provider that is not there, and no id stands twice.
fn sound(file: &Value, spec: &Value) -> Result<(), TestCaseError> {
    let effective = |id: &str| id.rsplit(":+").next().unwrap_or_default().trim_end_matches('}').to_owned();
    let mut known: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (api, list) in file["providers"].as_object().into_iter().flatten() {
        let ids =
            list.as_array().into_iter().flatten().filter_map(|entry| entry["provider_id"].as_str()).map(effective);
        known.insert(api, ids.collect());
    }
    for (api, ids) in &known {
        prop_assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{}", api);
    }
    for (api, field) in [("inference", "inference"), ("safety", "safety")] {
        let external = spec["externalProviders"][field].as_array().into_iter().flatten();
        let external = external.filter_map(|one| one["providerId"].as_str()).map(ToOwned::to_owned);
        known.entry(api).or_default().extend(external);
    }
    let lists = [("models", "inference"), ("shields", "safety"), ("tool_groups", "tool_runtime")];
    for (list, api) in lists {
        let section =
            if file["registered_resources"].is_null() { &file[list] } else { &file["registered_resources"][list] };
        for resource in section.as_array().into_iter().flatten() {
            let provider = effective(resource["provider_id"].as_str().unwrap_or_default());
            prop_assert!(known.get(api).is_some_and(|ids| ids.contains(&provider)), "{} {}", list, resource);
        }
    }
    Ok(())
}
