use serde_json::json;
use steersman_plan::llamastack::config::package_types;

use super::{config, config_for, entry, errors, generate_on, generate_starter, ids, remarks, starter};

#[test]
fn fr_030_names_become_types() {
    let cases = [
        ("inference", "inference", "vllm", "remote::vllm"),
        ("inference", "inference", "nobody-knows", "remote::nobody-knows"),
        ("inference", "inference", "inline::mine", "inline::mine"),
        ("inference", "inference", "remote::vllm", "remote::vllm"),
        ("inference", "inference", "sentence-transformers", "inline::sentence-transformers"),
        ("safety", "safety", "llama-guard", "inline::llama-guard"),
        ("vectorIo", "vector_io", "faiss", "inline::faiss"),
        ("vectorIo", "vector_io", "pgvector", "remote::pgvector"),
        ("vectorIo", "vector_io", "milvus", "remote::milvus"),
        ("toolRuntime", "tool_runtime", "tavily-search", "remote::tavily-search"),
        ("toolRuntime", "tool_runtime", "file-search", "inline::file-search"),
    ];
    for (field, api, provider, type_) in cases {
        let config = config_for(&format!(
            "{{providers: {{{field}: {{id: mine, provider: '{provider}', endpoint: 'http://x'}}}}}}"
        ));
        assert_eq!(entry(&config, api, "mine")["provider_type"], type_, "{provider}");
    }
}

#[test]
fn fr_030_base_decides_inline_provider_types() {
    let base = super::modified_starter(|config| {
        config["providers"]["inference"][2]["provider_type"] = json!("inline::house-made");
    });
    let generated = generate_on(&base, "{providers: {inference: {id: mine, provider: house-made}}}");
    assert_eq!(entry(&config(&generated), "inference", "mine")["provider_type"], "inline::house-made");
}

#[test]
fn fr_031_endpoint_sets_provider_url_keys() {
    let cases = [
        ("inference", "inference", "vllm", json!({"base_url": "http://x", "url": "http://x"})),
        ("inference", "inference", "nobody-knows", json!({"url": "http://x"})),
        ("safety", "safety", "passthrough", json!({"base_url": "http://x"})),
        ("safety", "safety", "sambanova", json!({"url": "http://x"})),
        ("safety", "safety", "nvidia", json!({"guardrails_service_url": "http://x", "url": "http://x"})),
        (
            "vectorIo",
            "vector_io",
            "milvus",
            json!({"uri": "http://x", "token": null, "persistence": {"namespace": "vector_io::milvus::mine", "backend": "kv_default"}}),
        ),
    ];
    for (field, api, provider, expected) in cases {
        let text = format!("{{providers: {{{field}: {{id: mine, provider: {provider}, endpoint: 'http://x'}}}}}}");
        assert_eq!(entry(&config_for(&text), api, "mine")["config"], expected, "{provider}");
    }
}

#[test]
fn fr_031_servers_before_0_4_read_url() {
    let mut base = starter();
    base.server_version = "0.3.5".into();
    let generated = generate_on(&base, "{providers: {inference: {id: mine, provider: vllm, endpoint: 'http://x'}}}");
    assert_eq!(entry(&config(&generated), "inference", "mine")["config"], json!({"url": "http://x"}));
}

#[test]
fn unused_endpoint_is_reported() {
    let generated = generate_starter("{providers: {inference: {provider: anthropic, endpoint: 'http://x'}}}");
    assert_eq!(
        remarks(&generated),
        ["spec.providers.inference.endpoint: remote::anthropic does not read url, so endpoint has no effect"]
    );
}

#[test]
fn fr_033_fields_win_over_settings() {
    let generated = generate_starter(
        "{providers: {inference: {provider: vllm, endpoint: 'http://x', settings: {url: 'http://y', max_tokens: 10, \
         network: {tls: {verify: false}}}}}}",
    );
    let config = config(&generated);
    assert_eq!(
        entry(&config, "inference", "vllm")["config"],
        json!({"base_url": "http://x", "url": "http://x", "max_tokens": 10, "network": {"tls": {"verify": false}}})
    );
    assert_eq!(
        remarks(&generated),
        ["spec.providers.inference.settings.url: url is also set by endpoint, which takes precedence"]
    );
}

