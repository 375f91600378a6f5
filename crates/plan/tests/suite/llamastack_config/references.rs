use std::collections::BTreeMap;

use steersman_plan::llamastack::validate::{
    ReferenceKind, ReferenceState, ReferencedObject, missing, referenced_by, references,
};
use steersman_reconcile::FieldNames;

use super::spec;

const SPEC_WITH_REFERENCES: &str = "{providers: {inference: [{id: a, provider: vllm, apiKey: {secretKeyRef: {name: creds, key: token}}}]}, \
                   storage: {kv: {type: redis, endpoint: r, password: {name: redis, key: pw}}}, networking: {tls: {enabled: \
                   true, secretName: cert, caBundle: {configMapName: ca, configMapNamespace: other, configMapKeys: [x]}}}}";

fn reference_to(kind: ReferenceKind, namespace: &str, name: &str) -> ReferencedObject {
    ReferencedObject { kind, namespace: namespace.into(), name: name.into() }
}

#[test]
fn fr_073_references_have_path_and_keys() {
    let found: Vec<_> = references(&spec(SPEC_WITH_REFERENCES), "team-a")
        .into_iter()
        .map(|item| (item.path.to_string(), item.named.namespace, item.named.name, item.keys.join(" ")))
        .collect();
    let expected = [
        ("spec.providers.inference[0].apiKey.secretKeyRef.name", "team-a", "creds", "token"),
        ("spec.storage.kv.password.name", "team-a", "redis", "pw"),
        ("spec.networking.tls.secretName", "team-a", "cert", "tls.crt tls.key"),
        ("spec.networking.tls.caBundle.configMapName", "other", "ca", "x"),
    ]
    .map(|(path, namespace, name, keys)| (path.to_owned(), namespace.to_owned(), name.to_owned(), keys.to_owned()));
    assert_eq!(found, expected);
    let found = references(&spec("{overrideConfig: {configMapName: mine}}"), "team-a");
    assert_eq!(found[0].named, reference_to(ReferenceKind::ConfigMap, "team-a", "mine"));
    assert_eq!(found[0].keys, ["config.yaml"]);
}

#[test]
fn fr_074_missing_objects_name_path_and_namespace() {
    let all = references(&spec(SPEC_WITH_REFERENCES), "team-a");
    let found: BTreeMap<ReferencedObject, ReferenceState> =
        all.iter().map(|item| (item.named.clone(), ReferenceState::Missing)).collect();
    let messages: Vec<String> =
        missing(&all, &found).iter().map(|item| format!("{}: {}", item.path, item.message)).collect();
    assert_eq!(
        messages,
        [
            "spec.providers.inference[0].apiKey.secretKeyRef.name: Secret \"creds\" not found in namespace \"team-a\"",
            "spec.storage.kv.password.name: Secret \"redis\" not found in namespace \"team-a\"",
            "spec.networking.tls.secretName: Secret \"cert\" not found in namespace \"team-a\"",
            "spec.networking.tls.caBundle.configMapName: failed to find caBundle ConfigMap \"ca\" in namespace \"other\"",
        ]
    );
    let config = references(&spec("{overrideConfig: {configMapName: mine}}"), "team-a");
    let found = [(config[0].named.clone(), ReferenceState::Missing)].into();
    let problem = &missing(&config, &found)[0];
    assert_eq!(problem.message.to_string(), "failed to find overrideConfig ConfigMap \"mine\" in namespace \"team-a\"");
}

#[test]
fn fr_073_missing_keys_are_reported() {
    let all = references(&spec(SPEC_WITH_REFERENCES), "team-a");
    let found: BTreeMap<ReferencedObject, ReferenceState> = all
        .iter()
        .map(|item| (item.named.clone(), ReferenceState::Exists(Some(["tls.crt".to_owned()].into()))))
        .collect();
    let messages: Vec<String> =
        missing(&all, &found).iter().map(|item| format!("{}: {}", item.path, item.message)).collect();
    assert_eq!(
        messages,
        [
            "spec.providers.inference[0].apiKey.secretKeyRef.key: Key \"token\" not found in Secret \"team-a/creds\"",
            "spec.storage.kv.password.key: Key \"pw\" not found in Secret \"team-a/redis\"",
            "spec.networking.tls.secretName: Key \"tls.key\" not found in Secret \"team-a/cert\"",
            "spec.networking.tls.caBundle.configMapName: failed to find CA bundle key 'x' in ConfigMap other/ca",
        ]
    );
    let config = references(&spec("{overrideConfig: {configMapName: mine}}"), "team-a");
    let found = [(config[0].named.clone(), ReferenceState::Exists(Some([].into())))].into();
    assert_eq!(
        missing(&config, &found)[0].message.to_string(),
        "failed to read config from ConfigMap \"mine\": missing 'config.yaml' key"
    );
}

#[test]
fn unknown_lookups_are_not_missing() {
    let all = references(&spec(SPEC_WITH_REFERENCES), "team-a");
    assert_eq!(missing(&all, &BTreeMap::new()), []);
    let found = all.iter().map(|item| (item.named.clone(), ReferenceState::Exists(None))).collect();
    assert_eq!(missing(&all, &found), []);
}

#[test]
fn condition_names_referring_field() {
    let all = references(&spec(SPEC_WITH_REFERENCES), "team-a");
    let found = [(all[0].named.clone(), ReferenceState::Missing)].into();
    assert_eq!(
        referenced_by(&missing(&all, &found)[0], &FieldNames::default()),
        "Secret \"creds\" not found in namespace \"team-a\". Referenced by: \
         spec.providers.inference[0].apiKey.secretKeyRef"
    );
}
