//! The decision of a pass, beside everything else that the process does.
//! Comes in: what was seen; goes out: what shall be, or that it broke off.

use std::sync::Arc;

use steersman_plan::variant::{FleetPlan, Seen};

use crate::observe::variant::Look;

/// Deciding on thousands of objects takes a while, in which others want to be served. None: it broke off, and nothing is done.
pub async fn decide(look: &Arc<Look>, plan: fn(&Seen) -> FleetPlan) -> Option<FleetPlan> {
    let look = look.clone();
    match tokio::task::spawn_blocking(move || plan(&look.seen)).await {
        Ok(plan) => Some(plan),
        Err(error) => {
            tracing::error!(%error, "the fleet could not be decided on; nothing is changed");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;
    use steersman_reconcile::Lookup;

    use jiff::Timestamp;
    use steersman_plan::variant::config::Config;
    use steersman_plan::variant::saturation::tokens::capacity::Memory;
    use steersman_plan::variant::{Settings, plan};

    use super::*;

    #[tokio::test]
    async fn what_was_learned_survives_a_decision_that_breaks_off() {
        let mut memory = Memory::default();
        memory.observe("n|m|H100|short", 8_000, Timestamp::UNIX_EPOCH);
        let seen = Seen {
            now: Timestamp::UNIX_EPOCH,
            settings: Settings::default(),
            config: Config::default(),
            variants: vec![],
            models: BTreeMap::new(),
            gpus: Lookup::Unknown("nobody has counted".to_owned()),
            memory: memory.clone(),
        };
        let look = Look { seen, stamps: BTreeMap::new(), unreadable: vec![], asked: Duration::ZERO };
        let look = Arc::new(look);
        assert!(decide(&look, |_| panic!("one figure too many")).await.is_none());
        assert_eq!(look.seen.memory, memory);
        assert_eq!(decide(&look, plan).await.map(|plan| plan.memory), Some(memory));
    }
}
