//! Conditions: tables for the effects of setting one, and laws of merging them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use proptest::prelude::*;
use steersman_api::meta::conditions::{self, Change, MESSAGE_LIMIT, REASON_LIMIT, Statement, Truth};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn ready(truth: Truth, reason: &str, message: &str) -> Statement {
    Statement { type_: "Ready".into(), truth, reason: reason.into(), message: message.into() }
}

fn new_condition(statement: &Statement) -> Condition {
    let mut conditions = vec![];
    conditions::set(&mut conditions, statement, Some(1), at(100));
    conditions.remove(0)
}

#[test]
fn set_reports_change_and_transition_time() {
    let before = ready(Truth::False, "Waiting", "no pod yet");
    let cases = [
        ("same words", before.clone(), Some(1), Change::Unchanged, 100),
        ("another message", ready(Truth::False, "Waiting", "one pod"), Some(1), Change::Updated, 100),
        ("another reason", ready(Truth::False, "Failed", "no pod yet"), Some(1), Change::Updated, 100),
        ("another generation", before.clone(), Some(2), Change::Updated, 100),
        ("no generation", before.clone(), None, Change::Updated, 100),
        ("another status", ready(Truth::True, "Waiting", "no pod yet"), Some(1), Change::Transitioned, 200),
        ("unknown status", ready(Truth::Unknown, "Lost", ""), Some(1), Change::Transitioned, 200),
    ];
    for (name, statement, generation, change, since) in cases {
        let mut conditions = vec![new_condition(&before)];
        assert_eq!(conditions::set(&mut conditions, &statement, generation, at(200)), change, "{name}");
        let [condition] = &conditions[..] else { panic!("{name}: {conditions:?}") };
        assert_eq!(condition.last_transition_time, Time(at(since)), "{name}");
        assert_eq!(condition.observed_generation, generation, "{name}");
        assert_eq!(condition.status, statement.truth.as_str(), "{name}");
        assert_eq!((&condition.reason, &condition.message), (&statement.reason, &statement.message), "{name}");
    }
}

#[test]
fn new_condition_is_transition_and_goes_last() {
    let mut conditions = vec![new_condition(&Statement { type_: "Other".into(), ..ready(Truth::True, "Fine", "") })];
    let change = conditions::set(&mut conditions, &ready(Truth::True, "Fine", ""), None, at(7));
    assert_eq!(change, Change::Transitioned);
    assert_eq!(conditions.iter().map(|c| &*c.type_).collect::<Vec<_>>(), ["Other", "Ready"]);
}

#[test]
fn condition_is_found_and_removed_by_type() {
    let mut conditions = vec![new_condition(&ready(Truth::True, "Fine", ""))];
    assert!(conditions::find(&conditions, "Ready").is_some());
    assert!(!conditions::remove(&mut conditions, "Other"));
    assert!(conditions::remove(&mut conditions, "Ready"));
    assert_eq!(conditions::find(&conditions, "Ready"), None);
    assert!(conditions.is_empty());
}

#[test]
fn transition_time_has_whole_seconds() {
    let mut conditions = vec![];
    let now: Timestamp = "2026-11-15T23:00:00.987654321Z".parse().unwrap();
    conditions::set(&mut conditions, &ready(Truth::True, "Fine", ""), None, now);
    let stored: Vec<Condition> = serde_json::from_value(serde_json::to_value(&conditions).unwrap()).unwrap();
    assert_eq!(stored, conditions);
}

#[test]
fn invalid_reasons_are_sanitized() {
    let cases = [
        ("CrashLoopBackOff", "CrashLoopBackOff"),
        ("Error: ErrImagePull", "Error:_ErrImagePull"),
        ("exit code 137", "exit_code_137"),
        ("137", "Unknown"),
        ("", "Unknown"),
        ("::", "Unknown"),
        ("Ends:,", "Ends"),
        ("Größe", "Gr__e"),
    ];
    for (text, reason) in cases {
        assert_eq!(new_condition(&ready(Truth::False, text, "")).reason, reason, "{text}");
    }
    assert_eq!(new_condition(&ready(Truth::False, &"a".repeat(5_000), "")).reason.len(), REASON_LIMIT);
}

