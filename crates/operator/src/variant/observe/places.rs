//! Assigns pods to scale targets, and reads scale targets of kinds that are not watched. A pod counts for at most one
//! scale target.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use kube::core::GroupVersionKind;
use steersman_plan::variant::{TargetName, TargetSeen, VariantSeen};
use steersman_reconcile::{Lookup, NamespacedName};
use steersman_runtime::client::Server;

use super::Fleet;
use super::scales::{Hanging, Scaled, Selected};
use super::targets::Way;
use crate::variant::prometheus::PodPlace;

/// Concurrent reads of scale subresources.
const AT_ONCE: usize = 8;

/// Time for all reads of scale subresources together.
const LONGEST_LOOK: Duration = Duration::from_secs(30);

/// Characters of a selector in messages.
const LONGEST: usize = 100;

/// A scale target that objects reference.
struct Named {
    target: Arc<TargetName>,
    /// Indices of the objects. More than one is a conflict, which the plan resolves.
    by: Vec<usize>,
    /// Its living pods, and how many of them are ready.
    pods: usize,
    ready: i32,
}

/// A scale target that is not watched.
struct Answered {
    at: usize,
    /// Indices of the objects that reference it with this API version.
    by: Vec<usize>,
    scale: Lookup<Option<Scaled>>,
    /// Names of the pods. `None` if owner references already identify them.
    selected: Option<Selected>,
}

type Index<'a> = BTreeMap<(&'a str, Arc<TargetName>), usize>;

impl Fleet {
    /// Also reads scale targets of kinds that are not watched.
    pub(super) async fn places(&self, server: &Server, variants: &mut [VariantSeen]) -> Vec<Arc<PodPlace>> {
        self.owners.tidy();
        let (mut named, mut places) = self.owned(variants);
        for named in &named {
            for number in &named.by {
                if let Lookup::Known(Some(target)) = &mut variants[*number].target {
                    target.ready_pods = named.ready;
                }
            }
        }
        let answered = self.ask_scales(server, variants, &named).await;
        if !answered.is_empty() {
            self.select(variants, &mut named, &mut places, answered);
        }
        places
    }

    /// Finds pods by their controllers, without any call.
    fn owned(&self, variants: &[VariantSeen]) -> (Vec<Named>, Vec<Arc<PodPlace>>) {
        let (mut named, mut places) = (Vec::<Named>::new(), Vec::new());
        let mut index = Index::new();
        for (number, seen) in variants.iter().enumerate() {
            let Some(target) = &seen.spec.scale_target_ref else { continue };
            let target = Arc::new(TargetName::from(target));
            let at = *index.entry((seen.key.namespace.as_str(), target.clone())).or_insert(named.len());
            if at == named.len() {
                named.push(Named { target, by: Vec::with_capacity(1), pods: 0, ready: 0 });
            }
            named[at].by.push(number);
        }
        self.pods.each(|namespace, _, pod| {
            if let Some(at) = index.get(&(namespace, pod.target.clone())) {
                let named = &mut named[*at];
                named.pods += 1;
                named.ready = named.ready.saturating_add(i32::from(pod.ready));
                places.push(pod.clone());
            }
        });
        (named, places)
    }

    /// Reads each scale target once, however many objects reference it.
    async fn ask_scales(&self, server: &Server, variants: &mut [VariantSeen], named: &[Named]) -> Vec<Answered> {
        let hanging = Hanging::default();
        let mut asked = Vec::new();
        for (at, named) in named.iter().enumerate() {
            // Each API version is read separately, so that a wrong one affects only the objects that use it.
            let mut kinds: BTreeMap<String, (GroupVersionKind, Vec<usize>)> = BTreeMap::new();
            for number in &named.by {
                let seen = &mut variants[*number];
                match seen.spec.scale_target_ref.as_ref().map(Way::to) {
                    Some(Way::Scale(kind)) => {
                        seen.target = Lookup::Unknown(late());
                        let same = kinds.entry(kind.api_version()).or_insert_with(|| (kind, Vec::new()));
                        same.1.push(*number);
                    }
                    Some(Way::Unclear(why)) => seen.target = Lookup::Unknown(why),
                    Some(Way::Deployment | Way::StatefulSet | Way::LeaderWorkerSet) | None => {}
                }
            }
            for (kind, by) in kinds.into_values() {
                let Some(namespace) = by.first().map(|number| variants[*number].key.namespace.clone()) else {
                    continue;
                };
                let place = NamespacedName::new(namespace, named.target.name.clone());
                asked.push(self.ask_scale(server, (at, by), kind, place, named.pods > 0, &hanging).boxed());
            }
        }
        let (mut asked, mut answered) = (stream::iter(asked).buffer_unordered(AT_ONCE), Vec::new());
        let all = async {
            while let Some(one) = asked.next().await {
                answered.push(one);
            }
        };
        // Slow answers must not delay the others.
        let _ = tokio::time::timeout(LONGEST_LOOK, all).await;
        answered.sort_by(|one: &Answered, other| (one.at, &one.by).cmp(&(other.at, &other.by)));
        answered
    }

