//! Splits a text of YAML or JSON documents into objects, those of a `List` one by one.
//!
//! No message quotes the text: it may contain a Secret.

use serde_json::Value;

use crate::manifests::{Document, DocumentError, DocumentLocation};

/// Deepest nesting: more would exhaust the stack.
const MAX_DEPTH: usize = 96;

type DocumentResult = Result<Document, DocumentError>;

pub(super) fn documents(file: &str, text: &str) -> Vec<DocumentResult> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let read = if text.trim_start().starts_with('{') { json(text) } else { None };
    let values = read.map_or_else(|| yaml(text), |values| (1..).zip(values.into_iter().map(Ok)).collect());
    let mut all = Vec::new();
    for (document, value) in values {
        let location = DocumentLocation { file: file.to_owned(), document, item: None };
        match value {
            Ok(Value::Null) => {}
            Ok(value) => objects(location, value, &mut all),
            Err(problem) => all.push(Err(DocumentError { location, problem })),
        }
    }
    all
}

/// None if the text is not JSON although it begins with a brace, as YAML may.
fn json(text: &str) -> Option<Vec<Value>> {
    serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().ok()
}

/// A line that begins with `---` always begins a document.
fn yaml(text: &str) -> Vec<(usize, Result<Value, String>)> {
    let mut pieces = vec![Piece { line: 0, text: String::new() }];
    for (line, content) in text.split_inclusive('\n').enumerate() {
        let rest = content.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if let Some(rest) = rest {
            pieces.push(Piece { line, text: rest.to_owned() });
        } else if let Some(piece) = pieces.last_mut() {
            piece.text.push_str(content);
        }
    }
    // Comments and directives before the first marker are not a document.
    if pieces.len() > 1 && pieces[0].text.lines().all(|line| line.trim().is_empty() || line.starts_with(['#', '%'])) {
        pieces.remove(0);
    }
    (1..).zip(pieces.iter().map(Piece::read)).collect()
}

struct Piece {
    /// Number of lines of the file before this piece.
    line: usize,
    text: String,
}

impl Piece {
    fn read(&self) -> Result<Value, String> {
        // Folders of manifests may have CRDs, which exceed the default limits.
        let limits = serde_saphyr::budget! { max_depth: MAX_DEPTH, flow_nesting_limit: MAX_DEPTH, max_nodes: 5_000_000, max_events: 20_000_000 };
        let options = serde_saphyr::options! { budget: limits };
        serde_saphyr::from_str_with_options(&self.text, options).map_err(|error| match error.location() {
            Some(at) => {
                let line = self.line as u64 + at.line();
                format!("not valid YAML at line {line}, column {}: {}", at.column(), kind_of(&error))
            }
            None => format!("not valid YAML: {}", kind_of(&error)),
        })
    }
}

/// A message of our own, because those of the library quote the text.
fn kind_of(error: &serde_saphyr::Error) -> &'static str {
    match error.without_snippet() {
        serde_saphyr::Error::DuplicateMappingKey { .. } => "duplicate key",
        serde_saphyr::Error::Budget { .. } => "the document is too large or nested too deeply",
        _ => "check indentation, quotes and colons around this line",
    }
}

fn objects(location: DocumentLocation, value: Value, all: &mut Vec<DocumentResult>) {
    let word = |name: &str| value[name].as_str().filter(|word| !word.is_empty());
    let (Some(_), Some(kind)) = (word("apiVersion"), word("kind")) else {
        let problem = "not a Kubernetes object: set apiVersion and kind".to_owned();
        all.push(Err(DocumentError { location, problem }));
        return;
    };
    if !kind.ends_with("List") || !value["items"].is_array() {
        all.push(Ok(Document { location, object: value }));
        return;
    }
    // The items of a typed list may omit apiVersion and kind.
    let (group, kind) = (value["apiVersion"].clone(), kind.trim_end_matches("List").to_owned());
    let Value::Object(mut list) = value else { return };
    let Some(Value::Array(items)) = list.remove("items") else { return };
    for (item, mut object) in items.into_iter().enumerate() {
        if let (Value::Object(fields), false) = (&mut object, kind.is_empty()) {
            fields.entry("apiVersion").or_insert_with(|| group.clone());
            fields.entry("kind").or_insert_with(|| Value::from(kind.as_str()));
        }
        objects(DocumentLocation { item: Some(item), ..location.clone() }, object, all);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        let text_of = |read: &DocumentResult| match read {
            Ok(document) => format!("{} {}", document.location, document.object["kind"].as_str().unwrap_or_default()),
            Err(error) => error.to_string(),
        };
        documents("f", text).iter().map(text_of).collect()
    }

    #[test]
    fn documents_are_numbered_like_yaml() {
        let one = "{apiVersion: v1, kind: A}";
        for text in
            [one.to_owned(), format!("---\n{one}\n"), format!("# why\n---\n{one}"), format!("%YAML 1.2\n--- {one}\n")]
        {
            assert_eq!(names(&text), ["f: document 1 A"], "{text}");
        }
        assert_eq!(names(&format!("{one}\n---\n# nothing\n---\n{one}\n---\n")), ["f: document 1 A", "f: document 3 A"]);
        assert_eq!(names(""), [""; 0]);
    }

    #[test]
    fn dashes_inside_text_begin_no_document() {
        let text = "apiVersion: v1\nkind: A\ndata: |\n  ---\n  x\n  ----\n";
        assert_eq!(names(text), ["f: document 1 A"]);
        assert_eq!(names("apiVersion: v1\nkind: A\n---x: y\n"), ["f: document 1 A"]);
    }

    #[test]
    fn crlf_and_byte_order_mark_are_read() {
        assert_eq!(names("\u{feff}apiVersion: v1\r\nkind: A\r\n---\r\napiVersion: v1\r\nkind: B\r\n").len(), 2);
    }

    #[test]
    fn lists_are_split_into_items() {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "A"}, {"kind": "B"},
            {"apiVersion": "x/v1", "kind": "CList", "items": [{"spec": {}}]},
        ]});
        let wanted = [
            "f: document 1: items[0] A",
            "f: document 1: items[1]: not a Kubernetes object: set apiVersion and kind",
            "f: document 1: items[0] C",
        ];
        assert_eq!(names(&list.to_string()), wanted);
        assert_eq!(names(&format!("---\n{list}\n")), wanted);
        assert_eq!(names(&format!("{{\"apiVersion\": \"v1\",\n\t\"kind\": \"A\"}}\n{list}")).len(), 4);
    }

    #[test]
    fn error_has_line_and_quotes_nothing() {
        let text = "apiVersion: v1\nkind: A\n---\npassword: 'hunter2\n";
        let texts = names(text);
        assert_eq!(texts.len(), 2);
        assert!(texts[1].starts_with("f: document 2: not valid YAML at line "), "{texts:?}");
        assert!(!texts[1].contains("hunter2"), "{texts:?}");
        let twice = names("apiVersion: v1\nkind: A\n---\napiVersion: v1\nkind: B\nkind: hunter2\n");
        assert_eq!(twice[1], "f: document 2: not valid YAML at line 6, column 1: duplicate key");
    }
}
