//! Metrics as a server itself writes them.
//! Comes in: pieces of Prometheus' text format, cut anywhere; goes out: one sample after the other.

use super::answer::{Labels, Sample, number};

/// Real ones are a hundredth of this; what is longer is passed over.
const LONGEST_LINE: usize = 16 * 1024;

#[derive(Debug, Default)]
pub struct Lines {
    line: Vec<u8>,
    long: bool,
}

impl Lines {
    pub fn read(&mut self, piece: &[u8], mut take: impl FnMut(Sample)) {
        for byte in piece {
            match byte {
                b'\n' => self.end(&mut take),
                _ if self.line.len() < LONGEST_LINE => self.line.push(*byte),
                _ => self.long = true,
            }
        }
    }

    /// After the last piece: a last line need not end.
    pub fn finish(mut self, mut take: impl FnMut(Sample)) {
        self.end(&mut take);
    }

    fn end(&mut self, take: &mut impl FnMut(Sample)) {
        if let Some(sample) = std::str::from_utf8(&self.line).ok().filter(|_| !self.long).and_then(sample) {
            take(sample);
        }
        self.line.clear();
        self.long = false;
    }
}

/// `name{label="value",…} 1.5 [time]`.
fn sample(line: &str) -> Option<Sample> {
    let line = line.trim();
    let end = line.find(['{', ' ', '\t']).filter(|_| !line.starts_with('#'))?;
    let (metric, mut rest) = line.split_at(end);
    let mut labels = Labels { metric: metric.to_owned(), ..Labels::default() };
    if let Some(mut inside) = rest.strip_prefix('{') {
        loop {
            inside = inside.trim_start_matches([',', ' ', '\t']);
            if let Some(after) = inside.strip_prefix('}') {
                rest = after;
                break;
            }
            let (name, after) = inside.split_once('=')?;
            let (value, after) = text(after.trim_start().strip_prefix('"')?)?;
            keep(&mut labels, name.trim(), value);
            inside = after;
        }
    }
    let value = number(rest.split_whitespace().next()?);
    Some(Sample { labels, value, at: 0.0 })
}

/// Up to the closing quote, and what follows it.
fn text(quoted: &str) -> Option<(String, &str)> {
    let (mut out, mut chars) = (String::new(), quoted.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, &quoted[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => out.push('\n'),
                other => out.push(other),
            },
            other => out.push(other),
        }
    }
    None
}

fn keep(labels: &mut Labels, name: &str, value: String) {
    match name {
        "model_name" => labels.model_name = value,
        "num_gpu_blocks" => labels.num_gpu_blocks = value,
        "block_size" => labels.block_size = value,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a b\n# TYPE a gauge\nplain 1\nspaced{ model_name = \"m\" , x=\"\", }\t2.5 1700000000000\r\n\
                        quoted{model_name=\"a \\\"b\\\" \\\\ {},\\n\",block_size=\"16\"} NaN\nbroken{model_name=\"x} 3\nempty\n\
                        last{num_gpu_blocks=\"9\"} 1e2";

    fn read(pieces: &[&[u8]]) -> Vec<Sample> {
        let (mut lines, mut samples) = (Lines::default(), vec![]);
        for piece in pieces {
            lines.read(piece, |sample| samples.push(sample));
        }
        lines.finish(|sample| samples.push(sample));
        samples
    }

    #[test]
    fn lines_are_read_however_the_text_is_cut() {
        let whole = read(&[TEXT.as_bytes()]);
        let told: Vec<_> =
            whole.iter().map(|one| (one.labels.metric.as_str(), one.labels.model_name.as_str(), one.value)).collect();
        assert_eq!(
            told,
            [
                ("plain", "", Some(1.0)),
                ("spaced", "m", Some(2.5)),
                ("quoted", "a \"b\" \\ {},\n", None),
                ("last", "", Some(100.0)),
            ]
        );
        for at in 0..TEXT.len() {
            let (start, end) = TEXT.as_bytes().split_at(at);
            assert_eq!(read(&[start, end]), whole, "cut at {at}");
        }
    }

    #[test]
    fn a_line_without_end_is_passed_over() {
        let long = format!("a{{x=\"{}\"}} 1\nb 2\n", "x".repeat(LONGEST_LINE));
        let names: Vec<_> = read(&[long.as_bytes()]).into_iter().map(|one| one.labels.metric).collect();
        assert_eq!(names, ["b"]);
    }
}
