use serde_json::{Value, json};
use steersman_plan::llamastack::config::{Base, parse_sql, storage_exports};

use super::{config, config_for, errors, generate_on, generate_starter, modified_starter, remarks, starter};

fn redis_spec(endpoint: &str, password: bool) -> String {
    let password = if password { ", password: {name: s, key: k}" } else { "" };
    format!("{{storage: {{kv: {{type: redis, endpoint: '{endpoint}'{password}}}}}}}")
}

const POSTGRES_SPEC: &str =
    "{storage: {sql: {type: postgres, connectionString: {secretKeyRef: {name: pg, key: dsn}}}}}";

#[test]
fn fr_053_base_storage_is_the_default() {
    assert_eq!(config_for("{providers: {inference: {provider: vllm}}}")["storage"], starter().config["storage"]);
    assert_eq!(config_for("{storage: {}}")["storage"], starter().config["storage"]);
}

#[test]
fn fr_050b_051a_sqlite_keeps_existing_file() {
    let base = modified_starter(|config| {
        for backend in ["kv_default", "sql_default"] {
            config["storage"]["backends"][backend]["db_path"] = json!(format!("/data/{backend}.db"));
        }
    });
    for text in ["{storage: {kv: {}, sql: {}}}", "{storage: {kv: {type: sqlite}, sql: {type: sqlite}}}"] {
        assert_eq!(config(&generate_on(&base, text))["storage"], base.config["storage"], "{text}");
    }
}

#[test]
fn fr_050_sqlite_replaces_another_store() {
    let base = modified_starter(|config| {
        config["storage"]["backends"] = json!({
            "kv_default": {"type": "kv_postgres", "user": "x"}, "sql_default": {"type": "sql_postgres", "user": "x"},
        });
    });
    let config = config(&generate_on(&base, "{storage: {kv: {type: sqlite}}}"));
    assert_eq!(
        config["storage"]["backends"],
        json!({
            "kv_default": {
                "type": "kv_sqlite", "db_path": "${env.SQLITE_STORE_DIR:=~/.llama/distributions/starter}/kvstore.db",
            },
            "sql_default": {"type": "sql_postgres", "user": "x"},
        })
    );
}

#[test]
fn sqlite_path_uses_distribution_folder() {
    let path = |distro: Value| {
        let mut base = modified_starter(|config| {
            config["distro_name"] = distro;
            config["storage"]["backends"]["kv_default"] = json!({"type": "kv_redis"});
        });
        base.name = "registry.example/house:1".into();
        let config = config(&generate_on(&base, "{storage: {kv: {type: sqlite}}}"));
        config["storage"]["backends"]["kv_default"]["db_path"].as_str().unwrap().to_owned()
    };
    assert_eq!(path(json!("house")), "${env.SQLITE_STORE_DIR:=~/.llama/distributions/house}/kvstore.db");
    assert_eq!(path(json!("${env.X}/y")), "${env.SQLITE_STORE_DIR:=~/.llama/distributions/custom}/kvstore.db");
}

#[test]
fn fr_050a_redis_endpoint_becomes_host_and_port() {
    for (endpoint, password, host, port) in [
        ("redis://cache:6380", false, "cache", 6380),
        ("redis://cache", false, "cache", 6379),
        ("cache.team-a.svc:1", false, "cache.team-a.svc", 1),
        ("redis://cache:6379/0", false, "cache", 6379),
        ("redis://[::1]:7", false, "[::1]", 7),
        ("redis://cache:6380", true, ":${env.LLSD_STORAGE_KV_PASSWORD}@cache", 6380),
        ("redis://me@cache", true, "me:${env.LLSD_STORAGE_KV_PASSWORD}@cache", 6379),
    ] {
        let generated = generate_starter(&redis_spec(endpoint, password));
        let expected = json!({"type": "kv_redis", "host": host, "port": port});
        assert_eq!(config(&generated)["storage"]["backends"]["kv_default"], expected, "{endpoint}");
        assert_eq!(config(&generated)["storage"]["stores"], starter().config["storage"]["stores"]);
        assert_eq!(generated.pod.env_file.is_some(), password, "a password has to be URL-encoded");
    }
}

