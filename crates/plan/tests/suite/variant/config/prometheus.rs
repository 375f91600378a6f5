//! How Prometheus is reached, and what becomes of an address that is bad or gone.

use steersman_plan::variant::config::prometheus::is_server_name;

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
            let (config, findings) = read(&set(&[("PROMETHEUS_BASE_URL", &url)]), &Config::default(), Mode::Steersman);
            let told = findings.iter().map(ToString::to_string).collect::<String>();
            assert!(!told.contains(password) && !told.contains("admin"), "{url}: {told}");
            assert!(!format!("{:?}", config.prometheus).contains(password), "{url}");
            // A password with an `@` alone is understood, as it stands before the host.
            assert_eq!(config.prometheus.is_some(), scheme == "https://" && password == "p@w", "{url}");
        }
    }
    let (_, findings) =
        read(&set(&[("PROMETHEUS_BASE_URL", "http://prom/x?token=s3cret")]), &Config::default(), Mode::Steersman);
    assert!(findings[0].message.ends_with("URL must use https:// scheme: http://prom/x?…."), "{findings:?}");
    let (_, findings) =
        read(&set(&[("PROMETHEUS_BASE_URL", "https://admin:p/w@prom")]), &Config::default(), Mode::Steersman);
    assert!(findings[0].message.contains("write / as %2F"), "{findings:?}");
}

#[test]
fn an_address_that_was_taken_away_is_not_asked_any_more() {
    let (last, _) = read(&set(&[("PROMETHEUS_BASE_URL", "https://prom")]), &Config::default(), Mode::Steersman);
    assert!(last.prometheus.is_some());
    let (now, findings) = read(&set(&[]), &last, Mode::Steersman);
    assert_eq!((now.prometheus, findings[0].reason), (None, "ConfigValueMissing"));
    assert!(findings[0].remedy.ends_with("Until then the load is unknown and replicas stay as they are."));
}

#[test]
fn a_server_name_that_is_none_does_not_take_the_place_of_a_good_one() {
    let with = |name: &str| set(&[("PROMETHEUS_BASE_URL", "https://prom"), ("PROMETHEUS_SERVER_NAME", name)]);
    let (last, findings) = read(&with("prometheus.example"), &Config::default(), Mode::Steersman);
    assert_eq!(findings, []);
    for bad in ["https://prometheus.example", "prometheus.example:9090", "a b", "*.example", "-a", "[::1]", "a.1"] {
        let (now, findings) = read(&with(bad), &last, Mode::Steersman);
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
    let (_, findings) = read(&both, &Config::default(), Mode::Steersman);
    assert!(findings[0].message.starts_with("Environment, key PROMETHEUS_BASE_URL: HTTPS is required"), "{findings:?}");
    let mut interval = seen(&[(SYSTEM, MAIN, &[("PROMETHEUS_BASE_URL", "https://good")])]);
    interval.environment.insert("GLOBAL_OPT_INTERVAL".into(), "soon".into());
    let (_, findings) = read(&interval, &Config::default(), Mode::Steersman);
    assert!(findings[0].message.starts_with("Environment, key GLOBAL_OPT_INTERVAL: "), "{findings:?}");
    assert_eq!(findings[0].config_map, None);
    let lonely = set(&[("PROMETHEUS_BASE_URL", "https://p"), ("PROMETHEUS_CLIENT_KEY_PATH", "/k")]);
    let (_, findings) = read(&lonely, &Config::default(), Mode::Steersman);
    assert!(findings[0].message.contains("key PROMETHEUS_CLIENT_CERT_PATH: "), "{findings:?}");
}
