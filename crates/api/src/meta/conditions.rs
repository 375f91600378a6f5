//! Setting and merging of `metav1.Condition`s.
//! Comes in: the conditions as stored and what is to be said now; goes out: conditions that the API server accepts, in
//! which the time of transition moves only with the status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Limits of `metav1.Condition`; the API server counts characters, not bytes.
pub const MESSAGE_LIMIT: usize = 32_768;
pub const REASON_LIMIT: usize = 1_024;

/// Ends a message that had to be cut, so that nobody takes it for the whole.
const CUT: &str = " … (cut)";

/// Stands where a reason is mandatory and none was given.
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

/// What is to be said about one aspect of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    pub type_: String,
    pub truth: Truth,
    pub reason: String,
    pub message: String,
}

/// What setting a condition did; only a transition deserves an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Unchanged,
    Updated,
    Transitioned,
}

/// Says `statement` about the object as it was in `generation`. An existing condition keeps its place, a new one goes last.
pub fn set(conditions: &mut Vec<Condition>, statement: &Statement, generation: Option<i64>, now: Timestamp) -> Change {
    let Some(place) = conditions.iter().position(|known| known.type_ == statement.type_) else {
        conditions.push(condition(statement, generation, Time(whole_seconds(now))));
        return Change::Transitioned;
    };
    let old = &conditions[place];
    let transitioned = old.status != statement.truth.as_str();
    let since = if transitioned { Time(whole_seconds(now)) } else { old.last_transition_time.clone() };
    let new = condition(statement, generation, since);
    let change = match (transitioned, *old == new) {
        (true, _) => Change::Transitioned,
        (false, true) => Change::Unchanged,
        (false, false) => Change::Updated,
    };
    conditions[place] = new;
    change
}

/// Says all `statements` in order and keeps what others have said: conditions of other types are not ours to drop.
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

/// In this order whatever was said first, others last: what users read must not depend on how often the operator had to begin.
pub fn in_order(mut conditions: Vec<Condition>, order: &[&str]) -> Vec<Condition> {
    let place = |known: &Condition| order.iter().position(|type_| *type_ == known.type_);
    conditions.sort_by_key(|known| place(known).unwrap_or(order.len()));
    conditions
}

/// Takes a condition away; true if it was there.
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

/// The API server stores whole seconds; a fraction kept here would make every comparison with the stored object differ.
fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Makes a reason match `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`. Reasons of containers and of other controllers are
/// passed on as they come, and one bad character would make the API server refuse the whole status.
fn valid_reason(given: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':');
    let kept: String = given
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .skip_while(|c| !c.is_ascii_alphabetic())
        .take(REASON_LIMIT)
        .collect();
    match kept.trim_end_matches([',', ':']) {
        "" => NO_REASON.to_owned(),
        reason => reason.to_owned(),
    }
}

/// A message as a condition holds it: cut where it is too long.
pub fn as_stored(message: &str) -> String {
    bounded(message, MESSAGE_LIMIT)
}

fn bounded(message: &str, limit: usize) -> String {
    if message.chars().count() <= limit {
        return message.to_owned();
    }
    message.chars().take(limit.saturating_sub(CUT.chars().count())).chain(CUT.chars()).collect()
}
