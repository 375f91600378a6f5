//! Parses the profiler's status file, which may be incomplete, and removes credentials from its texts.

use std::sync::LazyLock;

use jiff::Timestamp;
use regex::Regex;
use serde_json::{Map, Value};
use steersman_plan::yaml::{Booleans, Budget};

pub const FILE: &str = "profiler_status.yaml";

// Most characters of a text. Longer ones would not fit into the condition that shows them, or would hide its other content.
const MAX_PHASE_CHARS: usize = 64;
const MAX_MESSAGE_CHARS: usize = 1024;
const MAX_ERROR_CHARS: usize = 8192;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Success,
    Failed,
    /// The profiler is running, or its status is an unknown word.
    None(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub verdict: Verdict,
    pub phase: Option<String>,
    pub message: Option<String>,
    pub error: Option<String>,
    /// Time by the profiler's clock.
    pub written: Option<Timestamp>,
}

/// None if the text is incomplete, or not YAML.
pub fn read(text: &str) -> Option<Status> {
    let fields: Map<String, Value> = Budget::new(Booleans::TrueAndFalse).parse(text).ok()?;
    let words = |name: &str, longest: usize| {
        let said = match fields.get(name)? {
            Value::Null => return None,
            Value::String(said) => said.trim().to_owned(),
            other => other.to_string(),
        };
        (!said.is_empty()).then(|| cut(&redacted(&said), longest))
    };
    let verdict = match words("status", MAX_PHASE_CHARS).unwrap_or_default().as_str() {
        "success" => Verdict::Success,
        "failed" => Verdict::Failed,
        other => Verdict::None(other.to_owned()),
    };
    Some(Status {
        verdict,
        phase: words("phase", MAX_PHASE_CHARS),
        message: words("message", MAX_MESSAGE_CHARS),
        error: words("error", MAX_ERROR_CHARS),
        written: fields.get("timestamp").and_then(Value::as_str).and_then(|time| time.trim().parse().ok()),
    })
}

/// Patterns of credentials: libraries put tokens, and addresses with passwords, into the texts of their errors.
static CREDENTIALS: LazyLock<Vec<(Option<Regex>, &str)>> = LazyLock::new(|| {
    [
        (r"hf_[A-Za-z0-9]{8,}", "hf_***"),
        (r"nvapi-[A-Za-z0-9_\-]{8,}", "nvapi-***"),
        (r"eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]+(\.[A-Za-z0-9_\-]*)?", "***"),
        (r"([Bb]earer|BEARER)\s+[A-Za-z0-9._~+/=\-]{8,}", "$1 ***"),
        (r"://[^/\s@:]*:[^/\s@]+@", "://***@"),
        (r"\bsk-[A-Za-z0-9_\-]{16,}", "sk-***"),
        // A value by its name. The name `token` alone does not count: profilers report times per token.
        (
            r#"(?i)((?:password|passwd|api[_-]?key|access[_-]?key(?:[_-]id)?|client[_-]secret|(?:access|auth|api|hf|hub|session)[_-]token)["']?\s*[=:]\s*["']?)[^\s"',;&)*]+"#,
            "${1}***",
        ),
    ]
    .into_iter()
    .map(|(pattern, instead)| (Regex::new(pattern).ok(), instead))
    .collect()
});

pub fn redacted(text: &str) -> String {
    let patterns = CREDENTIALS.iter().filter_map(|(pattern, instead)| Some((pattern.as_ref()?, instead)));
    patterns.fold(text.to_owned(), |text, (pattern, instead)| pattern.replace_all(&text, *instead).into_owned())
}