#[test]
fn fr_033_non_object_settings_are_rejected() {
    assert_eq!(
        errors("{providers: {inference: [{provider: vllm, settings: [1]}]}}"),
        [
            "spec.providers.inference[0].settings: failed to parse settings for provider \"vllm\": expected an object, found a list"
        ]
    );
}

#[test]
fn fr_035_single_provider_gets_default_id() {
    for (text, id) in [
        ("{provider: vllm}", "vllm"),
        ("[{provider: vllm}]", "vllm"),
        ("{provider: 'remote::vllm'}", "vllm"),
        ("{provider: vllm, id: mine}", "mine"),
    ] {
        let config = config_for(&format!("{{providers: {{inference: {text}}}}}"));
        assert_eq!(ids(&config, "inference")[0], id, "{text}");
    }
}

#[test]
fn fr_034_several_providers_need_ids() {
    assert_eq!(
        errors("{providers: {inference: [{provider: vllm}, {id: a, provider: openai}, {provider: groq}]}}"),
        [
            "spec.providers.inference[0].id: each provider must have an explicit id when multiple providers are specified",
            "spec.providers.inference[2].id: each provider must have an explicit id when multiple providers are specified",
        ]
    );
}

#[test]
fn empty_id_or_provider_is_rejected() {
    assert_eq!(
        errors("{providers: {inference: {id: '', provider: vllm}, safety: {provider: ''}}}"),
        [
            "spec.providers.inference.id: id must not be empty if specified",
            "spec.providers.safety.provider: provider must not be empty",
        ]
    );
}

#[test]
fn fr_072_ids_are_unique_across_apis() {
    assert_eq!(
        errors("{providers: {inference: {provider: passthrough}, safety: [{id: passthrough, provider: llama-guard}]}}"),
        [
            "spec.providers.safety[0].id: provider ID \"passthrough\" conflicts with provider in \"inference\"; all provider IDs \
          must be unique across all API types"
        ]
    );
    assert_eq!(
        errors("{providers: {inference: [{id: a, provider: x}, {id: a, provider: w}, {id: a, provider: z}]}}").len(),
        2,
        "each repetition is reported"
    );
}

#[test]
fn fr_072_ignored_telemetry_keeps_ids_unique() {
    assert_eq!(
        errors("{providers: {inference: {id: same, provider: vllm}, telemetry: {id: same, provider: otel}}}"),
        [
            "spec.providers.telemetry.id: provider ID \"same\" conflicts with provider in \"inference\"; all provider IDs \
          must be unique across all API types"
        ]
    );
}

#[test]
fn nearly_known_provider_name_is_rejected() {
    for (api, provider, meant) in [
        ("inference", "vlm", "vllm"),
        ("inference", "Vllm", "vllm"),
        ("inference", "opneai", "openai"),
        ("toolRuntime", "mcp", "model-context-protocol"),
        ("toolRuntime", "tavily", "tavily-search"),
        ("vectorIo", "chroma", "chromadb"),
        ("safety", "llamaguard", "llama-guard"),
    ] {
        let text = format!("{{providers: {{{api}: {{id: mine, provider: {provider}}}}}}}");
        let problems = super::try_generate_on(&starter(), &text).expect_err(&text);
        let [problem] = &problems[..] else { panic!("{problems:#?}") };
        assert_eq!(problem.path.to_string(), format!("spec.providers.{api}.provider"));
        assert_eq!(
            problem.message.to_string(),
            format!(
                "llama-stack 0.7.1 has no provider type \"remote::{provider}\" for {api}, and the server does not start with it"
            )
        );
        assert!(problem.remedy.to_string().starts_with(&format!("Use {meant:?}. ")), "{}", problem.remedy);
    }
}

