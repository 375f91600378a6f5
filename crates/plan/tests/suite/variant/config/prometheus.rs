//! How Prometheus is reached, and what becomes of an address that is bad or gone.

use steersman_plan::variant::config::prometheus::{CaCertificates, is_server_name};

use super::*;

/// All in the main map, nothing in the environment.
fn set(pairs: &[(&str, &str)]) -> ConfigSources {
    ConfigSources { environment: BTreeMap::new(), ..seen(&[(SYSTEM, MAIN, pairs)]) }
}

#[test]
fn a_password_is_told_nowhere_whatever_letters_it_has() {
    for password in ["p/w", "p?w", "p#w", "p@w", "12/w", "p://w", "p/w?x=@#"] {
        for scheme in ["http://", "https://", "ftp://", ""] {
            let url = format!("{scheme}admin:{password}@prom");
            let (config, findings) = read(&set(&[("PROMETHEUS_BASE_URL", &url)]), &Config::default());
            let told = findings.iter().map(ToString::to_string).collect::<String>();
            assert!(!told.contains(password) && !told.contains("admin"), "{url}: {told}");
            assert!(!format!("{:?}", config.prometheus).contains(password), "{url}");
            // A password with an `@` alone is understood, as it stands before the host.
            assert_eq!(config.prometheus.is_some(), scheme == "https://" && password == "p@w", "{url}");
        }
    }
    let (_, findings) = read(&set(&[("PROMETHEUS_BASE_URL", "http://prom/x?token=s3cret")]), &Config::default());
    assert!(findings[0].message.ends_with("URL must use https:// scheme: http://prom/x?…."), "{findings:?}");
    let (_, findings) = read(&set(&[("PROMETHEUS_BASE_URL", "https://admin:p/w@prom")]), &Config::default());
    assert!(findings[0].message.contains("write / as %2F"), "{findings:?}");
}

#[test]
fn an_address_that_was_taken_away_is_not_asked_any_more() {
    let (last, _) = read(&set(&[("PROMETHEUS_BASE_URL", "https://prom")]), &Config::default());
    assert!(last.prometheus.is_some());
    let (now, findings) = read(&set(&[]), &last);
    assert_eq!((now.prometheus, findings[0].reason), (None, "ConfigValueMissing"));
    assert!(findings[0].remedy.ends_with("Until then the load is unknown and replicas stay as they are."));
}

#[test]
fn a_server_name_that_is_none_does_not_take_the_place_of_a_good_one() {
    let with = |name: &str| set(&[("PROMETHEUS_BASE_URL", "https://prom"), ("PROMETHEUS_SERVER_NAME", name)]);
    let (last, findings) = read(&with("prometheus.example"), &Config::default());
    assert_eq!(findings, []);
    for bad in ["https://prometheus.example", "prometheus.example:9090", "a b", "*.example", "-a", "[::1]", "a.1"] {
        let (now, findings) = read(&with(bad), &last);
        assert_eq!(now.prometheus, last.prometheus, "{bad}");
        let place = format!("ConfigMap {SYSTEM}/{MAIN}, key PROMETHEUS_SERVER_NAME: {bad:?} is neither a host name");
        assert!(findings.len() == 1 && findings[0].message.starts_with(&place), "{findings:?}");
        assert_eq!(findings[0].reason, "ConfigValueInvalid");
    }
    for good in ["prometheus", "a_b.example.", "10.0.0.1", "fd00::1", "1a"] {
        assert!(is_server_name(good), "{good}");
    }
}

