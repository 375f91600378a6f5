//! Reconciles the fleet once: observe, plan, check that the snapshot is current, publish gauges, write statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::core::GroupVersionKind;
use steersman_api::Family as Api;
use steersman_api::variant::v1alpha1::{ConfigFault, VariantAutoscalingStatus};
use steersman_plan::variant::config::{Config, ConfigSeen, read};
use steersman_plan::variant::saturation::tokens::capacity::Memory;
use steersman_plan::variant::{
    ConfigFinding, Decision, FleetPlan, Mode, Settings, VariantSeen, faults, note, plan, report,
};
use steersman_reconcile::{DecodeError, Event, EventType, Finding, NamespacedName, Severity};
use steersman_runtime::apply::{Owner, StatusWrite, Stored, write_status};
use steersman_runtime::controller::{InvalidObjects, serialize_status};

use super::decide::decide;
use super::lines::Lines;
use super::metering::Metering;
use super::owners::Untied;
use super::{Variants, shown};
use crate::resource::custom_resource;
use crate::variant::metrics::{Shown, Step};
use crate::variant::observe::{Fleet, Look, MANAGER, Stamp};

/// Concurrent status writes.
pub const AT_ONCE: usize = 16;

/// Statuses prepared at a time. Each takes 8 kB together with the future that writes it.
const PREPARED: usize = 256;

/// Time per reconcile for events without a status write and for owner references, so that an API server that accepts
/// none of them does not delay decisions.
pub const TELLING: Duration = Duration::from_secs(10);

/// Result of a reconcile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    pub decided: usize,
    pub written: usize,
    /// Objects that changed during the reconcile.
    pub overtaken: usize,
    /// Statuses that could not be written.
    pub failed: usize,
    /// Objects whose spec cannot be decoded.
    pub unreadable: usize,
    /// Time until the next reconcile.
    pub interval: SignedDuration,
}

/// State between reconciles. Losing it costs accuracy, not safety.
pub struct Kept {
    config: Config,
    metering: Metering,
    memory: Memory,
    /// Findings of the last reconcile. `None` before the first one.
    findings: Option<BTreeMap<ConfigFault, Vec<Finding>>>,
    lines: Lines,
    invalid_objects: InvalidObjects,
    untied: Untied,
}

impl Kept {
    pub fn new(fleet: &Fleet) -> Self {
        let (config, _) = read(&fleet.maps.alone(), &Config::default(), Mode::Steersman);
        Self {
            config,
            metering: Metering::default(),
            memory: Memory::default(),
            findings: None,
            lines: Lines::default(),
            invalid_objects: InvalidObjects::default(),
            untied: Untied::default(),
        }
    }
}

/// Result of a status write.
pub enum Ended {
    Written,
    Overtaken,
    Failed,
}

