//! Reads the interval between two decisions on the fleet, `GLOBAL_OPT_INTERVAL` of the main ConfigMap.

use jiff::SignedDuration;

use super::duration;
use super::note::Notes;

pub const KEY: &str = "GLOBAL_OPT_INTERVAL";
pub const USUAL: SignedDuration = SignedDuration::from_secs(60);
const SHORTEST: SignedDuration = SignedDuration::from_secs(1);
/// Outside of this range a finding is reported.
const SHORT: SignedDuration = SignedDuration::from_secs(10);
const LONG: SignedDuration = SignedDuration::from_mins(10);

pub fn read(text: Option<&str>, last: SignedDuration, notes: &mut Notes<'_>) -> SignedDuration {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return USUAL };
    match duration::parse(text) {
        Ok(interval) if interval <= SignedDuration::ZERO => {
            notes.bad(KEY, &format!("{text} is not greater than zero"));
            last
        }
        Ok(interval) if interval < SHORTEST => {
            notes.bent(KEY, &format!("{text} is below the minimum; 1s is used"));
            SHORTEST
        }
        Ok(interval) => {
            if !(SHORT..=LONG).contains(&interval) {
                let effect = if interval < SHORT {
                    "metrics do not change that often"
                } else {
                    "changes of the load are noticed late"
                };
                notes.odd(KEY, &format!("{text} is outside the recommended range of 10s to 10m: {effect}"));
            }
            interval
        }
        Err(why) => {
            notes.bad(KEY, &why.to_string());
            last
        }
    }
}
