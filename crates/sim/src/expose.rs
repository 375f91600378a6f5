//! Writes the metrics of simulated pods in Prometheus' text format, under vLLM's names.

use std::fmt::Write;

use crate::Millis;
use crate::fleet::Fleet;

/// `None` if the pod does not exist, is starting, or exposes no metrics.
pub fn pod(fleet: &Fleet, name: &str, model: &str) -> Option<String> {
    let pod = fleet.pods().get(name).filter(|pod| pod.ready && !pod.metrics_hidden)?;
    let (counters, shape, labels) =
        (pod.counters, fleet.shape(), format!("engine=\"0\",model_name=\"{}\"", escape_label_value(model)));
    let mut out = Text::default();
    let share = match pod.speed.capacity() {
        0 => 0.0,
        capacity => pod.kv_tokens(shape, fleet.now()) as f64 / capacity as f64,
    };
    out.gauge("vllm:kv_cache_usage_perc", &labels, share);
    out.gauge("vllm:num_requests_running", &labels, pod.running());
    out.gauge("vllm:num_requests_waiting", &labels, fleet.waiting_at(name));
    let cache = format!("block_size=\"{}\",engine=\"0\",num_gpu_blocks=\"{}\"", pod.speed.block_size, pod.speed.blocks);
    out.gauge("vllm:cache_config_info", &cache, 1);
    out.kind("vllm:request_success_total", "counter");
    for (reason, count) in [("stop", counters.requests), ("length", 0), ("abort", 0)] {
        out.value("vllm:request_success_total", &format!("{labels},finished_reason=\"{reason}\""), count);
    }
    out.counter("vllm:prefix_cache_queries_total", &labels, counters.input);
    out.counter("vllm:prefix_cache_hits_total", &labels, counters.cached);
    out.average("vllm:request_prompt_tokens", &labels, counters.input, counters.requests);
    out.average("vllm:request_generation_tokens", &labels, counters.output, counters.requests);
    out.average("vllm:time_to_first_token_seconds", &labels, seconds(counters.first_token_time), counters.requests);
    out.average("vllm:request_inference_time_seconds", &labels, seconds(counters.inference_time), counters.requests);
    // Servers renamed the first metric to the second.
    for name in ["vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds"] {
        out.average(name, &labels, seconds(counters.decode_time), counters.output);
    }
    Some(out.0)
}

/// Metrics of the endpoint picker: requests that wait because no pod is ready.
pub fn endpoint_picker(fleet: &Fleet, model: &str) -> String {
    let mut out = Text::default();
    let model = escape_label_value(model);
    let labels = format!("model_name=\"{model}\",target_model_name=\"{model}\"");
    let waiting = fleet.waiting_at_picker();
    out.gauge("inference_extension_flow_control_queue_size", &labels, waiting);
    // A token is about four bytes.
    let bytes = waiting * u64::from(fleet.shape().input) * 4;
    out.gauge("inference_extension_flow_control_queue_bytes", &labels, bytes);
    out.0
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn kind(&mut self, name: &str, kind: &str) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
    }

    fn value(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
    }

    fn gauge(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        self.kind(name, "gauge");
        self.value(name, labels, value);
    }

    fn counter(&mut self, name: &str, labels: &str, value: u64) {
        self.kind(name, "counter");
        self.value(name, labels, value);
    }

    /// A histogram with the mandatory bucket only.
    fn average(&mut self, name: &str, labels: &str, sum: impl std::fmt::Display, count: u64) {
        self.kind(name, "histogram");
        self.value(&format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), count);
        self.value(&format!("{name}_sum"), labels, sum);
        self.value(&format!("{name}_count"), labels, count);
    }
}

/// Integer arithmetic, so that the text is the same on every machine.
fn seconds(time: Millis) -> String {
    format!("{}.{:03}", time / 1000, time % 1000)
}

fn escape_label_value(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