#[test]
fn message_beyond_limit_is_marked_truncated() {
    let longest = "ü".repeat(MESSAGE_LIMIT);
    assert_eq!(new_condition(&ready(Truth::True, "Fine", &longest)).message, longest);
    let cut = new_condition(&ready(Truth::True, "Fine", &format!("{longest}x"))).message;
    assert_eq!(cut.chars().count(), MESSAGE_LIMIT);
    assert!(cut.ends_with("ü … (cut)"));
}

fn statement() -> impl Strategy<Value = Statement> {
    let truth = prop_oneof![Just(Truth::True), Just(Truth::False), Just(Truth::Unknown)];
    ("[A-D]", truth, ".{0,12}", ".{0,12}").prop_map(|(type_, truth, reason, message)| Statement {
        type_,
        truth,
        reason,
        message,
    })
}

fn stored_conditions() -> impl Strategy<Value = Vec<Condition>> {
    prop::collection::vec((statement(), prop::option::of(0..9i64), 0..1_000i64), 0..8).prop_map(|statements| {
        let mut conditions = vec![];
        for (statement, generation, second) in statements {
            conditions::set(&mut conditions, &statement, generation, at(second));
        }
        conditions
    })
}

fn is_valid_reason(reason: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "_,:".contains(c);
    reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.chars().all(inner)
        && !reason.ends_with([',', ':'])
        && reason.len() <= REASON_LIMIT
}

proptest! {
    #[test]
    fn merging_twice_changes_nothing(
        stored in stored_conditions(), statements in prop::collection::vec(statement(), 0..4), now in 0..2_000i64,
    ) {
        // Two statements of one type overwrite each other, so only a list with unique types can settle.
        let mut types = std::collections::BTreeSet::new();
        let statements: Vec<_> =
            statements.into_iter().filter(|statement| types.insert(statement.type_.clone())).collect();
        let once = conditions::merge(&stored, &statements, Some(3), at(now));
        let mut twice = once.clone();
        for statement in &statements {
            prop_assert_eq!(conditions::set(&mut twice, statement, Some(3), at(now + 60)), Change::Unchanged);
        }
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn transition_time_moves_exactly_with_status(
        stored in stored_conditions(), statement in statement(), now in 2_000..3_000i64,
    ) {
        let old = conditions::find(&stored, &statement.type_).cloned();
        let merged = conditions::merge(&stored, std::slice::from_ref(&statement), None, at(now));
        let new = conditions::find(&merged, &statement.type_).unwrap();
        match old {
            Some(old) if old.status == new.status => prop_assert_eq!(&old.last_transition_time, &new.last_transition_time),
            _ => prop_assert_eq!(&Time(at(now)), &new.last_transition_time),
        }
    }

    #[test]
    fn merge_keeps_other_conditions_in_place(
        stored in stored_conditions(), statements in prop::collection::vec(statement(), 0..4),
    ) {
        let merged = conditions::merge(&stored, &statements, Some(3), at(5));
        for (place, old) in stored.iter().enumerate() {
            prop_assert_eq!(&merged[place].type_, &old.type_);
            if statements.iter().all(|statement| statement.type_ != old.type_) {
                prop_assert_eq!(&merged[place], old);
            }
        }
    }

    #[test]
    fn reason_becomes_valid_and_valid_ones_stay(given in prop_oneof![any::<String>(), "[A-Za-z][A-Za-z0-9_,:]{0,8}[a-z]"]) {
        let reason = new_condition(&ready(Truth::True, &given, "")).reason;
        prop_assert!(is_valid_reason(&reason), "{reason:?}");
        if is_valid_reason(&given) {
            prop_assert_eq!(reason, given);
        }
    }
}
