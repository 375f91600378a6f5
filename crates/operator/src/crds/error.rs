//! The errors of `crds --apply` and `crds --detach`, each with the next step for the user.

use std::time::Duration;

use steersman_api::crds::CrdError;
use steersman_runtime::client::CallError;

use crate::crds::migrate::MigrateError;

#[derive(Debug, thiserror::Error)]
pub enum CrdsError {
    #[error(transparent)]
    Crd(#[from] CrdError),
    #[error("cannot {doing}: {cause}{}", needed(cause, rights))]
    Call { doing: String, rights: &'static str, cause: CallError },
    #[error(
        "{crd} may hold objects stored as {unknown}, a version that Steersman does not know: its own CRD would make them \
         unreadable, so nothing was changed; store those objects in one of {known} with the program that installed the CRD, \
         take {unknown} out of its status.storedVersions, then run this again"
    )]
    UnknownStored { crd: &'static str, unknown: String, known: String },
    #[error("{crd} is written by somebody else at the same time; run this again")]
    Busy { crd: &'static str },
    #[error("{crd} vanished while it was waited for; run this again")]
    Vanished { crd: &'static str },
    #[error(
        "{crd} was applied, but the API server does not take its names: {said}; remove the CRD that has them already"
    )]
    NamesTaken { crd: &'static str, said: String },
    #[error(
        "{crd} was applied, but is not established after {} s (the API server says: {said}); look at it with \
         `kubectl describe crd {crd}`, or wait for longer with --wait SECONDS", limit.as_secs()
    )]
    NotEstablished { crd: &'static str, said: String, limit: Duration },
    #[error("{cause}{}; no CRD was detached", advice(cause))]
    Migrate { cause: MigrateError },
    #[error(
        "{count} objects of {crd} cannot be stored as {storage} ({left}); mend the cause and run this again; \
         no CRD was detached"
    )]
    Left { crd: &'static str, storage: &'static str, count: usize, left: String },
}

pub(crate) fn needed(cause: &CallError, rights: &str) -> String {
    match cause {
        CallError::Answered { code: 403, .. } => {
            format!("; this needs the right to {rights}: run it as an administrator of the cluster")
        }
        _ => String::new(),
    }
}

/// Users who uninstall have often stopped the operator too early, before this command.
fn advice(cause: &MigrateError) -> &'static str {
    match cause {
        MigrateError::NoneConverted { .. }
        | MigrateError::List { cause: CallError::Answered { code: 500.., .. } | CallError::TooSlow { .. }, .. } => {
            "; some objects are stored in an older version and can only be read while the operator converts them: start \
             it, wait until it is ready, and run this again"
        }
        MigrateError::Changed { .. } => "; run this again",
        _ => "",
    }
}
