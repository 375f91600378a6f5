//! Places of fields in the version that an author wrote.
//! Comes in: a message about an object as it is stored, and a table of places; goes out: the same message with the places
//! of the older version, and a word where that one has no such field.

/// Where a field or a section of the newer version stands in the older; the more exact ones first.
pub type Table<'a> = &'a [(&'a str, &'a str)];

/// The message with the places of the older version. `newer` is the other's name.
pub fn in_older(message: &str, table: Table<'_>, newer: &str) -> String {
    let mut said = String::new();
    let mut rest = message;
    while let Some(start) = rest.find("spec.") {
        let (before, from) = rest.split_at(start);
        said.push_str(before);
        let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '[' | ']');
        let end = from.find(|c: char| !inside(c)).unwrap_or(from.len());
        let path = from[..end].trim_end_matches('.');
        // Names that users give may look like paths; those stand in quotes or behind other letters.
        if said.ends_with(|c: char| !c.is_whitespace() && !matches!(c, '(' | '`' | ',')) {
            said.push_str(path);
            rest = &from[path.len()..];
            continue;
        }
        let other = table.iter().find_map(|(from, to)| {
            let rest = path.strip_prefix(from).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']))?;
            Some(format!("{to}{rest}"))
        });
        said.push_str(&other.unwrap_or_else(|| format!("{path} (of {newer})")));
        rest = &from[path.len()..];
    }
    said + rest
}
