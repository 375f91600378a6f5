//! Where an object's configuration comes from.
//! Comes in: a spec; goes out: one of three sources.

use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;

use super::Listen;
use super::external;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A ConfigMap of the user, as it is.
    Override,
    /// Made from the spec and the base.
    Generated,
    /// The image's own; nothing is mounted.
    Distribution,
}

/// `always_mounted`: the image's own configuration is not that of the distribution, as with `remote-vllm`. Certificates and
/// external providers need a file too, since the one inside the image cannot be changed.
pub fn source(spec: &LlamaStackDistributionSpec, always_mounted: bool) -> Source {
    if spec.override_config.is_some() {
        return Source::Override;
    }
    let asked = spec.providers.is_some()
        || spec.resources.is_some()
        || spec.storage.is_some()
        || spec.disabled.as_ref().is_some_and(|disabled| !disabled.is_empty());
    let needed = Listen::of(spec).tls_secret.is_some() || !external::all(spec).is_empty();
    if asked || needed || always_mounted { Source::Generated } else { Source::Distribution }
}
