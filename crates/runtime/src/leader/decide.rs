//! Decides from the observed Lease whether to take it now or how long to wait.
//!
//! Clocks of different machines are never compared: a Lease counts as abandoned when *we* have seen no change to it for
//! its whole duration.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;

/// client-go's default, for a Lease without `leaseDurationSeconds`.
const USUAL_DURATION: Duration = Duration::from_secs(15);

/// The Lease as last seen, and since when it has looked like that.
#[derive(Clone, Debug)]
pub struct Sighting {
    pub lease: Option<Lease>,
    pub since: Instant,
}

impl Sighting {
    /// Records an observation of the Lease. `since` moves only if the version changed.
    pub fn renewed(previous: Option<Self>, lease: Option<Lease>, now: Instant) -> Self {
        let version = |lease: &Option<Lease>| lease.as_ref().map(|lease| lease.metadata.resource_version.clone());
        match previous {
            Some(previous) if version(&previous.lease) == version(&lease) => Self { lease, since: previous.since },
            _ => Self { lease, since: now },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionStep {
    /// The Lease is free or abandoned: take it. The write names the observed version, so only one candidate succeeds.
    Take,
    /// Another process leads: check again at this time, or when the Lease changes.
    WaitUntil(Instant),
}

/// The next step of the candidate `identity`.
pub fn next_step(identity: &str, sighting: &Sighting, now: Instant) -> ElectionStep {
    let Some(spec) = sighting.lease.as_ref().and_then(|lease| lease.spec.as_ref()) else { return ElectionStep::Take };
    match spec.holder_identity.as_deref() {
        None | Some("") => ElectionStep::Take,
        Some(holder) if holder == identity => ElectionStep::Take,
        Some(_) => {
            let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            let abandoned = sighting.since + seconds.map_or(USUAL_DURATION, Duration::from_secs);
            if now >= abandoned { ElectionStep::Take } else { ElectionStep::WaitUntil(abandoned) }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(holder: Option<&str>, version: &str, seconds: Option<i32>) -> Lease {
        let spec = json!({ "holderIdentity": holder, "leaseDurationSeconds": seconds });
        serde_json::from_value(json!({ "metadata": { "resourceVersion": version }, "spec": spec })).unwrap()
    }

    #[test]
    fn free_or_abandoned_lease_is_taken() {
        let since = Instant::now();
        let after = |seconds| since + Duration::from_secs(seconds);
        let cases = [
            ("absent", None, 0, ElectionStep::Take),
            ("without a holder", Some(lease(None, "1", Some(15))), 0, ElectionStep::Take),
            ("released", Some(lease(Some(""), "1", Some(1))), 0, ElectionStep::Take),
            ("ours", Some(lease(Some("me"), "1", Some(15))), 0, ElectionStep::Take),
            ("held", Some(lease(Some("other"), "1", Some(15))), 14, ElectionStep::WaitUntil(after(15))),
            ("held without a duration", Some(lease(Some("other"), "1", None)), 14, ElectionStep::WaitUntil(after(15))),
            ("abandoned", Some(lease(Some("other"), "1", Some(15))), 15, ElectionStep::Take),
            ("a short one abandoned", Some(lease(Some("other"), "1", Some(3))), 3, ElectionStep::Take),
        ];
        for (name, lease, seconds, expected) in cases {
            assert_eq!(next_step("me", &Sighting { lease, since }, after(seconds)), expected, "{name}");
        }
    }

    #[test]
    fn unchanged_lease_keeps_its_age() {
        let start = Instant::now();
        let later = start + Duration::from_secs(10);
        let first = Sighting::renewed(None, Some(lease(Some("other"), "1", None)), start);
        let same = Sighting::renewed(Some(first.clone()), Some(lease(Some("other"), "1", None)), later);
        assert_eq!(same.since, start, "the same version keeps its age");
        let renewed = Sighting::renewed(Some(same), Some(lease(Some("other"), "2", None)), later);
        assert_eq!(renewed.since, later);
        let gone = Sighting::renewed(Some(renewed), None, later + Duration::from_secs(1));
        assert_eq!(gone.since, later + Duration::from_secs(1));
        assert_eq!(Sighting::renewed(Some(first), None, later).since, later);
    }
}
