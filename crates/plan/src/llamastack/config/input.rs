//! What the configuration is made from.
//! Comes in: nothing; goes out: the types with which callers say it.

use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;

use super::base::Base;

/// How providers of the spec are merged with those of the base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merge {
    /// By provider id: other entries of the base stay.
    #[default]
    Overlay,
    /// By API: no entry of the base stays if the spec has providers of the API.
    Replace,
}

pub struct Input<'a> {
    pub spec: &'a LlamaStackDistributionSpec,
    /// None: there is no base, or it is unknown.
    pub base: Option<&'a Base>,
    pub merge: Merge,
    /// Image of the init containers.
    pub operator_image: &'a str,
}
