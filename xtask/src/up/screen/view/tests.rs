use super::*;

const NOW: i64 = 1_800_000_000;

fn at(seconds_ago: i64) -> Timestamp {
    Timestamp::from_second(NOW - seconds_ago).unwrap()
}

fn object(name: &str, health: Health, phase: &str, reason: &str, age: i64) -> ObjectRow {
    let state = ObjectState { health, phase: phase.to_owned(), part: None, reason: reason.to_owned() };
    ObjectRow { name: name.to_owned(), state, created: Some(at(age)) }
}

fn event(object: &str, warning: bool, text: &str, age: i64) -> EventRow {
    EventRow { time: at(age), object: object.to_owned(), warning, text: text.to_owned() }
}

fn section(title: &'static str, summary: &str, objects: Vec<ObjectRow>) -> Section {
    Section { title, summary: summary.to_owned(), objects }
}

/// A model without objects and events.
fn empty() -> Model {
    Model {
        title: "Steersman on a local cluster",
        started: at(125),
        simulated: "No containers run. Simulated: Llama Stack servers, load".to_owned(),
        notice: None,
        sections: vec![
            section("Requests", "", vec![]),
            section("Servers", "", vec![]),
            section("Variants", "", vec![]),
        ],
        events: vec![],
        commands: vec![
            Command { line: ". ~/.cache/steersman/runs/7-0/env".to_owned(), purpose: "sets KUBECONFIG and kubectl" },
            Command { line: "kubectl -n examples get llsd,va".to_owned(), purpose: "all objects" },
        ],
    }
}

/// Eleven requests, one server and two variants, in every state.
fn full() -> Model {
    use Health::{Failed, Good, Waiting};
    let mut requests: Vec<ObjectRow> =
        (0..9).map(|number| object(&format!("request-{number}"), Good, "Deployed", "the graph serves", 90)).collect();
    requests.push(object(
        "thorough",
        Waiting,
        "Profiling",
        "0/8 nodes are available: 8 Insufficient nvidia.com/gpu",
        95,
    ));
    requests[9].state.part = Some("Initializing".to_owned());
    requests.push(object("wrong", Failed, "Failed", "spec.sla.ttft: must be positive", 7300));
    let reason = "llama-stack 0.7.1, 23 providers";
    let mut model = Model {
        sections: vec![
            section("Requests", "9 Deployed, 1 Profiling, 1 Failed", requests),
            section("Servers", "1 Ready", vec![object("simple", Good, "Ready", reason, 15)]),
            section(
                "Variants",
                "1 decided, 1 waiting for metrics",
                vec![
                    object("llama-l40s", Good, "has 1, wants 2", "scale-up", 200_000),
                    object("llama-h100", Waiting, "has ?, wants ?", "metrics are missing", 0),
                ],
            ),
        ],
        events: vec![
            event("va/llama-l40s", false, "ScaledUp: from 1 to 2", 1),
            event("dgdr/thorough", true, "ProfilingWaits (3 times): 0/8 nodes are available", 12),
            event("simulated", false, "the HPA scales llama-l40s-decode from 1 to 2 replicas", 130),
            event("llsd/simple", false, "Ready: the server answers", 240),
        ],
        ..empty()
    };
    model.notice = Some("The API server does not answer".to_owned());
    model
}

fn lines(model: &Model, width: usize, height: usize) -> Vec<Line> {
    render(model, at(0), Size { width, height })
}

