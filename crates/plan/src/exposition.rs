//! Parses the samples of the Prometheus text exposition format, one line at a time.

use std::borrow::Cow;

/// Most lines of one response, ten times those of a server with a hundred adapters.
pub const MAX_LINES: usize = 65_536;

/// A response has more lines, or more samples of the metrics that are read, than any real server writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    #[error("the response has more than {MAX_LINES} lines")]
    Lines,
    #[error("the response has more than {0} samples of the metrics that are read")]
    Samples(usize),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sample<'a> {
    pub metric: &'a str,
    labels: Vec<(&'a str, Cow<'a, str>)>,
    /// The number. Absent if it is NaN, infinite or invalid, which is no measurement.
    pub value: Option<f64>,
}

impl Sample<'_> {
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_ref())
    }
}

/// Parses `metric{label="value",…} 1.5 [timestamp]`. None: a comment, an empty line, or another format.
pub fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim();
    let end = line.find(['{', ' ', '\t']).filter(|_| !line.starts_with('#'))?;
    let (metric, rest) = line.split_at(end);
    let (labels, rest) = match rest.trim_start().strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok().filter(|value: &f64| value.is_finite());
    Some(Sample { metric, labels, value })
}

/// The samples of `metrics` in a response, at most `limit`.
pub fn samples<'a>(text: &'a str, metrics: &[&str], limit: usize) -> Result<Vec<Sample<'a>>, TooLarge> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if number == MAX_LINES {
            return Err(TooLarge::Lines);
        }
        let Some(sample) = sample(line).filter(|sample| metrics.contains(&sample.metric)) else { continue };
        if found.len() == limit {
            return Err(TooLarge::Samples(limit));
        }
        found.push(sample);
    }
    Ok(found)
}

type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// The labels up to the closing brace, and the text after it.
fn labels(mut text: &str) -> Option<(Labels<'_>, &str)> {
    let mut labels = Vec::new();
    loop {
        text = text.trim_start_matches([',', ' ', '\t']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once('=')?;
        let (value, rest) = label_value(rest.trim_start().strip_prefix('"')?)?;
        labels.push((name.trim(), value));
        text = rest;
    }
}

/// The value up to the closing quote, unescaped, and the text after the quote.
fn label_value(quoted: &str) -> Option<(Cow<'_, str>, &str)> {
    let plain = quoted.find(['"', '\\'])?;
    if quoted[plain..].starts_with('"') {
        return Some((Cow::Borrowed(&quoted[..plain]), &quoted[plain + 1..]));
    }
    let mut value = quoted[..plain].to_owned();
    let mut chars = quoted[plain..].char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((Cow::Owned(value), &quoted[plain + at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_unescaped() {
        let line = r#"quoted { a = "x \"y\" \\ {},=\n", b="é}" ,} 1e2 1700000000000"#;
        let sample = sample(line).unwrap();
        assert_eq!((sample.metric, sample.value), ("quoted", Some(100.0)));
        assert_eq!(sample.label("a"), Some("x \"y\" \\ {},=\n"));
        assert_eq!(sample.label("b"), Some("é}"));
        assert_eq!(sample.label("c"), None);
    }

    #[test]
    fn value_is_a_finite_number() {
        for (line, value) in
            [("a 1", Some(1.0)), ("a{}\t-2.5", Some(-2.5)), ("a NaN", None), ("a +Inf", None), ("a x", None)]
        {
            assert_eq!(sample(line).unwrap().value, value, "{line}");
        }
    }

    #[test]
    fn response_with_too_much_text_is_refused() {
        let text = "a 1\nb 2\na 3\n";
        let read = |limit| samples(text, &["a"], limit).map(|samples| samples.len());
        assert_eq!((read(2), read(1)), (Ok(2), Err(TooLarge::Samples(1))));
        let comments = "#\n".repeat(MAX_LINES);
        assert_eq!(samples(&comments, &["a"], 1), Ok(vec![]));
        assert_eq!(samples(&format!("{comments}#"), &["a"], 1), Err(TooLarge::Lines));
    }

    #[test]
    fn other_lines_are_no_samples() {
        for line in ["", " ", "# TYPE a gauge", "a", "a{b=\"c\"}", "a{b=\"c} 1", "a{b=c} 1", "a{b} 1", "a{b=\"\\"] {
            assert_eq!(sample(line), None, "{line}");
        }
    }
}
