//! Decides the data of the output ConfigMap, and whether the relay is done, from one observation of the profiler.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use steersman_plan::dynamo::graph::{EARLIER, FINAL, PARETO};

use crate::relay::files::{FileContent, Files, LIMIT};
use crate::relay::pod::{ContainerEnd, ProfilerState};
use crate::relay::status::{self, Status, Verdict, redacted};

pub type Data = BTreeMap<String, String>;

/// Clock skew between the profiler and its node: some runtimes run a container in a virtual machine.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(5);

pub struct Observation<'a> {
    pub files: &'a Files,
    /// Read before the files, which are final if the profiler has ended.
    pub profiler: &'a ProfilerState,
    /// Time since the profiler ended.
    pub over_for: Duration,
    /// Time to wait for its files after the end. A folder on the network may show them late.
    pub patience: Duration,
    pub stopping: bool,
    /// Path for messages.
    pub folder: &'a str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayDecision {
    pub data: Option<Data>,
    pub next: NextStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    Continue,
    /// End once the data is written.
    End(Ending),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The profiler's verdict is delivered, even that it failed: a retry would have the same result.
    Verdict,
    /// The profiler left no verdict, and a retry might.
    NoVerdict,
}

/// Problem with the results, and whether a retry might solve it.
struct ResultProblem {
    text: String,
    ending: Ending,
}

/// Whether the profiler writes no more: it has ended, or has reported a verdict and its end cannot be observed.
pub fn is_over(files: &Files, profiler: &ProfilerState) -> bool {
    profiler.ended().is_some() || (*profiler == ProfilerState::Hidden && files.has_verdict())
}

/// Longest wait for a quota or a policy, and for a right while the profiler's end cannot be observed: hours of profiling are not
/// discarded for a right that is granted late.
pub const MAX_DENIED_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether to stop waiting for the right to write. While the profiler works, the right may still be granted in time for its
/// result; a profiler whose end cannot be observed is no reason to wait for ever.
pub fn is_hopeless(
    denied_for: Option<Duration>,
    over_for: Option<Duration>,
    profiler: &ProfilerState,
    limit: Duration,
) -> bool {
    let waited = match (denied_for, over_for) {
        (Some(denied), Some(over)) => denied.min(over),
        (Some(denied), None) if *profiler == ProfilerState::Hidden => return denied >= MAX_DENIED_WAIT,
        _ => return false,
    };
    waited >= limit
}

pub fn decide(observation: &Observation<'_>) -> RelayDecision {
    let over = is_over(observation.files, observation.profiler);
    let last = over || observation.stopping;
    let next = |ending| if last { NextStep::End(ending) } else { NextStep::Continue };
    let status = observation.files.status().filter(|status| is_fresh(status, observation.profiler));
    let problem = match &status {
        Some(status) if status.verdict == Verdict::Failed => {
            return RelayDecision { data: Some(failed(observation, Some(status), None)), next: next(Ending::Verdict) };
        }
        Some(status) if status.verdict == Verdict::Success => match results(observation, status) {
            Ok(data) => return RelayDecision { data: Some(data), next: next(Ending::Verdict) },
            Err(problem) => problem,
        },
        _ => ResultProblem { text: no_verdict(observation, status.as_ref()), ending: Ending::NoVerdict },
    };
    // The flaw is not the profiler's own verdict: it is reported only when none can follow.
    if over && !observation.stopping && observation.over_for >= observation.patience {
        let data = failed(observation, status.as_ref(), Some(&problem.text));
        return RelayDecision { data: Some(data), next: NextStep::End(problem.ending) };
    }
    let next = if observation.stopping { NextStep::End(Ending::NoVerdict) } else { NextStep::Continue };
    RelayDecision { data: status.as_ref().and_then(progress), next }
}

/// Whether this profiler wrote the status, and not an earlier one that used the same folder.
fn is_fresh(status: &Status, profiler: &ProfilerState) -> bool {
    match profiler {
        ProfilerState::Unknown => false,
        ProfilerState::Hidden => true,
        ProfilerState::Observed(life) if !life.lasting => true,
        ProfilerState::Observed(life) => life.started.is_some_and(|started| {
            // A status without a time is accepted: its author is unknown.
            status
                .written
                .is_none_or(|written| written.saturating_add(MAX_CLOCK_SKEW).is_ok_and(|written| written >= started))
        }),
    }
}

/// None if the status has no phase.
fn progress(status: &Status) -> Option<Data> {
    let phase = status.phase.as_ref()?;
    let mut data = Data::from([("phase".to_owned(), phase.clone())]);
    data.insert("message".to_owned(), status.message.clone().unwrap_or_default());
    Some(data)
}

