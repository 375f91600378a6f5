//! What the applier is asked for.
//! Comes in: the plan of any family; goes out: its writes in the words that all of them share.

use kube::core::GroupVersionKind;
use serde_json::Value;
use steersman_plan::{Finding, Plan, Write, dynamo};

/// One write.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// An object that the owner controls.
    Child(&'a Write),
    /// An object that the owner must not own: it is shared, or outlives the owner. It is known by its labels.
    Free(&'a Write),
    /// A merge patch of the owner itself, against the version that was seen.
    Own(&'a Value),
    /// An object that stands in the way, by the UID that was seen. With a version: only as it was seen.
    Remove { kind: &'a GroupVersionKind, name: &'a str, uid: &'a str, version: Option<&'a str> },
}

/// A family's plan, as far as the applier looks at it.
pub trait Planned {
    /// In order: a later write may rely on an earlier one.
    fn writes(&self) -> Vec<Asked<'_>>;

    /// Kinds of which the owner has no other children than those in the writes.
    fn sweep(&self) -> &[GroupVersionKind] {
        &[]
    }

    fn findings(&self) -> &[Finding];
}

impl Planned for Plan {
    fn writes(&self) -> Vec<Asked<'_>> {
        self.writes.iter().map(Asked::Child).collect()
    }

    fn sweep(&self) -> &[GroupVersionKind] {
        &self.sweep
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

impl Planned for dynamo::Plan {
    fn writes(&self) -> Vec<Asked<'_>> {
        let asked = self.writes.iter().map(|write| match write {
            dynamo::Write::Child(write) => Asked::Child(write),
            dynamo::Write::Free(write) => Asked::Free(write),
            dynamo::Write::Request(patch) => Asked::Own(patch),
            dynamo::Write::Remove { kind, name, uid, version } => {
                Asked::Remove { kind, name, uid, version: version.as_deref() }
            }
        });
        asked.collect()
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }
}
