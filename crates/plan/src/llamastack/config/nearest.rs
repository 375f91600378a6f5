//! Finds the known name that was most likely meant.

/// A name that differs from `written` by typing mistakes, that `written` abbreviates, or that alone begins with it.
pub(super) fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let written = normal(written);
    let by_mistake = known.iter().map(|name| (distance(&written, &normal(name)), *name)).min();
    let allowed = (written.chars().count() / 3).max(1);
    if let Some((_, name)) = by_mistake.filter(|(mistakes, _)| *mistakes <= allowed) {
        return Some(name);
    }
    let initials = |name: &str| -> String { name.split('-').filter_map(|word| word.chars().next()).collect() };
    if let Some(name) = known.iter().find(|name| written.len() > 1 && initials(name) == written) {
        return Some(name);
    }
    let mut longer = known.iter().filter(|name| written.len() > 2 && normal(name).starts_with(&written));
    longer.next().copied().filter(|_| longer.next().is_none())
}

fn normal(name: &str) -> String {
    name.to_lowercase().replace('_', "-")
}

/// Number of characters to add, remove or replace.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, c) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (place, d) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(c != *d);
            diagonal = row[place + 1];
            row[place + 1] = replaced.min(diagonal + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likely_names_are_found() {
        let known = ["vllm", "openai", "model-context-protocol", "tavily-search", "file-search", "file-store"];
        for (written, expected) in [
            ("vlm", Some("vllm")),
            ("Vllm", Some("vllm")),
            ("opneai", Some("openai")),
            ("mcp", Some("model-context-protocol")),
            ("model_context_protocol", Some("model-context-protocol")),
            ("tavily", Some("tavily-search")),
            ("file", None),
            ("tgi", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, &known), expected, "{written}");
        }
    }
}
