//! What the configuration is made from.
//! Comes in: nothing; goes out: the types with which callers say it.

use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;

use super::base::Base;

/// How the spec's providers and those of the base come together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merge {
    /// By provider id: the rest of the base stays.
    #[default]
    Overlay,
    /// By API: nothing of the base stays where the spec has providers.
    Replace,
}

pub struct Input<'a> {
    pub spec: &'a LlamaStackDistributionSpec,
    /// None: there is none, or it is not known here.
    pub base: Option<&'a Base>,
    pub merge: Merge,
    /// Of the containers that run before the server.
    pub operator_image: &'a str,
}
