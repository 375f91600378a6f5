//! Reads the prices of accelerators from ConfigMap `accelerator-unit-costs`, for variants without a cost of their own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::note::{Notes, entries};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostEntry {
    #[serde(default)]
    pub device: String,
    pub cost: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Costs {
    /// Cents per hour and accelerator, by the accelerator's name.
    pub cents: BTreeMap<String, f64>,
    pub entries: BTreeMap<String, CostEntry>,
}

pub fn read(data: &BTreeMap<String, String>, last: &Costs, notes: &mut Notes<'_>) -> Costs {
    let entries = entries(
        data,
        |_| true,
        &last.entries,
        notes,
        |_, entry: &mut CostEntry, _, _| {
            number(&entry.cost)
                .map(drop)
                .ok_or_else(|| format!("cost {:?} must be a number of cents, 0 or more", entry.cost))
        },
    );
    let cents = entries.iter().filter_map(|(name, entry)| Some((name.clone(), number(&entry.cost)?))).collect();
    Costs { cents, entries }
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|cost: &f64| cost.is_finite() && *cost >= 0.0)
}
