//! Assigns pods to scale targets, and reads scale targets of kinds that are not watched. A pod counts for at most one
//! scale target.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use kube::core::GroupVersionKind;
use steersman_plan::variant::{ObservedTarget, ObservedVariant, ReadyPod, TargetName};
use steersman_reconcile::{Lookup, NamespacedName};
use steersman_runtime::client::Server;
use steersman_runtime::store::SyncState;

use super::Fleet;
use super::scales::{ScaleRecord, SelectedPods, SlowKinds};
use super::targets::TargetKind;
use crate::variant::prometheus::FleetPod;
use crate::variant::turns::by_turns;

/// Concurrent reads of scale subresources.
const MAX_CONCURRENT_READS: usize = 8;

/// Time for all reads of scale subresources together.
const SCALE_READ_LIMIT: Duration = Duration::from_secs(30);

/// Characters of a selector in messages.
const MAX_SELECTOR_BYTES: usize = 100;

/// A scale target that objects reference.
struct ReferencedTarget {
    target: Arc<TargetName>,
    /// Indices of the objects. More than one is a conflict, which the plan resolves.
    by: Vec<usize>,
    /// Number of the target's pods that have not ended.
    pods: usize,
    ready: Vec<ReadyPod>,
    /// GPUs that the pods on nodes request.
    gpus: i32,
}

/// A scale target that is not watched.
struct ScaleRead {
    at: usize,
    /// Indices of the objects that reference it with this API version.
    by: Vec<usize>,
    scale: Lookup<Option<ScaleRecord>>,
    /// Names of the pods. `None` if owner references already identify them.
    selected: Option<SelectedPods>,
}

type Index<'a> = BTreeMap<(&'a str, Arc<TargetName>), usize>;

impl Fleet {
    /// Assigns each pod to the scale target that owns it. Scale targets of kinds that are not watched are read from the API
    /// server.
    pub(super) async fn assign_pods(&self, server: &Server, variants: &mut [ObservedVariant]) -> Vec<Arc<FleetPod>> {
        self.pod_names.tidy();
        let (mut targets, mut pods) = self.owned(variants);
        let pods_known = self.pods.sync_state() == SyncState::Synced;
        for target in &targets {
            for number in &target.by {
                if let Lookup::Known(Some(observed)) = &mut variants[*number].target {
                    observed.ready_pods = count(&target.ready);
                    observed.pods.clone_from(&target.ready);
                    observed.used_gpus = pods_known.then_some(target.gpus);
                }
            }
        }
        let scales = self.read_scales(server, variants, &targets).await;
        if !scales.is_empty() {
            self.add_selected(variants, &mut targets, &mut pods, scales);
        }
        pods
    }

    /// Finds pods by their controllers, without any call.
    fn owned(&self, variants: &[ObservedVariant]) -> (Vec<ReferencedTarget>, Vec<Arc<FleetPod>>) {
        let (mut targets, mut pods) = (Vec::<ReferencedTarget>::new(), Vec::new());
        let mut index = Index::new();
        for (number, variant) in variants.iter().enumerate() {
            let Some(target) = &variant.spec.scale_target_ref else { continue };
            let target = Arc::new(TargetName::from(target));
            let at = *index.entry((variant.key.namespace.as_str(), target.clone())).or_insert(targets.len());
            if at == targets.len() {
                targets.push(ReferencedTarget {
                    target,
                    by: Vec::with_capacity(1),
                    pods: 0,
                    ready: Vec::new(),
                    gpus: 0,
                });
            }
            targets[at].by.push(number);
        }
        self.pods.each(|namespace, _, pod| {
            if let Some(at) = index.get(&(namespace, pod.target.clone())) {
                let target = &mut targets[*at];
                target.gpus = target.gpus.saturating_add(pod.gpus);
                if pod.worker {
                    return;
                }
                target.pods += 1;
                target.ready.extend(ready_pod(pod));
                pods.push(pod.clone());
            }
        });
        (targets, pods)
    }

