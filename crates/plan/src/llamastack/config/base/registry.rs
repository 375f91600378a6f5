//! The table of distributions. Image, server version and base belong together and change together.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShippedDistribution {
    pub name: &'static str,
    pub image: &'static str,
    /// Version of llama-stack in the image; the base is written for it.
    pub server_version: &'static str,
    /// Versions of the package that `cargo xtask test --suite llamastack-real` checks the base against.
    pub verified_with: &'static [&'static str],
    /// The image contains another configuration, so that the base is mounted even if the user changes nothing.
    pub mounts_always: bool,
    /// The base, as YAML.
    pub text: &'static str,
}

/// A base fits one minor version of the server, so each image is pinned. If the package of the current version no
/// longer contains a distribution, its image is of the last version that does.
pub const DISTRIBUTIONS: [ShippedDistribution; 5] = [
    // The file in the image lacks the files API, which other providers in it need: the server does not start with it.
    ShippedDistribution {
        name: "meta-reference-gpu",
        image: "docker.io/llamastack/distribution-meta-reference-gpu:0.4.7",
        server_version: "0.4.7",
        verified_with: &["0.4.7"],
        mounts_always: true,
        text: include_str!("meta-reference-gpu.yaml"),
    },
    // The file in this image lacks the files API, too.
    ShippedDistribution {
        name: "postgres-demo",
        image: "docker.io/llamastack/distribution-postgres-demo:0.7.1",
        server_version: "0.7.1",
        verified_with: &["0.7.1", "0.7.3"],
        mounts_always: true,
        text: include_str!("postgres-demo.yaml"),
    },
    // The last image of this name has llama-stack 0.2. The starter's image runs a base with vLLM alone.
    ShippedDistribution {
        name: "remote-vllm",
        image: "docker.io/llamastack/distribution-starter:0.7.1",
        server_version: "0.7.1",
        verified_with: &["0.7.1", "0.7.3"],
        mounts_always: true,
        text: include_str!("remote-vllm.yaml"),
    },
    ShippedDistribution {
        name: "starter",
        image: "docker.io/llamastack/distribution-starter:0.7.1",
        server_version: "0.7.1",
        verified_with: &["0.7.1", "0.7.3"],
        mounts_always: false,
        text: include_str!("starter.yaml"),
    },
    ShippedDistribution {
        name: "starter-gpu",
        image: "docker.io/llamastack/distribution-starter-gpu:0.6.1",
        server_version: "0.6.1",
        verified_with: &["0.6.1"],
        mounts_always: false,
        text: include_str!("starter-gpu.yaml"),
    },
];

pub fn distribution(name: &str) -> Option<&'static ShippedDistribution> {
    DISTRIBUTIONS.iter().find(|known| known.name == name)
}

/// In alphabetical order, for messages that list them.
pub fn names() -> impl Iterator<Item = &'static str> {
    DISTRIBUTIONS.iter().map(|known| known.name)
}

/// Images by name, for settings and status.
pub fn images() -> BTreeMap<String, String> {
    DISTRIBUTIONS.iter().map(|known| (known.name.to_owned(), known.image.to_owned())).collect()
}
