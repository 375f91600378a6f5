//! Parses the answer to a query as a stream. Only the current sample is held in memory.

use serde::Deserialize;
use serde_json::Value;

/// Limit of one sample; one with long names takes a fiftieth of it.
const MAX_SAMPLE_BYTES: usize = 64 * 1024;
/// Limit of everything around the samples: status, warnings, an error, or a page of another server.
const MAX_ENVELOPE_BYTES: usize = 64 * 1024;
/// Longer names are cut; the parser looks for shorter ones.
const MAX_FIELD_NAME_BYTES: usize = 16;
/// `{"data":{"result":[`: samples begin inside three brackets.
const SAMPLE_DEPTH: usize = 3;

/// The labels that the queries group by. Others are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SampleLabels {
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
    pub labels: SampleLabels,
    /// `None` if it is not finite.
    pub value: Option<f64>,
    /// The evaluation time, by Prometheus' clock.
    pub at: f64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseError {
    /// The answer is not from Prometheus' API.
    NotPrometheus,
    /// Prometheus reports an error in the query.
    Error(String),
    /// Prometheus reports that part of the data could not be read.
    Partial(String),
}

#[derive(Debug, Default)]
pub struct ResponseParser {
    envelope: Vec<u8>,
    sample: Vec<u8>,
    depth: usize,
    in_text: bool,
    escaped: bool,
    /// The last string inside one or two brackets, with the quote that ends it. It names a field if a colon follows.
    field: Vec<u8>,
    in_data: bool,
    is_result: bool,
    /// Whether the parser is between the brackets of `data.result`. Other lists belong to the envelope.
    in_result: bool,
    had_result: bool,
    broken: bool,
}

impl ResponseParser {
    pub fn read(&mut self, piece: &[u8], mut take: impl FnMut(Sample)) {
        for byte in piece {
            self.byte(*byte, &mut take);
        }
    }

    fn byte(&mut self, byte: u8, take: &mut impl FnMut(Sample)) {
        let inside = self.in_result && self.depth > SAMPLE_DEPTH;
        let between = self.in_result && self.depth == SAMPLE_DEPTH;
        let opens = !self.in_text && matches!(byte, b'{' | b'[');
        let closes = !self.in_text && matches!(byte, b'}' | b']');
        if inside || (opens && between) {
            push_bounded(&mut self.sample, byte, MAX_SAMPLE_BYTES, &mut self.broken);
        } else if self.in_text || !between || byte != b',' {
            // Without the commas between samples, the rest is still valid JSON.
            let mut cut = false;
            push_bounded(&mut self.envelope, byte, MAX_ENVELOPE_BYTES, &mut cut);
        }
        if self.depth < SAMPLE_DEPTH {
            self.read_field_name(byte);
        }
        if byte == b'[' && opens && self.depth + 1 == SAMPLE_DEPTH && self.in_data && self.is_result {
            self.in_result = true;
            // JSON parsers keep the last of several lists.
            self.broken |= std::mem::replace(&mut self.had_result, true);
        }
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_text => self.escaped = true,
            b'"' => self.in_text = !self.in_text,
            _ if opens => self.depth += 1,
            _ if closes => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        if inside && closes && self.depth == SAMPLE_DEPTH {
            match serde_json::from_slice::<RawSample>(&self.sample) {
                Ok(raw) => take(Sample { labels: raw.metric, value: number(&raw.value.1), at: raw.value.0 }),
                Err(_) => self.broken = true,
            }
            self.sample.clear();
        }
        self.in_result &= self.depth >= SAMPLE_DEPTH;
    }

    /// Follows the names of the fields outside of samples.
    fn read_field_name(&mut self, byte: u8) {
        match byte {
            b'"' if !self.in_text => self.field.clear(),
            _ if self.in_text => {
                let mut cut = false;
                push_bounded(&mut self.field, byte, MAX_FIELD_NAME_BYTES, &mut cut);
            }
            b':' if self.depth == 1 => self.in_data = self.field == b"data\"",
            b':' => self.is_result = self.field == b"result\"",
            _ => {}
        }
    }

