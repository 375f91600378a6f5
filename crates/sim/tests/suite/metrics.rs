//! The metrics of simulated pods and of the endpoint picker.

use steersman_sim::expose;
use steersman_sim::fleet::Fleet;
use steersman_sim::load::{Load, Rate};
use steersman_sim::server::{RequestShape, Speed};

const SHAPE: RequestShape = RequestShape { input: 100, output: 50, cached: 25 };
const SPEED: Speed = Speed { start: 1_000, prefill: 150, decode: 50, sequences: 2, blocks: 100, block_size: 16 };

fn value(text: &str, series: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned))
}

#[test]
fn pod_exposes_vllm_metrics() {
    let mut fleet = Fleet::new(SHAPE, Load::Constant(Rate(2_000)));
    fleet.add("a", SPEED);
    assert_eq!(expose::pod(&fleet, "a", "m"), None, "a starting pod has no metrics");
    assert_eq!(expose::pod(&fleet, "b", "m"), None, "a missing pod has no metrics");
    fleet.run_until(4_250);
    let text = expose::pod(&fleet, "a", "a \"b\"\\").unwrap();
    let labels = r#"engine="0",model_name="a \"b\"\\""#;
    // Two requests run at a time, each with 0.5 s of prefill and 1 s of decode: two finish after 2.5 s, two after 4 s.
    for (series, expected) in [
        ("vllm:num_requests_running", "2"),
        ("vllm:num_requests_waiting", "2"),
        ("vllm:request_prompt_tokens_sum", "400"),
        ("vllm:request_prompt_tokens_count", "4"),
        ("vllm:request_generation_tokens_sum", "200"),
        ("vllm:prefix_cache_queries_total", "400"),
        ("vllm:prefix_cache_hits_total", "100"),
        ("vllm:inter_token_latency_seconds_sum", "4.000"),
        ("vllm:inter_token_latency_seconds_count", "200"),
        ("vllm:time_per_output_token_seconds_count", "200"),
    ] {
        let found = value(&text, &format!("{series}{{{labels}}}"));
        assert_eq!(found.as_deref(), Some(expected), "{series} in\n{text}");
    }
    let stopped = format!("vllm:request_success_total{{{labels},finished_reason=\"stop\"}}");
    assert_eq!(value(&text, &stopped).as_deref(), Some("4"));
    let cache = "vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"100\"}";
    assert_eq!(value(&text, cache).as_deref(), Some("1"));
    // 0.25 s after their start, half of both prompts is processed.
    let cache_usage = value(&text, &format!("vllm:kv_cache_usage_perc{{{labels}}}")).unwrap().parse::<f64>().unwrap();
    assert!((cache_usage - 100.0 / 1600.0).abs() < 1e-9, "{cache_usage}");
}

#[test]
fn hidden_metrics_do_not_stop_serving() {
    let mut fleet = Fleet::new(SHAPE, Load::Constant(Rate(1_000)));
    fleet.add("a", SPEED);
    fleet.hide_metrics("a", true);
    fleet.run_until(10_000);
    assert!(fleet.served() > 0);
    assert_eq!(expose::pod(&fleet, "a", "m"), None);
    fleet.hide_metrics("a", false);
    assert!(expose::pod(&fleet, "a", "m").is_some());
}

#[test]
fn picker_reports_queue_without_ready_pod() {
    let mut fleet = Fleet::new(SHAPE, Load::Constant(Rate(1_000)));
    fleet.run_until(3_000);
    let size = "inference_extension_flow_control_queue_size{model_name=\"m\",target_model_name=\"m\"}";
    assert_eq!(value(&expose::endpoint_picker(&fleet, "m"), size).as_deref(), Some("3"));
    fleet.add("a", SPEED);
    fleet.run_until(4_000);
    assert_eq!(value(&expose::endpoint_picker(&fleet, "m"), size).as_deref(), Some("0"));
}
