use k8s_openapi::api::core::v1::EnvVar;
use serde_json::{Value, json};

use super::{config, entry, errors, made, remarks};

fn name_and_source(variable: &EnvVar) -> (String, String) {
    let selector = variable.value_from.clone().unwrap().secret_key_ref.unwrap();
    assert_eq!(variable.value, None);
    assert_eq!(selector.optional, None);
    (variable.name.clone(), format!("{}/{}", selector.name, selector.key))
}

fn env(text: &str) -> Vec<(String, String)> {
    made(text).env.iter().map(name_and_source).collect()
}

fn pairs<const N: usize>(wanted: [(&str, &str); N]) -> Vec<(String, String)> {
    wanted.map(|(name, source)| (name.to_owned(), source.to_owned())).to_vec()
}

#[test]
fn fr_032_the_variable_is_named_after_provider_and_field() {
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
        assert_eq!(env(&text), pairs([(variable, "s/k")]), "{id}");
    }
}

#[test]
fn fr_032_the_file_holds_the_placeholder_under_the_key_that_the_server_reads() {
    for (provider, wanted) in [
        ("vllm", json!({"api_token": "${env.LLSD_MINE_API_KEY}", "api_key": "${env.LLSD_MINE_API_KEY}"})),
        ("openai", json!({"api_key": "${env.LLSD_MINE_API_KEY}"})),
        ("databricks", json!({"api_token": "${env.LLSD_MINE_API_KEY}", "api_key": "${env.LLSD_MINE_API_KEY}"})),
        ("nobody-knows", json!({"api_key": "${env.LLSD_MINE_API_KEY}"})),
    ] {
        let generated = made(&format!(
            "{{providers: {{inference: {{id: mine, provider: {provider}, apiKey: {{secretKeyRef: {{name: s, key: k}}}}}}}}}}"
        ));
        assert_eq!(entry(&config(&generated), "inference", "mine")["config"], wanted, "{provider}");
    }
}

#[test]
fn fr_032_both_forms_of_a_reference_mean_the_same() {
    let flat = made("{providers: {inference: {provider: vllm, apiKey: {name: s, key: k}}}}");
    let nested = made("{providers: {inference: {provider: vllm, apiKey: {secretKeyRef: {name: s, key: k}}}}}");
    assert_eq!(flat.config_yaml, nested.config_yaml);
    assert_eq!(flat.env, nested.env);
    assert_eq!(flat.secrets[0].path.to_string(), "spec.providers.inference.apiKey");
    assert_eq!(nested.secrets[0].path.to_string(), "spec.providers.inference.apiKey.secretKeyRef");
}

#[test]
fn fr_005_secret_refs_and_settings_at_the_top_are_taken_from_secrets() {
    let generated = made(
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
fn fr_005_what_only_looks_like_a_reference_is_passed_on() {
    let cases = [
        json!({"name": "a", "key": "b"}),
        json!({"secretKeyRef": {"name": "a"}}),
        json!({"secretKeyRef": {"name": "a", "key": "b", "optional": true}}),
        json!({"deep": {"secretKeyRef": {"name": "a", "key": "b"}}}),
        json!([{"secretKeyRef": {"name": "a", "key": "b"}}]),
    ];
    for value in cases {
        let spec = json!({"providers": {"inference": {"provider": "vllm", "settings": {"thing": value}}}});
        let generated = made(&spec.to_string());
        assert_eq!(entry(&config(&generated), "inference", "vllm")["config"]["thing"], value);
        assert_eq!(generated.env, []);
        let told = !remarks(&generated).is_empty();
        assert_eq!(told, value.to_string().contains("secretKeyRef"), "{value}");
    }
}

#[test]
fn variables_stand_in_the_order_of_the_apis_and_then_storage() {
    assert_eq!(
        env(
            "{storage: {kv: {type: redis, endpoint: r, password: {name: s, key: kv}}, sql: {type: postgres, connectionString: \
             {name: s, key: sql}}}, providers: {toolRuntime: {provider: tavily-search, apiKey: {name: s, key: t}}, \
             inference: [{id: b, provider: vllm, apiKey: {name: s, key: b}}, {id: a, provider: vllm, secretRefs: {z: {name: s, \
             key: z}, w: {name: s, key: w}}, apiKey: {name: s, key: a}}]}}"
        ),
        pairs([
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
fn two_ids_with_one_variable_are_refused_unless_the_secret_is_the_same() {
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
    assert_eq!(env(&spec("k")), pairs([("LLSD_A_B_API_KEY", "s/k")]));
    assert_eq!(made(&spec("k")).secrets.len(), 2, "each place is known");
}

#[test]
fn nfr_003_the_file_names_no_secret() {
    let generated = made(
        "{providers: {inference: {provider: vllm, apiKey: {name: the-secret, key: the-key}}}, storage: {kv: {type: redis, \
         endpoint: 'redis://r', password: {name: the-secret, key: the-key}}}}",
    );
    assert!(!generated.config_yaml.contains("the-secret") && !generated.config_yaml.contains("the-key"));
    let parsed: Value = config(&generated);
    assert_eq!(parsed["storage"]["backends"]["kv_default"]["host"], ":${env.LLSD_STORAGE_KV_PASSWORD}@r");
}

#[test]
fn a_secret_that_is_written_out_is_told_without_repeating_it() {
    let generated = made(
        "{providers: {inference: {provider: vllm, endpoint: 'http://me:hush@x/v1', settings: {api_token: hush, max_tokens: 5, \
         password: '${env.MINE:=x}'}}, safety: {provider: sambanova, endpoint: 'http://x/a:b@c'}}}",
    );
    let wanted = ["spec.providers.inference.endpoint", "spec.providers.inference.settings.api_token"];
    assert_eq!(generated.remarks.iter().map(|one| one.path.to_string()).collect::<Vec<_>>(), wanted);
    assert!(!remarks(&generated).concat().contains("hush"));
}
