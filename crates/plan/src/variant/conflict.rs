//! Resolves conflicts between objects with the same scale target: the oldest object decides.

use std::collections::BTreeMap;

use serde::Serialize;
use steersman_reconcile::NamespacedName;

use super::factor::{Explanation, Factor, FactorCode, FactorSubject};
use super::snapshot::ObservedVariant;
use super::target::TargetName;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Conflict {
    /// This object decides. The others have the same scale target.
    Won { others: Vec<NamespacedName> },
    /// An older object decides.
    Lost { target: String, winner: NamespacedName },
}

/// Conflicts by object. Among objects of the same age the first by name wins, whatever the order of `all`.
pub fn conflicts(all: &[&ObservedVariant]) -> BTreeMap<NamespacedName, Conflict> {
    let mut by_target: BTreeMap<(&str, TargetName), Vec<&ObservedVariant>> = BTreeMap::new();
    for variant in all {
        if let Some(target) = &variant.spec.scale_target_ref {
            let place = (variant.key.namespace.as_str(), TargetName::from(target));
            by_target.entry(place).or_default().push(variant);
        }
    }
    let mut found = BTreeMap::new();
    for ((_, target), mut rivals) in by_target {
        rivals.sort_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key)));
        let Some((winner, losers)) = rivals.split_first().filter(|(_, losers)| !losers.is_empty()) else { continue };
        let others = losers.iter().map(|loser| loser.key.clone()).collect();
        found.insert(winner.key.clone(), Conflict::Won { others });
        for loser in losers {
            let lost = Conflict::Lost { target: target.name.clone(), winner: winner.key.clone() };
            found.insert(loser.key.clone(), lost);
        }
    }
    found
}

impl Conflict {
    /// Why the object that lost is not decided on.
    pub fn explanation(&self) -> Explanation {
        let factor = match self {
            Self::Won { .. } => Factor::new(FactorCode::TargetConflict),
            Self::Lost { winner, .. } => {
                Factor::about(FactorCode::TargetConflict, FactorSubject::Variant(winner.name.clone()))
            }
        };
        Explanation::of(factor, self.message())
    }

    pub fn message(&self) -> String {
        match self {
            Self::Won { others } => {
                let names: Vec<String> = others.iter().map(ToString::to_string).collect();
                let names = names.join(", ");
                format!(
                    "This VA won arbitration (oldest) but {} other VA(s) also target the same deployment: {names}. \
                     DELETE OR REASSIGN: {names}",
                    others.len()
                )
            }
            Self::Lost { target, winner } => format!(
                "SUPPRESSED: This VA targets deployment {target} which is already managed by {winner} (older VA). \
                 No optimization/metrics for this VA. \
                 ACTION: Delete this VA or change scaleTargetRef to a unique deployment."
            ),
        }
    }
}
