//! The flags of leader election, accepted only if the renew deadline is shorter than the lease duration.

use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use steersman_runtime::leader::Timing;

#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Leader election")]
struct ElectionFlags {
    /// Time without a renewal after which another replica takes the Lease, in seconds. After a crash of the leader, no
    /// replica reconciles for up to this time
    #[arg(long = "lease-duration", value_name = "SECONDS", default_value = "15", value_parser = lease)]
    lease: Duration,
    /// Time after its last renewal at which the leader stops, in seconds, for example if the API server does not respond;
    /// shorter than --lease-duration, so that it stops before another replica starts
    #[arg(long = "renew-deadline", value_name = "SECONDS", default_value = "10", value_parser = deadline)]
    deadline: Duration,
}

/// Flags that have passed the check.
#[derive(Clone, Copy, Debug)]
pub struct ElectionArgs(ElectionFlags);

impl ElectionArgs {
    pub fn timing(self) -> Timing {
        let Self(ElectionFlags { lease, deadline }) = self;
        Timing { lease, deadline, ..Timing::default() }
    }

    fn checked(flags: ElectionFlags) -> Result<Self, Error> {
        let ElectionFlags { lease, deadline } = flags;
        if deadline < lease {
            return Ok(Self(flags));
        }
        let message = format!(
            "--renew-deadline {} is not shorter than --lease-duration {}: two replicas could reconcile at once; give a shorter \
             --renew-deadline or a longer --lease-duration",
            deadline.as_secs(),
            lease.as_secs()
        );
        Err(Error::raw(ErrorKind::ValueValidation, message))
    }
}

impl FromArgMatches for ElectionArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Self::checked(ElectionFlags::from_arg_matches(matches)?)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        let mut flags = self.0;
        flags.update_from_arg_matches(matches)?;
        *self = Self::checked(flags)?;
        Ok(())
    }
}

impl Args for ElectionArgs {
    fn augment_args(command: Command) -> Command {
        ElectionFlags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        ElectionFlags::augment_args_for_update(command)
    }
}

fn lease(given: &str) -> Result<Duration, String> {
    seconds(given, 4)
}

/// Parses the renew deadline. The leader renews every two seconds, and one renewal must fit in.
fn deadline(given: &str) -> Result<Duration, String> {
    seconds(given, 3)
}

fn seconds(given: &str, least: u64) -> Result<Duration, String> {
    match given.parse() {
        Ok(seconds) if (least..=3600).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("give a whole number of seconds from {least} to 3600")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct ElectionLine {
        #[command(flatten)]
        election: ElectionArgs,
    }

    fn timing(flags: &str) -> Result<Timing, String> {
        let line = ElectionLine::try_parse_from([&["run"], &flags.split_whitespace().collect::<Vec<_>>()[..]].concat());
        line.map(|line| line.election.timing()).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_set_election_timing() {
        let seconds =
            |flags| timing(flags).map(|timing| [timing.lease, timing.deadline, timing.retry].map(|t| t.as_secs()));
        assert_eq!(seconds(""), Ok([15, 10, 2]), "as client-go has it");
        assert_eq!(seconds("--lease-duration 120 --renew-deadline 100"), Ok([120, 100, 2]));
        assert_eq!(seconds("--lease-duration 4 --renew-deadline 3"), Ok([4, 3, 2]));
    }

    #[test]
    fn renew_deadline_must_be_below_lease_duration() {
        for (flags, expected) in [
            (
                "--renew-deadline 15",
                "--renew-deadline 15 is not shorter than --lease-duration 15: two replicas could reconcile",
            ),
            (
                "--lease-duration 5",
                "--renew-deadline 10 is not shorter than --lease-duration 5: two replicas could reconcile",
            ),
            ("--lease-duration 3 --renew-deadline 3", "give a whole number of seconds from 4 to 3600"),
            ("--renew-deadline 2", "give a whole number of seconds from 3 to 3600"),
            ("--lease-duration 3601", "give a whole number of seconds from 4 to 3600"),
            ("--lease-duration 15s", "give a whole number of seconds from 4 to 3600"),
        ] {
            let error = timing(flags).unwrap_err();
            assert!(error.contains(expected), "{flags}: {error}");
        }
    }
}
