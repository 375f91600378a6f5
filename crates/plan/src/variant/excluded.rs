//! Builds the last status of an object whose namespace was excluded. It is written once.

use jiff::Timestamp;
use steersman_api::meta::conditions::{self, Statement, Truth};
use steersman_api::variant::v1alpha1::{Actuation, VariantAutoscalingStatus};
use steersman_reconcile::{Event, EventType};

use super::decision_status::{MAX_FACTORS, limit_factors};
use super::decision_trace::DecidedBy;
use super::factor::{Factor, FactorCode, Stage};
use super::names;
use super::snapshot::ObservedVariant;
use super::status::{SKIPPED, WRITTEN_BY_CONFLICT, time};

const REASON: &str = "NamespaceExcluded";

/// `None` if the status already reports the exclusion, the object is being deleted, or it has no status. The stored
/// decision stays, but is no longer published, so nothing acts on it.
pub fn excluded_status(variant: &ObservedVariant, now: Timestamp) -> Option<(VariantAutoscalingStatus, Event)> {
    let stored = variant.status.as_deref().filter(|_| !variant.deleting)?;
    let told = conditions::find(&stored.conditions, names::OPTIMIZATION);
    if told.is_some_and(|told| told.reason == REASON) {
        return None;
    }
    let message = format!(
        "No replicas are decided: namespace {} has annotation {}=true. The last decision is kept but no longer published, so \
         replicas stay as they are. Remove the annotation to resume",
        variant.key.namespace,
        names::EXCLUDE_ANNOTATION
    );
    let say = |type_: &str, reason: &str, message: &str| Statement {
        type_: type_.to_owned(),
        truth: Truth::False,
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    let mut status = stored.clone();
    // Neither settings nor conflicts are evaluated for an excluded object.
    for over in [names::CONFIG, names::CONFLICT] {
        conditions::remove(&mut status.conditions, over);
    }
    status.config_faults.clear();
    status.conditions.retain(|known| known.type_ != names::READY || known.reason != WRITTEN_BY_CONFLICT);
    let statements = [
        say(names::METRICS, SKIPPED, "Metrics are not queried: the namespace is excluded"),
        say(names::OPTIMIZATION, REASON, &message),
    ];
    status.conditions = conditions::merge(&status.conditions, &statements, variant.generation, now);
    status.actuation = Some(Actuation { applied: false });
    if let Some(decision) = &mut status.decision {
        // Factors derived from the texts of an earlier version are stored too: those texts are ignored once factors
        // exist.
        decision.factors = limit_factors(decision);
        // The schema limits the list, and the last place is needed below.
        decision.factors.truncate(MAX_FACTORS - 1);
        decision.factors.push(Factor::new(FactorCode::NamespaceExcluded).stored(Stage::Hold));
        decision.hold = Some("the namespace is excluded".to_owned());
        decision.decided_by = Some(DecidedBy::Hold.as_str().to_owned());
        decision.time = Some(time(now));
    }
    Some((status, Event { type_: EventType::Normal, reason: REASON, message }))
}
