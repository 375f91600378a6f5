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
use steersman_plan::variant::config::{Config, ConfigSources, first_per_map, is_stored, read};
use steersman_plan::variant::memory::Memory;
use steersman_plan::variant::{ConfigFinding, Decision, FleetPlan, ObservedVariant, Settings, event, plan, status};
use steersman_reconcile::{DecodeError, Event, EventType, Finding, NamespacedName, Severity};
use steersman_runtime::apply::{Owner, StatusWrite, Stored, write_status};
use steersman_runtime::controller::{InvalidObjects, serialize_status};
use steersman_runtime::cpu_bound;
use steersman_runtime::http::Inside;

use super::decide::decide;
use super::fleet_log::FleetLog;
use super::metrics_source::MetricsSource;
use super::owners::RefusedOwners;
use super::{FleetController, gauge_values};
use crate::resource::custom_resource;
use crate::variant::metrics::{GaugeValues, ReconcileStep};
use crate::variant::observe::{Fleet, MANAGER, ObservedFleet, ObservedVersion};

/// Concurrent status writes.
pub const MAX_CONCURRENT_WRITES: usize = 16;

/// Statuses prepared at a time. Each takes 8 kB together with the future that writes it.
const STATUS_BATCH: usize = 256;

/// Time per reconcile for events without a status write and for owner references, so that an API server that accepts
/// none of them does not delay decisions.
pub const EVENT_TIME_LIMIT: Duration = Duration::from_secs(10);

/// Result of a reconcile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetOutcome {
    pub decided: usize,
    pub written: usize,
    /// Objects that changed during the reconcile.
    pub conflicts: usize,
    /// Statuses that could not be written.
    pub failed: usize,
    /// Objects whose spec cannot be decoded.
    pub undecodable: usize,
    /// Time until the next reconcile.
    pub interval: SignedDuration,
}

/// State between reconciles. Losing it costs accuracy, not safety.
pub struct ReconcileState {
    config: Config,
    /// The sources of `config`, and the findings about them.
    parsed: Option<(ConfigSources, Vec<ConfigFinding>)>,
    metrics_source: MetricsSource,
    memory: Memory,
    /// Findings of the last reconcile. `None` before the first one.
    findings: Option<BTreeMap<ConfigFault, Vec<Finding>>>,
    log: FleetLog,
    invalid_objects: InvalidObjects,
    refused_owners: RefusedOwners,
}

impl ReconcileState {
    pub fn new(fleet: &Fleet, inside: Inside) -> Self {
        let (config, _) = read(&fleet.config_maps.environment_only(), &Config::default());
        Self {
            config,
            parsed: None,
            metrics_source: MetricsSource::new(inside),
            memory: Memory::default(),
            findings: None,
            log: FleetLog::default(),
            invalid_objects: InvalidObjects::default(),
            refused_owners: RefusedOwners::default(),
        }
    }
}

/// Result of a status write.
pub enum WriteResult {
    Written,
    Conflict,
    Failed,
}

