//! A text for people that refers to fields. It stays in parts until the version of its reader is known.

use std::fmt;

use crate::{FieldNames, FieldPath};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MessagePart {
    Text(String),
    Path(FieldPath),
}

/// Texts and references to fields, in order. Displayed with the paths of the stored version.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Message(Vec<MessagePart>);

/// `message!["Set ", path!(spec.image), format!(" to {image}.")]`.
#[macro_export]
macro_rules! message {
    ($($part:expr),+ $(,)?) => {
        $crate::Message::default()$(.with($part))+
    };
}

impl Message {
    #[must_use]
    pub fn with(mut self, more: impl Into<Self>) -> Self {
        for part in more.into().0 {
            match (self.0.last_mut(), part) {
                // Two messages that read the same are the same.
                (Some(MessagePart::Text(text)), MessagePart::Text(more)) => text.push_str(&more),
                (_, part) => self.0.push(part),
            }
        }
        self
    }

    /// `a, b, c`.
    pub fn list(paths: impl IntoIterator<Item = FieldPath>) -> Self {
        let paths = paths.into_iter().map(Self::from);
        paths.reduce(|list, path| list.with(", ").with(path)).unwrap_or_default()
    }

    /// Appends a sentence. Adds a full stop first if the message lacks one, as one that ends in a list does.
    #[must_use]
    pub fn then(self, next: impl Into<Self>) -> Self {
        let stopped = matches!(self.0.last(), Some(MessagePart::Text(text)) if text.ends_with(['.', '!', '?']));
        self.with(if stopped { " " } else { ". " }).with(next)
    }

    /// Renders the message with the field names of the author's version.
    pub fn render(&self, names: &FieldNames) -> String {
        let parts = self.0.iter().map(|part| match part {
            MessagePart::Text(text) => text.clone(),
            MessagePart::Path(path) => names.render(path),
        });
        parts.collect()
    }
}

impl fmt::Display for Message {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            MessagePart::Text(text) => out.write_str(text),
            MessagePart::Path(path) => write!(out, "{path}"),
        })
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self(if text.is_empty() { Vec::new() } else { vec![MessagePart::Text(text)] })
    }
}

impl From<FieldPath> for Message {
    fn from(path: FieldPath) -> Self {
        Self(vec![MessagePart::Path(path)])
    }
}

impl From<&FieldPath> for Message {
    fn from(path: &FieldPath) -> Self {
        path.clone().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MovedField, path};

    #[test]
    fn message_names_fields_of_the_readers_version() {
        let names = FieldNames::new(
            "v2",
            vec![MovedField { stored: path!(spec.image), written: path!(spec.server.image), with_content: true }],
        );
        let message = message!["is required when ", path!(spec.image), " has no tag"].then(message![
            "Set ",
            path!(spec.hardware),
            ", not \"spec.image\"."
        ]);
        assert_eq!(
            message.to_string(),
            "is required when spec.image has no tag. Set spec.hardware, not \"spec.image\"."
        );
        assert_eq!(
            message.render(&names),
            "is required when spec.server.image has no tag. Set spec.hardware (of v2), not \"spec.image\"."
        );
    }

    #[test]
    fn sentences_are_separated_by_one_full_stop() {
        assert_eq!(Message::from("One").then("Two.").to_string(), "One. Two.");
        assert_eq!(Message::from("One!").then("Two.").to_string(), "One! Two.");
        assert_eq!(Message::list([path!(spec.a), path!(spec.b)]).then("Two.").to_string(), "spec.a, spec.b. Two.");
    }

    #[test]
    fn messages_that_read_the_same_are_equal() {
        assert_eq!(message!["a", "b", String::new()], Message::from("ab"));
        assert_ne!(message!["a ", path!(spec)], Message::from("a spec"));
    }
}
