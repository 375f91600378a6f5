//! The limit of open files of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Fewer open files cannot hold the connections that the three servers of the process accept, and those to other servers.
const NEEDED: u64 = 4096;

/// Raises the soft limit to the hard one, and reports a limit that is too low for the connections of our servers. Container
/// runtimes start programs with a soft limit of 1,024 files, and expect them to raise it: a process without free files can
/// neither accept connections nor call the API server.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let limit = getrlimit(Resource::Nofile).current;
    if let Some(files) = limit.filter(|files| *files < NEEDED) {
        let cause = raised.err().map(|error| error.to_string());
        tracing::warn!(
            files,
            needed = NEEDED,
            cause,
            "the limit of open files is low; many connections could stop the operator, so raise the hard limit (ulimit -Hn)"
        );
    }
}