impl Variants {
    pub async fn pass(&self) -> Passed {
        let mut kept = self.kept.lock().await;
        let kept = &mut *kept;
        tracing::info!("Starting reconciliation");
        let (steps, began) = (&self.gauges, Instant::now());
        let (seen, mut findings) = self.configure(kept);
        findings.extend(kept.metering.follow(kept.config.prometheus.as_ref()).map(ConfigFinding::from));
        kept.lines.settings(&kept.config);
        let metering = kept.metering.way();
        let memory = std::mem::take(&mut kept.memory);
        let faults = (&seen, findings.as_slice());
        let settings = Settings::default();
        let look = async {
            let look = self.fleet.look(&self.server, metering, kept.config.clone(), faults, settings, memory).await;
            steps.step(Step::Ask, look.asked);
            steps.step(Step::Gather, began.elapsed().saturating_sub(look.asked));
            look
        };
        // Both run concurrently: excluded objects do not wait for metrics, and the others do not wait for excluded
        // objects.
        let ((overtaken, failed), look) = tokio::join!(self.tell_excluded(), look);
        kept.lines.leaving(&look.seen);
        let interval = kept.config.interval;
        if look.seen.variants.iter().all(|seen| seen.deleting) {
            tracing::info!("No active VariantAutoscalings found, skipping optimization");
            self.gauges.publish(self.unreadable(&look));
            self.tell_unreadable(kept, &look).await;
            self.gauges.passed(0, 0, Timestamp::now());
            kept.memory = look.seen.memory;
            return Passed { interval, overtaken, failed, unreadable: look.unreadable.len(), ..Passed::default() };
        }
        self.tell_findings(kept, &findings, &look).await;
        kept.lines.hints(&look.seen);
        let began = Instant::now();
        let mut look = Arc::new(look);
        let Some(mut plan) = decide(&look, plan).await else {
            kept.memory = look.seen.memory.clone();
            return Passed { failed: failed + 1, overtaken, interval, ..Passed::default() };
        };
        steps.step(Step::Decide, began.elapsed());
        kept.memory = std::mem::take(&mut plan.memory);
        kept.lines.decided(&look.seen, &plan);
        // Metrics and memory are no longer needed and take much space.
        if let Some(look) = Arc::get_mut(&mut look) {
            (look.seen.models, look.seen.memory) = (BTreeMap::new(), Memory::default());
        }
        let mut passed = self.apply(&look, &plan).await;
        passed.failed += self.tie(&look.seen.variants, &mut kept.untied).await;
        // This comes last, so that decisions do not wait for objects that cannot be decoded.
        self.tell_unreadable(kept, &look).await;
        self.gauges.passed(passed.decided, passed.written, Timestamp::now());
        Passed { interval, overtaken: passed.overtaken + overtaken, failed: passed.failed + failed, ..passed }
    }

    /// The current settings, and findings about invalid ones.
    fn configure(&self, kept: &mut Kept) -> (ConfigSeen, Vec<ConfigFinding>) {
        match self.fleet.maps.seen(self.fleet.local()) {
            Ok(seen) => {
                let (config, findings) = read(&seen, &kept.config, Mode::Steersman);
                let findings = faults::few(findings);
                if config.sources != kept.config.sources {
                    tracing::info!(config_maps = config.sources.join(", "), "settings are read from these ConfigMaps");
                }
                kept.config = config;
                (seen, findings)
            }
            Err((namespace, cause)) => {
                let finding = Finding {
                    severity: Severity::Warning,
                    reason: "ConfigUnreadable",
                    message: format!("ConfigMaps of namespace {namespace} cannot be read: {cause}."),
                    remedy: "Grant Steersman's account the right to list and watch them; until then the last known \
                             settings hold."
                        .to_owned(),
                };
                (self.fleet.maps.alone(), vec![finding.into()])
            }
        }
    }

    async fn tell_unreadable(&self, kept: &Kept, look: &Look) {
        let resource = custom_resource(Api::Va);
        let tell = |(place, version, unreadable): &(NamespacedName, String, DecodeError)| {
            let uid = self.fleet.variants.with(place, |known| known.uid.clone())?;
            let (owner, version, unreadable) = (event_owner(place, uid), version.clone(), unreadable.clone());
            let told = async move {
                kept.invalid_objects.report(&self.recorder, &resource, &owner, &version, &unreadable).await;
            };
            Some(told.boxed())
        };
        let told: Vec<_> = look.unreadable.iter().filter_map(tell).collect();
        let all = stream::iter(told).buffer_unordered(AT_ONCE).collect::<()>();
        // Objects without an event until then get one in the next reconcile.
        let _ = tokio::time::timeout(TELLING, all).await;
        let unreadable: BTreeSet<&NamespacedName> = look.unreadable.iter().map(|(place, ..)| place).collect();
        kept.invalid_objects.retain(|place| unreadable.contains(place));
    }

