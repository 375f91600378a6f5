//! Enforces scale to zero: an idle model gets 0 replicas, and a model without scale to zero keeps one of its cheapest
//! variant.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::variant::factor::Explanation;

/// Cost of a replica if none is set.
pub const DEFAULT_COST: f64 = 10.0;

/// Whether a model may be scaled to zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum ScaleToZero {
    /// Scale to zero is off for the model.
    Disabled,
    /// There were requests within the retention period.
    Active,
    /// There was no request, but something else blocks scale to zero.
    Blocked(Explanation),
    /// Whether there were requests is unknown.
    Unknown(Explanation),
    Idle,
}

/// Returns whether a number was changed.
pub fn enforce(
    targets: &mut BTreeMap<String, i32>,
    costs: &BTreeMap<String, f64>,
    scale_to_zero: &ScaleToZero,
) -> bool {
    match scale_to_zero {
        ScaleToZero::Active | ScaleToZero::Blocked(_) | ScaleToZero::Unknown(_) => false,
        ScaleToZero::Idle => {
            targets.values_mut().for_each(|target| *target = 0);
            true
        }
        ScaleToZero::Disabled if targets.values().any(|target| *target > 0) => false,
        ScaleToZero::Disabled => {
            let cost = |variant: &str| costs.get(variant).copied().unwrap_or(DEFAULT_COST);
            let cheapest = targets.keys().min_by(|a, b| cost(a).total_cmp(&cost(b)).then(a.cmp(b))).cloned();
            cheapest.map(|variant| targets.insert(variant, 1)).is_some()
        }
    }
}
