//! Builds the PromQL queries. Each covers all pods of its namespaces, so that the number of queries does not grow with
//! the fleet.

use jiff::SignedDuration;
use steersman_plan::variant::config::duration;

/// Labels that identify pod and model. A pod that two jobs scrape has two series, which these labels join.
const POD_LABELS: &str = "namespace, pod, pod_name, instance, model_name";

/// Used share of the KV cache: vLLM, its earlier name, SGLang.
pub const KV: [&str; 3] = ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"];
pub const QUEUE: [&str; 2] = ["vllm:num_requests_waiting", "sglang:num_queue_reqs"];
pub const RUNNING: [&str; 2] = ["vllm:num_requests_running", "sglang:num_running_reqs"];
/// The first has the sizes as labels, the second as value.
pub const CAPACITY: [&str; 2] = ["vllm:cache_config_info", "sglang:max_total_num_tokens"];
/// Dividend and divisor: tokens by requests, hits by lookups. Python clients append `_total` to counters.
pub const INPUT: [Ratio; 2] = [
    ("vllm:request_prompt_tokens_sum", "vllm:request_prompt_tokens_count"),
    ("sglang:prompt_tokens_histogram_sum", "sglang:prompt_tokens_histogram_count"),
];
pub const OUTPUT: [Ratio; 2] = [
    ("vllm:request_generation_tokens_sum", "vllm:request_generation_tokens_count"),
    ("sglang:generation_tokens_histogram_sum", "sglang:generation_tokens_histogram_count"),
];
pub const HITS: [Ratio; 3] = [
    ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
    ("vllm:prefix_cache_hits", "vllm:prefix_cache_queries"),
    ("sglang:cached_tokens_total", "sglang:prompt_tokens_total"),
];
/// Seconds by requests, or by tokens. Servers renamed the first metric of `ITL` to the second.
pub const TTFT: [Ratio; 2] = [
    ("vllm:time_to_first_token_seconds_sum", "vllm:time_to_first_token_seconds_count"),
    ("sglang:time_to_first_token_seconds_sum", "sglang:time_to_first_token_seconds_count"),
];
pub const ITL: [Ratio; 4] = [
    ("vllm:inter_token_latency_seconds_sum", "vllm:inter_token_latency_seconds_count"),
    ("vllm:time_per_output_token_seconds_sum", "vllm:time_per_output_token_seconds_count"),
    ("sglang:inter_token_latency_seconds_sum", "sglang:inter_token_latency_seconds_count"),
    ("sglang:time_per_output_token_seconds_sum", "sglang:time_per_output_token_seconds_count"),
];
/// Time that requests ran, without their time in the queue.
pub const SERVICE_TIME: [Ratio; 1] =
    [("vllm:request_inference_time_seconds_sum", "vllm:request_inference_time_seconds_count")];
const REQUESTS: [&str; 2] = ["vllm:request_success_total", "sglang:num_requests_total"];
/// Histograms that a server exports from its start. It may export [`REQUESTS`] only after its first request.
const REQUEST_HISTOGRAMS: [&str; 2] = ["vllm:request_prompt_tokens_count", "sglang:prompt_tokens_histogram_count"];
/// Labels that differ only by how the same target is scraped. An endpoint picker without a pod name is identified by
/// its address.
const SCRAPE_LABELS: &str = "job, endpoint, service, container, prometheus, prometheus_replica";
/// Metrics of the endpoint picker, under its old and its new name.
const PICKER_METRICS: &str = "(inference_extension|llm_d_epp)_flow_control_queue_(size|bytes)";

pub type Ratio = (&'static str, &'static str);

/// The selector `namespace=~"…"`. `nowhere` includes series without a namespace, whose pods may be known by address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceSelector(String);

impl NamespaceSelector {
    pub fn new<'a>(namespaces: impl IntoIterator<Item = &'a str>, nowhere: bool) -> Self {
        let mut any: Vec<String> = namespaces.into_iter().map(regex_escaped).collect();
        if nowhere {
            any.push(String::new());
        }
        Self(format!("namespace=~{}", quoted(&any.join("|"))))
    }
}

/// Series per namespace.
pub fn count(within: &NamespaceSelector) -> String {
    let all = either(KV.iter().chain(&QUEUE).map(|metric| format!("{metric}{{{}}}", within.0)));
    format!("count by (namespace) (max by ({POD_LABELS}) ({all}))")
}

/// The maximum of the last minute, or the newest value if samples are rarer.
pub fn peak(metrics: &[&str], within: &NamespaceSelector) -> String {
    let NamespaceSelector(within) = within;
    let recent = metrics.iter().map(|metric| format!("max_over_time({metric}{{{within}}}[1m])"));
    let newest = metrics.iter().map(|metric| format!("{metric}{{{within}}}"));
    format!("max by ({POD_LABELS}) ({})", either(recent.chain(newest)))
}

/// The newest value.
pub fn newest(metrics: &[&str], within: &NamespaceSelector) -> String {
    let values = metrics.iter().map(|metric| format!("{metric}{{{}}}", within.0));
    format!("max by ({POD_LABELS}) ({})", either(values))
}