fn cut(text: &str, longest: usize) -> String {
    const SUFFIX: &str = " … (cut; the rest is in the profiler's log)";
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    text.chars().take(longest.saturating_sub(SUFFIX.chars().count())).chain(SUFFIX.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiler_status_file_is_parsed() {
        let status = read(
            "status: running\ntimestamp: '2026-11-16T06:00:00Z'\nmessage: 'Benchmarking \"a\\b\": 1/3'\nphase: SweepingPrefill\n",
        );
        let status = status.unwrap();
        assert_eq!(status.verdict, Verdict::None("running".into()));
        assert_eq!(status.phase.as_deref(), Some("SweepingPrefill"));
        assert_eq!(status.message.as_deref(), Some(r#"Benchmarking "a\b": 1/3"#), "quotes and backslashes stay");
        assert_eq!(status.written, Some("2026-11-16T06:00:00Z".parse().unwrap()));
        let failed = read("status: failed\nmessage: m\nerror: |\n  line one\n  line two\n").unwrap();
        assert_eq!((failed.verdict, failed.error.as_deref()), (Verdict::Failed, Some("line one\nline two")));
        let done = read("{status: success, outputs: {final_config: final_config.yaml}, phase: Done}").unwrap();
        assert_eq!((done.verdict, done.phase.as_deref()), (Verdict::Success, Some("Done")));
    }

    /// Output of PyYAML, which the profiler uses.
    const WRAPPED: &str = r##"status: failed
timestamp: '2026-11-16T06:00:00Z'
message: 'Profiler failed with exception: ValueError'
error: "Traceback (most recent call last):\n  File \"x.py\", line 3\nValueError: SLA\
  \ 'ttft' must be positive: {\"a\": [1, #2]} \\ and a long tail that is wrapped by\
  \ the library because it is longer than eighty characters\n"
phase: SweepingPrefill
"##;

    #[test]
    fn long_error_stays_whole_and_prefix_never_succeeds() {
        let status = read(WRAPPED).unwrap();
        let tail =
            "be positive: {\"a\": [1, #2]} \\ and a long tail that is wrapped by the library because it is longer than";
        let error = status.error.unwrap();
        assert!(
            error.starts_with("Traceback (most recent call last):\n  File \"x.py\", line 3\nValueError: SLA 'ttft'")
        );
        assert!(error.contains(tail) && error.lines().count() == 3, "{error}");
        for end in 0..WRAPPED.len() {
            let half = read(&WRAPPED[..end]).map(|status| status.verdict);
            assert!(!matches!(half, Some(Verdict::Success)), "{end}");
        }
    }

    #[test]
    fn truncated_status_has_no_verdict() {
        for text in ["status", "- status: success", "status: 'succ", "a: [", "\u{0}\u{1}", "status: &a *a"] {
            assert_eq!(read(text).map(|status| status.verdict), None, "{text:?}");
        }
        for (text, word) in [
            ("", ""),
            ("null", ""),
            ("status: succ", "succ"),
            ("status: true", "true"),
            ("phase: Done", ""),
            ("status:", ""),
        ] {
            assert_eq!(read(text).unwrap().verdict, Verdict::None(word.into()), "{text:?}");
        }
        assert_eq!(read("{status: failed, timestamp: yesterday}").unwrap().written, None);
        assert_eq!(read("{status: failed, error: null, message: ''}").unwrap().error, None);
        assert_eq!(read("{status: failed, error: {code: 3}}").unwrap().error.as_deref(), Some(r#"{"code":3}"#));
    }

    #[test]
    fn yaml_alias_bomb_is_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let below = vec![format!("*a{}", level - 1); 9].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{below}]\n"));
        }
        assert_eq!(read(&text), None);
    }

    #[test]
    fn credentials_are_redacted() {
        assert!(CREDENTIALS.iter().all(|(pattern, _)| pattern.is_some()), "all of them are regular expressions");
        for (said, shown) in [
            ("401 for token hf_AbCdEfGhIjKlMnOp.", "401 for token hf_***."),
            ("Authorization: Bearer abc.def-123456", "Authorization: Bearer ***"),
            ("https://me:hunter2hunter2@host/x?y", "https://***@host/x?y"),
            ("key nvapi-abcdefgh_12345 refused", "key nvapi-*** refused"),
            ("jwt eyJhbGciOiJSUzI1.eyJpc3MiOiJrdWJl.c2ln end", "jwt *** end"),
            ("hf_model and https://host:8000/path@2", "hf_model and https://host:8000/path@2"),
            ("Incorrect key sk-proj-abcdef1234567890", "Incorrect key sk-***"),
            ("connect(user=me, password='hunter2', port=1)", "connect(user=me, password='***', port=1)"),
            ("{\"api_key\": \"abc\", \"x\": 1}", "{\"api_key\": \"***\", \"x\": 1}"),
            ("AWS_SECRET_ACCESS_KEY=wJal/K7M HF_TOKEN: abc", "AWS_SECRET_ACCESS_KEY=*** HF_TOKEN: ***"),
            ("time to first_token: 123.456 max_tokens=4096", "time to first_token: 123.456 max_tokens=4096"),
        ] {
            assert_eq!(redacted(said), shown);
            let yaml = format!("{{status: failed, error: {}}}", Value::from(said));
            assert_eq!(read(&yaml).unwrap().error.as_deref(), Some(shown));
        }
    }

    #[test]
    fn long_text_is_cut_at_character_boundary() {
        let text = format!("{{status: failed, message: {0}, error: {0}, phase: {0}}}", "ä".repeat(20_000));
        let status = read(&text).unwrap();
        let length = |words: &Option<String>| words.as_ref().unwrap().chars().count();
        assert_eq!((length(&status.phase), length(&status.message), length(&status.error)), (64, 1024, 8192));
        assert!(status.error.unwrap().ends_with("ä … (cut; the rest is in the profiler's log)"));
    }
}
