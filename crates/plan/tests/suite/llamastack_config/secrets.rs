use k8s_openapi::api::core::v1::EnvVar;
use serde_json::{Value, json};

use super::{config, entry, errors, generate_starter, remarks};

fn name_and_source(variable: &EnvVar) -> (String, String) {
    let selector = variable.value_from.clone().unwrap().secret_key_ref.unwrap();
    assert_eq!(variable.value, None);
    assert_eq!(selector.optional, None);
    (variable.name.clone(), format!("{}/{}", selector.name, selector.key))
}

fn env_sources(text: &str) -> Vec<(String, String)> {
    generate_starter(text).env.iter().map(name_and_source).collect()
}

fn owned_pairs<const N: usize>(expected: [(&str, &str); N]) -> Vec<(String, String)> {
    expected.map(|(name, source)| (name.to_owned(), source.to_owned())).to_vec()
}

#[test]
fn fr_032_variable_is_named_after_provider_field() {
    for (id, variable) in [
        ("vllm-primary", "LLSD_VLLM_PRIMARY_API_KEY"),
        ("vllm", "LLSD_VLLM_API_KEY"),
        ("a.b", "LLSD_A_B_API_KEY"),
        ("a::b", "LLSD_A_B_API_KEY"),
        ("a--b", "LLSD_A__B_API_KEY"),
        ("7b", "LLSD_7B_API_KEY"),
        ("größe", "LLSD_GR_E_API_KEY"),
    ] {
        let text = format!("{{providers: {{inference: {{id: '{id}', provider: vllm, apiKey: {{name: s, key: k}}}}}}}}");
        assert_eq!(env_sources(&text), owned_pairs([(variable, "s/k")]), "{id}");
    }
}

#[test]
fn fr_032_placeholder_uses_provider_specific_key() {
    for (provider, expected) in [
        ("vllm", json!({"api_token": "${env.LLSD_MINE_API_KEY}", "api_key": "${env.LLSD_MINE_API_KEY}"})),
        ("openai", json!({"api_key": "${env.LLSD_MINE_API_KEY}"})),
        ("databricks", json!({"api_token": "${env.LLSD_MINE_API_KEY}", "api_key": "${env.LLSD_MINE_API_KEY}"})),
        ("nobody-knows", json!({"api_key": "${env.LLSD_MINE_API_KEY}"})),
    ] {
        let generated = generate_starter(&format!(
            "{{providers: {{inference: {{id: mine, provider: {provider}, apiKey: {{secretKeyRef: {{name: s, key: k}}}}}}}}}}"
        ));
        assert_eq!(entry(&config(&generated), "inference", "mine")["config"], expected, "{provider}");
    }
}

#[test]
fn secret_ref_api_key_equals_api_key() {
    for provider in ["vllm", "openai", "databricks", "nobody-knows"] {
        let generated = |field: &str| {
            generate_starter(&format!("{{providers: {{inference: {{id: mine, provider: {provider}, {field}}}}}}}"))
        };
        let by_field = generated("apiKey: {name: s, key: k}");
        let by_reference = generated("secretRefs: {api_key: {name: s, key: k}}");
        assert_eq!(by_reference.config_yaml, by_field.config_yaml, "{provider}");
        assert_eq!(by_reference.env, by_field.env, "{provider}");
    }
    let own_key = generate_starter(
        "{providers: {inference: {id: mine, provider: vllm, secretRefs: {api_token: {name: s, key: t}, api_key: {name: s, key: k}}}}}",
    );
    let expected = json!({"api_token": "${env.LLSD_MINE_API_TOKEN}", "api_key": "${env.LLSD_MINE_API_KEY}"});
    assert_eq!(entry(&config(&own_key), "inference", "mine")["config"], expected);
}

#[test]
fn fr_032_both_reference_forms_are_equivalent() {
    let flat = generate_starter("{providers: {inference: {provider: vllm, apiKey: {name: s, key: k}}}}");
    let nested =
        generate_starter("{providers: {inference: {provider: vllm, apiKey: {secretKeyRef: {name: s, key: k}}}}}");
    assert_eq!(flat.config_yaml, nested.config_yaml);
    assert_eq!(flat.env, nested.env);
    assert_eq!(flat.secrets[0].path.to_string(), "spec.providers.inference.apiKey");
    assert_eq!(nested.secrets[0].path.to_string(), "spec.providers.inference.apiKey.secretKeyRef");
}

