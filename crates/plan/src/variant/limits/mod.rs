//! Limits the numbers of the engines: bounds, scale to zero, GPUs, and the fallback without an engine.

pub mod enforce;
pub mod fallback;
pub mod gpus;

use serde::Serialize;

use super::factor::{Explanation, Factor, FactorCode};

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
