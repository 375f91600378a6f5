//! Sets and merges `metav1.Condition`s that the API server accepts; the transition time changes only with the status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Limits of `metav1.Condition`; the API server counts characters, not bytes.
pub const MESSAGE_LIMIT: usize = 32_768;
pub const REASON_LIMIT: usize = 1_024;

/// End of a truncated message.
const TRUNCATED: &str = " … (cut)";

/// Reason of a condition without one: a reason is mandatory.
const NO_REASON: &str = "Unknown";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    True,
    False,
    Unknown,
}

impl Truth {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// The content of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    pub type_: String,
    pub truth: Truth,
    pub reason: String,
    pub message: String,
}

impl Statement {
    pub fn new(type_: &str, truth: Truth, reason: &str, message: impl Into<String>) -> Self {
        Self { type_: type_.to_owned(), truth, reason: reason.to_owned(), message: message.into() }
    }
}

/// Effect of setting a condition; only a transition deserves an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Unchanged,
    Updated,
    Transitioned,
}

/// Sets one condition of the object's `generation`. An existing condition keeps its position, a new one is added at the
/// end.
pub fn set(conditions: &mut Vec<Condition>, statement: &Statement, generation: Option<i64>, now: Timestamp) -> Change {
    let Some(index) = conditions.iter().position(|known| known.type_ == statement.type_) else {
        conditions.push(condition(statement, generation, whole_seconds(now)));
        return Change::Transitioned;
    };
    let old = &conditions[index];
    let transitioned = old.status != statement.truth.as_str();
    let since = if transitioned { whole_seconds(now) } else { old.last_transition_time.clone() };
    let new = condition(statement, generation, since);
    let change = match (transitioned, *old == new) {
        (true, _) => Change::Transitioned,
        (false, true) => Change::Unchanged,
        (false, false) => Change::Updated,
    };
    conditions[index] = new;
    change
}

/// Sets all `statements` in order. Conditions of other types are kept: they belong to other writers.
pub fn merge(
    stored: &[Condition],
    statements: &[Statement],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut merged = stored.to_vec();
    for statement in statements {
        set(&mut merged, statement, generation, now);
    }
    merged
}

/// Sorts conditions by `order`, other types last, so that the order does not depend on restarts of the operator.
pub fn in_order(mut conditions: Vec<Condition>, order: &[&str]) -> Vec<Condition> {
    let rank = |known: &Condition| order.iter().position(|type_| *type_ == known.type_);
    conditions.sort_by_key(|known| rank(known).unwrap_or(order.len()));
    conditions
}

pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|known| known.type_ != type_);
    conditions.len() != before
}

pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|known| known.type_ == type_)
}

fn condition(statement: &Statement, generation: Option<i64>, since: Time) -> Condition {
    Condition {
        type_: statement.type_.clone(),
        status: statement.truth.as_str().to_owned(),
        reason: valid_reason(&statement.reason),
        message: as_stored(&statement.message),
        observed_generation: generation,
        last_transition_time: since,
    }
}

/// The API server stores whole seconds: with a fraction every comparison with the stored object would differ.
pub fn whole_seconds(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// Makes a reason match `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`. Reasons may come from containers and other
/// controllers, and one bad character would make the API server refuse the whole status.
fn valid_reason(reason: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':');
    let valid: String = reason
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .skip_while(|c| !c.is_ascii_alphabetic())
        .take(REASON_LIMIT)
        .collect();
    match valid.trim_end_matches([',', ':']) {
        "" => NO_REASON.to_owned(),
        reason => reason.to_owned(),
    }
}

/// A message within the limit of a condition.
pub fn as_stored(message: &str) -> String {
    if message.chars().count() <= MESSAGE_LIMIT {
        return message.to_owned();
    }
    message.chars().take(MESSAGE_LIMIT - TRUNCATED.chars().count()).chain(TRUNCATED.chars()).collect()
}