/// Age of the newest sample of each pod in seconds, by Prometheus' clock.
pub fn age(within: &NamespaceSelector) -> String {
    let NamespaceSelector(within) = within;
    let times = KV.iter().chain(&QUEUE).map(|metric| format!("timestamp({metric}{{{within}}})"));
    format!("time() - max by ({POD_LABELS}) ({})", either(times))
}

/// Like [`age`], but looks back an hour, for pods that are no longer scraped.
pub fn last_sample(within: &NamespaceSelector) -> String {
    let NamespaceSelector(within) = within;
    let times = KV.iter().chain(&QUEUE).map(|metric| format!("max_over_time(timestamp({metric}{{{within}}})[1h:1m])"));
    format!("time() - max by ({POD_LABELS}) ({})", either(times))
}

pub fn capacity(within: &NamespaceSelector) -> String {
    let newest = CAPACITY.iter().map(|metric| format!("{metric}{{{}}}", within.0));
    format!("max by ({POD_LABELS}, num_gpu_blocks, block_size) ({})", either(newest))
}

/// Averages of the last five minutes. Without requests the result is NaN.
pub fn ratio(ratios: &[Ratio], within: &NamespaceSelector) -> String {
    let rate = |metric: &str| format!("sum by ({POD_LABELS}) (rate({metric}{{{}}}[5m]))", within.0);
    either(ratios.iter().map(|(above, below)| format!("{} / {}", rate(above), rate(below))))
}

/// Completed requests since the start of the server. A pod that two jobs scrape counts once. A histogram shows that a
/// server without a counter has not completed any.
pub fn completed(within: &NamespaceSelector) -> String {
    either(REQUESTS.iter().chain(&REQUEST_HISTOGRAMS).map(|metric| completed_sum(&format!("{metric}{{{}}}", within.0))))
}

/// Completed requests per second in the last minute, or in the last five minutes if samples are rarer.
pub fn completion_rate(within: &NamespaceSelector) -> String {
    let rates = ["1m", "5m"].into_iter().flat_map(|window| {
        REQUESTS.iter().map(move |metric| completed_sum(&format!("rate({metric}{{{}}}[{window}])", within.0)))
    });
    either(rates)
}

/// Adds up the reasons for which requests finish.
fn completed_sum(counters: &str) -> String {
    format!("sum by ({POD_LABELS}) (max without ({SCRAPE_LABELS}) ({counters}))")
}

/// Requests within `period`. `increase` misses the first value of a new series, so a series that did not exist at the
/// start of the period counts with its maximum.
pub fn requests(period: SignedDuration, within: &NamespaceSelector) -> String {
    let (NamespaceSelector(within), period) = (within, duration::prometheus(period));
    let counts = [REQUESTS, REQUEST_HISTOGRAMS].into_iter().map(|metrics| {
        let each = metrics.iter().map(|metric| {
            let series = format!("{metric}{{{within}}}");
            format!(
                "(max_over_time({series}[{period}]) unless {series} offset {period}) or increase({series}[{period}])"
            )
        });
        format!("sum by (namespace, model_name) ({})", either(each))
    });
    either(counts)
}

/// Requests and bytes that wait at endpoint pickers: the sum over all queues and pickers. If two jobs scrape the same
/// picker, its series counts once (`max without`). The metric name is copied to the label `picked` and back, because
/// an aggregation drops it.
pub fn waiting(within: &NamespaceSelector) -> String {
    let each = |pod: &str, ways: &str| {
        let series = format!("{{__name__=~\"{PICKER_METRICS}\",{pod},{}}}", within.0);
        format!("max without ({ways}) (label_replace({series}, \"picked\", \"$1\", \"__name__\", \"(.+)\"))")
    };
    let queues =
        either([each("pod!=\"\"", &format!("{SCRAPE_LABELS}, instance")), each("pod=\"\"", SCRAPE_LABELS)].into_iter());
    let sum = format!("sum by (picked, namespace, model_name, target_model_name) ({queues})");
    format!("label_replace({sum}, \"__name__\", \"$1\", \"picked\", \"(.+)\")")
}

fn either(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(" or ")
}

/// Escapes the text for a regular expression.
fn regex_escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        if "\\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
        out
    })
}

/// Quotes the text as a PromQL string.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_in_queries() {
        for (namespaces, nowhere, expected) in [
            (vec!["team-a"], false, r#"namespace=~"team-a""#),
            (vec!["a", "b"], true, r#"namespace=~"a|b|""#),
            (vec!["a.b|c"], false, r#"namespace=~"a\\.b\\|c""#),
            (vec!["a\"} or up{x=\""], false, r#"namespace=~"a\"\\} or up\\{x=\"""#),
            (vec!["a\\\n"], false, "namespace=~\"a\\\\\\\\\\n\""),
        ] {
            assert_eq!(NamespaceSelector::new(namespaces, nowhere).0, expected);
        }
    }

    #[test]
    fn periods_have_prometheus_syntax() {
        let within = NamespaceSelector::new(["n"], false);
        for (period, expected) in [(90, "[90s]"), (600, "[10m]"), (86_400, "[1d]"), (0, "[1s]")] {
            let query = requests(SignedDuration::from_secs(period), &within);
            assert_eq!(query.matches(expected).count(), 8, "{query}");
        }
    }
}