impl FleetController {
    pub async fn reconcile(&self) -> FleetOutcome {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        tracing::info!("Starting reconciliation");
        let (steps, began) = (&self.gauges, Instant::now());
        let (sources, mut findings) = self.configure(state);
        findings.extend(state.metrics_source.configure(state.config.prometheus.as_ref()).map(ConfigFinding::from));
        state.log.settings(&state.config);
        let metrics_client = state.metrics_source.client();
        let memory = std::mem::take(&mut state.memory);
        let faults = (&sources, findings.as_slice());
        let settings = Settings::default();
        let observation = async {
            let observed =
                self.fleet.observe(&self.server, metrics_client, state.config.clone(), faults, settings, memory).await;
            steps.step(ReconcileStep::Ask, observed.waited);
            steps.step(ReconcileStep::Gather, began.elapsed().saturating_sub(observed.waited));
            observed
        };
        // Both run concurrently: excluded objects do not wait for metrics, and the others do not wait for excluded
        // objects.
        let ((conflicts, failed), observed) = tokio::join!(self.report_excluded(), observation);
        state.log.deleting(&observed.snapshot);
        let interval = state.config.interval;
        if observed.snapshot.variants.iter().all(|variant| variant.deleting) {
            tracing::info!("No active VariantAutoscalings found, skipping optimization");
            self.gauges.publish(self.undecodable_gauges(&observed));
            self.gauges.set_factors(BTreeMap::new());
            self.report_undecodable(state, &observed).await;
            self.gauges.reconciled(0, 0, Timestamp::now());
            state.memory = observed.snapshot.memory;
            return FleetOutcome {
                interval,
                conflicts,
                failed,
                undecodable: observed.undecodable.len(),
                ..FleetOutcome::default()
            };
        }
        self.report_findings(state, &findings, &observed).await;
        state.log.hints(&observed.snapshot);
        let began = Instant::now();
        let mut observed = Arc::new(observed);
        let Some(mut plan) = decide(&observed, plan).await else {
            state.memory = observed.snapshot.memory.clone();
            return FleetOutcome { failed: failed + 1, conflicts, interval, ..FleetOutcome::default() };
        };
        steps.step(ReconcileStep::Decide, began.elapsed());
        state.memory = std::mem::take(&mut plan.memory);
        state.log.decided(&observed.snapshot, &plan);
        // Metrics and memory are no longer needed and take much space.
        if let Some(observed) = Arc::get_mut(&mut observed) {
            (observed.snapshot.models, observed.snapshot.memory) = (BTreeMap::new(), Memory::default());
        }
        let mut outcome = self.apply(&observed, &plan).await;
        outcome.failed += self.add_owner_references(&observed.snapshot.variants, &mut state.refused_owners).await;
        // This comes last, so that decisions do not wait for objects that cannot be decoded.
        self.report_undecodable(state, &observed).await;
        self.gauges.reconciled(outcome.decided, outcome.written, Timestamp::now());
        FleetOutcome { interval, conflicts: outcome.conflicts + conflicts, failed: outcome.failed + failed, ..outcome }
    }

    /// The current settings, and findings about invalid ones.
    fn configure(&self, state: &mut ReconcileState) -> (ConfigSources, Vec<ConfigFinding>) {
        match self.fleet.config_maps.sources(self.fleet.local()) {
            Ok(sources) => {
                // Unchanged settings are not parsed again: parsing them yields the same settings.
                if let Some((_, findings)) = state.parsed.as_ref().filter(|(known, _)| *known == sources) {
                    return (sources, findings.clone());
                }
                let (config, findings) = cpu_bound::run(|| read(&sources, &state.config));
                let findings = first_per_map(findings);
                if config.sources != state.config.sources {
                    tracing::info!(config_maps = config.sources.join(", "), "settings are read from these ConfigMaps");
                }
                state.config = config;
                state.parsed = Some((sources.clone(), findings.clone()));
                (sources, findings)
            }
            Err(cause) => {
                let namespace = &self.fleet.config_maps.namespace;
                let finding = Finding {
                    severity: Severity::Warning,
                    reason: "ConfigUnreadable",
                    message: format!("Cannot read the ConfigMaps of namespace {namespace}: {cause}."),
                    remedy: "Allow Steersman's service account to list and watch ConfigMaps there. Until then the last known \
                             settings apply."
                        .to_owned(),
                };
                (self.fleet.config_maps.environment_only(), vec![finding.into()])
            }
        }
    }

    async fn report_undecodable(&self, state: &ReconcileState, observed: &ObservedFleet) {
        let resource = custom_resource(Api::Va);
        let report = |(key, version, undecodable): &(NamespacedName, String, DecodeError)| {
            let uid = self.fleet.variants.with(key, |record| record.uid.clone())?;
            let (owner, version, undecodable) = (event_owner(key, uid), version.clone(), undecodable.clone());
            let reported = async move {
                state.invalid_objects.report(&self.recorder, &resource, &owner, &version, &undecodable).await;
            };
            Some(reported.boxed())
        };
        let reports: Vec<_> = observed.undecodable.iter().filter_map(report).collect();
        let all = stream::iter(reports).buffer_unordered(MAX_CONCURRENT_WRITES).collect::<()>();
        // Objects without an event until then get one in the next reconcile.
        let _ = tokio::time::timeout(EVENT_TIME_LIMIT, all).await;
        let undecodable: BTreeSet<&NamespacedName> = observed.undecodable.iter().map(|(key, ..)| key).collect();
        state.invalid_objects.retain(|key| undecodable.contains(key));
    }

