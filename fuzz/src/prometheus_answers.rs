//! The answer of a Prometheus to a query, in pieces of any size.

use serde_json::Value;
use steersman::variant::prometheus::response::{ResponseError, ResponseParser, Sample};

pub fn check(data: &[u8]) {
    let whole = parse(&[data]);
    let (start, end) = data.split_at(data.first().map_or(0, |first| usize::from(*first) % (data.len() + 1)));
    assert_eq!(parse(&[start, end]), whole, "the result depends on the pieces");
    assert_eq!(parse(&data.chunks(7).collect::<Vec<_>>()), whole, "the result depends on the pieces");
    let (samples, result) = whole;
    for sample in &samples {
        assert!(sample.value.is_none_or(f64::is_finite) && sample.at.is_finite());
    }
    match result {
        Ok(()) => check_count(data, samples.len()),
        Err(ResponseError::Error(text) | ResponseError::Partial(text)) => assert!(text.len() <= data.len() * 3 + 100),
        Err(ResponseError::NotPrometheus) => {}
    }
}

fn parse(pieces: &[&[u8]]) -> (Vec<Sample>, Result<(), ResponseError>) {
    let (mut parser, mut samples) = (ResponseParser::default(), Vec::new());
    for piece in pieces {
        parser.read(piece, |sample| samples.push(sample));
    }
    (samples, parser.finish())
}

/// An accepted answer has as many samples as its list has entries: a missing sample would lower a number.
fn check_count(data: &[u8], samples: usize) {
    let Ok(answer) = serde_json::from_slice::<Value>(data) else { return };
    let keys = |name: &str| data.windows(name.len()).filter(|window| *window == name.as_bytes()).count();
    // Of a repeated field, JSON parsers keep the last value.
    let unambiguous = keys("\"result\"") == 1 && keys("\"data\"") == 1 && keys("\\u") == 0;
    if let Some(listed) = answer["data"]["result"].as_array().filter(|_| unambiguous) {
        assert_eq!(samples, listed.len());
    }
}