    /// Reads each scale target once, however many objects reference it.
    async fn read_scales(
        &self,
        server: &Server,
        variants: &mut [ObservedVariant],
        targets: &[ReferencedTarget],
    ) -> Vec<ScaleRead> {
        let slow_kinds = SlowKinds::default();
        let mut reads = Vec::new();
        for (at, target) in targets.iter().enumerate() {
            // Each API version is read separately, so that a wrong one affects only the objects that use it.
            let mut kinds: BTreeMap<String, (GroupVersionKind, Vec<usize>)> = BTreeMap::new();
            for number in &target.by {
                let variant = &mut variants[*number];
                match variant.spec.scale_target_ref.as_ref().map(TargetKind::of) {
                    Some(TargetKind::Scale(kind)) => {
                        variant.target = Lookup::Unknown(read_timeout());
                        let same = kinds.entry(kind.api_version()).or_insert_with(|| (kind, Vec::new()));
                        same.1.push(*number);
                    }
                    Some(TargetKind::Invalid(why)) => variant.target = Lookup::Unknown(why),
                    Some(TargetKind::Deployment | TargetKind::StatefulSet | TargetKind::LeaderWorkerSet) | None => {}
                }
            }
            for (kind, by) in kinds.into_values() {
                let Some(namespace) = by.first().map(|number| variants[*number].key.namespace.clone()) else {
                    continue;
                };
                let key = NamespacedName::new(namespace.clone(), target.target.name.clone());
                let read = self.read_scale(server, (at, by), kind, key, target.pods > 0, &slow_kinds).boxed();
                reads.push((namespace, read));
            }
        }
        // The objects of one namespace must not use up the time for all.
        let reads: Vec<_> =
            by_turns(reads, |(namespace, _)| namespace.clone()).into_iter().map(|(_, read)| read).collect();
        let (mut reads, mut scales) = (stream::iter(reads).buffer_unordered(MAX_CONCURRENT_READS), Vec::new());
        let all = async {
            while let Some(one) = reads.next().await {
                scales.push(one);
            }
        };
        // Slow answers must not delay the others.
        let _ = tokio::time::timeout(SCALE_READ_LIMIT, all).await;
        scales.sort_by(|one: &ScaleRead, other| (one.at, &one.by).cmp(&(other.at, &other.by)));
        scales
    }

    /// A custom kind may create its pods through other objects, such as a Deployment with another name. Then only the
    /// selector of its scale identifies them, and the API server has to evaluate it: pod labels are not kept here,
    /// because they would take more space than everything else about pods.
    async fn read_scale(
        &self,
        server: &Server,
        (at, by): (usize, Vec<usize>),
        kind: GroupVersionKind,
        key: NamespacedName,
        owned: bool,
        slow_kinds: &SlowKinds,
    ) -> ScaleRead {
        let scale = self.scales.read(server, &kind, &key, slow_kinds).await;
        let selected = match &scale {
            Lookup::Known(Some(scaled)) if !owned && scaled.runs() => {
                Some(self.scales.select(server, &key.namespace, scaled.selector.as_deref()).await)
            }
            _ => None,
        };
        ScaleRead { at, by, scale, selected }
    }