    /// Checks that the answer was complete.
    pub fn finish(self) -> Result<(), ResponseError> {
        let envelope: Envelope = serde_json::from_slice(&self.envelope).map_err(|_| ResponseError::NotPrometheus)?;
        if envelope.status == "error" {
            return Err(ResponseError::Error(format!("{}: {}", envelope.error_type, envelope.error)));
        }
        if self.broken || envelope.status != "success" || envelope.data["resultType"] != "vector" {
            return Err(ResponseError::NotPrometheus);
        }
        // A name with an escape is not recognised, and its samples are still here.
        if envelope.data["result"].as_array().is_some_and(|unread| !unread.is_empty()) {
            return Err(ResponseError::NotPrometheus);
        }
        // VictoriaMetrics sets this if part of its storage did not answer.
        if envelope.is_partial {
            return Err(ResponseError::Partial(
                "isPartial is set, because part of its storage did not answer".to_owned(),
            ));
        }
        // Older versions put notes about the query itself among the warnings.
        let partial = |warning: &&String| !warning.starts_with("PromQL ");
        envelope.warnings.iter().find(partial).map_or(Ok(()), |warning| Err(ResponseError::Partial(warning.clone())))
    }
}

fn push_bounded(to: &mut Vec<u8>, byte: u8, max: usize, exceeded: &mut bool) {
    if to.len() < max { to.push(byte) } else { *exceeded = true }
}

#[derive(Deserialize)]
struct RawSample {
    metric: SampleLabels,
    value: (f64, String),
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Envelope {
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

    fn read(pieces: &[&[u8]]) -> (Vec<Sample>, Result<(), ResponseError>) {
        let (mut reader, mut samples) = (ResponseParser::default(), vec![]);
        for piece in pieces {
            reader.read(piece, |sample| samples.push(sample));
        }
        (samples, reader.finish())
    }

    #[test]
    fn samples_are_read_across_chunk_boundaries() {
        let (whole, error) = read(&[ANSWER.as_bytes()]);
        assert_eq!(error, Ok(()));
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
            assert!(read(&[&ANSWER.as_bytes()[..at]]).1.is_err(), "{at} bytes must not be a whole answer");
        }
    }

    #[test]
    fn only_entries_of_data_result_are_samples() {
        let sample = r#"{"metric":{"pod":"p"},"value":[1,"1"]}"#;
        let answer = |data: &str, more: &str| {
            let text = format!(r#"{{"status":"success","data":{{"resultType":"vector",{data}}}{more}}}"#);
            let (samples, result) = read(&[text.as_bytes()]);
            result.map(|()| samples.len())
        };
        let list = format!(r#""result":[{sample},{sample}]"#);
        assert_eq!(answer(&list, ""), Ok(2));
        assert_eq!(answer(&list, &format!(r#","other":{{{list},"x":["result",1,{{"result":2}}]}}"#)), Ok(2));
        assert_eq!(answer(&format!(r#"{list},"stats":{{"timings":{{"a":1}},"samples":[{sample}]}}"#), ""), Ok(2));
        assert_eq!(answer(&format!(r#""stats":[{sample}],"result":[]"#), ""), Ok(0));
        assert_eq!(answer(&format!(r#""re\u0073ult":[{sample}]"#), ""), Err(ResponseError::NotPrometheus));
        assert_eq!(answer(&format!("{list},{list}"), ""), Err(ResponseError::NotPrometheus));
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
            "x".repeat(MAX_SAMPLE_BYTES)
        );
        for (answer, expected) in [
            ("<html><body>Log in</body></html>", Err(ResponseError::NotPrometheus)),
            ("", Err(ResponseError::NotPrometheus)),
            ("{}", Err(ResponseError::NotPrometheus)),
            ("[[[[[[", Err(ResponseError::NotPrometheus)),
            ("]]]]", Err(ResponseError::NotPrometheus)),
            (scalar, Err(ResponseError::NotPrometheus)),
            (&long, Err(ResponseError::NotPrometheus)),
            (error, Err(ResponseError::Error("bad_data: parse error".to_owned()))),
            (partial, Err(ResponseError::Partial("store s3 is down".to_owned()))),
            (
                half,
                Err(ResponseError::Partial("isPartial is set, because part of its storage did not answer".to_owned())),
            ),
            (whole, Ok(())),
            (noted, Ok(())),
        ] {
            assert_eq!(read(&[answer.as_bytes()]), (vec![], expected), "{answer:.80}");
        }
    }
}
