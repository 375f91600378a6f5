//! Distributes the cluster's GPUs: first up to earlier grants, then to the most saturated variants.

use std::collections::BTreeMap;

use serde::Serialize;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuRequest {
    pub variant: String,
    pub accelerator: String,
    pub current: i32,
    pub target: i32,
    /// Replicas granted earlier. They are served first, because otherwise a grant would be revoked while it is carried
    /// out.
    pub held: i32,
    /// Accelerators per replica.
    pub gpus: i32,
    /// Accelerators of its pods on nodes. `None`: those of `current` replicas.
    pub used: Option<i32>,
    /// The target is not of this reconcile, so that nothing beyond `held` is granted.
    pub only_held: bool,
    /// Its pods request no accelerator. It is limited to the free ones like others, but takes none of them.
    pub takes_none: bool,
    pub spare_kv: f64,
    pub cost: f64,
}

impl GpuRequest {
    /// Accelerators of the current replicas.
    fn of_replicas(&self) -> i32 {
        self.current.saturating_mul(self.gpus.max(1))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuGrant {
    pub variant: String,
    pub target: i32,
    pub gpus: i32,
    pub limited: bool,
    pub reason: String,
}

/// `offered`: GPUs by short product name.
pub fn limit(wanted: &[GpuRequest], offered: &BTreeMap<String, i32>) -> Vec<GpuGrant> {
    let mut free = offered.clone();
    for one in wanted.iter().filter(|one| !one.takes_none) {
        if let Some(left) = free.get_mut(&one.accelerator) {
            *left = left.saturating_sub(one.used.unwrap_or_else(|| one.of_replicas()));
        }
    }
    let mut order: Vec<usize> = (0..wanted.len()).filter(|at| wanted[*at].target > wanted[*at].current).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&wanted[*a], &wanted[*b]);
        a.spare_kv.total_cmp(&b.spare_kv).then(a.cost.total_cmp(&b.cost)).then(a.variant.cmp(&b.variant))
    });
    let mut given: BTreeMap<usize, i32> = BTreeMap::new();
    let held = order.iter().map(|at| (*at, wanted[*at].target.min(wanted[*at].held)));
    let all = order.iter().filter(|at| !wanted[**at].only_held).map(|at| (*at, wanted[*at].target));
    for (at, target) in held.chain(all) {
        let one = &wanted[at];
        let given = given.entry(at).or_default();
        let mut left = free.get_mut(&one.accelerator);
        // Its own replicas without a node need their GPUs before further ones do.
        let used = one.used.filter(|_| !one.takes_none);
        let awaited = used.map_or(0, |used| one.of_replicas().saturating_sub(used).max(0));
        let room = left.as_ref().map_or(0, |left| left.saturating_sub(awaited) / one.gpus.max(1)).max(0);
        let added = target.saturating_sub(one.current).saturating_sub(*given).clamp(0, room);
        if let Some(left) = left.as_mut().filter(|_| !one.takes_none) {
            **left = left.saturating_sub(added.saturating_mul(one.gpus.max(1)));
        }
        *given = given.saturating_add(added);
    }
    wanted.iter().enumerate().map(|(at, one)| granted(one, given.get(&at).copied())).collect()
}

fn granted(one: &GpuRequest, added: Option<i32>) -> GpuGrant {
    let target = added.map_or(one.target, |added| one.current.saturating_add(added));
    let limited = target < one.target;
    let gpus = added.unwrap_or_default().saturating_mul(one.gpus.max(1));
    let reason = match added {
        Some(added @ 1..) if limited => format!("limited: allocated {gpus} GPUs for +{added} replicas"),
        Some(added @ 1..) => format!("allocated {gpus} GPUs for +{added} replicas"),
        _ => format!("no scale-up (target={target}, current={})", one.current),
    };
    GpuGrant { variant: one.variant.clone(), target, gpus, limited, reason }
}

/// The short name of a node's product label: `NVIDIA-A100-PCIE-80GB` is an `A100`.
pub fn short_product_name(product: &str) -> String {
    let parts: Vec<&str> = product.split('-').collect();
    match parts.as_slice() {
        [_] | [] => product.to_owned(),
        [vendor, family, series, ..] if vendor.eq_ignore_ascii_case("intel") => format!("{family}-{series}"),
        [_, model, ..] => (*model).to_owned(),
    }
}