    /// Adds the scale targets that were read, with their pods.
    fn add_selected(
        &self,
        variants: &mut [ObservedVariant],
        targets: &mut [ReferencedTarget],
        pods: &mut Vec<Arc<FleetPod>>,
        scales: Vec<ScaleRead>,
    ) {
        // A pod counts once. A pod controlled by a scale target of the fleet belongs to it, however wide the selector
        // of another one is.
        let mut taken: BTreeSet<(Arc<str>, Arc<str>)> = BTreeSet::new();
        let selects = |read: &&ScaleRead| matches!(read.selected, Some(SelectedPods::Names(_)));
        let of = |read: &ScaleRead| targets[read.at].by.first().map(|number| &variants[*number].key.namespace);
        let namespaces: BTreeSet<&String> = scales.iter().filter(selects).filter_map(of).collect();
        let near = pods.iter().filter(|pod| namespaces.iter().any(|namespace| **namespace == *pod.namespace));
        taken.extend(near.map(|pod| (pod.namespace.clone(), pod.name.clone())));
        for ScaleRead { at, by, scale, selected } in scales {
            let target = &mut targets[at];
            let Some(first) = by.first().map(|number| &variants[*number]) else { continue };
            let (namespace, workload) = (first.key.namespace.clone(), first.workload());
            let (mut pods_error, mut lost) = (None, false);
            match selected {
                Some(SelectedPods::Names(names)) => {
                    for name in names {
                        let found = self.pods.get(&NamespacedName::new(namespace.clone(), name));
                        let Some(pod) = found.filter(|pod| !pod.worker) else { continue };
                        if taken.insert((pod.namespace.clone(), pod.name.clone())) {
                            target.pods += 1;
                            target.ready.extend(ready_pod(&pod));
                            pods.push(Arc::new(FleetPod { target: target.target.clone(), ..FleetPod::clone(&pod) }));
                        } else {
                            lost = true;
                        }
                    }
                    lost &= target.pods == 0;
                    pods_error = (target.pods == 0).then(|| no_pod_matches(&workload, &scale));
                }
                Some(SelectedPods::NoSelector) => pods_error = Some(no_selector(&workload)),
                Some(SelectedPods::Unknown(why)) => {
                    pods_error = Some(format!("cannot list the pods of {workload}: {why}"));
                }
                None => {}
            }
            let (ready, pods_error) = (count(&target.ready), pods_error.map(String::into_boxed_str));
            let observed = |scaled: &ScaleRecord| ObservedTarget {
                replicas: scaled.replicas,
                status_replicas: scaled.status_replicas,
                ready,
                ready_pods: ready,
                pods: target.ready.clone(),
                pods_error: pods_error.clone(),
                ..ObservedTarget::default()
            };
            for number in by {
                variants[number].target = match &scale {
                    // Only this scale target has no pods: those of the other one are known.
                    Lookup::Known(_) if lost => Lookup::Unknown(pods_taken(&workload)),
                    Lookup::Known(found) => Lookup::Known(found.as_ref().map(observed)),
                    Lookup::Unknown(why) => Lookup::Unknown(why.clone()),
                };
            }
        }
    }
}

fn ready_pod(pod: &FleetPod) -> Option<ReadyPod> {
    pod.ready.then(|| ReadyPod { name: pod.name.clone(), since: pod.ready_since })
}

fn count(pods: &[ReadyPod]) -> i32 {
    i32::try_from(pods.len()).unwrap_or(i32::MAX)
}

fn no_selector(workload: &str) -> String {
    format!(
        "cannot find the pods of {workload}: it does not control them, and its scale has no status.selector. Set \
         scale.labelSelectorPath in its CRD, or name the workload that owns the pods in spec.scaleTargetRef"
    )
}

fn read_timeout() -> String {
    format!("reading its scale subresource took longer than {} s", SCALE_READ_LIMIT.as_secs())
}

fn pods_taken(workload: &str) -> String {
    format!(
        "the pods of {workload} already count for another scale target that has a VariantAutoscaling; delete one of the two \
         VariantAutoscalings"
    )
}

fn no_pod_matches(workload: &str, scale: &Lookup<Option<ScaleRecord>>) -> String {
    let selector = scale.known().and_then(|scaled| scaled.as_ref()?.selector.as_deref()).unwrap_or_default();
    let selector = &selector[..selector.floor_char_boundary(MAX_SELECTOR_BYTES)];
    format!("{workload} has replicas, but no running pod matches its selector {selector}; check its pods")
}
