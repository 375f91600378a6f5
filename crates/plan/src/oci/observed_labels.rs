//! Chooses the base of an object, as far as the registry has answered.

use crate::llamastack::config::base::{Base, BaseSource, LabelError, NoBase, Resolved, resolve};

/// The state of reading the labels of an image.
#[derive(Clone, Debug, PartialEq)]
pub enum ObservedLabels {
    /// Reading labels is switched off.
    NotRead,
    /// The first request is in flight; a response or a failure follows within a bounded time.
    Pending,
    Found {
        /// Digest of the image with these labels.
        digest: String,
        base: Result<Option<Base>, LabelError>,
        /// Why the labels may be stale: the registry did not answer when it was asked again.
        remark: Option<String>,
    },
    /// The registry has never answered, for this reason.
    Unavailable { remark: String },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    Use {
        resolved: Resolved,
        /// Reported although there is a base.
        remark: Option<String>,
    },
    /// The running server stays unchanged and a new one waits, for this reason.
    Wait(String),
    /// There is no base, and waiting does not help.
    Nothing(NoBase),
}

/// `name` is the distribution; None: the object names an image. `running` is the source of the server's current
/// configuration; None: it has no generated one.
pub fn choose(name: Option<&str>, seen: &ObservedLabels, running: Option<BaseSource>) -> Choice {
    let used = |labelled, remark: Option<&String>| match resolve(name, labelled) {
        Ok(resolved) => Choice::Use { resolved, remark: remark.cloned() },
        Err(none) => Choice::Nothing(none),
    };
    match seen {
        ObservedLabels::NotRead => used(Ok(None), None),
        ObservedLabels::Pending => Choice::Wait("the labels of the image are being read from its registry".to_owned()),
        ObservedLabels::Found { base, remark, .. } => used(base.clone(), remark.as_ref()),
        // A registry outage must not replace the base of a running server.
        ObservedLabels::Unavailable { remark } if running == Some(BaseSource::OciLabel) => {
            Choice::Wait(format!("{remark}. The server keeps its current configuration until the registry answers"))
        }
        ObservedLabels::Unavailable { remark } => match used(Ok(None), Some(remark)) {
            // The image may have labels, so it is not reported as unlabelled.
            Choice::Nothing(_) => Choice::Wait(format!(
                "{remark}. No configuration can be generated until the registry answers; overrideConfig.configMapName \
                 needs no registry"
            )),
            choice => choice,
        },
    }
}
