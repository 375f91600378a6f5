//! The errors of `crds --apply` and `crds --detach`, each with the next step for the user.

use std::time::Duration;

use steersman_api::crds::CrdError;
use steersman_runtime::client::CallError;

use crate::crds::migrate::MigrateError;

#[derive(Debug, thiserror::Error)]
pub enum CrdsError {
    #[error(transparent)]
    Crd(#[from] CrdError),
    #[error("cannot {doing}: {cause}{}", permission_hint(cause, permissions))]
    Call { doing: String, permissions: &'static str, cause: CallError },
    #[error(
        "{crd} may have objects stored as {unknown}, a version that Steersman does not support. Its CRD would make them \
         unreadable, so this CRD was not changed. Store those objects as one of {known} with the program that installed the CRD, \
         remove {unknown} from status.storedVersions of the CRD, then run this command again"
    )]
    UnknownStored { crd: &'static str, unknown: String, known: String },
    #[error("another program kept changing {crd} at the same time; run this command again")]
    Busy { crd: &'static str },
    #[error("{crd} was deleted before it was established; run this command again")]
    Vanished { crd: &'static str },
    #[error(
        "{crd} was applied, but the API server does not accept its names: {answer}; remove the other CRD that has them"
    )]
    NamesTaken { crd: &'static str, answer: String },
    #[error(
        "{crd} was applied, but is not established after {} s. The API server reports: {answer}. See `kubectl describe crd \
         {crd}`, or wait longer with --wait SECONDS", limit.as_secs()
    )]
    NotEstablished { crd: &'static str, answer: String, limit: Duration },
    #[error("{cause}{}; no CRD was detached", advice(cause))]
    Migrate { cause: MigrateError },
    #[error(
        "{count} objects of {crd} cannot be stored as {storage}: {examples}. No CRD was detached. Fix the cause and run this \
         command again"
    )]
    Incomplete { crd: &'static str, storage: &'static str, count: usize, examples: String },
}

/// The end of a message about a call that was forbidden.
pub(crate) fn permission_hint(cause: &CallError, permissions: &str) -> String {
    match cause {
        CallError::Answered { code: 403, .. } => {
            format!("; this command needs permission to {permissions}: run it as a cluster administrator")
        }
        _ => String::new(),
    }
}

/// Users who uninstall have often stopped the operator too early, before this command.
fn advice(cause: &MigrateError) -> &'static str {
    match cause {
        MigrateError::NoneConverted { .. }
        | MigrateError::List { cause: CallError::Answered { code: 500.., .. } | CallError::TooSlow { .. }, .. } => {
            "; some objects are stored in an older version and can be read only while the operator converts them: start \
             it, wait until it is ready, and run this command again"
        }
        MigrateError::Changed { .. } => "; run this command again",
        _ => "",
    }
}