    /// Reports findings in the log and as events on the ConfigMap; objects have a condition. Each is reported once,
    /// even over restarts: before the first reconcile, the statuses list the faults that an earlier leader reported.
    async fn tell_findings(&self, kept: &mut Kept, findings: &[ConfigFinding], look: &Look) {
        let until = tokio::time::Instant::now() + TELLING;
        let mut now: BTreeMap<ConfigFault, Vec<Finding>> = BTreeMap::new();
        for finding in findings {
            let fault = finding.fault();
            let before = kept.findings.as_ref().and_then(|before| before.get(&fault));
            let is_new = !before.is_some_and(|before| before.contains(&finding.finding));
            let is_stored =
                |seen: &VariantSeen| seen.status.as_deref().is_some_and(|status| faults::is_stored(status, &fault));
            let is_reported = kept.findings.is_none() && look.seen.variants.iter().any(is_stored);
            now.entry(fault).or_default().push(finding.finding.clone());
            if !is_new {
                continue;
            }
            let Finding { severity, reason, message, remedy } = &finding.finding;
            if *severity == Severity::Info {
                tracing::warn!(reason, finding = message, remedy, "a setting is unusual");
                continue;
            }
            tracing::error!(reason, finding = message, remedy, "a setting cannot be used");
            if let Some(owner) = self.config_map(finding).filter(|_| !is_reported) {
                let note = Event { type_: EventType::Warning, reason, message: finding.to_string() };
                // A slow API server delays decisions only until then: log and conditions report the finding too.
                let _ = tokio::time::timeout_at(until, self.recorder.publish(&owner, &note)).await;
            }
        }
        kept.findings = Some(now);
    }

    fn config_map(&self, finding: &ConfigFinding) -> Option<Owner> {
        let place = finding.config_map.clone()?;
        let uid = self.fleet.maps.uid(&place)?;
        let kind = GroupVersionKind::gvk("", "v1", &ConfigMap::kind(&()));
        Some(Owner { kind, namespace: place.namespace, name: place.name, uid, legacy: None })
    }

    /// Gauges of objects whose spec cannot be decoded stay as they are.
    fn unreadable(&self, look: &Look) -> BTreeMap<NamespacedName, Shown> {
        let keys = look.unreadable.iter().map(|(object, ..)| object.clone());
        keys.filter_map(|key| Some((key.clone(), self.gauges.shown(&key)?))).collect()
    }

    /// Objects that changed since the snapshot are left to the next reconcile.
    async fn apply(&self, look: &Look, plan: &FleetPlan) -> Passed {
        let (gauges, began) = (&self.gauges, Instant::now());
        let mut shows = self.unreadable(look);
        let mut standing = Vec::new();
        let mut passed = Passed::default();
        for seen in &look.seen.variants {
            let (Some(decision), Some(stamp)) = (plan.decisions.get(&seen.key), look.stamps.get(&seen.key)) else {
                continue;
            };
            passed.decided += 1;
            if self.fleet.stands(seen, stamp) {
                shows.insert(seen.key.clone(), shown::decided(seen, decision));
                standing.push((seen, decision, stamp));
            } else {
                passed.overtaken += 1;
                // If the object is no longer ours, its gauges are dropped: another operator may publish them.
                let shown = gauges.shown(&seen.key).filter(|_| self.fleet.acts_on(&seen.key));
                shows.extend(shown.map(|shown| (seen.key.clone(), shown)));
            }
        }
        gauges.publish(shows);
        let (mut reported, mut wrote) = (began.elapsed(), Duration::ZERO);
        for some in standing.chunks(PREPARED) {
            let began = Instant::now();
            // Only changed statuses are written.
            let told = some.iter().filter_map(|(seen, decision, stamp)| {
                let status = self.news(seen, decision, stamp)?;
                Some(self.tell(seen, decision, stamp, status).boxed())
            });
            let told: Vec<_> = told.collect();
            reported += began.elapsed();
            let began = Instant::now();
            let mut told = stream::iter(told).buffer_unordered(AT_ONCE);
            while let Some(ended) = told.next().await {
                match ended {
                    Ended::Written => passed.written += 1,
                    Ended::Overtaken => passed.overtaken += 1,
                    Ended::Failed => passed.failed += 1,
                }
            }
            wrote += began.elapsed();
        }
        gauges.step(Step::Report, reported);
        gauges.step(Step::Write, wrote);
        passed
    }

