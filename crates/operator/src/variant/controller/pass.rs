//! One pass over the whole fleet: observe, plan, recheck, apply, report.
//! Comes in: what the watches know and what earlier passes kept; goes out: gauges for those who scale, a status for each
//! object where it says something new, and how it went.

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

/// Statuses written at once.
pub const AT_ONCE: usize = 16;

/// Statuses made ready to be written: with the calls of its writing, each takes eight kilobytes.
const PREPARED: usize = 256;

/// For all events of one pass that no status goes with: an API server that takes none of them holds up no decision.
pub const TELLING: Duration = Duration::from_secs(10);

/// How a pass went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Objects that were decided on.
    pub decided: usize,
    /// Statuses that were written.
    pub written: usize,
    /// Objects that changed while they were decided on.
    pub overtaken: usize,
    /// Statuses that could not be written.
    pub failed: usize,
    /// Objects that cannot be read.
    pub unreadable: usize,
    /// When to look again.
    pub interval: SignedDuration,
}

/// What one pass leaves to the next. Losing it costs accuracy, never safety.
pub struct Kept {
    config: Config,
    metering: Metering,
    memory: Memory,
    /// Findings about the configuration of the last reconcile. None: this is the first one.
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

/// What became of one object's status.
pub enum Ended {
    Written,
    Overtaken,
    Failed,
}

impl Variants {
    /// Brings the fleet to where it should be, as far as that is possible now.
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
        // Side by side: nobody has to wait for metrics that are not asked for, nor the others for those who are left alone.
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
        // What was measured and known before has had its say, and takes much room.
        if let Some(look) = Arc::get_mut(&mut look) {
            (look.seen.models, look.seen.memory) = (BTreeMap::new(), Memory::default());
        }
        let mut passed = self.apply(&look, &plan).await;
        passed.failed += self.tie(&look.seen.variants, &mut kept.untied).await;
        // Last: nobody else has to wait for those who are left alone.
        self.tell_unreadable(kept, &look).await;
        self.gauges.passed(passed.decided, passed.written, Timestamp::now());
        Passed { interval, overtaken: passed.overtaken + overtaken, failed: passed.failed + failed, ..passed }
    }

    /// The settings that hold now, and what is wrong with those that were given.
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
            let (NamespacedName { namespace, name }, version, unreadable) =
                (place.clone(), version.clone(), unreadable.clone());
            let owner = Owner { kind: resource.gvk(), namespace, name, uid, legacy: None };
            let told = async move {
                kept.invalid_objects.report(&self.recorder, &resource, &owner, &version, &unreadable).await;
            };
            Some(told.boxed())
        };
        let told: Vec<_> = look.unreadable.iter().filter_map(tell).collect();
        let all = stream::iter(told).buffer_unordered(AT_ONCE).collect::<()>();
        // Whoever is not told within this time is told in the next pass.
        let _ = tokio::time::timeout(TELLING, all).await;
        let unreadable: BTreeSet<&NamespacedName> = look.unreadable.iter().map(|(place, ..)| place).collect();
        kept.invalid_objects.retain(|place| unreadable.contains(place));
    }

    /// In the log and as events on the ConfigMap; objects have a condition. Each once, even over restarts: before the first
    /// reconcile, the statuses list the faults that an earlier leader reported.
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
                // Numbers do not wait for long: the log and the conditions say the same.
                let _ = tokio::time::timeout_at(until, self.recorder.publish(&owner, &note)).await;
            }
        }
        kept.findings = Some(now);
    }

    /// The ConfigMap that a finding is about.
    fn config_map(&self, finding: &ConfigFinding) -> Option<Owner> {
        let place = finding.config_map.clone()?;
        let uid = self.fleet.maps.uid(&place)?;
        let kind = GroupVersionKind::gvk("", "v1", &ConfigMap::kind(&()));
        Some(Owner { kind, namespace: place.namespace, name: place.name, uid, legacy: None })
    }

    /// What these objects say now cannot be read; what they said still holds.
    fn unreadable(&self, look: &Look) -> BTreeMap<NamespacedName, Shown> {
        let keys = look.unreadable.iter().map(|(object, ..)| object.clone());
        keys.filter_map(|key| Some((key.clone(), self.gauges.shown(&key)?))).collect()
    }

    /// What has changed since it was seen is left to the next pass: its number may be another.
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
                // Of whom others act on, a number of ours would stand against theirs.
                let shown = gauges.shown(&seen.key).filter(|_| self.fleet.acts_on(&seen.key));
                shows.extend(shown.map(|shown| (seen.key.clone(), shown)));
            }
        }
        gauges.publish(shows);
        let (mut reported, mut wrote) = (began.elapsed(), Duration::ZERO);
        for some in standing.chunks(PREPARED) {
            let began = Instant::now();
            // Only where there is something new to say is there something to await.
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

    /// The status, where it says something new.
    fn news(&self, seen: &VariantSeen, decision: &Decision, stamp: &Stamp) -> Option<VariantAutoscalingStatus> {
        // Publishing is how it reaches those who act; without a number there is nothing to publish.
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
        let owner = Owner {
            kind: custom_resource(Api::Va).gvk(),
            namespace: namespace.clone(),
            name: name.clone(),
            uid: stamp.uid.clone(),
            legacy: None,
        };
        let value = match serialize_status(&*status, namespace, name) {
            Ok(value) => value,
            Err(error) => {
                tracing::error!(%error, "a status cannot be written");
                return Ended::Failed;
            }
        };
        // Before the status, which says that it was told: a crash in between tells it twice, never not at all.
        if let Some(note) = note {
            self.recorder.publish(&owner, &note).await;
        }
        let stored_value = Stored { resource_version: &stamp.version, status: stamp.strange.as_ref() };
        match write_status(&self.server, MANAGER, &owner, stored_value, &value).await {
            Ok(told @ (StatusWrite::Written(_) | StatusWrite::Unchanged)) => {
                self.fleet.variants.update(&NamespacedName::new(namespace.clone(), name.clone()), |record| {
                    if record.uid == stamp.uid && record.version == stamp.version {
                        // With the old version, a pass that comes before the watch would be refused, and tell its event twice.
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

/// The story of a number, once for each change of what it says.
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
