//! Decides the next step of a rotation.

use std::time::Duration;

use jiff::Timestamp;

use crate::certs::check::holds;
use crate::certs::kept::Kept;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lives {
    /// Validity of a certificate. It is replaced when a third of this is left.
    pub life: Duration,
    /// Time between a new CA in every bundle and the first use of its certificate: each API server watches the objects with
    /// the bundles itself, and may lag behind.
    pub settle: Duration,
    /// Time for which a replaced CA stays trusted: replicas watch the Secret, and may lag behind.
    pub retire: Duration,
    /// Interval at which the wall clock is read. A long timer would be wrong on a machine that was suspended.
    pub check: Duration,
}

impl Lives {
    /// Settle and retire times are bounded by the life, for tests that rotate within seconds.
    pub fn of(life: Duration) -> Self {
        Self {
            life,
            settle: (life / 300).min(Duration::from_secs(60)),
            retire: (life / 100).min(Duration::from_secs(3600)),
            check: (life / 300).min(Duration::from_secs(300)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Nothing,
    /// Make a successor and add its CA to the bundle; with the reason for the log.
    Begin(String),
    /// Serve the successor, once its CA is in every bundle.
    Turn,
    /// Remove the replaced CA from the bundle.
    Retire,
}

/// The next step. It depends on the stored state alone, so that any leader can continue.
pub fn step(kept: &Kept, names: &[String], lives: &Lives, now: Timestamp) -> Step {
    let later = now.checked_add(lives.life / 3).unwrap_or(now);
    if let Some(next) = &kept.next {
        return match holds(&next.certificate, &kept.bundle, names, later) {
            Ok(()) => Step::Turn,
            Err(why) => Step::Begin(format!("its successor has grown old before its turn: {why}")),
        };
    }
    // Renewal precedes retirement: trusting an old CA for another hour does no harm.
    if let Err(why) = holds(&kept.leaf.certificate, &kept.bundle, names, later) {
        let due = holds(&kept.leaf.certificate, &kept.bundle, names, now).is_ok();
        return Step::Begin(if due { "a third of its life is left".to_owned() } else { why });
    }
    if kept.asked {
        return Step::Begin("somebody asked for it".to_owned());
    }
    match kept.moved {
        Some(at) if now >= at.checked_add(lives.retire).unwrap_or(at) => Step::Retire,
        _ => Step::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::super::generation::make;
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn names() -> Vec<String> {
        vec!["steersman-webhook.steersman-system.svc".to_owned(), "127.0.0.1".to_owned()]
    }

    fn lives() -> Lives {
        Lives::of(90 * DAY)
    }

    fn day(days: u32) -> Timestamp {
        "2026-11-16T00:00:00Z".parse::<Timestamp>().unwrap() + days * DAY
    }

    fn fresh() -> Kept {
        Kept::fresh(make(&names(), lives().life, day(0)).unwrap())
    }

    #[test]
    fn settle_and_retire_follow_life() {
        let expected = Lives { life: 90 * DAY, settle: DAY / 1440, retire: DAY / 24, check: DAY / 288 };
        assert_eq!(lives(), expected);
        let (short, second) = (Lives::of(Duration::from_secs(300)), Duration::from_secs(1));
        assert_eq!((short.settle, short.retire, short.check), (second, 3 * second, second));
    }

    #[test]
    fn rotation_passes_all_steps() {
        let (names, lives) = (names(), lives());
        let first = fresh();
        for young in [0, 1, 59] {
            assert_eq!(step(&first, &names, &lives, day(young)), Step::Nothing);
        }
        let due = day(60) + Duration::from_secs(1);
        assert_eq!(step(&first, &names, &lives, due), Step::Begin("a third of its life is left".into()));

        let begun = first.begun(make(&names, lives.life, due).unwrap());
        assert_eq!(begun.leaf, first.leaf, "nobody is asked to trust what is not in the bundles yet");
        assert_eq!(begun.bundle.len(), 2);
        assert_eq!(begun.bundle[1], first.bundle[0]);
        assert_eq!(step(&begun, &names, &lives, due), Step::Turn);

        let turned = begun.turned(due);
        assert_eq!((&turned.leaf, turned.next.is_none()), (begun.next.as_ref().unwrap(), true));
        assert_eq!(turned.bundle, begun.bundle, "a replica that has not followed is still trusted");
        assert_eq!(step(&turned, &names, &lives, due + Duration::from_secs(3599)), Step::Nothing);
        assert_eq!(step(&turned, &names, &lives, due + Duration::from_secs(3600)), Step::Retire);

        let retired = turned.retired();
        assert_eq!(retired.bundle, [turned.bundle[0].clone()]);
        assert_eq!(step(&retired, &names, &lives, due + DAY), Step::Nothing);
    }

    #[test]
    fn requested_rotation_happens_once() {
        let asked = Kept { asked: true, ..fresh() };
        assert_eq!(step(&asked, &names(), &lives(), day(1)), Step::Begin("somebody asked for it".into()));
        let begun = asked.begun(make(&names(), lives().life, day(1)).unwrap());
        assert!(!begun.asked);
    }

    #[test]
    fn expired_or_misnamed_certificate_is_replaced() {
        let moved = vec!["steersman-webhook.elsewhere.svc".to_owned()];
        let Step::Begin(why) = step(&fresh(), &moved, &lives(), day(1)) else { panic!("the name is another") };
        assert!(why.starts_with("it is not good for steersman-webhook.elsewhere.svc: "), "{why}");
        let Step::Begin(why) = step(&fresh(), &names(), &lives(), day(91)) else { panic!("it has expired") };
        assert!(why.contains("expired"), "{why}");
    }

    /// After months without a leader the successor is as old as the certificate.
    #[test]
    fn expired_successor_is_replaced() {
        let begun = fresh().begun(make(&names(), lives().life, day(60)).unwrap());
        let Step::Begin(why) = step(&begun, &names(), &lives(), day(130)) else { panic!("it is too old") };
        assert!(why.starts_with("its successor has grown old before its turn: "), "{why}");
        let again = begun.begun(make(&names(), lives().life, day(130)).unwrap());
        assert_eq!(again.bundle[1..], begun.bundle, "all are trusted until the end");
        let ended = again.turned(day(130)).retired();
        assert_eq!(ended.bundle, [ended.leaf.ca().unwrap()], "and none is left behind");
    }
}
