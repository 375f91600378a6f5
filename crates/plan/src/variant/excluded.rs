//! The last word to an object of a namespace that is left alone from now on.
//! Comes in: the object as it is stored; goes out: its status with that said, once.

use jiff::Timestamp;
use steersman_api::meta::conditions::{self, Statement, Truth};
use steersman_api::variant::v1alpha1::{Actuation, VariantAutoscalingStatus};
use steersman_reconcile::{Event, EventType};

use super::factor::{Factor, FactorCode, Stage};
use super::names;
use super::report::{SKIPPED, WRITTEN_BY_CONFLICT, time};
use super::seen::VariantSeen;
use super::story::Binding;
use super::told::{MAX_FACTORS, limit_factors};

const REASON: &str = "NamespaceExcluded";

/// None: it has said so already, is on its way out, or was never decided on. What was decided stays for whoever comes next; as
/// it is published no more, nothing follows it.
pub fn excluded(variant: &VariantSeen, now: Timestamp) -> Option<(VariantAutoscalingStatus, Event)> {
    let stored = variant.status.as_deref().filter(|_| !variant.deleting)?;
    let told = conditions::find(&stored.conditions, names::OPTIMIZATION);
    if told.is_some_and(|told| told.reason == REASON) {
        return None;
    }
    let message = format!(
        "Not decided on: namespace {} has annotation {}=true. The last number is kept and no longer published, so that \
         replicas stay as they are. Remove the annotation to have them decided on again",
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
    // Settings are not read for it, nor are others looked at.
    for over in [names::CONFIG, names::CONFLICT] {
        conditions::remove(&mut status.conditions, over);
    }
    status.config_faults.clear();
    status.conditions.retain(|known| known.type_ != names::READY || known.reason != WRITTEN_BY_CONFLICT);
    let statements = [
        say(names::METRICS, SKIPPED, "Metrics are not asked for: the namespace is excluded"),
        say(names::OPTIMIZATION, REASON, &message),
    ];
    status.conditions = conditions::merge(&status.conditions, &statements, variant.generation, now);
    status.actuation = Some(Actuation { applied: false });
    if let Some(story) = &mut status.decision {
        // With the factors of an earlier version's texts: those are not read once there are any.
        story.factors = limit_factors(story);
        // The schema has room for this many, and the last one is taken.
        story.factors.truncate(MAX_FACTORS - 1);
        story.factors.push(Factor::new(FactorCode::NamespaceExcluded).stored(Stage::Hold));
        story.hold = Some("the namespace is excluded".to_owned());
        story.decided_by = Some(Binding::Hold.word().to_owned());
        story.time = Some(time(now));
    }
    Some((status, Event { type_: EventType::Normal, reason: REASON, message }))
}
