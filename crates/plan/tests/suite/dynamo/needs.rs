//! What a reconcile reads, by the phase of the request.

use steersman_plan::dynamo::{JobState, Needs, ObservedJob, confirms_job, confirms_output, needs};

use super::{FINAL, World, a_request, output, spec};

fn needed(world: &World) -> Needs {
    let snapshot = &world.seen;
    needs(&snapshot.object, snapshot.job.as_ref(), snapshot.output.as_ref())
}

#[test]
fn new_request_needs_everything_for_its_job() {
    let mut world = World::new(a_request(&spec("")));
    let begins = Needs { claims: true, cluster_role: true, ..Needs::default() };
    assert_eq!(needed(&world), begins);
    assert!(confirms_job(&world.seen.object));
    world.seen.object.spec.hardware = None;
    assert_eq!(needed(&world), Needs { hardware: true, ..begins });
    world.seen.object.deleting = true;
    assert_eq!(needed(&world), Needs::default());
    assert!(!confirms_job(&world.seen.object));
}

#[test]
fn profiling_needs_graph_once_result_is_there() {
    let mut world = World::settled(&spec(""));
    assert_eq!(needed(&world), Needs { job_pods: true, ..Needs::default() });
    world.seen.output = Some(output(&[("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    let with_graph = Needs {
        job_pods: true,
        graph: Some("qwen-dgd".into()),
        graph_pods: true,
        additional: vec!["planner-config-1a2b".into()],
        ..Needs::default()
    };
    assert_eq!(needed(&world), with_graph);
    // A crash before the first status: the step goes through Profiling all the same.
    world.seen.object.status = None;
    assert_eq!(needed(&world), with_graph);
}

#[test]
fn deployed_request_needs_its_graph_alone() {
    let world = World::deployed(&spec(""));
    let needed = needed(&world);
    assert_eq!((needed.graph.as_deref(), needed.graph_pods, needed.job_pods), (Some("qwen-dgd"), true, false));
    assert!(!needed.claims && !needed.cluster_role && !needed.hardware);
    assert!(!confirms_job(&world.seen.object));
}

#[test]
fn output_is_confirmed_once_the_job_has_ended() {
    let world = World::settled(&spec(""));
    let object = &world.seen.object;
    let job = |state| ObservedJob { owner: Some("8f3c".into()), mark: None, state };
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
