//! Scale to zero, and the last replica of a model.
//! Comes in: the numbers of all variants of one model; goes out: zero for all where the model is idle and may sleep, one
//! for the cheapest where it may not.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::variant::factor::Explanation;

/// What a replica costs where nothing is said.
pub const USUAL_COST: f64 = 10.0;

/// Whether the model may sleep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Sleep {
    /// Scale to zero is off for the model.
    Forbidden,
    /// Requests came within the retention period, or are here now.
    Awake,
    /// No request came, and something else speaks against it: what.
    Kept(Explanation),
    /// Nobody can say whether requests came: the cause.
    Unknown(Explanation),
    Idle,
}

/// True where a number was changed.
pub fn enforce(targets: &mut BTreeMap<String, i32>, costs: &BTreeMap<String, f64>, sleep: &Sleep) -> bool {
    match sleep {
        Sleep::Awake | Sleep::Kept(_) | Sleep::Unknown(_) => false,
        Sleep::Idle => {
            targets.values_mut().for_each(|target| *target = 0);
            true
        }
        Sleep::Forbidden if targets.values().any(|target| *target > 0) => false,
        Sleep::Forbidden => {
            let cost = |variant: &str| costs.get(variant).copied().unwrap_or(USUAL_COST);
            let cheapest = targets.keys().min_by(|a, b| cost(a).total_cmp(&cost(b)).then(a.cmp(b))).cloned();
            cheapest.map(|variant| targets.insert(variant, 1)).is_some()
        }
    }
}
