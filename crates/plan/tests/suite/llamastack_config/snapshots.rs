//! Complete generated files for realistic specs, compared byte by byte. `STEERSMAN_WRITE=1` updates them.

use std::path::Path;

use steersman_plan::llamastack::config::{Base, Generated};

use super::{config, generate_on, remote_vllm, starter, yaml};

/// Five providers, ten models, storage and networking.
fn typical_spec() -> String {
    let models: Vec<String> =
        (0..10).map(|n| format!("{{name: model-{n}, contextLength: {}}}", 4096 * (n + 1))).collect();
    format!(
        "{{providers: {{inference: [{{id: primary, provider: vllm, endpoint: 'http://vllm:8000/v1', apiKey: {{secretKeyRef: \
         {{name: vllm, key: token}}}}}}, {{id: fallback, provider: openai, apiKey: {{name: openai, key: key}}}}], safety: \
         {{provider: llama-guard}}, vectorIo: {{provider: pgvector, secretRefs: {{password: {{name: pg, key: pw}}}}, settings: \
         {{host: pg, port: 5432, db: vectors, user: llama}}}}, toolRuntime: {{provider: tavily-search, apiKey: {{name: tavily, \
         key: key}}}}}}, resources: {{models: [{}]}}, storage: {{kv: {{type: redis, endpoint: 'redis://cache:6379'}}, sql: \
         {{type: sqlite}}}}, networking: {{port: 9000, expose: true}}}}",
        models.join(", ")
    )
}

/// Ten providers, fifty models, and every other section of the spec.
fn stress_spec() -> String {
    let providers: Vec<String> = (0..6)
        .map(|n| {
            format!("{{id: vllm-{n}, provider: vllm, endpoint: 'http://v{n}:8000/v1', apiKey: {{name: v, key: k{n}}}}}")
        })
        .collect();
    let models: Vec<String> = (0..50).map(|n| format!("{{name: org/model-{n}, provider: vllm-{}}}", n % 6)).collect();
    format!(
        "{{providers: {{inference: [{}], safety: {{id: guard, provider: llama-guard}}, vectorIo: [{{id: vec, provider: qdrant, \
         endpoint: 'http://q:6333'}}, {{id: local, provider: sqlite-vec}}], toolRuntime: {{provider: brave-search, apiKey: \
         {{name: b, key: k}}}}}}, resources: {{models: [{}], tools: [websearch, rag], shields: [guard-a, guard-b]}}, storage: \
         {{kv: {{type: redis, endpoint: 'redis://cache:6379', password: {{name: r, key: p}}}}, sql: {{type: postgres, \
         connectionString: {{name: pg, key: dsn}}}}}}, disabled: [eval, scoring], networking: {{port: 8443, tls: {{enabled: \
         true, secretName: cert}}, expose: {{hostname: llama.example.com}}}}, workload: {{workers: 4}}, externalProviders: \
         {{inference: [{{providerId: custom, image: 'registry.example/custom:1'}}]}}}}",
        providers.join(", "),
        models.join(", ")
    )
}

const CASES: [(&str, &str); 7] = [
    (
        "minimal",
        "{providers: {inference: {provider: vllm, endpoint: 'http://vllm:8000/v1'}}, resources: {models: [llama]}}",
    ),
    ("postgres", "{storage: {sql: {type: postgres, connectionString: {secretKeyRef: {name: pg, key: dsn}}}}}"),
    ("redis", "{storage: {kv: {type: redis, endpoint: 'redis://cache:6379', password: {name: redis, key: password}}}}"),
    ("disabled", "{disabled: [vectorIo, postTraining, safety]}"),
    ("telemetry", "{providers: {telemetry: {provider: otel, endpoint: 'http://otel:4318'}}}"),
    (
        "external",
        "{externalProviders: {inference: [{providerId: custom, image: 'registry.example/custom:1', config: {depth: 3}}]}, \
         resources: {models: [mine]}}",
    ),
    (
        "yaml-1-1",
        "{providers: {inference: {provider: vllm, settings: {a: 'yes', b: '012', c: '1:30', d: '2026-01-01', e: '~', f: \
         'null', g: '1e3', h: 'a: b', i: '# c', j: \"two\\nlines\", k: '', l: ' x', m: '0x1F', n: 'off', o: 1.0, p: '=', q: \
         '.5', r: 'y', s: 'größe', t: '*x', u: 1e20}}}}",
    ),
];

fn assert_same_file(name: &str, base: &Base, text: &str) {
    let generated = generate_on(base, text);
    let remarks: String = generated.remarks.iter().map(|remark| format!("# {}\n", remark.text())).collect();
    let env: String = generated.env.iter().map(|variable| format!("# env {}\n", variable.name)).collect();
    let Generated { provider_count, resource_count, config_version, .. } = generated;
    let counts = format!("# {provider_count} providers, {resource_count} resources, version {config_version}\n");
    let content = format!("{counts}{env}{remarks}{}", generated.config_yaml);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/llamastack_config/{name}.want.yaml"));
    let stored_content = read_or_write(&path, &content);
    assert_eq!(content, stored_content, "{name}: run with STEERSMAN_WRITE=1 if the change is intended");
    assert_eq!(yaml(&content), config(&generated), "{name}");
}

#[expect(clippy::disallowed_methods, reason = "the test compares with files; the crate does not")]
pub(super) fn read_or_write(path: &Path, content: &str) -> String {
    if std::env::var_os("STEERSMAN_WRITE").is_some() {
        std::fs::write(path, content).unwrap();
    }
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn generated_files_match_snapshots() {
    for (name, text) in CASES {
        assert_same_file(name, &starter(), text);
    }
    assert_same_file("typical", &starter(), &typical_spec());
    assert_same_file("stress", &starter(), &stress_spec());
    assert_same_file("remote-vllm", &remote_vllm(), "{resources: {models: [m]}, networking: {port: 9000}}");
}

#[test]
fn fr_024_hash_depends_on_text() {
    let generated = generate_on(&starter(), CASES[0].1);
    assert_eq!(generated.hash.len(), 64);
    assert!(generated.hash.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f')));
    assert_ne!(generated.hash, generate_on(&starter(), CASES[1].1).hash);
}

#[test]
fn nfr_001_repeated_generation_is_identical() {
    let first = generate_on(&starter(), &stress_spec());
    for _ in 0..100 {
        assert_eq!(generate_on(&starter(), &stress_spec()), first);
    }
}

#[test]
fn keys_are_sorted_and_lists_keep_order() {
    let generated = generate_on(&starter(), &typical_spec());
    let top_level_lines: Vec<&str> =
        generated.config_yaml.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase())).collect();
    assert!(top_level_lines.is_sorted(), "{top_level_lines:?}");
    let models: Vec<&str> = generated.config_yaml.lines().filter(|line| line.contains("model_id: model-")).collect();
    assert!(models.is_sorted() && models.len() == 10, "{models:?}");
}

#[test]
fn oversized_file_is_rejected() {
    let text =
        format!("{{providers: {{inference: {{provider: vllm, settings: {{long: '{}'}}}}}}}}", "x".repeat(1_000_000));
    let errors = super::errors(&text);
    assert_eq!(errors.len(), 1);
    assert!(errors[0].starts_with("spec: config.yaml has 1003") && errors[0].len() < 200, "{}", &errors[0][..200]);
}
