//! Metrics in Prometheus' text format, of a model server or of a DCGM exporter.

use steersman::variant::prometheus::response::Sample;
use steersman::variant::prometheus::text_format::LineParser;
use steersman_plan::dynamo::hardware::dcgm;
use steersman_plan::exposition;

/// Largest memory of a GPU that is believed, in MiB.
const MAX_GPU_MEMORY_MIB: i64 = 1_000_000_000_000;

pub fn check(data: &[u8]) {
    let whole = parse(&[data]);
    assert_eq!(parse(&data.chunks(5).collect::<Vec<_>>()), whole, "the result depends on the pieces");
    let lines = data.split(|byte| *byte == b'\n').count();
    assert!(whole.len() <= lines);
    assert!(whole.iter().all(|sample| sample.value.is_none_or(f64::is_finite)));
    let Ok(text) = std::str::from_utf8(data) else { return };
    for line in text.lines() {
        if let Some(sample) = exposition::sample(line) {
            assert!(!sample.metric.contains(['{', ' ', '\t']) && !sample.metric.starts_with('#'), "{line}");
        }
    }
    if let Ok(Some(gpus)) = dcgm::read("node", text) {
        assert_eq!(gpus.node, "node", "an exporter names another node");
        assert!(gpus.count > 0 && usize::try_from(gpus.count).is_ok_and(|count| count <= lines), "{gpus:?}");
        assert!((1..=MAX_GPU_MEMORY_MIB).contains(&gpus.memory), "{gpus:?}");
        assert!(gpus.model.len() <= data.len());
    }
}

fn parse(pieces: &[&[u8]]) -> Vec<Sample> {
    let (mut parser, mut samples) = (LineParser::default(), Vec::new());
    for piece in pieces {
        parser.read(piece, |sample| samples.push(sample));
    }
    let _ = parser.finish(|sample| samples.push(sample));
    samples
}