/// The screen as text.
fn text(model: &Model, width: usize, height: usize) -> String {
    let shown = lines(model, width, height);
    let texts = shown.iter().map(|line| line.iter().map(|span| span.text.as_str()).collect::<String>());
    texts.map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn small_terminal_shows_problems_and_counts_the_rest() {
    assert_eq!(
        text(&full(), 80, 24),
        "\
Steersman on a local cluster, up 2m                       Ctrl-C ends everything
No containers run. Simulated: Llama Stack servers, load
The API server does not answer
Requests  8 of 11 shown: 9 Deployed, 1 Profiling, 1 Failed
  request-0   Deployed   the graph serves                                    90s
  request-1   Deployed   the graph serves                                    90s
  request-2   Deployed   the graph serves                                    90s
  request-3   Deployed   the graph serves                                    90s
  request-4   Deployed   the graph serves                                    90s
  request-5   Deployed   the graph serves                                    90s
~ thorough    Profiling  Initializing: 0/8 nodes are available: 8 Insuf...   95s
! wrong       Failed     spec.sla.ttft: must be positive                      2h
Servers  1: 1 Ready
  simple      Ready  llama-stack 0.7.1, 23 providers                         15s
Variants  2: 1 decided, 1 waiting for metrics
  llama-l40s  has 1, wants 2  scale-up                                        2d
~ llama-h100  has ?, wants ?  metrics are missing                             0s
Events
    1s  va/llama-l40s  ScaledUp: from 1 to 2
!  12s  dgdr/thorough  ProfilingWaits (3 times): 0/8 nodes are available
    2m  simulated      the HPA scales llama-l40s-decode from 1 to 2 replicas
Try in another terminal
  . ~/.cache/steersman/runs/7-0/env  # sets KUBECONFIG and kubectl
  kubectl -n examples get llsd,va    # all objects
"
    );
}

#[test]
fn large_terminal_shows_everything_with_space() {
    let shown = text(&full(), 140, 40);
    assert!(shown.contains("Requests  11: 9 Deployed, 1 Profiling, 1 Failed\n"), "{shown}");
    assert!(shown.contains("\n\nServers  1: 1 Ready\n") && shown.contains("\n\nEvents\n"), "{shown}");
    assert!(shown.contains("Initializing: 0/8 nodes are available: 8 Insufficient nvidia.com/gpu "), "{shown}");
    assert!(shown.contains("    4m  llsd/simple"), "all events are shown:\n{shown}");
    assert_eq!(shown.lines().count(), 33, "{shown}");
}

#[test]
fn no_objects_leave_headings_and_commands() {
    assert_eq!(
        text(&empty(), 60, 20),
        "\
Steersman on a local cluster, up 2m   Ctrl-C ends everything
No containers run. Simulated: Llama Stack servers, load

Requests  none

Servers  none

Variants  none

Try in another terminal
  . ~/.cache/steersman/runs/7-0/env
  kubectl -n examples get llsd,va    # all objects
"
    );
}

#[test]
fn narrow_terminal_keeps_name_phase_and_age() {
    assert_eq!(
        text(&full(), 30, 14),
        "\
Steersman on a local cluste...
No containers run. Simulated:
Llama Stack servers, load
The API server does not answer
Requests  4 of 11 shown: 9...
  request-0   Deployed    90s
  request-1   Deployed    90s
~ thorough    Profiling   95s
! wrong       Failed       2h
Servers  1: 1 Ready
  simple      Ready   15s
Variants  2: 1 decided, 1 w...
  llama-l40s  has 1,...     2d
~ llama-h100  has ?,...     0s
"
    );
}

#[test]
fn long_command_is_wrapped_not_shortened() {
    let mut model = empty();
    let path = format!(". /{}/env", "long/".repeat(12));
    model.commands[0].line = path.clone();
    let shown = text(&model, 40, 30);
    let commands = shown.split("Try in another terminal\n").nth(1).unwrap();
    let first: String = commands.lines().take(2).collect();
    assert_eq!(first, path, "{shown}");
}

#[test]
fn every_size_is_respected() {
    let mut odd = full();
    odd.sections[1].objects.push(object(&"n".repeat(253), Health::Waiting, "Initializing", &"r".repeat(4000), -5));
    odd.sections[1].objects.push(object("wide", Health::Failed, "失敗", "模型服务器没有响应，请检查日志和网络策略", 3));
    odd.events.push(event(&"e".repeat(300), true, &"t".repeat(900), 1));
    for model in [empty(), full(), odd] {
        for width in (0..40).chain((40..150).step_by(7)) {
            for height in (0..45).step_by(2) {
                let shown = lines(&model, width, height);
                assert!(shown.len() <= height, "{width}x{height}: {} lines", shown.len());
                for line in shown {
                    let used: usize = line.iter().map(|span| columns(&span.text)).sum();
                    assert!(used <= width, "{width}x{height}: {line:?}");
                }
            }
        }
    }
}

#[test]
fn text_of_users_cannot_control_the_terminal() {
    let mut model = full();
    model.sections[1].objects[0].state.reason = "one\ntwo\x1b[2Jthree\u{9b}2J".to_owned();
    model.events[0].text = "first\r\nsecond\x07".to_owned();
    for line in lines(&model, 140, 40) {
        assert!(line.iter().all(|span| !span.text.contains(char::is_control)), "{line:?}");
    }
}

#[test]
fn health_is_visible_without_colors() {
    let shown = lines(&full(), 100, 40);
    for (name, mark, style) in
        [("wrong", "! ", Style::Failed), ("thorough", "~ ", Style::Waiting), ("simple", "  ", Style::Good)]
    {
        let line = shown.iter().find(|line| line.len() > 2 && line[1].text.trim() == name).unwrap();
        assert_eq!((line[0].text.as_str(), line[2].style), (mark, style), "{name}");
    }
}

#[test]
fn lines_are_shared_in_turn() {
    for (wanted, free, shares) in [
        ([11, 6, 4], 0, [0, 0, 0]),
        ([11, 6, 4], 2, [1, 1, 0]),
        ([11, 6, 4], 14, [5, 5, 4]),
        ([11, 0, 1], 5, [4, 0, 1]),
        ([2, 1, 1], 50, [2, 1, 1]),
    ] {
        assert_eq!(share(&wanted, free), shares, "{wanted:?} in {free} lines");
    }
}

#[test]
fn age_has_one_unit() {
    for (seconds, expected) in
        [(-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (7_199, "119m"), (7_200, "2h"), (172_800, "2d")]
    {
        assert_eq!(age(at(0), at(seconds)), expected);
    }
}
