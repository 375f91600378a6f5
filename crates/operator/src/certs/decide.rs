//! Decides the next step of a rotation.

use std::time::Duration;

use jiff::Timestamp;

use crate::certs::check::verify;
use crate::certs::state::CertificateState;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationTiming {
    /// Validity of a certificate. It is replaced when a third of this is left.
    pub validity: Duration,
    /// Time between a new CA in every bundle and the first use of its certificate: each API server watches the objects with
    /// the bundles itself, and may lag behind.
    pub settle: Duration,
    /// Time for which a replaced CA stays trusted: replicas watch the Secret, and may lag behind.
    pub retire: Duration,
    /// Interval at which the wall clock is read. A long timer would be wrong on a machine that was suspended.
    pub check: Duration,
}

impl RotationTiming {
    /// Settle and retire times are bounded by the validity, for tests that rotate within seconds.
    pub fn of(validity: Duration) -> Self {
        Self {
            validity,
            settle: (validity / 300).min(Duration::from_secs(60)),
            retire: (validity / 100).min(Duration::from_secs(3600)),
            check: (validity / 300).min(Duration::from_secs(300)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RotationStep {
    Wait,
    /// Generate a successor and add its CA to the bundle; with the reason for the log.
    Begin(String),
    /// Serve the successor, once its CA is in every bundle.
    Activate,
    /// Remove the replaced CA from the bundle.
    Retire,
}

/// The next step. It depends on the stored state alone, so that any leader can continue.
pub fn next_step(state: &CertificateState, names: &[String], timing: &RotationTiming, now: Timestamp) -> RotationStep {
    let later = now.checked_add(timing.validity / 3).unwrap_or(now);
    if let Some(next) = &state.next {
        return match verify(&next.certificate, &state.bundle, names, later) {
            Ok(()) => RotationStep::Activate,
            Err(why) => RotationStep::Begin(format!("the prepared certificate cannot be served: {why}")),
        };
    }
    // Renewal precedes retirement: trusting an old CA for another hour does no harm.
    if let Err(why) = verify(&state.leaf.certificate, &state.bundle, names, later) {
        let due = verify(&state.leaf.certificate, &state.bundle, names, now).is_ok();
        return RotationStep::Begin(if due { "less than a third of its validity is left".to_owned() } else { why });
    }
    if state.rotation_requested {
        return RotationStep::Begin("the annotation steersman.dev/rotate requests it".to_owned());
    }
    match state.replaced_at {
        Some(at) if now >= at.checked_add(timing.retire).unwrap_or(at) => RotationStep::Retire,
        _ => RotationStep::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::super::generation::generate;
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn names() -> Vec<String> {
        vec!["steersman-webhook.steersman-system.svc".to_owned(), "127.0.0.1".to_owned()]
    }

    fn timing() -> RotationTiming {
        RotationTiming::of(90 * DAY)
    }

    fn day(days: u32) -> Timestamp {
        "2026-11-16T00:00:00Z".parse::<Timestamp>().unwrap() + days * DAY
    }

    fn first() -> CertificateState {
        CertificateState::first(generate(&names(), timing().validity, day(0)).unwrap())
    }

    #[test]
    fn settle_and_retire_follow_validity() {
        let expected = RotationTiming { validity: 90 * DAY, settle: DAY / 1440, retire: DAY / 24, check: DAY / 288 };
        assert_eq!(timing(), expected);
        let (short, second) = (RotationTiming::of(Duration::from_secs(300)), Duration::from_secs(1));
        assert_eq!((short.settle, short.retire, short.check), (second, 3 * second, second));
    }

    #[test]
    fn rotation_passes_all_steps() {
        let (names, timing) = (names(), timing());
        let first = first();
        for young in [0, 1, 59] {
            assert_eq!(next_step(&first, &names, &timing, day(young)), RotationStep::Wait);
        }
        let due = day(60) + Duration::from_secs(1);
        assert_eq!(
            next_step(&first, &names, &timing, due),
            RotationStep::Begin("less than a third of its validity is left".into())
        );

        let rotating = first.with_successor(generate(&names, timing.validity, due).unwrap());
        assert_eq!(rotating.leaf, first.leaf, "the new CA is not in the bundles yet");
        assert_eq!(rotating.bundle.len(), 2);
        assert_eq!(rotating.bundle[1], first.bundle[0]);
        assert_eq!(next_step(&rotating, &names, &timing, due), RotationStep::Activate);

        let activated = rotating.activated(due);
        assert_eq!((&activated.leaf, activated.next.is_none()), (rotating.next.as_ref().unwrap(), true));
        assert_eq!(activated.bundle, rotating.bundle, "a replica with the old certificate is still trusted");
        assert_eq!(next_step(&activated, &names, &timing, due + Duration::from_secs(3599)), RotationStep::Wait);
        assert_eq!(next_step(&activated, &names, &timing, due + Duration::from_secs(3600)), RotationStep::Retire);

        let retired = activated.retired();
        assert_eq!(retired.bundle, [activated.bundle[0].clone()]);
        assert_eq!(next_step(&retired, &names, &timing, due + DAY), RotationStep::Wait);
    }

    #[test]
    fn requested_rotation_happens_once() {
        let requested = CertificateState { rotation_requested: true, ..first() };
        assert_eq!(
            next_step(&requested, &names(), &timing(), day(1)),
            RotationStep::Begin("the annotation steersman.dev/rotate requests it".into())
        );
        let rotating = requested.with_successor(generate(&names(), timing().validity, day(1)).unwrap());
        assert!(!rotating.rotation_requested);
    }

    #[test]
    fn expired_or_misnamed_certificate_is_replaced() {
        let moved = vec!["steersman-webhook.elsewhere.svc".to_owned()];
        let RotationStep::Begin(why) = next_step(&first(), &moved, &timing(), day(1)) else {
            panic!("the name differs")
        };
        assert!(why.starts_with("the certificate is not valid for steersman-webhook.elsewhere.svc: "), "{why}");
        let RotationStep::Begin(why) = next_step(&first(), &names(), &timing(), day(91)) else {
            panic!("it has expired")
        };
        assert!(why.contains("expired"), "{why}");
    }

    /// After months without a leader, the successor is as old as the certificate.
    #[test]
    fn expired_successor_is_replaced() {
        let rotating = first().with_successor(generate(&names(), timing().validity, day(60)).unwrap());
        let RotationStep::Begin(why) = next_step(&rotating, &names(), &timing(), day(130)) else {
            panic!("it is too old")
        };
        assert!(why.starts_with("the prepared certificate cannot be served: "), "{why}");
        let again = rotating.with_successor(generate(&names(), timing().validity, day(130)).unwrap());
        assert_eq!(again.bundle[1..], rotating.bundle, "all CAs are trusted until the end");
        let ended = again.activated(day(130)).retired();
        assert_eq!(ended.bundle, [ended.leaf.ca().unwrap()], "only the CA in use stays");
    }
}