#[test]
fn unknown_provider_type_is_a_warning() {
    for (provider, remedy) in [
        (
            "tgi",
            "Other versions of llama-stack have it: use an image with one of them, or a type of docs/configuration.md.",
        ),
        ("nobody-knows", "Use a type of docs/configuration.md, unless the image adds this one."),
        ("remote::vlm", "Use \"remote::vllm\", unless the image adds this type."),
        ("inline::vllm", "Use \"remote::vllm\", unless the image adds this type."),
        ("inline::Sentence_transformers", "Use \"inline::sentence-transformers\", unless the image adds this type."),
        ("remote::faiss", "Use a type of docs/configuration.md, unless the image adds this one."),
        ("remote::xyz", "Use a type of docs/configuration.md, unless the image adds this one."),
        ("other::vllm", "Use a type of docs/configuration.md, unless the image adds this one."),
    ] {
        let generated =
            generate_starter(&format!("{{providers: {{inference: {{id: mine, provider: '{provider}'}}}}}}"));
        let [remark] = &generated.remarks[..] else { panic!("{provider}: {:#?}", generated.remarks) };
        assert_eq!((remark.reason, remark.remedy.to_string().as_str()), ("ProviderTypeUnknown", remedy));
    }
}

#[test]
fn provider_of_another_api_is_rejected() {
    for (api, provider, home) in [
        ("inference", "faiss", "spec.providers.vectorIo"),
        ("safety", "vllm", "spec.providers.inference"),
        ("vectorIo", "llama-guard", "spec.providers.safety"),
        ("inference", "file-search", "spec.providers.toolRuntime"),
    ] {
        let text = format!("{{providers: {{{api}: {{id: mine, provider: {provider}}}}}}}");
        let problems = super::try_generate_on(&starter(), &text).expect_err(&text);
        let [problem] = &problems[..] else { panic!("{problems:#?}") };
        assert_eq!(
            problem.remedy.to_string(),
            format!("Move it to {home}. If the image adds this type, write it as \"remote::{provider}\".")
        );
    }
    let both = "{providers: {inference: {id: a, provider: passthrough, endpoint: 'http://x'}, safety: {id: b, provider: \
                passthrough, endpoint: 'http://x'}}}";
    assert_eq!(remarks(&generate_starter(both)), [""; 0]);
}

#[test]
fn types_of_other_servers_are_not_judged() {
    let with_version = |version: &str| {
        let mut base = starter();
        base.server_version = version.into();
        base
    };
    let with_folder = super::modified_starter(|config| config["external_providers_dir"] = json!("/own"));
    let text = "{providers: {inference: {id: mine, provider: vlm}}}";
    for base in [with_version("0.5.0"), with_version("0.8.0"), with_version(""), with_folder] {
        assert_eq!(remarks(&generate_on(&base, text)), [""; 0], "{}", base.server_version);
    }
    let tgi = "{providers: {inference: {id: mine, provider: tgi}}}";
    assert_eq!(remarks(&generate_on(&with_version("0.6.1"), tgi)), [""; 0], "0.6 has tgi");
}

#[test]
fn base_embedding_provider_keeps_its_id() {
    assert_eq!(
        errors("{providers: {inference: {id: sentence-transformers, provider: vllm}}}"),
        ["spec.providers.inference.id: provider ID \"sentence-transformers\" is that of the distribution's \
          inline::sentence-transformers, which serves nomic-embed; the server does not start without it"]
    );
    let same = "{providers: {inference: {provider: sentence-transformers, settings: {trust_remote_code: true}}}}";
    assert_eq!(remarks(&generate_starter(same)), [""; 0]);
}

#[test]
fn package_types_are_documented() {
    let page = include_str!("../../../../../docs/configuration.md");
    for version in ["0.6.1", "0.7.1"] {
        for known in package_types(version) {
            assert!(page.contains(&format!("`{}`", known.type_)), "{} {version}", known.type_);
        }
    }
}

#[test]
fn fr_004_single_provider_equals_list_of_one() {
    let one = generate_starter("{providers: {inference: {provider: vllm, endpoint: 'http://x'}}}");
    let list = generate_starter("{providers: {inference: [{provider: vllm, endpoint: 'http://x'}]}}");
    assert_eq!(one.config_yaml, list.config_yaml);
    assert_eq!(one.hash, list.hash);
}

