//! Which base counts, given how far the registry has answered.
//! Comes in: what is known of an image's labels and where the running configuration came from; goes out: the base to use,
//! or why nothing is to be changed yet.

use crate::llamastack::config::base::{Base, LabelError, NoBase, Resolved, Source, resolve};

/// What is known of the labels of an image.
#[derive(Clone, Debug, PartialEq)]
pub enum LabelsSeen {
    /// Looking at labels is switched off.
    NotAsked,
    /// The registry is being asked for the first time; an answer or its absence follows within a bounded time.
    Awaited,
    Found {
        /// Of the image that the labels belong to.
        digest: String,
        base: Result<Option<Base>, LabelError>,
        /// Why this may no longer be the newest: the registry did not answer when it was asked again.
        remark: Option<String>,
    },
    /// The registry has never answered; why.
    Silent { remark: String },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    Use {
        resolved: Resolved,
        /// Worth telling, though there is a base.
        remark: Option<String>,
    },
    /// What runs stays as it is, and what does not run yet waits; why.
    Wait(String),
    /// There is no base, and waiting will not bring one.
    Nothing(NoBase),
}

/// The base for a distribution's name (None: the object names an image). `running` is the source of the configuration that
/// the object's server has now; None: it has no generated one.
pub fn choose(name: Option<&str>, seen: &LabelsSeen, running: Option<Source>) -> Choice {
    let used = |labelled, remark: Option<&String>| match resolve(name, labelled) {
        Ok(resolved) => Choice::Use { resolved, remark: remark.cloned() },
        Err(none) => Choice::Nothing(none),
    };
    match seen {
        LabelsSeen::NotAsked => used(Ok(None), None),
        LabelsSeen::Awaited => Choice::Wait("the labels of the image are being read from its registry".to_owned()),
        LabelsSeen::Found { base, remark, .. } => used(base.clone(), remark.as_ref()),
        // A registry that is down must not exchange the base under a running server for another.
        LabelsSeen::Silent { remark } if running == Some(Source::OciLabel) => {
            Choice::Wait(format!("{remark}. The server keeps the configuration that it has until the registry answers"))
        }
        LabelsSeen::Silent { remark } => match used(Ok(None), Some(remark)) {
            // Whether this image carries labels is not known: to say that it has none would be a guess.
            Choice::Nothing(_) => Choice::Wait(format!(
                "{remark}. Nothing can be generated until the registry answers; overrideConfig.configMapName needs no registry"
            )),
            choice => choice,
        },
    }
}