    /// Reports findings in the log and as events on the ConfigMap; objects have a condition. Each is reported once,
    /// even over restarts: before the first reconcile, the statuses list the faults that an earlier leader reported.
    async fn report_findings(&self, state: &mut ReconcileState, findings: &[ConfigFinding], observed: &ObservedFleet) {
        let until = tokio::time::Instant::now() + EVENT_TIME_LIMIT;
        let mut now: BTreeMap<ConfigFault, Vec<Finding>> = BTreeMap::new();
        for finding in findings {
            let fault = finding.fault();
            let before = state.findings.as_ref().and_then(|before| before.get(&fault));
            let is_new = !before.is_some_and(|before| before.contains(&finding.finding));
            let is_stored =
                |variant: &ObservedVariant| variant.status.as_deref().is_some_and(|status| is_stored(status, &fault));
            let is_reported = state.findings.is_none() && observed.snapshot.variants.iter().any(is_stored);
            now.entry(fault).or_default().push(finding.finding.clone());
            if !is_new {
                continue;
            }
            let Finding { severity, reason, message, remedy } = &finding.finding;
            if *severity == Severity::Info {
                tracing::warn!(reason, finding = message, remedy, "unusual setting");
                continue;
            }
            tracing::error!(reason, finding = message, remedy, "invalid setting");
            if let Some(owner) = self.config_map(finding).filter(|_| !is_reported) {
                let event = Event { type_: EventType::Warning, reason, message: finding.to_string() };
                // A slow API server delays decisions only until then: log and conditions report the finding too.
                let _ = tokio::time::timeout_at(until, self.recorder.publish(&owner, &event)).await;
            }
        }
        state.findings = Some(now);
    }

    fn config_map(&self, finding: &ConfigFinding) -> Option<Owner> {
        let key = finding.config_map.clone()?;
        let uid = self.fleet.config_maps.uid(&key)?;
        let kind = GroupVersionKind::gvk("", "v1", &ConfigMap::kind(&()));
        Some(Owner { kind, namespace: key.namespace, name: key.name, uid, legacy: None })
    }

    /// Gauges of objects whose spec cannot be decoded stay as they are.
    fn undecodable_gauges(&self, observed: &ObservedFleet) -> BTreeMap<NamespacedName, GaugeValues> {
        let keys = observed.undecodable.iter().map(|(object, ..)| object.clone());
        keys.filter_map(|key| Some((key.clone(), self.gauges.get(&key)?))).collect()
    }

    /// Objects that changed since the snapshot are left to the next reconcile.
    async fn apply(&self, observed: &ObservedFleet, plan: &FleetPlan) -> FleetOutcome {
        let (gauges, began) = (&self.gauges, Instant::now());
        let mut values = self.undecodable_gauges(observed);
        gauges.set_factors(gauge_values::factors(plan));
        let mut current = Vec::new();
        let mut outcome = FleetOutcome::default();
        for variant in &observed.snapshot.variants {
            let (Some(decision), Some(version)) =
                (plan.decisions.get(&variant.key), observed.versions.get(&variant.key))
            else {
                continue;
            };
            outcome.decided += 1;
            if self.fleet.is_current(variant, version) {
                values.insert(variant.key.clone(), gauge_values::decided(variant, decision));
                current.push((variant, decision, version));
            } else {
                outcome.conflicts += 1;
                // If the object is no longer ours, its gauges are dropped: another operator may publish them.
                let value = gauges.get(&variant.key).filter(|_| self.fleet.is_owned(&variant.key));
                values.extend(value.map(|value| (variant.key.clone(), value)));
            }
        }
        gauges.publish(values);
        let (mut reported, mut wrote) = (began.elapsed(), Duration::ZERO);
        for some in current.chunks(STATUS_BATCH) {
            let began = Instant::now();
            // Only changed statuses are written.
            let writes = some.iter().filter_map(|(variant, decision, version)| {
                let status = self.changed_status(variant, decision, version)?;
                Some(self.write_decision(variant, decision, version, status).boxed())
            });
            let writes: Vec<_> = writes.collect();
            reported += began.elapsed();
            let began = Instant::now();
            let mut writes = stream::iter(writes).buffer_unordered(MAX_CONCURRENT_WRITES);
            while let Some(result) = writes.next().await {
                match result {
                    WriteResult::Written => outcome.written += 1,
                    WriteResult::Conflict => outcome.conflicts += 1,
                    WriteResult::Failed => outcome.failed += 1,
                }
            }
            wrote += began.elapsed();
        }
        gauges.step(ReconcileStep::Report, reported);
        gauges.step(ReconcileStep::Write, wrote);
        outcome
    }

