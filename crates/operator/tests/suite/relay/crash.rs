//! Fault injection at every call of the relay: the ConfigMap ends as in an undisturbed run.

use std::sync::Mutex;

use anyhow::{Context, Result};
use kube::Client;
use steersman_plan::dynamo::names;
use steersman_testkit::fault_injection::{CallFault, CountedCalls, FaultInjector, crash_at_every_call_with_invariant};
use steersman_testkit::{Namespace, wait};

use super::*;

const STATUSES: [&str; 3] = [
    "{status: running, phase: Initializing, message: m}",
    "{status: running, phase: SweepingPrefill, message: m}",
    SUCCESS,
];

/// A simulated profiler, which progresses independently of crashes of the relay.
struct SimulatedProfiler {
    env: ProfilingEnv,
    next_status: Mutex<usize>,
}

/// Runs the relay from the current status of the profiler to its end.
async fn run_relay(client: Client, profiler: &SimulatedProfiler) -> Result<()> {
    let env = &profiler.env;
    let server = env.server(client);
    let timing = fast_timing();
    loop {
        let next = *profiler.next_status.lock().unwrap();
        let stop = CancellationToken::new();
        match STATUSES.get(next) {
            Some(status) => {
                env.write_status(status);
                let ends = next + 1 == STATUSES.len();
                if ends {
                    env.set_profiler_ended(0, "Completed").await;
                }
                // The step counts only now: if the relay crashes before, the profiler repeats it.
                *profiler.next_status.lock().unwrap() = next + 1;
                if !ends {
                    stop.cancel();
                    follow(&server, &env.target(), &timing, &stop).await?;
                }
            }
            None => {
                let place = env.target();
                let followed = tokio::time::timeout(wait::TIMEOUT, follow(&server, &place, &timing, &stop)).await;
                let ending = followed.context("the relay did not end in time")??;
                anyhow::ensure!(ending == Ending::Verdict, "the verdict is lost");
                return Ok(());
            }
        }
    }
}

async fn crashes(
    prefix: &str,
    calls: CountedCalls,
    faults: &[CallFault],
) -> Option<steersman_testkit::fault_injection::SweepReport> {
    let cluster = shared_cluster(Flavour::Bare).await?;
    let prepare = async |_: &Namespace| {
        // The profiler's pod and account are in another namespace, because they are not compared.
        let env = ProfilingEnv::new(cluster, prefix).await;
        env.write("final_config.yaml", SAMPLE_RESULT);
        env.set_profiler_running().await;
        Ok(SimulatedProfiler { env, next_status: Mutex::new(0) })
    };
    // The ConfigMaps of the last run, and whether it succeeded.
    let last = Mutex::new(None);
    let run = async |client: Client, _: &Namespace, profiler: &SimulatedProfiler| {
        // A crash ends the run after this line.
        *last.lock().unwrap() = Some((profiler.env.outputs(), false));
        let outcome = run_relay(client, profiler).await;
        *last.lock().unwrap() = Some((profiler.env.outputs(), outcome.is_ok()));
        outcome
    };
    let always = async |_: &Namespace| {
        let (api, succeeded) = last.lock().unwrap().clone().unwrap();
        let output = api.get_opt(&names::output("qwen")).await?;
        let data = output.and_then(|output| output.data).unwrap_or_default();
        // A pod has one relay that is not restarted, so a relay that succeeds must have delivered.
        anyhow::ensure!(
            !succeeded || data.contains_key("final_config.yaml"),
            "the relay succeeded without a result: {data:?}"
        );
        // A verdict never appears without its result.
        anyhow::ensure!(data.contains_key("profiler_status") == data.contains_key("final_config.yaml"), "{data:?}");
        Ok(())
    };
    let snapshot = async |_: &Namespace| {
        let (api, _) = last.lock().unwrap().clone().unwrap();
        let mut output = serde_json::to_value(api.get(&names::output("qwen")).await?)?;
        output["metadata"]["namespace"] = "NAMESPACE".into();
        output["metadata"]["labels"][names::LABEL_NAMESPACE] = "NAMESPACE".into();
        Ok(vec![output])
    };
    Some(
        crash_at_every_call_with_invariant(cluster, prefix, (calls, faults), prepare, run, always, snapshot)
            .await
            .unwrap(),
    )
}

#[tokio::test]
async fn output_converges_after_a_failed_write() {
    let Some(crashes) = crashes("relay-cut", CountedCalls::Writes, &CallFault::ALL).await else { return };
    assert_eq!(crashes.calls, 3, "two phases and the verdict");
    assert_eq!(crashes.runs, 3 * CallFault::ALL.len());
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
}

#[tokio::test]
async fn output_converges_after_a_relay_crash() {
    let Some(crashes) = crashes("relay-dies", CountedCalls::All, &[CallFault::NotSent]).await else { return };
    assert!(crashes.calls >= 9, "reads of pod and ConfigMap count too: {}", crashes.calls);
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
}

#[tokio::test]
async fn relay_delivers_despite_one_failed_call() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let env = ProfilingEnv::new(cluster, "relay-one").await;
    env.write("final_config.yaml", SAMPLE_RESULT);
    env.write_status(SUCCESS);
    env.set_profiler_ended(0, "Completed").await;
    let account = env.account().await;
    // The relay reads its pod, reads the ConfigMap and writes it.
    for (number, fault) in (1..=3).flat_map(|number| CallFault::ALL.map(|fault| (number, fault))) {
        let injector = FaultInjector::fail_call(number, fault).include_reads();
        let server = env.server(injector.wrap(&account));
        let ending = follow(&server, &env.target(), &fast_timing(), &CancellationToken::new()).await;
        assert_eq!((ending.unwrap(), injector.has_fired()), (Ending::Verdict, true), "{fault:?} at call {number}");
        assert_eq!(env.output().await.data.unwrap()["final_config.yaml"], SAMPLE_RESULT, "{fault:?} at call {number}");
        env.outputs().delete(&names::output("qwen"), &Default::default()).await.unwrap();
    }
}