fn failed(observation: &Observation<'_>, status: Option<&Status>, problem: Option<&str>) -> Data {
    let mut data = status.and_then(progress).unwrap_or_default();
    data.insert("profiler_status".to_owned(), "failed".to_owned());
    let own = || status.and_then(|status| status.error.clone().or_else(|| status.message.clone()));
    if let Some(error) = problem.map(str::to_owned).or_else(own) {
        data.insert("profiler_error".to_owned(), error);
    }
    // The file of an earlier profiler is left out.
    if status.is_some() {
        add(&mut data, status::FILE, observation.files.status.read().map(redacted));
    }
    data
}

fn results(observation: &Observation<'_>, status: &Status) -> Result<Data, ResultProblem> {
    let Observation { files, folder, .. } = observation;
    let manifests: Vec<(&str, &str)> = manifests(files, folder)?;
    let mut data = progress(status).unwrap_or_default();
    data.insert("profiler_status".to_owned(), "success".to_owned());
    let size: usize = manifests.iter().map(|(_, text)| text.len()).sum();
    if size + total(&data) > LIMIT {
        let names: Vec<&str> = manifests.iter().map(|(name, _)| *name).collect();
        let text = format!(
            "{} in {folder}: {size} bytes, more than the {LIMIT} that a ConfigMap can hold; {SMALLER}",
            names.join(" and ")
        );
        return Err(ResultProblem { text, ending: Ending::Verdict });
    }
    data.extend(manifests.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())));
    add(&mut data, status::FILE, files.status.read().map(redacted));
    add(&mut data, PARETO, files.results.get(PARETO).and_then(FileContent::read).map(str::to_owned));
    Ok(data)
}

const SMALLER: &str = "leave out spec.features.planner, or shorten spec.overrides.dgd";

/// The manifest of this protocol, or else all of the earlier one, of which the request chooses.
fn manifests<'a>(files: &'a Files, folder: &str) -> Result<Vec<(&'static str, &'a str)>, ResultProblem> {
    let text = |name| files.results.get(name).unwrap_or(&FileContent::Absent);
    match text(FINAL) {
        FileContent::Read(found) => return Ok(vec![(FINAL, found)]),
        FileContent::Absent => {}
        found => return Err(unusable(FINAL, folder, found)),
    }
    let earlier: Vec<_> = EARLIER.into_iter().filter_map(|name| Some((name, text(name).read()?))).collect();
    if !earlier.is_empty() {
        return Ok(earlier);
    }
    for name in EARLIER {
        if text(name) != &FileContent::Absent {
            return Err(unusable(name, folder, text(name)));
        }
    }
    let text = format!("the profiler reports success, but there is no {FINAL} in {folder}; see its log");
    Err(ResultProblem { text, ending: Ending::NoVerdict })
}

fn unusable(name: &str, folder: &str, found: &FileContent) -> ResultProblem {
    let advice = if matches!(found, FileContent::TooLarge(_)) { SMALLER } else { "see the profiler's log" };
    let why = found.problem().unwrap_or_default();
    ResultProblem { text: format!("{name} in {folder} {why}; {advice}"), ending: Ending::Verdict }
}

/// Adds an optional entry if it fits.
fn add(data: &mut Data, name: &str, text: Option<String>) {
    if let Some(text) = text.filter(|text| text.len() + total(data) <= LIMIT) {
        data.insert(name.to_owned(), text);
    }
}

fn total(data: &Data) -> usize {
    data.values().map(String::len).sum()
}

fn no_verdict(observation: &Observation<'_>, status: Option<&Status>) -> String {
    let how = match observation.profiler.ended() {
        Some(ContainerEnd { code, reason }) if reason.is_empty() => format!("the profiler ended with exit code {code}"),
        Some(ContainerEnd { code, reason }) => format!("the profiler ended with exit code {code} ({reason})"),
        None => "the profiler ended".to_owned(),
    };
    let (file, folder) = (status::FILE, observation.folder);
    let left = match (&observation.files.status, status) {
        (_, Some(Status { verdict: Verdict::None(word), phase, .. })) if !word.is_empty() => {
            let phase = phase.as_ref().map(|phase| format!(" in {phase}")).unwrap_or_default();
            format!("{file} still has status {word:?}{phase}")
        }
        (_, Some(_)) => format!("{file} has no status"),
        (FileContent::Absent, None) => format!("there is no {file} in {folder}"),
        (FileContent::Read(text), None) if status::read(text).is_some() => {
            format!("{file} in {folder} was written by an earlier profiler")
        }
        (FileContent::Read(_), None) => format!("{file} in {folder} cannot be read as YAML"),
        (found, None) => format!("{file} in {folder} {}", found.problem().unwrap_or_default()),
    };
    format!("{how} without a result: {left}; see its log")
}

#[cfg(test)]
mod tests;