#[test]
fn fr_050a_unsupported_redis_endpoint_is_rejected_unquoted() {
    for endpoint in [
        "rediss://cache:1",
        "http://cache",
        "redis://:hush@cache",
        "redis://u:hush@cache",
        "cache/3",
        "cache:x",
        "cache:0",
        "::1:1",
        "redis://",
        "a b",
        "cache?db=1",
    ] {
        let errors = errors(&redis_spec(endpoint, false));
        assert_eq!(errors.len(), 1, "{endpoint}: {errors:?}");
        assert!(errors[0].starts_with("spec.storage.kv.endpoint: "), "{errors:?}");
        assert!(!errors[0].contains("hush"), "{errors:?}");
    }
}

#[test]
fn fr_079a_079b_missing_store_fields_are_rejected() {
    assert_eq!(
        errors("{storage: {kv: {type: redis}, sql: {type: postgres}}}"),
        [
            "spec.storage.kv.endpoint: endpoint is required when type is redis",
            "spec.storage.sql.connectionString: connectionString is required when type is postgres",
        ]
    );
}

#[test]
fn fr_079c_unused_fields_are_a_warning() {
    let generated = generate_starter(
        "{storage: {kv: {endpoint: x, password: {name: s, key: k}}, sql: {connectionString: {name: s, key: k}}}}",
    );
    assert_eq!(
        remarks(&generated),
        [
            "spec.storage.kv.endpoint: endpoint is only valid when type is redis; with sqlite it is not used",
            "spec.storage.kv.password: password is only valid when type is redis; with sqlite it is not used",
            "spec.storage.sql.connectionString: connectionString is only valid when type is postgres; with sqlite it is not \
             used",
        ]
    );
    assert_eq!(generated.env, []);
}

#[test]
fn fr_052_init_container_splits_postgres_url() {
    let generated = generate_starter(POSTGRES_SPEC);
    assert_eq!(
        config(&generated)["storage"]["backends"]["sql_default"],
        json!({
            "type": "sql_postgres",
            "host": "${env.LLSD_STORAGE_SQL_HOST}",
            "port": "${env.LLSD_STORAGE_SQL_PORT}",
            "db": "${env.LLSD_STORAGE_SQL_DB}",
            "user": "${env.LLSD_STORAGE_SQL_USER}",
            "password": "${env.LLSD_STORAGE_SQL_PASSWORD:=}",
        })
    );
    assert_eq!(remarks(&generated), Vec::<String>::new(), "users need not set the variables of the parts");
    let pod = &generated.pod;
    let init = &pod.init_containers[0];
    assert_eq!((init.name.as_str(), init.image.as_deref()), ("prepare-storage", Some(super::OPERATOR)));
    assert_eq!(init.args.clone().unwrap(), ["storage-env", "--out", "/run/steersman/storage.env"]);
    assert_eq!(init.env.clone().unwrap(), generated.env);
    assert_eq!(pod.volumes[0].empty_dir.clone().unwrap().medium.as_deref(), Some("Memory"));
    assert_eq!(pod.env_file, Some("/run/steersman/storage.env"));
    assert_eq!(pod.volume_mounts[0].read_only, Some(true));
    assert_eq!(generated.env[0].name, "LLSD_STORAGE_SQL_CONNECTION_STRING");
}

#[test]
fn fr_052_newer_server_gets_connection_string() {
    let base = Base { server_version: "1.5.0".into(), ..starter() };
    let generated = generate_on(&base, POSTGRES_SPEC);
    assert_eq!(
        config(&generated)["storage"]["backends"]["sql_default"],
        json!({"type": "sql_postgres", "connection_string": "${env.LLSD_STORAGE_SQL_CONNECTION_STRING}"})
    );
    assert_eq!(generated.pod.init_containers, []);
}

#[test]
fn custom_command_must_read_prepared_file() {
    let text = "{workload: {overrides: {command: [run]}}, storage: {kv: {type: redis, endpoint: r, password: {name: s, key: k}}}}";
    assert!(remarks(&generate_starter(text))[0].starts_with("spec.workload.overrides.command: "));
}

