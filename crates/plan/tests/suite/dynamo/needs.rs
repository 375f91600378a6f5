//! The objects that a reconcile reads in each phase of a request.

use steersman_plan::dynamo::{JobState, Needs, ObservedJob, confirms_job, confirms_output, needs};

use super::{FINAL, TestEnv, output, request_snapshot, spec};

fn needs_of(env: &TestEnv) -> Needs {
    let snapshot = &env.snapshot;
    needs(&snapshot.object, snapshot.job.as_ref(), snapshot.output.as_ref())
}

#[test]
fn new_request_needs_everything_for_its_job() {
    let mut env = TestEnv::new(request_snapshot(&spec("")));
    let graph = Some("qwen-dgd".to_owned());
    let before_job = Needs { graph, claims: true, cluster_role: true, account: true, ..Needs::default() };
    assert_eq!(needs_of(&env), before_job);
    assert!(confirms_job(&env.snapshot.object));
    env.snapshot.object.spec.hardware = None;
    assert_eq!(needs_of(&env), Needs { hardware: true, ..before_job });
    env.snapshot.object.deleting = true;
    assert_eq!(needs_of(&env), Needs::default());
    assert!(!confirms_job(&env.snapshot.object));
}

#[test]
fn profiling_needs_graph_once_result_is_there() {
    let mut env = TestEnv::after_settling(&spec(""));
    assert_eq!(needs_of(&env), Needs { job_pods: true, account: true, ..Needs::default() });
    env.snapshot.output = Some(output(&[("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    let with_graph = Needs {
        job_pods: true,
        graph: Some("qwen-dgd".into()),
        graph_pods: true,
        additional: vec!["planner-config-1a2b".into()],
        account: true,
        ..Needs::default()
    };
    assert_eq!(needs_of(&env), with_graph);
    // After a crash before the first status, the request still goes through Profiling.
    env.snapshot.object.status = None;
    assert_eq!(needs_of(&env), with_graph);
}

#[test]
fn deployed_request_needs_its_graph_alone() {
    let env = TestEnv::after_deployment(&spec(""));
    let needed = needs_of(&env);
    assert_eq!((needed.graph.as_deref(), needed.graph_pods, needed.job_pods), (Some("qwen-dgd"), true, false));
    assert!(!needed.claims && !needed.cluster_role && !needed.hardware);
    assert!(!confirms_job(&env.snapshot.object));
}

#[test]
fn output_is_confirmed_once_the_job_has_ended() {
    let env = TestEnv::after_settling(&spec(""));
    let object = &env.snapshot.object;
    let job = |state| ObservedJob { owner: Some("8f3c".into()), state, ..ObservedJob::default() };
    let verdict = output(&[("profiler_status", "success")]);
    for (job, output, expected) in [
        (Some(job(JobState::Running)), None, false),
        (Some(job(JobState::Complete)), None, true),
        (Some(job(JobState::Complete)), Some(&verdict), false),
        (None, None, true),
    ] {
        assert_eq!(confirms_output(object, job.as_ref(), output), expected, "{job:?} {output:?}");
    }
}
