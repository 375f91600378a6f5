//! Figures at the edge of what can be counted.

use steersman_plan::variant::config::thresholds::SaturationEntry;
use steersman_plan::variant::gpu_limit::{GpuRequest, limit};
use steersman_plan::variant::{ObservedTarget, plan};
use steersman_reconcile::Lookup;

use super::{a_fleet, a_variant, by_tokens, spec, the_model};

#[test]
fn accelerators_beyond_counting_are_none() {
    let one = |variant: &str| GpuRequest {
        variant: variant.into(),
        accelerator: "H100".into(),
        current: i32::MAX,
        target: i32::MAX,
        gpus: i32::MAX,
        ..GpuRequest::default()
    };
    let growing = GpuRequest { current: 1, gpus: 8, ..one("c") };
    let granted = limit(&[one("a"), one("b"), growing], &[("H100".to_owned(), 8)].into());
    assert_eq!(granted.iter().map(|one| one.target).collect::<Vec<_>>(), [i32::MAX, i32::MAX, 1]);
}

#[test]
fn no_figure_however_large_stops_the_pass() {
    for tokens in [false, true] {
        for (replicas, ready) in [(i32::MAX, i32::MAX), (i32::MAX, 2), (2, i32::MAX), (2, i32::MIN)] {
            let mut seen = a_fleet(vec![a_variant("v", "5", 2), a_variant("w", "5", 2)], 1.0, f64::MAX);
            let entry = SaturationEntry { enable_limiter: Some(true), ..SaturationEntry::default() };
            seen.config.saturation.entries.insert("default".into(), entry);
            if tokens {
                by_tokens(&mut seen);
            }
            for variant in &mut seen.variants {
                spec(variant).accelerator_count = Some(i64::from(i32::MAX));
                let target =
                    ObservedTarget { replicas: Some(replicas), ready, ready_pods: 2, ..ObservedTarget::default() };
                variant.target = Lookup::Known(Some(target));
            }
            let pods = the_model(&mut seen).pods.as_mut().unwrap();
            pods.iter_mut().for_each(|pod| (pod.total_kv, pod.input) = (Some(i64::MAX), Some(f64::MAX)));
            seen.gpus = Lookup::Known([("H100".to_owned(), i32::MAX)].into());
            for _ in 0..2 {
                let decided = plan(&seen);
                assert_eq!(decided.decisions.len(), 2);
                assert!(decided.decisions.values().all(|one| one.replicas.is_some_and(|number| number >= 0)));
                seen.memory = decided.memory;
                seen.now += jiff::SignedDuration::from_mins(11);
            }
        }
    }
}
