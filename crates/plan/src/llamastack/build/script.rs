//! The start script of a server with a mounted configuration. Values reach it as variables only.

use crate::llamastack::config::{TLS_CERT, TLS_KEY};

/// The entry point of the server has changed twice. An unknown version counts as new.
const ERA: &str = r#"era=$(python3 -c '
import re
from importlib.metadata import version
parts = [int(part) for part in re.findall(r"\d+", version("llama_stack"))[:3]]
print("first" if parts < [0, 2, 17] else "second" if parts < [0, 3] else "third")
' 2>/dev/null || echo third)
case "$era" in
first) exec python3 -m llama_stack.distribution.server.server --config "$LLAMA_STACK_CONFIG" ;;
second) exec python3 -m llama_stack.core.server.server "$LLAMA_STACK_CONFIG" ;;
esac
exec uvicorn llama_stack.core.server.server:create_app --factory --host 0.0.0.0 \
  --port "${LLS_PORT:-8321}" --workers "${LLS_WORKERS:-1}""#;

/// Older servers read the certificates from the configuration; the newest take them as arguments.
pub fn start(secure: bool, env_file: Option<&str>) -> String {
    let prepared = env_file.map(|file| format!(". {file}\n")).unwrap_or_default();
    let certificates =
        if secure { format!(" \\\n  --ssl-certfile {TLS_CERT} --ssl-keyfile {TLS_KEY}") } else { String::new() };
    format!("set -e\n{prepared}{ERA}{certificates}\n")
}
