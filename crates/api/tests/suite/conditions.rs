//! Conditions: a table for each effect of setting one, and the laws that hold for all.

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

fn said(statement: &Statement) -> Condition {
    let mut conditions = vec![];
    conditions::set(&mut conditions, statement, Some(1), at(100));
    conditions.remove(0)
}

#[test]
fn each_kind_of_change_is_told_and_only_a_new_status_moves_the_time() {
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
    for (name, now_said, generation, change, since) in cases {
        let mut conditions = vec![said(&before)];
        assert_eq!(conditions::set(&mut conditions, &now_said, generation, at(200)), change, "{name}");
        let [condition] = &conditions[..] else { panic!("{name}: {conditions:?}") };
        assert_eq!(condition.last_transition_time, Time(at(since)), "{name}");
        assert_eq!(condition.observed_generation, generation, "{name}");
        assert_eq!(condition.status, now_said.truth.as_str(), "{name}");
        assert_eq!((&condition.reason, &condition.message), (&now_said.reason, &now_said.message), "{name}");
    }
}

#[test]
fn a_first_statement_is_a_transition_and_goes_last() {
    let mut conditions = vec![said(&Statement { type_: "Other".into(), ..ready(Truth::True, "Fine", "") })];
    let change = conditions::set(&mut conditions, &ready(Truth::True, "Fine", ""), None, at(7));
    assert_eq!(change, Change::Transitioned);
    assert_eq!(conditions.iter().map(|c| &*c.type_).collect::<Vec<_>>(), ["Other", "Ready"]);
}

#[test]
fn a_condition_is_found_and_removed_by_type() {
    let mut conditions = vec![said(&ready(Truth::True, "Fine", ""))];
    assert!(conditions::find(&conditions, "Ready").is_some());
    assert!(!conditions::remove(&mut conditions, "Other"));
    assert!(conditions::remove(&mut conditions, "Ready"));
    assert_eq!(conditions::find(&conditions, "Ready"), None);
    assert!(conditions.is_empty());
}

#[test]
fn times_have_whole_seconds_as_the_api_server_stores_them() {
    let mut conditions = vec![];
    let now: Timestamp = "2026-11-15T23:00:00.987654321Z".parse().unwrap();
    conditions::set(&mut conditions, &ready(Truth::True, "Fine", ""), None, now);
    let stored: Vec<Condition> = serde_json::from_value(serde_json::to_value(&conditions).unwrap()).unwrap();
    assert_eq!(stored, conditions);
}

#[test]
fn reasons_are_made_acceptable() {
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
    for (given, reason) in cases {
        assert_eq!(said(&ready(Truth::False, given, "")).reason, reason, "{given}");
    }
    assert_eq!(said(&ready(Truth::False, &"a".repeat(5_000), "")).reason.len(), REASON_LIMIT);
}

#[test]
fn a_message_beyond_the_limit_is_cut_and_says_so() {
    let longest = "ü".repeat(MESSAGE_LIMIT);
    assert_eq!(said(&ready(Truth::True, "Fine", &longest)).message, longest);
    let cut = said(&ready(Truth::True, "Fine", &format!("{longest}x"))).message;
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

fn stored() -> impl Strategy<Value = Vec<Condition>> {
    prop::collection::vec((statement(), prop::option::of(0..9i64), 0..1_000i64), 0..8).prop_map(|said| {
        let mut conditions = vec![];
        for (statement, generation, second) in said {
            conditions::set(&mut conditions, &statement, generation, at(second));
        }
        conditions
    })
}

fn acceptable(reason: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "_,:".contains(c);
    reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.chars().all(inner)
        && !reason.ends_with([',', ':'])
        && reason.len() <= REASON_LIMIT
}

proptest! {
    #[test]
    fn saying_it_again_changes_nothing(stored in stored(), said in prop::collection::vec(statement(), 0..4), now in 0..2_000i64) {
        // Two statements of one type contradict each other; only a list without such can settle.
        let mut types = std::collections::BTreeSet::new();
        let said: Vec<_> = said.into_iter().filter(|statement| types.insert(statement.type_.clone())).collect();
        let once = conditions::merge(&stored, &said, Some(3), at(now));
        let mut twice = once.clone();
        for statement in &said {
            prop_assert_eq!(conditions::set(&mut twice, statement, Some(3), at(now + 60)), Change::Unchanged);
        }
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn the_time_moves_exactly_when_the_status_does(stored in stored(), said in statement(), now in 2_000..3_000i64) {
        let old = conditions::find(&stored, &said.type_).cloned();
        let merged = conditions::merge(&stored, std::slice::from_ref(&said), None, at(now));
        let new = conditions::find(&merged, &said.type_).unwrap();
        match old {
            Some(old) if old.status == new.status => prop_assert_eq!(&old.last_transition_time, &new.last_transition_time),
            _ => prop_assert_eq!(&Time(at(now)), &new.last_transition_time),
        }
    }

    #[test]
    fn what_others_said_stays_in_its_place(stored in stored(), said in prop::collection::vec(statement(), 0..4)) {
        let merged = conditions::merge(&stored, &said, Some(3), at(5));
        for (place, old) in stored.iter().enumerate() {
            prop_assert_eq!(&merged[place].type_, &old.type_);
            if said.iter().all(|statement| statement.type_ != old.type_) {
                prop_assert_eq!(&merged[place], old);
            }
        }
    }

    #[test]
    fn every_reason_becomes_acceptable_and_acceptable_ones_stay(given in prop_oneof![any::<String>(), "[A-Za-z][A-Za-z0-9_,:]{0,8}[a-z]"]) {
        let reason = said(&ready(Truth::True, &given, "")).reason;
        prop_assert!(acceptable(&reason), "{reason:?}");
        if acceptable(&given) {
            prop_assert_eq!(reason, given);
        }
    }
}