    /// The status, if it changed.
    fn changed_status(
        &self,
        variant: &ObservedVariant,
        decision: &Decision,
        version: &ObservedVersion,
    ) -> Option<VariantAutoscalingStatus> {
        // Publishing the gauge is the actuation. Without a number nothing is published.
        let applied = decision.replicas.is_some();
        let status = status(variant, decision, applied, Timestamp::now());
        let same =
            variant.status.as_deref().map_or(status == VariantAutoscalingStatus::default(), |known| *known == status);
        (!same || version.unknown_status.is_some()).then_some(status)
    }

    async fn write_decision(
        &self,
        variant: &ObservedVariant,
        decision: &Decision,
        version: &ObservedVersion,
        status: VariantAutoscalingStatus,
    ) -> WriteResult {
        let status = Arc::new(status);
        let result = self.write(variant, version, event(variant, decision, &status), status.clone()).await;
        if matches!(result, WriteResult::Written) {
            log(variant, decision, &variant.status.clone().unwrap_or_default(), &status);
        }
        result
    }

    pub(super) async fn write(
        &self,
        variant: &ObservedVariant,
        version: &ObservedVersion,
        event: Option<Event>,
        status: Arc<VariantAutoscalingStatus>,
    ) -> WriteResult {
        let NamespacedName { namespace, name } = &variant.key;
        let owner = event_owner(&variant.key, version.uid.clone());
        let value = match serialize_status(&*status, namespace, name) {
            Ok(value) => value,
            Err(error) => {
                tracing::error!(%error, "status cannot be serialized");
                return WriteResult::Failed;
            }
        };
        // The event is sent before the status that records it, so that a crash in between repeats the event instead of
        // losing it.
        if let Some(event) = event {
            self.recorder.publish(&owner, &event).await;
        }
        let stored_value = Stored { resource_version: &version.version, status: version.unknown_status.as_ref() };
        match write_status(&self.server, MANAGER, &owner, stored_value, &value).await {
            Ok(written @ (StatusWrite::Written(_) | StatusWrite::Unchanged)) => {
                self.fleet.variants.update(&variant.key, |record| {
                    if record.uid == version.uid && record.version == version.version {
                        // With the old version, a reconcile before the watch event would get a conflict and send its
                        // event twice.
                        if let StatusWrite::Written(version) = written {
                            record.version = version;
                        }
                        record.unknown_status = None;
                        if let Ok(variant) = &mut record.variant {
                            variant.status = Some(status);
                        }
                    }
                });
                WriteResult::Written
            }
            Ok(StatusWrite::Conflict) => WriteResult::Conflict,
            Err(failure) => {
                tracing::warn!(object = %failure.object, cause = failure.message, "status could not be written");
                WriteResult::Failed
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
fn log(
    variant: &ObservedVariant,
    decision: &Decision,
    stored: &VariantAutoscalingStatus,
    status: &VariantAutoscalingStatus,
) {
    let number = |status: &VariantAutoscalingStatus| status.desired_optimized_alloc.as_ref()?.num_replicas;
    let conditions = |status: &VariantAutoscalingStatus| {
        let all = status.conditions.iter();
        all.map(|known| (known.type_.clone(), known.status.clone(), known.reason.clone())).collect::<Vec<_>>()
    };
    if (number(stored), conditions(stored)) == (number(status), conditions(status)) {
        return;
    }
    let NamespacedName { namespace, name } = &variant.key;
    let (before, replicas) = (number(stored), number(status));
    tracing::info!(
        namespace,
        variant = name,
        model = variant.spec.model_id,
        before,
        replicas,
        reason = decision.reason,
        trace = %decision.trace,
        "decided"
    );
}
