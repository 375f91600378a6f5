//! Parses Prometheus' text format as a stream.

use steersman_plan::exposition::{self, MAX_LINES, TooLarge};

use super::response::{Sample, SampleLabels};

/// Limit of a line; longer ones are skipped. Real ones take a hundredth of it.
const MAX_LINE_BYTES: usize = 16 * 1024;

#[derive(Debug, Default)]
pub struct LineParser {
    line: Vec<u8>,
    long: bool,
    /// Lines that have ended. Those after the limit are not parsed.
    lines: usize,
}

impl LineParser {
    pub fn read(&mut self, piece: &[u8], mut take: impl FnMut(Sample)) {
        for byte in piece {
            match byte {
                b'\n' => self.end(&mut take),
                _ if self.line.len() < MAX_LINE_BYTES => self.line.push(*byte),
                _ => self.long = true,
            }
        }
    }

    /// The last line may have no line end. Fails if there were too many lines: the samples are incomplete then.
    pub fn finish(mut self, mut take: impl FnMut(Sample)) -> Result<(), TooLarge> {
        if !self.line.is_empty() {
            self.end(&mut take);
        }
        if self.lines > MAX_LINES { Err(TooLarge::Lines) } else { Ok(()) }
    }

    fn end(&mut self, take: &mut impl FnMut(Sample)) {
        self.lines += 1;
        if self.lines > MAX_LINES {
            self.line.clear();
            return;
        }
        if let Some(sample) = std::str::from_utf8(&self.line).ok().filter(|_| !self.long).and_then(sample) {
            take(sample);
        }
        self.line.clear();
        self.long = false;
    }
}

fn sample(line: &str) -> Option<Sample> {
    let sample = exposition::sample(line)?;
    let label = |name: &str| sample.label(name).unwrap_or_default().to_owned();
    let labels = SampleLabels {
        metric: sample.metric.to_owned(),
        model_name: label("model_name"),
        num_gpu_blocks: label("num_gpu_blocks"),
        block_size: label("block_size"),
        ..SampleLabels::default()
    };
    Some(Sample { labels, value: sample.value, at: 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a b\n# TYPE a gauge\nplain 1\nspaced{ model_name = \"m\" , x=\"\", }\t2.5 1700000000000\r\n\
                        quoted{model_name=\"a \\\"b\\\" \\\\ {},\\n\",block_size=\"16\"} NaN\nbroken{model_name=\"x} 3\nempty\n\
                        last{num_gpu_blocks=\"9\"} 1e2";

    fn read(pieces: &[&[u8]]) -> Vec<Sample> {
        let (mut lines, mut samples) = (LineParser::default(), vec![]);
        for piece in pieces {
            lines.read(piece, |sample| samples.push(sample));
        }
        lines.finish(|sample| samples.push(sample)).unwrap();
        samples
    }

    #[test]
    fn lines_are_read_across_chunk_boundaries() {
        let whole = read(&[TEXT.as_bytes()]);
        let parsed: Vec<_> =
            whole.iter().map(|one| (one.labels.metric.as_str(), one.labels.model_name.as_str(), one.value)).collect();
        assert_eq!(
            parsed,
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
    fn overlong_line_is_skipped() {
        let long = format!("a{{x=\"{}\"}} 1\nb 2\n", "x".repeat(MAX_LINE_BYTES));
        let names: Vec<_> = read(&[long.as_bytes()]).into_iter().map(|one| one.labels.metric).collect();
        assert_eq!(names, ["b"]);
    }

    #[test]
    fn lines_after_limit_are_not_parsed() {
        let (mut lines, mut count) = (LineParser::default(), 0);
        lines.read("a 1\n".repeat(MAX_LINES).as_bytes(), |_| count += 1);
        lines.read(b"a 1\na 1", |_| count += 1);
        assert_eq!((lines.finish(|_| ()), count), (Err(TooLarge::Lines), MAX_LINES));
    }
}