    /// The status, if it changed.
    fn news(&self, seen: &VariantSeen, decision: &Decision, stamp: &Stamp) -> Option<VariantAutoscalingStatus> {
        // Publishing the gauge is the actuation. Without a number nothing is published.
        let applied = decision.replicas.is_some();
        let status = report(seen, decision, applied, Mode::Steersman, Timestamp::now());
        let same =
            seen.status.as_deref().map_or(status == VariantAutoscalingStatus::default(), |known| *known == status);
        (!same || stamp.strange.is_some()).then_some(status)
    }

    async fn tell(
        &self,
        seen: &VariantSeen,
        decision: &Decision,
        stamp: &Stamp,
        status: VariantAutoscalingStatus,
    ) -> Ended {
        let status = Arc::new(status);
        let ended = self.write(seen, stamp, note(seen, decision, &status), status.clone()).await;
        if matches!(ended, Ended::Written) {
            log(seen, decision, &seen.status.clone().unwrap_or_default(), &status);
        }
        ended
    }

    pub(super) async fn write(
        &self,
        seen: &VariantSeen,
        stamp: &Stamp,
        note: Option<Event>,
        status: Arc<VariantAutoscalingStatus>,
    ) -> Ended {
        let NamespacedName { namespace, name } = &seen.key;
        let owner = event_owner(&seen.key, stamp.uid.clone());
        let value = match serialize_status(&*status, namespace, name) {
            Ok(value) => value,
            Err(error) => {
                tracing::error!(%error, "a status cannot be written");
                return Ended::Failed;
            }
        };
        // The event is sent before the status that records it, so that a crash in between repeats the event instead of
        // losing it.
        if let Some(note) = note {
            self.recorder.publish(&owner, &note).await;
        }
        let stored_value = Stored { resource_version: &stamp.version, status: stamp.strange.as_ref() };
        match write_status(&self.server, MANAGER, &owner, stored_value, &value).await {
            Ok(told @ (StatusWrite::Written(_) | StatusWrite::Unchanged)) => {
                self.fleet.variants.update(&seen.key, |record| {
                    if record.uid == stamp.uid && record.version == stamp.version {
                        // With the old version, a reconcile before the watch event would get a conflict and send its
                        // event twice.
                        if let StatusWrite::Written(version) = told {
                            record.version = version;
                        }
                        record.strange = None;
                        if let Ok(seen) = &mut record.seen {
                            seen.status = Some(status);
                        }
                    }
                });
                Ended::Written
            }
            Ok(StatusWrite::Conflict) => Ended::Overtaken,
            Err(failure) => {
                tracing::warn!(object = %failure.object, cause = failure.message, "a status could not be written");
                Ended::Failed
            }
        }
    }
}

/// The object of an event or a status write.
pub fn event_owner(key: &NamespacedName, uid: String) -> Owner {
    let NamespacedName { namespace, name } = key.clone();
    Owner { kind: custom_resource(Api::Va).gvk(), namespace, name, uid, legacy: None }
}

/// Logs a decision when its number or the reason of a condition changes.
fn log(seen: &VariantSeen, decision: &Decision, stored: &VariantAutoscalingStatus, status: &VariantAutoscalingStatus) {
    let number = |status: &VariantAutoscalingStatus| status.desired_optimized_alloc.as_ref()?.num_replicas;
    let said = |status: &VariantAutoscalingStatus| {
        let conditions = status.conditions.iter();
        conditions.map(|known| (known.type_.clone(), known.status.clone(), known.reason.clone())).collect::<Vec<_>>()
    };
    if (number(stored), said(stored)) == (number(status), said(status)) {
        return;
    }
    let NamespacedName { namespace, name } = &seen.key;
    let (before, replicas) = (number(stored), number(status));
    tracing::info!(
        namespace,
        variant = name,
        model = seen.spec.model_id,
        before,
        replicas,
        reason = decision.reason,
        story = %decision.story,
        "decided"
    );
}
