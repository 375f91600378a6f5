//! Chooses the source of an object's configuration.

use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;

use super::Listen;
use super::external;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// A ConfigMap of the user, unchanged.
    Override,
    /// Generated from the spec and the base.
    Generated,
    /// The file in the image; nothing is mounted.
    #[default]
    Distribution,
}

/// `always_mounted`: the file in the image is not that of the distribution, as with `remote-vllm`. Certificates and
/// external providers need a generated file, since the one in the image cannot be changed.
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
