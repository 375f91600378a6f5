//! Masks secrets in a server's responses, because everyone can read the status. Servers mask some values themselves,
//! depending on their version and the provider.

use serde_json::{Map, Value};

/// The mask that servers use themselves.
const MASK: &str = "********";

/// Parts of words in the name of a secret value.
const SECRET: [&str; 8] =
    ["password", "passwd", "passphrase", "secret", "credential", "apikey", "privatekey", "accesskey"];
/// Whole words in the name of a secret value.
const SECRET_WORDS: [&str; 3] = ["pass", "pwd", "authorization"];
/// Words that make the key after them plain, as in `primary_key`.
const PLAIN_KEYS: [&str; 8] = ["primary", "partition", "sort", "public", "foreign", "cache", "index", "unique"];
/// Words of names whose strings are secret and whose numbers are not, as in `max_tokens`.
const TOKENS: [&str; 3] = ["tokens", "auth", "bearer"];
/// Prefixes of the keys of well-known services.
const KEY_PREFIXES: [&str; 9] = ["sk-", "hf_", "nvapi-", "gsk_", "ghp_", "github_pat_", "AKIA", "xai-", "tvly-"];
const MIN_KEY_CHARS: usize = 12;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sensitivity {
    Plain,
    Token,
    Secret,
}

pub fn config(given: &Map<String, Value>) -> Value {
    let entry = |(name, value): (&String, &Value)| (name.clone(), value_of(kind(name), value));
    Value::Object(given.iter().map(entry).collect())
}

fn value_of(kind: Sensitivity, value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::String(text) if text.is_empty() => Value::String(String::new()),
        Value::String(_) if kind != Sensitivity::Plain => Value::from(MASK),
        Value::Bool(_) | Value::Number(_) if kind == Sensitivity::Secret => Value::from(MASK),
        Value::String(given) => Value::String(text(given, usize::MAX)),
        Value::Array(list) => list.iter().map(|one| value_of(kind, one)).collect(),
        Value::Object(inner) if kind == Sensitivity::Plain => config(inner),
        Value::Object(inner) => inner.iter().map(|(name, one)| (name.clone(), value_of(kind, one))).collect(),
        other => other.clone(),
    }
}

fn kind(name: &str) -> Sensitivity {
    let words = words(name);
    let secret = |word: &String| SECRET.iter().any(|known| word.contains(known)) || SECRET_WORDS.contains(&&**word);
    let token = |word: &String| word.ends_with("token") || TOKENS.contains(&&**word);
    let key = |pair: &[String]| ["key", "keys"].contains(&&*pair[1]) && !PLAIN_KEYS.contains(&&*pair[0]);
    if words.iter().any(secret) || words.windows(2).any(key) {
        Sensitivity::Secret
    } else if words.iter().any(token) {
        Sensitivity::Token
    } else {
        Sensitivity::Plain
    }
}

/// Splits a name into words: `apiKey`, `api_key` and `API-KEY` have the same two.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before_small = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && before_small) {
            words.push(String::new());
        }
        before_small = c.is_lowercase();
        if let Some(last) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            last.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Masks running text and truncates it to `max_chars` characters.
pub fn text(given: &str, max_chars: usize) -> String {
    let separates = |c: char| c.is_whitespace() || "\"'(),;<>[]{}".contains(c);
    let mut text = String::new();
    let mut before = String::new();
    for piece in given.split_inclusive(separates) {
        let word = piece.trim_end_matches(separates);
        text.push_str(&masked(&before, word));
        text.push_str(&piece[word.len()..]);
        match word {
            "" => {}
            // A separator after the name, as in JSON.
            ":" | "=" => before.push_str(word),
            _ => word.clone_into(&mut before),
        }
    }
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn masked(before: &str, word: &str) -> String {
    let named = before.strip_suffix([':', '=']).is_some_and(|name| kind(name) != Sensitivity::Plain);
    if !word.is_empty() && (named || before.eq_ignore_ascii_case("bearer")) {
        return MASK.to_owned();
    }
    let value = word.rsplit(['=', ':']).next().unwrap_or_default();
    if KEY_PREFIXES.iter().any(|prefix| value.starts_with(prefix)) && value.len() >= MIN_KEY_CHARS {
        return format!("{}{MASK}", &word[..word.len() - value.len()]);
    }
    if let Some((scheme, rest)) = word.split_once("://") {
        return address(scheme, rest);
    }
    if let Some((name, value)) = word.split_once('=')
        && !value.is_empty()
        && kind(name) != Sensitivity::Plain
    {
        return format!("{name}={MASK}");
    }
    // A memory address differs after each start of the server and would change the status.
    match word.split_once("0x") {
        Some((start, place)) if place.len() >= 6 && place.chars().all(|c| c.is_ascii_hexdigit()) => {
            format!("{start}0x…")
        }
        _ => word.to_owned(),
    }
}

fn address(scheme: &str, rest: &str) -> String {
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    let host_ends = place.find('/').unwrap_or(place.len());
    let place = match place[..host_ends].rfind('@') {
        Some(at) => format!("{MASK}{}", &place[at..]),
        None => place.to_owned(),
    };
    let parameter = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() && kind(name) != Sensitivity::Plain => format!("{name}={MASK}"),
        _ => pair.to_owned(),
    };
    match query {
        Some(query) => {
            let query = query.split('&').map(parameter).collect::<Vec<_>>().join("&");
            format!("{scheme}://{place}?{query}")
        }
        None => format!("{scheme}://{place}"),
    }
}
