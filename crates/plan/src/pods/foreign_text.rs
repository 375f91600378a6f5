//! The only parser of texts that other programs write about pods. The scheduler reports why no node takes a pod as free text
//! alone (the reason is always `Unschedulable`), and a container's last words are whatever it printed: there is no code to
//! compare. What is read here decides nothing but which advice a person gets.

use super::Unschedulable;

/// Whether a pod has no node because of a volume claim. Schedulers write the kind in lower case or in its own spelling.
pub fn is_about_claim(unscheduled: &str) -> bool {
    unscheduled.to_lowercase().contains("persistentvolumeclaim")
}

pub(super) fn unschedulable(message: &str) -> Unschedulable {
    match is_about_claim(message) {
        true if message.contains("not found") => Unschedulable::ClaimMissing,
        true => Unschedulable::ClaimUnbound,
        false => Unschedulable::NoNode,
    }
}

/// The last line of a container's log. Only this line is meant for people; our own programs begin it with their name.
pub fn last_log_line(log: &str) -> &str {
    let line = log.trim_end().lines().next_back().unwrap_or_default();
    line.strip_prefix("steersman: ").unwrap_or(line)
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
