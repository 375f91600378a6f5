//! Assigns series to living pods and to requested models by their labels. Series of deleted or unknown pods are
//! ignored.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use super::response::SampleLabels;
use super::{FleetPod, ModelQuery};

/// Limit of a model name. A longer one could not be shown to a user either.
const MAX_NAME_BYTES: usize = 256;

/// Certainty that a series belongs to this pod and not to an earlier one of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// Measured at another address: that of an earlier pod, or of a collector.
    OtherAddress,
    Name,
    /// Measured at the pod's address.
    OwnAddress,
}

/// Index of the pods. Sorted lists of indices take a tenth of the space of maps by name, and pods are the most numerous
/// objects.
pub struct PodIndex<'a> {
    pub pods: Vec<&'a FleetPod>,
    models: BTreeMap<(&'a str, &'a str), usize>,
    /// Sorted by namespace and name.
    by_name: Vec<u32>,
    /// Sorted by name.
    by_bare_name: Vec<u32>,
    /// Sorted by address. Pods in the host network share one.
    by_address: Vec<u32>,
}

impl<'a> PodIndex<'a> {
    pub fn new(models: &'a [ModelQuery], pods: &'a [impl Borrow<FleetPod>]) -> Self {
        let queried = models.iter().map(|model| (model.key.namespace.as_ref(), model.key.name.as_str()));
        let pods: Vec<&FleetPod> = pods.iter().map(Borrow::borrow).collect();
        let has_address = |number: &u32| pods[*number as usize].ip.is_some();
        Self {
            models: queried.zip(0..).collect(),
            by_name: sorted(&pods, all(&pods), qualified_name),
            by_bare_name: sorted(&pods, all(&pods), |pod| pod.name.as_ref()),
            by_address: sorted(&pods, all(&pods).filter(has_address), |pod| pod.ip),
            pods,
        }
    }

    /// The pod with this key, if there is exactly one.
    fn only<K: Ord>(&self, order: &[u32], key: impl Fn(&'a FleetPod) -> K, wanted: &K) -> Option<usize> {
        let key = |number: &u32| key(self.pods[*number as usize]);
        let from = order.partition_point(|number| key(number) < *wanted);
        let mut found = order[from..].iter().take_while(|number| key(number) == *wanted);
        found.next().filter(|_| found.next().is_none()).map(|number| *number as usize)
    }

    /// Index of the model, if it is requested in the pod's namespace.
    pub fn model(&self, pod: usize, name: &str) -> Option<usize> {
        self.models.get(&(self.pods[pod].namespace.as_ref(), name)).copied()
    }

    /// The pod and the model of a series whose model is not requested.
    pub fn other_model<'l>(&self, labels: &'l SampleLabels) -> Option<(&'a FleetPod, &'l str)> {
        let (pod, _) = self.pod(labels)?;
        let name = labels.model_name.as_str();
        ((1..=MAX_NAME_BYTES).contains(&name.len()) && self.model(pod, name).is_none()).then(|| (self.pods[pod], name))
    }

    /// Index of the pod.
    pub fn pod(&self, labels: &SampleLabels) -> Option<(usize, Certainty)> {
        let name = [&labels.pod, &labels.pod_name].into_iter().find(|name| !name.is_empty());
        let host = host(&labels.instance).parse::<IpAddr>().ok();
        let index = match (labels.namespace.as_ref(), name) {
            ("", Some(name)) => self.only(&self.by_bare_name, |pod| pod.name.as_ref(), &name.as_str()),
            (namespace, Some(name)) => self.only(&self.by_name, qualified_name, &(namespace, name.as_str())),
            (namespace, None) => {
                let index = host.and_then(|host| self.only(&self.by_address, |pod| pod.ip, &Some(host)));
                index.filter(|index| namespace.is_empty() || *self.pods[*index].namespace == *namespace)
            }
        }?;
        let certainty = match (self.pods[index].ip, host) {
            (Some(ip), Some(host)) if ip == host => Certainty::OwnAddress,
            (Some(_), Some(_)) => Certainty::OtherAddress,
            _ => Certainty::Name,
        };
        Some((index, certainty))
    }
}

fn all(pods: &[&FleetPod]) -> impl Iterator<Item = u32> {
    (0..).take(pods.len())
}

fn sorted<'a, K: Ord>(
    pods: &[&'a FleetPod],
    numbers: impl Iterator<Item = u32>,
    key: impl Fn(&'a FleetPod) -> K,
) -> Vec<u32> {
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_by_key(|number| key(pods[*number as usize]));
    numbers
}

fn qualified_name(pod: &FleetPod) -> (&str, &str) {
    (&pod.namespace, &pod.name)
}

/// The host without the port.
fn host(instance: &str) -> &str {
    let host = instance.rsplit_once(':').map_or(instance, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(namespace: &str, name: &str, ip: &str) -> FleetPod {
        FleetPod {
            namespace: namespace.into(),
            name: name.into(),
            target: Default::default(),
            ip: ip.parse().ok(),
            ready: true,
            ready_since: None,
            started: None,
            gpus: 0,
            worker: false,
        }
    }

    #[test]
    fn series_is_matched_to_pod_by_labels() {
        let pods = [
            pod("a", "one", "10.0.0.1"),
            pod("b", "one", "10.0.0.2"),
            pod("a", "two", "fd00::2"),
            pod("a", "node-1", "10.9.9.9"),
            pod("a", "node-2", "10.9.9.9"),
            pod("a", "new", ""),
        ];
        let index = PodIndex::new(&[], &pods);
        for (labels, expected) in [
            (["a", "one", "", "10.0.0.1:8000"], Some((0, Certainty::OwnAddress))),
            (["a", "", "one", "10.0.0.1:8000"], Some((0, Certainty::OwnAddress))),
            (["a", "one", "", "10.0.0.7:8000"], Some((0, Certainty::OtherAddress))),
            (["a", "one", "", "collector:8000"], Some((0, Certainty::Name))),
            (["b", "one", "", ""], Some((1, Certainty::Name))),
            (["a", "two", "", "[fd00::2]:8000"], Some((2, Certainty::OwnAddress))),
            (["a", "new", "", "10.0.0.7:8000"], Some((5, Certainty::Name))),
            // Another namespace, or a deleted pod.
            (["c", "one", "", "10.0.0.1:8000"], None),
            (["a", "gone", "", "10.0.0.1:8000"], None),
            // Without a namespace the name has to be unique.
            (["", "two", "", ""], Some((2, Certainty::Name))),
            (["", "one", "", ""], None),
            // Without a name the address has to be unique.
            (["", "", "", "10.0.0.2:8000"], Some((1, Certainty::OwnAddress))),
            (["a", "", "", "10.0.0.2:8000"], None),
            (["", "", "", "10.9.9.9:8000"], None),
            (["a", "", "", ""], None),
        ] {
            let [namespace, pod, pod_name, instance] = labels.map(str::to_owned);
            let labels = SampleLabels { namespace, pod, pod_name, instance, ..SampleLabels::default() };
            assert_eq!(index.pod(&labels), expected, "{labels:?}");
        }
    }
}