#[test]
fn fr_005_secret_refs_and_settings_become_variables() {
    let generated = generate_starter(
        "{providers: {vectorIo: {provider: pgvector, secretRefs: {host: {name: s, key: h}, password: {name: s, key: p}}, \
         settings: {user: {secretKeyRef: {name: s, key: u}}, db: plain}}}}",
    );
    let config = config(&generated);
    let config = &entry(&config, "vector_io", "pgvector")["config"];
    assert_eq!(config["host"], "${env.LLSD_PGVECTOR_HOST}");
    assert_eq!(config["password"], "${env.LLSD_PGVECTOR_PASSWORD}");
    assert_eq!(config["user"], "${env.LLSD_PGVECTOR_USER}");
    assert_eq!(config["db"], "plain");
    let paths: Vec<String> = generated.secrets.iter().map(|used| used.path.to_string()).collect();
    assert_eq!(
        paths,
        [
            "spec.providers.vectorIo.settings.user.secretKeyRef",
            "spec.providers.vectorIo.secretRefs.host",
            "spec.providers.vectorIo.secretRefs.password",
        ]
    );
}

#[test]
fn fr_005_near_references_are_passed_through() {
    let cases = [
        json!({"name": "a", "key": "b"}),
        json!({"secretKeyRef": {"name": "a"}}),
        json!({"secretKeyRef": {"name": "a", "key": "b", "optional": true}}),
        json!({"deep": {"secretKeyRef": {"name": "a", "key": "b"}}}),
        json!([{"secretKeyRef": {"name": "a", "key": "b"}}]),
    ];
    for value in cases {
        let spec = json!({"providers": {"inference": {"provider": "vllm", "settings": {"thing": value}}}});
        let generated = generate_starter(&spec.to_string());
        assert_eq!(entry(&config(&generated), "inference", "vllm")["config"]["thing"], value);
        assert_eq!(generated.env, []);
        let has_remark = !remarks(&generated).is_empty();
        assert_eq!(has_remark, value.to_string().contains("secretKeyRef"), "{value}");
    }
}

#[test]
fn variables_follow_api_then_storage_order() {
    assert_eq!(
        env_sources(
            "{storage: {kv: {type: redis, endpoint: r, password: {name: s, key: kv}}, sql: {type: postgres, connectionString: \
             {name: s, key: sql}}}, providers: {toolRuntime: {provider: tavily-search, apiKey: {name: s, key: t}}, \
             inference: [{id: b, provider: vllm, apiKey: {name: s, key: b}}, {id: a, provider: vllm, secretRefs: {z: {name: s, \
             key: z}, w: {name: s, key: w}}, apiKey: {name: s, key: a}}]}}"
        ),
        owned_pairs([
            ("LLSD_B_API_KEY", "s/b"),
            ("LLSD_A_API_KEY", "s/a"),
            ("LLSD_A_W", "s/w"),
            ("LLSD_A_Z", "s/z"),
            ("LLSD_TAVILY_SEARCH_API_KEY", "s/t"),
            ("LLSD_STORAGE_KV_PASSWORD", "s/kv"),
            ("LLSD_STORAGE_SQL_CONNECTION_STRING", "s/sql"),
        ])
    );
}

#[test]
fn variable_collision_needs_same_secret() {
    let spec = |second: &str| {
        format!(
            "{{providers: {{inference: [{{id: a-b, provider: vllm, apiKey: {{name: s, key: k}}}}, {{id: a_b, provider: vllm, \
             apiKey: {{name: s, key: {second}}}}}]}}}}"
        )
    };
    assert_eq!(
        errors(&spec("other")),
        [
            "spec.providers.inference[1].apiKey: failed to validate env var name collision for \"LLSD_A_B_API_KEY\": s/k \
          conflicts with s/other"
        ]
    );
    assert_eq!(env_sources(&spec("k")), owned_pairs([("LLSD_A_B_API_KEY", "s/k")]));
    assert_eq!(generate_starter(&spec("k")).secrets.len(), 2, "both paths are recorded");
}

#[test]
fn nfr_003_configuration_names_no_secret() {
    let generated = generate_starter(
        "{providers: {inference: {provider: vllm, apiKey: {name: the-secret, key: the-key}}}, storage: {kv: {type: redis, \
         endpoint: 'redis://r', password: {name: the-secret, key: the-key}}}}",
    );
    assert!(!generated.config_yaml.contains("the-secret") && !generated.config_yaml.contains("the-key"));
    let parsed: Value = config(&generated);
    assert_eq!(parsed["storage"]["backends"]["kv_default"]["host"], ":${env.LLSD_STORAGE_KV_PASSWORD}@r");
}

#[test]
fn literal_secret_is_reported_unquoted() {
    let generated = generate_starter(
        "{providers: {inference: {provider: vllm, endpoint: 'http://me:hush@x/v1', settings: {api_token: hush, max_tokens: 5, \
         password: '${env.MINE:=x}'}}, safety: {provider: sambanova, endpoint: 'http://x/a:b@c'}}}",
    );
    let expected = ["spec.providers.inference.endpoint", "spec.providers.inference.settings.api_token"];
    assert_eq!(generated.remarks.iter().map(|one| one.path.to_string()).collect::<Vec<_>>(), expected);
    assert!(!remarks(&generated).concat().contains("hush"));
}