    /// A custom kind may create its pods through other objects, such as a Deployment with another name. Then only the
    /// selector of its scale identifies them, and the API server has to evaluate it: pod labels are not kept here,
    /// because they would take more space than everything else about pods.
    async fn ask_scale(
        &self,
        server: &Server,
        (at, by): (usize, Vec<usize>),
        kind: GroupVersionKind,
        place: NamespacedName,
        owned: bool,
        hanging: &Hanging,
    ) -> Answered {
        let scale = self.scales.look(server, &kind, &place, hanging).await;
        let selected = match &scale {
            Lookup::Known(Some(scaled)) if !owned && scaled.runs() => {
                Some(self.scales.select(server, &place.namespace, scaled.selector.as_deref()).await)
            }
            _ => None,
        };
        Answered { at, by, scale, selected }
    }

    /// Adds the scale targets that were read, with their pods.
    fn select(
        &self,
        variants: &mut [VariantSeen],
        named: &mut [Named],
        places: &mut Vec<Arc<PodPlace>>,
        answered: Vec<Answered>,
    ) {
        // A pod counts once. A pod controlled by a scale target of the fleet belongs to it, however wide the selector
        // of another one is.
        let mut taken: BTreeSet<(Arc<str>, Arc<str>)> = BTreeSet::new();
        let selects = |answered: &&Answered| matches!(answered.selected, Some(Selected::Names(_)));
        let of = |answered: &Answered| named[answered.at].by.first().map(|number| &variants[*number].key.namespace);
        let namespaces: BTreeSet<&String> = answered.iter().filter(selects).filter_map(of).collect();
        let near = places.iter().filter(|pod| namespaces.iter().any(|namespace| **namespace == *pod.namespace));
        taken.extend(near.map(|pod| (pod.namespace.clone(), pod.name.clone())));
        for Answered { at, by, scale, selected } in answered {
            let named = &mut named[at];
            let Some(first) = by.first().map(|number| &variants[*number]) else { continue };
            let (namespace, workload) = (first.key.namespace.clone(), first.workload());
            let (mut unfound, mut lost) = (None, false);
            match selected {
                Some(Selected::Names(names)) => {
                    for name in names {
                        let Some(pod) = self.pods.get(&NamespacedName::new(namespace.clone(), name)) else { continue };
                        if taken.insert((pod.namespace.clone(), pod.name.clone())) {
                            named.pods += 1;
                            named.ready = named.ready.saturating_add(i32::from(pod.ready));
                            places.push(Arc::new(PodPlace { target: named.target.clone(), ..PodPlace::clone(&pod) }));
                        } else {
                            lost = true;
                        }
                    }
                    lost &= named.pods == 0;
                    unfound = (named.pods == 0).then(|| nobody(&workload, &scale));
                }
                Some(Selected::Nameless) => unfound = Some(nameless(&workload)),
                Some(Selected::Unknown(why)) => {
                    unfound = Some(format!("the pods of {workload} could not be listed: {why}"));
                }
                None => {}
            }
            let (ready, unfound) = (named.ready, unfound.map(String::into_boxed_str));
            let seen = |scaled: &Scaled| TargetSeen {
                replicas: scaled.replicas,
                status_replicas: scaled.status_replicas,
                ready,
                ready_pods: ready,
                unfound: unfound.clone(),
                ..TargetSeen::default()
            };
            for number in by {
                variants[number].target = match &scale {
                    // Only this scale target has no pods: those of the other one are known.
                    Lookup::Known(_) if lost => Lookup::Unknown(anothers(&workload)),
                    Lookup::Known(found) => Lookup::Known(found.as_ref().map(seen)),
                    Lookup::Unknown(why) => Lookup::Unknown(why.clone()),
                };
            }
        }
    }
}

fn nameless(workload: &str) -> String {
    format!(
        "the pods of {workload} cannot be found, as none has it for a controller and its scale has no status.selector; give \
         its CRD a scale.labelSelectorPath, or name the workload that owns the pods in spec.scaleTargetRef"
    )
}

fn late() -> String {
    format!("there was no answer to a look at its scale within {} s", LONGEST_LOOK.as_secs())
}

fn anothers(workload: &str) -> String {
    format!(
        "the pods of {workload} count for another workload, for which there is a VariantAutoscaling too; delete one of the two"
    )
}

fn nobody(workload: &str, scale: &Lookup<Option<Scaled>>) -> String {
    let selector = scale.known().and_then(|scaled| scaled.as_ref()?.selector.as_deref()).unwrap_or_default();
    let selector = &selector[..selector.floor_char_boundary(LONGEST)];
    format!(
        "{workload} has replicas, and no living pod has the labels {selector} that its scale names; look at its pods"
    )
}
