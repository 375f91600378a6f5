//! Keeps each number within `minReplicas` and `maxReplicas`, and reports what keeps a variant from the number that its
//! model needs.

use serde::Serialize;

use super::trace::{DecidedBy, Explanation, Factor, FactorCode, Proposal};

/// `minReplicas` and `maxReplicas` of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bounds {
    pub min: i32,
    pub max: Option<i32>,
}

impl Bounds {
    /// If the bounds contradict each other, the upper one wins: too few replicas do less harm than unexpected ones.
    pub fn clamp(self, replicas: i32) -> i32 {
        let raised = replicas.max(self.min).max(0);
        self.max.map_or(raised, |max| raised.min(max.max(0)))
    }

    #[must_use]
    pub fn at_most(self, replicas: i32) -> Self {
        Self { max: Some(self.max.map_or(replicas, |max| max.min(replicas))), ..self }
    }

    pub fn allow(self, replicas: i32) -> bool {
        self.clamp(replicas) == replicas
    }

    /// The bound that excludes `replicas`.
    pub fn binding(self, replicas: i32) -> Option<Explanation> {
        let bound = |code: FactorCode, name: &str, value: i32| {
            Explanation::of(Factor::replicas(code, value), format!("{name}={value}"))
        };
        match self.clamp(replicas) {
            kept if kept < replicas => self.max.map(|max| bound(FactorCode::MaxReplicas, "maxReplicas", max)),
            kept if kept > replicas => Some(bound(FactorCode::MinReplicas, "minReplicas", self.min)),
            _ => None,
        }
    }
}

/// The engine already stays within the bounds if it can. Here the difference to the unconstrained number is reported.
pub fn apply(proposal: &mut Proposal<'_>) {
    let bounds = proposal.variant.bounds();
    let obstacle = proposal.obstacle.take();
    let limited = obstacle.is_some() || proposal.is_decided && proposal.trace.wanted != proposal.replicas;
    if limited || !bounds.allow(proposal.replicas) {
        let wanted = proposal.trace.wanted;
        let (limit, text) = match obstacle.or_else(|| bounds.binding(wanted)) {
            Some(limit) => {
                let text = format!("wanted {wanted}, limited by {limit}");
                (limit, text)
            }
            None => {
                // The variant replaces another one, whose decision reports the wanted number.
                proposal.trace.wanted = proposal.replicas;
                let text = "takes over from a variant that cannot grow".to_owned();
                (Explanation::new(FactorCode::OtherVariantsLimited, text.clone()), text)
            }
        };
        proposal.extend_reason(&text);
        proposal.trace.limits.push(limit);
        proposal.trace.decided_by = DecidedBy::Limits;
    }
    proposal.replicas = bounds.clamp(proposal.replicas);
}