#[test]
fn a_fault_of_the_environment_is_not_looked_for_in_a_map() {
    let mut both = seen(&[(SYSTEM, MAIN, &[("PROMETHEUS_BASE_URL", "https://good")])]);
    both.environment.insert("PROMETHEUS_BASE_URL".into(), "http://plain".into());
    let (_, findings) = read(&both, &Config::default());
    assert!(findings[0].message.starts_with("Environment, key PROMETHEUS_BASE_URL: HTTPS is required"), "{findings:?}");
    let mut interval = seen(&[(SYSTEM, MAIN, &[("PROMETHEUS_BASE_URL", "https://good")])]);
    interval.environment.insert("GLOBAL_OPT_INTERVAL".into(), "soon".into());
    let (_, findings) = read(&interval, &Config::default());
    assert!(findings[0].message.starts_with("Environment, key GLOBAL_OPT_INTERVAL: "), "{findings:?}");
    assert_eq!(findings[0].config_map, None);
    let mut lonely = set(&[]);
    lonely.environment.insert("PROMETHEUS_BASE_URL".into(), "https://p".into());
    lonely.environment.insert("PROMETHEUS_CLIENT_KEY_PATH".into(), "/k".into());
    let (_, findings) = read(&lonely, &Config::default());
    assert!(findings[0].message.contains("key PROMETHEUS_CLIENT_CERT_PATH: "), "{findings:?}");
}

const PATHS: [&str; 4] =
    ["PROMETHEUS_CA_CERT_PATH", "PROMETHEUS_CLIENT_CERT_PATH", "PROMETHEUS_CLIENT_KEY_PATH", "PROMETHEUS_TOKEN_PATH"];

#[test]
fn file_path_in_config_map_is_refused() {
    for key in PATHS {
        let mut sources = set(&[("PROMETHEUS_BASE_URL", "https://p"), (key, "/var/run/secrets/token")]);
        let (config, findings) = read(&sources, &Config::default());
        assert_eq!(config.prometheus, None, "{key}");
        let text = findings[0].to_string();
        let expected =
            format!("key {key}: paths of files are not read from ConfigMaps; remove the key here and set {key}");
        assert!(text.contains(&expected), "{text}");
        assert_eq!(text.contains("PROMETHEUS_CA_CERT."), key == "PROMETHEUS_CA_CERT_PATH", "{text}");

        // The administrator's environment decides which files are read, even if a ConfigMap names others.
        for path in PATHS {
            sources.environment.insert(path.into(), format!("/environment/{path}"));
        }
        let (config, findings) = read(&sources, &Config::default());
        assert_eq!(findings, [], "{key}");
        let found = config.prometheus.unwrap();
        let file = |path: &str| format!("/environment/{path}");
        assert_eq!(found.ca, Some(CaCertificates::File(file(PATHS[0]))));
        assert_eq!(found.client_cert_path, Some((file(PATHS[1]), file(PATHS[2]))));
        assert_eq!(found.token_path, Some(file(PATHS[3])));
    }
}

#[test]
fn config_map_may_contain_ca_certificates() {
    let given = set(&[("PROMETHEUS_BASE_URL", "https://p"), ("PROMETHEUS_CA_CERT", "-----BEGIN CERTIFICATE-----\n")]);
    let (config, findings) = read(&given, &Config::default());
    assert_eq!(findings, []);
    assert_eq!(config.prometheus.unwrap().ca, Some(CaCertificates::Pem("-----BEGIN CERTIFICATE-----".to_owned())));
}

#[test]
fn credentials_without_verification_are_refused() {
    let address = ("PROMETHEUS_BASE_URL", "https://p");
    let insecure = ("PROMETHEUS_TLS_INSECURE_SKIP_VERIFY", "true");
    let in_environment = |pairs: &[(&str, &str)]| {
        let environment = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        ConfigSources { environment, ..set(&[]) }
    };
    for refused in [
        set(&[address, insecure, ("PROMETHEUS_BEARER_TOKEN", "s3cret")]),
        set(&[("PROMETHEUS_BASE_URL", "https://user:s3cret@p"), insecure]),
        in_environment(&[address, insecure, ("PROMETHEUS_TOKEN_PATH", "/token")]),
        ConfigSources {
            environment: [("PROMETHEUS_TOKEN_PATH".to_owned(), "/token".to_owned())].into(),
            ..set(&[address, insecure])
        },
    ] {
        let (config, findings) = read(&refused, &Config::default());
        assert_eq!(config.prometheus, None);
        let text = findings[0].to_string();
        assert!(text.contains("key PROMETHEUS_TLS_INSECURE_SKIP_VERIFY: a token or login is not sent to"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
    let (config, findings) = read(&set(&[address, insecure]), &Config::default());
    assert!(findings.is_empty() && config.prometheus.unwrap().insecure_skip_verify);
}
