//! What the objects do not say themselves, as comments before them.
//! Comes in: the configuration and what will be otherwise; goes out: lines that begin with `#`.

use k8s_openapi::api::core::v1::EnvVar;

use super::config::Configuration;
use crate::offline::one_line;

pub fn text(object: &str, place: &str, configuration: &Configuration, unlike: &[String]) -> String {
    let mut lines = vec![format!("{object} ({place})"), format!("configuration: {}", configuration.said)];
    if !configuration.variables.is_empty() {
        lines.push("variables that the server gets for it:".to_owned());
        lines.extend(configuration.variables.iter().map(|variable| format!("  {}", self::variable(variable))));
    }
    if !configuration.before.is_empty() {
        lines.push(format!("containers that run before the server: {}", configuration.before.join(", ")));
    }
    lines.extend(unlike.iter().map(|what| format!("note: {what}")));
    lines.iter().map(|line| format!("# {}\n", one_line(line))).collect()
}

fn variable(variable: &EnvVar) -> String {
    let name = &variable.name;
    match variable.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref()) {
        Some(key) => format!("{name}: key {} of Secret {}", key.key, key.name),
        None => format!("{name}: {}", variable.value.as_deref().unwrap_or_default()),
    }
}