#[test]
fn renamed_backend_keeps_its_name() {
    let base = modified_starter(|config| {
        config["storage"]["backends"] = json!({"house": {"type": "kv_sqlite", "db_path": "x"}});
        config["storage"]["stores"]["metadata"]["backend"] = json!("house");
    });
    let config = config(&generate_on(&base, &redis_spec("r:1", false)));
    assert_eq!(config["storage"]["backends"], json!({"house": {"type": "kv_redis", "host": "r", "port": 1}}));
}

#[test]
fn base_without_storage_gets_both_backends() {
    let base = modified_starter(|config| {
        config.as_object_mut().unwrap().remove("storage");
    });
    let config = config(&generate_on(&base, &redis_spec("r:1", false)));
    let backends = &config["storage"]["backends"];
    assert_eq!(
        (&backends["kv_default"]["type"], &backends["sql_default"]["type"]),
        (&json!("kv_redis"), &json!("sql_sqlite"))
    );
    assert_eq!(config["storage"]["stores"], Value::Null, "the server's default stores are used");
}

#[test]
fn connection_strings_are_parsed() {
    for (text, host, port, db, user, password, ssl) in [
        ("postgresql://u:p@h:5433/d", "h", 5433, "d", "u", "p", None),
        ("postgres://u:p@h/d\n", "h", 5432, "d", "u", "p", None),
        ("postgresql+asyncpg://u@h", "h", 5432, "u", "u", "", None),
        ("postgresql://u:p%40ss%2F@h/d", "h", 5432, "d", "u", "p@ss/", None),
        ("postgresql://u:p@ss/w?rd@h/d", "h", 5432, "d", "u", "p@ss/w?rd", None),
        (
            "postgresql://u:50%@[::1]:1/d?sslmode=require&application_name=x",
            "[::1]",
            1,
            "d",
            "u",
            "50%",
            Some("require"),
        ),
    ] {
        let parts = parse_sql(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found = (&*parts.host, parts.port, &*parts.db, &*parts.user, &*parts.password, parts.ssl.as_deref());
        assert_eq!(found, (host, port, db, user, password, ssl), "{text}");
    }
}

#[test]
fn invalid_connection_string_is_rejected_unquoted() {
    for text in [
        "host=h user=hush",
        "mysql://hush:hush@h/d",
        "postgresql://h/hush",
        "postgresql://:hush@h/d",
        "postgresql://u:hush@/d",
        "postgresql://u:hush@h:port/d",
        "postgresql://u:hush@h:0/d",
        "postgresql://u:hush@a,b/d",
        "postgresql://u:hush@h/d?sslmode=hush",
        "postgresql://u:hush@h/d?sslrootcert=/x",
        "postgresql://u:hush@h/d?%=hush",
        "",
    ] {
        let error = storage_exports(Some(text), None).expect_err(text);
        assert!(!error.contains("hush"), "{error}");
    }
    assert!(!format!("{:?}", parse_sql("postgresql://u:hush@h/d")).contains("hush"));
}

#[test]
fn storage_script_encodes_numeric_values() {
    let script = storage_exports(Some("postgresql://1:0x1@h/12?sslmode=require"), Some("it's @1\n")).unwrap();
    assert_eq!(
        script,
        "export LLSD_STORAGE_SQL_HOST='h'\nexport LLSD_STORAGE_SQL_PORT='5432'\nexport \
         LLSD_STORAGE_SQL_DB='12?ssl=require'\nexport LLSD_STORAGE_SQL_USER='%31'\nexport \
         LLSD_STORAGE_SQL_PASSWORD='%30x1'\nexport LLSD_STORAGE_KV_PASSWORD='%69t%27s%20%401'\n"
    );
    let numeric = storage_exports(Some("postgresql://u:p@h/12"), None).unwrap();
    assert!(numeric.contains("SQL_DB='12?'"), "{numeric}");
    let quoted = storage_exports(Some("postgresql://u:p@h'x/d"), None).unwrap();
    assert!(quoted.contains(r"HOST='h'\''x'"), "{quoted}");
    assert_eq!(storage_exports(None, None).unwrap(), "");
}
