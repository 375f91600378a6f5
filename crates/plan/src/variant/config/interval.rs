//! How often the fleet is looked at: `GLOBAL_OPT_INTERVAL` of the main ConfigMap.
//! Comes in: its text; goes out: an interval that can be slept, and how long metrics may be kept meanwhile.

use jiff::SignedDuration;

use super::duration;
use super::note::Notes;

pub const KEY: &str = "GLOBAL_OPT_INTERVAL";
pub const USUAL: SignedDuration = SignedDuration::from_secs(60);
const SHORTEST: SignedDuration = SignedDuration::from_secs(1);
/// Outside of these the documents warn.
const SHORT: SignedDuration = SignedDuration::from_secs(10);
const LONG: SignedDuration = SignedDuration::from_mins(10);
const SHORTEST_CACHE: SignedDuration = SignedDuration::from_secs(5);

pub fn read(text: Option<&str>, last: SignedDuration, notes: &mut Notes<'_>) -> SignedDuration {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return USUAL };
    match duration::parse(text) {
        Ok(interval) if interval <= SignedDuration::ZERO => {
            notes.bad(KEY, &format!("{text} is not above zero"));
            last
        }
        Ok(interval) if interval < SHORTEST => {
            notes.bent(KEY, &format!("{text} is below the minimum of 1s, which is used instead"));
            SHORTEST
        }
        Ok(interval) => {
            if !(SHORT..=LONG).contains(&interval) {
                let effect = if interval < SHORT { "metrics change more slowly" } else { "load is noticed that late" };
                notes.odd(KEY, &format!("{text} is outside of the recommended 10s to 10m: {effect}"));
            }
            interval
        }
        Err(why) => {
            notes.bad(KEY, &why.to_string());
            last
        }
    }
}

/// Half the interval: each pass sees metrics of its own.
pub fn cache(interval: SignedDuration) -> SignedDuration {
    (interval / 2).max(SHORTEST_CACHE)
}
