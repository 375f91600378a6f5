//! Assigns series to living pods and to requested models by their labels. Series of deleted or unknown pods are
//! ignored.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use super::answer::Labels;
use super::{ModelAsked, PodPlace};

/// Limit of a model name. A longer one could not be shown to a user either.
const LONGEST_NAME: usize = 256;

/// Certainty that a series belongs to this pod and not to an earlier one of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sure {
    /// Measured at another address: that of an earlier pod, or of a collector.
    Elsewhere,
    Named,
    /// Measured at the pod's address.
    Addressed,
}

/// Index of the pods. Sorted lists of indices take a tenth of the space of maps by name, and pods are the most numerous
/// objects.
pub struct Places<'a> {
    pub pods: Vec<&'a PodPlace>,
    models: BTreeMap<(&'a str, &'a str), usize>,
    /// Sorted by namespace and name.
    placed: Vec<u32>,
    /// Sorted by name.
    named: Vec<u32>,
    /// Sorted by address. Pods in the host network share one.
    addressed: Vec<u32>,
}

impl<'a> Places<'a> {
    pub fn new(models: &'a [ModelAsked], pods: &'a [impl Borrow<PodPlace>]) -> Self {
        let asked = models.iter().map(|model| (model.key.namespace.as_ref(), model.key.name.as_str()));
        let pods: Vec<&PodPlace> = pods.iter().map(Borrow::borrow).collect();
        let addressed = |number: &u32| pods[*number as usize].ip.is_some();
        Self {
            models: asked.zip(0..).collect(),
            placed: sorted(&pods, all(&pods), place),
            named: sorted(&pods, all(&pods), |pod| pod.name.as_ref()),
            addressed: sorted(&pods, all(&pods).filter(addressed), |pod| pod.ip),
            pods,
        }
    }

    /// The pod with this key, if there is exactly one.
    fn only<K: Ord>(&self, order: &[u32], key: impl Fn(&'a PodPlace) -> K, wanted: &K) -> Option<usize> {
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
    pub fn stranger<'l>(&self, labels: &'l Labels) -> Option<(&'a PodPlace, &'l str)> {
        let (pod, _) = self.of(labels)?;
        let name = labels.model_name.as_str();
        ((1..=LONGEST_NAME).contains(&name.len()) && self.model(pod, name).is_none()).then(|| (self.pods[pod], name))
    }

    /// Index of the pod.
    pub fn of(&self, labels: &Labels) -> Option<(usize, Sure)> {
        let name = [&labels.pod, &labels.pod_name].into_iter().find(|name| !name.is_empty());
        let host = host(&labels.instance).parse::<IpAddr>().ok();
        let index = match (labels.namespace.as_ref(), name) {
            ("", Some(name)) => self.only(&self.named, |pod| pod.name.as_ref(), &name.as_str()),
            (namespace, Some(name)) => self.only(&self.placed, place, &(namespace, name.as_str())),
            (namespace, None) => {
                let index = host.and_then(|host| self.only(&self.addressed, |pod| pod.ip, &Some(host)));
                index.filter(|index| namespace.is_empty() || *self.pods[*index].namespace == *namespace)
            }
        }?;
        let sure = match (self.pods[index].ip, host) {
            (Some(ip), Some(host)) if ip == host => Sure::Addressed,
            (Some(_), Some(_)) => Sure::Elsewhere,
            _ => Sure::Named,
        };
        Some((index, sure))
    }
}

fn all(pods: &[&PodPlace]) -> impl Iterator<Item = u32> {
    (0..).take(pods.len())
}

fn sorted<'a, K: Ord>(
    pods: &[&'a PodPlace],
    numbers: impl Iterator<Item = u32>,
    key: impl Fn(&'a PodPlace) -> K,
) -> Vec<u32> {
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_by_key(|number| key(pods[*number as usize]));
    numbers
}

fn place(pod: &PodPlace) -> (&str, &str) {
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

    fn pod(namespace: &str, name: &str, ip: &str) -> PodPlace {
        PodPlace {
            namespace: namespace.into(),
            name: name.into(),
            target: Default::default(),
            ip: ip.parse().ok(),
            ready: true,
            started: None,
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
        let places = Places::new(&[], &pods);
        for (labels, expected) in [
            (["a", "one", "", "10.0.0.1:8000"], Some((0, Sure::Addressed))),
            (["a", "", "one", "10.0.0.1:8000"], Some((0, Sure::Addressed))),
            (["a", "one", "", "10.0.0.7:8000"], Some((0, Sure::Elsewhere))),
            (["a", "one", "", "collector:8000"], Some((0, Sure::Named))),
            (["b", "one", "", ""], Some((1, Sure::Named))),
            (["a", "two", "", "[fd00::2]:8000"], Some((2, Sure::Addressed))),
            (["a", "new", "", "10.0.0.7:8000"], Some((5, Sure::Named))),
            // Another namespace, or a deleted pod.
            (["c", "one", "", "10.0.0.1:8000"], None),
            (["a", "gone", "", "10.0.0.1:8000"], None),
            // Without a namespace the name has to be unique.
            (["", "two", "", ""], Some((2, Sure::Named))),
            (["", "one", "", ""], None),
            // Without a name the address has to be unique.
            (["", "", "", "10.0.0.2:8000"], Some((1, Sure::Addressed))),
            (["a", "", "", "10.0.0.2:8000"], None),
            (["", "", "", "10.9.9.9:8000"], None),
            (["a", "", "", ""], None),
        ] {
            let [namespace, pod, pod_name, instance] = labels.map(str::to_owned);
            let labels = Labels { namespace, pod, pod_name, instance, ..Labels::default() };
            assert_eq!(places.of(&labels), expected, "{labels:?}");
        }
    }
}
