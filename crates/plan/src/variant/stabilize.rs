//! Blocks a scale-down within the stabilization window after the last change of the number.

use super::config::duration;
use super::snapshot::FleetSnapshot;
use super::trace::{DecidedBy, Explanation, FactorCode, Proposal};

pub fn apply(proposal: &mut Proposal<'_>, snapshot: &FleetSnapshot) {
    let window = snapshot.settings.settle;
    let previous = proposal.variant.previous();
    let Some(changed_at) = previous.at else { return };
    if proposal.replicas >= previous.replicas || snapshot.now.duration_since(changed_at) >= window {
        return;
    }
    let text =
        format!("scale-down blocked: the number changed within the stabilization window of {}", duration::go(window));
    proposal.replicas = proposal.variant.bounds().clamp(previous.replicas);
    proposal.trace.hold = Some(Explanation::new(FactorCode::StabilizationWindow, text));
    proposal.trace.decided_by = DecidedBy::Hold;
}
