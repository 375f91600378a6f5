//! What DCGM exporters tell of GPUs.
//! Comes in: the metrics of one as text, and what was read of all; goes out: the GPUs of each node, or why nothing is known.

use std::collections::{BTreeMap, BTreeSet};

use steersman_reconcile::Lookup;

use super::{Gpus, HardwareSeen};

const TEMPERATURE: &str = "DCGM_FI_DEV_GPU_TEMP";
/// Their sum is the memory of a GPU.
const MEMORY: [&str; 3] = ["DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED"];
const LINKS: &str = "DCGM_FI_DEV_NVLINK_LINK_COUNT";

/// How many exporters that do not answer are named: there is one on every node, and most have the same trouble.
const NAMED: usize = 3;

/// One exporter that answers is enough.
pub fn gpus(seen: &HardwareSeen) -> Result<Vec<Gpus>, String> {
    let exporters = match &seen.exporters {
        Lookup::Known(exporters) => exporters,
        Lookup::Unknown(why) => return Err(format!("listing DCGM exporter pods failed: list pods: {why}")),
    };
    if exporters.is_empty() {
        return Err(if seen.gpu_operator {
            "DCGM is not enabled in the GPU Operator (check GPU Operator configuration and permissions)".to_owned()
        } else {
            "gpu operator is not installed gpu-operator".to_owned()
        });
    }
    let failures: Vec<&str> = exporters
        .iter()
        .filter_map(|exporter| match &exporter.gpus {
            Lookup::Known(_) => None,
            Lookup::Unknown(why) => Some(why.as_str()),
        })
        .collect();
    if failures.len() == exporters.len() {
        let named = failures.iter().take(NAMED).copied().collect::<Vec<_>>().join("; ");
        let more = match failures.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(", and {more} more like these"),
        };
        return Err(format!("failed to scrape any DCGM exporter pod: [{named}{more}]"));
    }
    // Where two exporters run on a node, both tell of the same GPUs.
    let mut found: BTreeMap<&str, &Gpus> = BTreeMap::new();
    for gpus in exporters.iter().filter_map(|exporter| exporter.gpus.known()?.as_ref()) {
        let known = found.entry(&gpus.node).or_insert(gpus);
        if (gpus.count, gpus.memory) > (known.count, known.memory) {
            *known = gpus;
        }
    }
    if found.is_empty() {
        return Err("no GPU metrics could be parsed from any DCGM pod".to_owned());
    }
    Ok(found.into_values().cloned().collect())
}

/// None: no GPU in it, or none of which enough is told.
pub fn read(node: &str, metrics: &str) -> Option<Gpus> {
    let samples: Vec<Sample<'_>> = metrics.lines().filter_map(sample).collect();
    let of = |name: &'static str| samples.iter().filter(move |sample| sample.name == name);
    let ids: BTreeSet<&str> = of(TEMPERATURE).filter_map(|sample| sample.label("gpu")).collect();
    if ids.is_empty() {
        return None;
    }
    let mut memory: BTreeMap<&str, f64> = BTreeMap::new();
    for sample in MEMORY.into_iter().flat_map(of) {
        *memory.entry(sample.label("gpu").unwrap_or_default()).or_default() += sample.value.max(0.0);
    }
    let most = memory.into_values().fold(0.0_f64, f64::max);
    // A GPU without memory is one of which not all was told; a zero would be taken for a fact.
    let memory = whole(most);
    if memory == 0 {
        return None;
    }
    let linked = of(LINKS).any(|sample| sample.value > 0.0);
    Some(Gpus {
        node: node.to_owned(),
        count: i32::try_from(ids.len()).unwrap_or(i32::MAX),
        model: of(TEMPERATURE).find_map(|sample| sample.label("modelName")).unwrap_or_default().to_owned(),
        memory,
        interconnect: Some(if linked { "nvlink" } else { "pcie" }.to_owned()),
    })
}

/// Bounded by far more than any GPU has, so that the number stays exact.
fn whole(number: f64) -> i64 {
    let text = format!("{:.0}", number.clamp(0.0, 1e12));
    text.parse().unwrap_or_default()
}

struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, &'a str)>,
    value: f64,
}

impl<'a> Sample<'a> {
    fn label(&self, name: &str) -> Option<&'a str> {
        self.labels.iter().find(|(key, _)| *key == name).map(|(_, value)| *value).filter(|value| !value.is_empty())
    }
}

/// One line as `NAME{a="b",…} 12`. Comments, infinities and lines of another shape are passed over.
fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (name, labels, rest) = match line.find('{') {
        Some(open) => {
            let close = open + line[open..].rfind('}')?;
            (&line[..open], labels(&line[open + 1..close])?, &line[close + 1..])
        }
        None => {
            let (name, rest) = line.split_once(' ')?;
            (name, Vec::new(), rest)
        }
    };
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    value.is_finite().then_some(Sample { name: name.trim(), labels, value })
}

fn labels(mut text: &str) -> Option<Vec<(&str, &str)>> {
    let mut found = Vec::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        // An escaped quote does not end a value; the values that count have none.
        let end = rest.char_indices().scan(false, |escaped, (place, c)| {
            let ends = c == '"' && !*escaped;
            *escaped = c == '\\' && !*escaped;
            Some((place, ends))
        });
        let (end, _) = end.into_iter().find(|(_, ends)| *ends)?;
        found.push((name.trim_start_matches(',').trim(), &rest[..end]));
        text = &rest[end + 1..];
    }
    Some(found)
}
