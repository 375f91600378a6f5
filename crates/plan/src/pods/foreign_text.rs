//! The only parser of texts that other programs write about pods. The scheduler reports why no node takes a pod as free text
//! alone (the reason is always `Unschedulable`), kubelets repeat the cause of a failed pull in a text alone, and the message of
//! a container is whatever it printed: there is no code to compare. The result decides which text a person reads, and when it is written
//! again.

use std::collections::BTreeSet;

use super::Unschedulable;

const MAX_CHARS: usize = 600;
/// Number of hexadecimal digits in a row from which they are an id.
const MIN_ID_DIGITS: usize = 32;

pub(super) fn unschedulable(message: &str) -> Unschedulable {
    match is_about_claim(message) {
        true if message.contains("not found") => Unschedulable::ClaimMissing,
        true => Unschedulable::ClaimUnbound,
        false => Unschedulable::NoNode,
    }
}

/// Schedulers write the kind in lower case or in its own spelling.
fn is_about_claim(unscheduled: &str) -> bool {
    unscheduled.to_lowercase().contains("persistentvolumeclaim")
}

/// The reasons why no node fits the pod. Numbers of nodes are removed, because they change as nodes come and go.
pub(super) fn scheduling_cause(message: &str) -> String {
    let now = message.split(" preemption:").next().unwrap_or_default();
    let Some((_, lacks)) = now.split_once("nodes are available: ") else { return steady(now) };
    let kinds: BTreeSet<&str> = lacks
        .trim_end_matches('.')
        .split(", ")
        .map(|lack| lack.trim_start_matches(|c: char| c.is_ascii_digit()).trim())
        .filter(|lack| !lack.is_empty())
        .collect();
    steady(&kinds.into_iter().collect::<Vec<_>>().join(", "))
}

/// `Back-off pulling image "x": ErrImagePull: not found` and `not found` are the same cause.
pub(super) fn pull_cause(message: &str) -> String {
    let cause = match message.strip_prefix("Back-off pulling image ") {
        Some(rest) => rest.split_once(": ").map_or("", |(_, cause)| cause),
        None => message,
    };
    steady(cause.strip_prefix("ErrImagePull: ").unwrap_or(cause))
}

/// The error that ended an init container: everything from the last line on that begins one, because an installation prints
/// the output of pip before it.
pub(super) fn final_error(log: &str) -> String {
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let begins =
        |line: &&str| ["external provider ", "steersman: ", "ERROR: "].iter().any(|start| line.starts_with(start));
    let start = lines.iter().rposition(begins).unwrap_or(lines.len().saturating_sub(1));
    steady(&lines[start..].join(" "))
}

/// The last line of a container's log. Only this line is meant for people; our own programs begin it with their name.
pub fn last_log_line(log: &str) -> &str {
    let line = log.trim_end().lines().next_back().unwrap_or_default();
    line.strip_prefix("steersman: ").unwrap_or(line)
}

/// Removes query strings of URLs, ids of containers and line breaks, and truncates the text.
pub(super) fn steady(message: &str) -> String {
    let word = |word: &str| {
        let word = match word.split_once('?') {
            Some((address, _)) if address.contains("://") => address,
            _ => word,
        };
        let is_id = |part: &&str| part.len() >= MIN_ID_DIGITS && part.chars().all(|c| c.is_ascii_hexdigit());
        let id = word.split(|c: char| !c.is_ascii_alphanumeric()).find(is_id);
        // The digest of an image is part of its name.
        id.filter(|_| !word.contains("sha256:")).map_or_else(|| word.to_owned(), |id| word.replace(id, "…"))
    };
    let text = message.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    let text = text.trim_end_matches(['.', ':', ' ']);
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduler_texts_name_missing_and_unbound_claims() {
        for (message, expected) in [
            ("persistentvolumeclaim \"x\" not found", Unschedulable::ClaimMissing),
            ("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.", Unschedulable::ClaimUnbound),
            ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", Unschedulable::NoNode),
        ] {
            assert_eq!(unschedulable(message), expected, "{message}");
        }
    }

    #[test]
    fn last_log_line_drops_program_name() {
        assert_eq!(last_log_line("{\"level\":\"WARN\"}\nsteersman: gave up\n"), "gave up");
        assert_eq!(last_log_line(""), "");
    }
}
