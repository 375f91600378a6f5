//! Field errors of requests. Admission puts Kubernetes' words for the cause first; conditions do not.

use serde_json::Value;
use steersman_reconcile::{Cause, FieldError, FieldPath, Message};

/// The reason in conditions, unless a rule sets another.
const REASON: &str = "ValidationFailed";

pub fn required(path: FieldPath, message: impl Into<Message>, remedy: impl Into<Message>) -> FieldError {
    error(path, Cause::Required, "Required value".to_owned(), message.into(), remedy.into())
}

/// `value` appears in the message, so it must not be a secret.
pub fn invalid(
    path: FieldPath,
    value: Option<&Value>,
    message: impl Into<Message>,
    remedy: impl Into<Message>,
) -> FieldError {
    let words = value.map_or_else(|| "Invalid value".to_owned(), |value| format!("Invalid value: {value}"));
    error(path, Cause::Invalid, words, message.into(), remedy.into())
}

pub fn forbidden(path: FieldPath, message: impl Into<Message>, remedy: impl Into<Message>) -> FieldError {
    error(path, Cause::Forbidden, "Forbidden".to_owned(), message.into(), remedy.into())
}

fn error(path: FieldPath, cause: Cause, words: String, message: Message, remedy: Message) -> FieldError {
    let statement = Message::from(&path).with(": ").with(message.clone());
    let message = Message::from(words).with(": ").with(message);
    FieldError::new(path, REASON, message, remedy).with_cause(cause).stated_as(statement)
}