#[test]
fn fr_036_telemetry_is_written_if_supported() {
    let base = super::modified_starter(|config| {
        config["apis"].as_array_mut().unwrap().push(json!("telemetry"));
        config["providers"]["telemetry"] =
            json!([{"provider_id": "meta-reference", "provider_type": "inline::meta-reference"}]);
    });
    let generated = generate_on(&base, "{providers: {telemetry: {provider: otel, endpoint: 'http://x'}}}");
    assert_eq!(ids(&config(&generated), "telemetry"), ["otel", "meta-reference"]);
}

#[test]
fn fr_036_unsupported_telemetry_is_skipped_and_reported() {
    let generated = generate_starter(
        "{providers: {inference: {provider: vllm}, telemetry: {provider: otel, apiKey: {name: s, key: k}}}}",
    );
    assert_eq!(config(&generated)["providers"]["telemetry"], json!(null));
    assert_eq!(
        remarks(&generated),
        ["spec.providers.telemetry: the server of this distribution has no API \"telemetry\", so providers of \
             this API are ignored"]
    );
    assert_eq!(generated.env, [], "the Secret of a skipped provider is not needed");
}

#[test]
fn vector_stores_get_default_persistence() {
    let config = config_for(
        "{providers: {vectorIo: [{id: pgvector, provider: pgvector}, {id: second, provider: pgvector, settings: {db: x}}, \
         {id: own, provider: qdrant, settings: {persistence: {namespace: own, backend: b}}}, {id: v, provider: sqlite-vec}]}}",
    );
    let persistence = |id| entry(&config, "vector_io", id)["config"]["persistence"].clone();
    assert_eq!(persistence("pgvector"), json!({"namespace": "vector_io::pgvector", "backend": "kv_default"}));
    assert_eq!(persistence("second"), json!({"namespace": "vector_io::pgvector::second", "backend": "kv_default"}));
    assert_eq!(persistence("own"), json!({"namespace": "own", "backend": "b"}));
    assert_eq!(
        entry(&config, "vector_io", "v")["config"]["db_path"],
        "${env.SQLITE_STORE_DIR:=~/.llama/distributions/starter}/v-sqlite_vec.db"
    );
}

#[test]
fn provider_entry_always_has_config() {
    let config = config_for("{providers: {inference: {provider: gemini}}}");
    assert_eq!(
        *entry(&config, "inference", "gemini"),
        json!({"provider_id": "gemini", "provider_type": "remote::gemini", "config": {}})
    );
}

#[test]
fn misspelled_fields_are_reported() {
    let generated = generate_starter("{providers: {inference: {provider: vllm, endpont: x}}}");
    assert_eq!(remarks(&generated), ["spec.providers.inference.endpont: unknown field \"endpont\" is ignored"]);
}

#[test]
fn new_api_is_added_to_list() {
    let generated = generate_on(&super::remote_vllm(), "{providers: {safety: {provider: llama-guard}}}");
    let config = config(&generated);
    assert_eq!(super::texts(&config["apis"]), ["inference", "vector_io", "tool_runtime", "safety"]);
}

#[test]
fn missing_required_provider_settings_are_rejected() {
    assert_eq!(
        errors(
            "{providers: {inference: {provider: vertexai}, safety: {provider: passthrough}, vectorIo: [{id: a, provider: \
             milvus}, {id: b, provider: chromadb}, {id: c, provider: 'inline::qdrant'}, {id: d, provider: oci, settings: \
             {conn_str: x, user: u, tnsnames_loc: l, ewallet_pem_loc: w}, secretRefs: {password: {name: s, key: k}}}]}}"
        ),
        [
            "spec.providers.inference.settings.project: remote::vertexai requires project",
            "spec.providers.safety.endpoint: remote::passthrough requires base_url",
            "spec.providers.vectorIo[0].endpoint: remote::milvus requires uri",
            "spec.providers.vectorIo[1].endpoint: remote::chromadb requires url",
            "spec.providers.vectorIo[2].settings.path: inline::qdrant requires path",
            "spec.providers.vectorIo[3].settings.ewallet_password: remote::oci requires ewallet_password",
        ]
    );
    let complete_spec = "{providers: {inference: {provider: vertexai, settings: {project: x}}, vectorIo: {provider: milvus, settings: \
                 {uri: x}}}}";
    assert_eq!(entry(&config_for(complete_spec), "vector_io", "milvus")["config"]["uri"], "x");
}
