//! Parses the answer to a query as a stream. Only the current sample is held in memory.

use serde::Deserialize;
use serde_json::Value;

/// Limit of one sample; one with long names takes a fiftieth of it.
const LONGEST_SAMPLE: usize = 64 * 1024;
/// Limit of everything around the samples: status, warnings, an error, or a page of another server.
const LONGEST_FRAME: usize = 64 * 1024;
/// `{"data":{"result":[`: samples begin inside three brackets.
const AROUND_SAMPLES: usize = 3;

/// The labels that the queries group by. Others are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Labels {
    #[serde(rename = "__name__")]
    pub metric: String,
    pub namespace: String,
    pub pod: String,
    pub pod_name: String,
    pub instance: String,
    pub model_name: String,
    pub target_model_name: String,
    pub num_gpu_blocks: String,
    pub block_size: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub labels: Labels,
    /// `None` if it is not finite.
    pub value: Option<f64>,
    /// The evaluation time, by Prometheus' clock.
    pub at: f64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The answer is not from Prometheus' API.
    Odd,
    /// Prometheus reports an error in the query.
    Error(String),
    /// Prometheus reports that part of the data could not be read.
    Partial(String),
}

#[derive(Debug, Default)]
pub struct Reader {
    frame: Vec<u8>,
    sample: Vec<u8>,
    depth: usize,
    in_text: bool,
    escaped: bool,
    broken: bool,
}

impl Reader {
    pub fn read(&mut self, piece: &[u8], mut take: impl FnMut(Sample)) {
        for byte in piece {
            self.byte(*byte, &mut take);
        }
    }

    fn byte(&mut self, byte: u8, take: &mut impl FnMut(Sample)) {
        let inside = self.depth > AROUND_SAMPLES;
        let opens = !self.in_text && matches!(byte, b'{' | b'[');
        let closes = !self.in_text && matches!(byte, b'}' | b']');
        if inside || (opens && self.depth == AROUND_SAMPLES) {
            keep(&mut self.sample, byte, LONGEST_SAMPLE, &mut self.broken);
        } else if self.in_text || self.depth != AROUND_SAMPLES || byte != b',' {
            // Without the commas between samples, the rest is still valid JSON.
            let mut cut = false;
            keep(&mut self.frame, byte, LONGEST_FRAME, &mut cut);
        }
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_text => self.escaped = true,
            b'"' => self.in_text = !self.in_text,
            _ if opens => self.depth += 1,
            _ if closes => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        if inside && closes && self.depth == AROUND_SAMPLES {
            match serde_json::from_slice::<Raw>(&self.sample) {
                Ok(raw) => take(Sample { labels: raw.metric, value: number(&raw.value.1), at: raw.value.0 }),
                Err(_) => self.broken = true,
            }
            self.sample.clear();
        }
    }

    /// Checks that the answer was complete.
    pub fn finish(self) -> Result<(), Flaw> {
        let frame: Frame = serde_json::from_slice(&self.frame).map_err(|_| Flaw::Odd)?;
        if frame.status == "error" {
            return Err(Flaw::Error(format!("{}: {}", frame.error_type, frame.error)));
        }
        if self.broken || frame.status != "success" || frame.data["resultType"] != "vector" {
            return Err(Flaw::Odd);
        }
        // VictoriaMetrics sets this if part of its storage did not answer.
        if frame.is_partial {
            return Err(Flaw::Partial("it says isPartial, as a part of its storage did not answer".to_owned()));
        }
        // Older versions put notes about the query itself among the warnings.
        let partial = |warning: &&String| !warning.starts_with("PromQL ");
        frame.warnings.iter().find(partial).map_or(Ok(()), |warning| Err(Flaw::Partial(warning.clone())))
    }
}

fn keep(to: &mut Vec<u8>, byte: u8, most: usize, over: &mut bool) {
    if to.len() < most { to.push(byte) } else { *over = true }
}

#[derive(Deserialize)]
struct Raw {
    metric: Labels,
    value: (f64, String),
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Frame {
    status: String,
    error_type: String,
    error: String,
    data: Value,
    warnings: Vec<String>,
    is_partial: bool,
}

/// Parses a number in Prometheus' notation. `None` if it is not finite.
pub fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{"status":"success","data":{"resultType":"vector","result":[
        {"metric":{"__name__":"a","namespace":"n","pod":"p \"}]{[, \\","other":"x"},"value":[1.5,"0.25"]},
        {"metric":{"model_name":"m"},"value":[2,"NaN"]} , {"metric":{},"value":[2,"+Inf"]}, {"metric":{},"value":[2,"1e3"]}
    ]},"infos":["PromQL info: not a counter"]}"#;

    fn read(pieces: &[&[u8]]) -> (Vec<Sample>, Result<(), Flaw>) {
        let (mut reader, mut samples) = (Reader::default(), vec![]);
        for piece in pieces {
            reader.read(piece, |sample| samples.push(sample));
        }
        (samples, reader.finish())
    }

    #[test]
    fn samples_are_read_across_chunk_boundaries() {
        let (whole, flaw) = read(&[ANSWER.as_bytes()]);
        assert_eq!(flaw, Ok(()));
        let values: Vec<_> = whole.iter().map(|sample| sample.value).collect();
        assert_eq!(values, [Some(0.25), None, None, Some(1000.0)]);
        assert_eq!((whole[0].at, whole[3].at), (1.5, 2.0));
        assert_eq!((whole[0].labels.pod.as_str(), whole[1].labels.model_name.as_str()), ("p \"}]{[, \\", "m"));
        for at in 0..ANSWER.len() {
            let (start, end) = ANSWER.as_bytes().split_at(at);
            assert_eq!(read(&[start, end]), (whole.clone(), Ok(())), "cut at {at}");
        }
        let single: Vec<&[u8]> = ANSWER.as_bytes().chunks(1).collect();
        assert_eq!(read(&single), (whole, Ok(())));
    }

    #[test]
    fn truncated_response_is_an_error() {
        for at in 0..ANSWER.len() {
            assert!(read(&[&ANSWER.as_bytes()[..at]]).1.is_err(), "{at} bytes pass for a whole answer");
        }
    }

    #[test]
    fn invalid_responses_are_distinguished() {
        let partial = r#"{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["PromQL info: x","store s3 is down"]}"#;
        let noted = r#"{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["PromQL info: x"]}"#;
        let half = r#"{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}}"#;
        let whole = r#"{"status":"success","isPartial":false,"data":{"resultType":"vector","result":[]}}"#;
        let scalar = r#"{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}"#;
        let error = r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#;
        let long = format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{"pod":"{}"}},"value":[1,"1"]}}]}}}}"#,
            "x".repeat(LONGEST_SAMPLE)
        );
        for (answer, expected) in [
            ("<html><body>Log in</body></html>", Err(Flaw::Odd)),
            ("", Err(Flaw::Odd)),
            ("{}", Err(Flaw::Odd)),
            ("[[[[[[", Err(Flaw::Odd)),
            ("]]]]", Err(Flaw::Odd)),
            (scalar, Err(Flaw::Odd)),
            (&long, Err(Flaw::Odd)),
            (error, Err(Flaw::Error("bad_data: parse error".to_owned()))),
            (partial, Err(Flaw::Partial("store s3 is down".to_owned()))),
            (half, Err(Flaw::Partial("it says isPartial, as a part of its storage did not answer".to_owned()))),
            (whole, Ok(())),
            (noted, Ok(())),
        ] {
            assert_eq!(read(&[answer.as_bytes()]), (vec![], expected), "{answer:.80}");
        }
    }
}
