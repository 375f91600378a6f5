//! A relay that dies, or whose calls fail, anywhere on the way: the ConfigMap ends as if nothing had happened.

use std::sync::Mutex;

use anyhow::{Context, Result};
use kube::Client;
use steersman_plan::dynamo::names;
use steersman_testkit::cut::{Calls, Cut, Cutter, crash_everywhere_and};
use steersman_testkit::{Namespace, wait};

use super::*;

const WAY: [&str; 3] = [
    "{status: running, phase: Initializing, message: m}",
    "{status: running, phase: SweepingPrefill, message: m}",
    SUCCESS,
];

/// The profiler goes its way whatever becomes of the relay; this is how far it has come.
struct Played {
    scene: Scene,
    next: Mutex<usize>,
}

/// One life of the relay, from where the profiler is to its end.
async fn life(client: Client, played: &Played) -> Result<()> {
    let scene = &played.scene;
    let server = scene.server(client);
    let pace = quick();
    loop {
        let next = *played.next.lock().unwrap();
        let stop = CancellationToken::new();
        match WAY.get(next) {
            Some(status) => {
                scene.status(status);
                let ends = next + 1 == WAY.len();
                if ends {
                    scene.ends(0, "Completed").await;
                }
                // Only now: where the relay dies before this line, the profiler has not come that far.
                *played.next.lock().unwrap() = next + 1;
                if !ends {
                    stop.cancel();
                    follow(&server, &scene.place(), &pace, &stop).await?;
                }
            }
            None => {
                let place = scene.place();
                let followed = tokio::time::timeout(wait::LIMIT, follow(&server, &place, &pace, &stop)).await;
                let ending = followed.context("it still tries")??;
                anyhow::ensure!(ending == Ending::Verdict, "the verdict is lost");
                return Ok(());
            }
        }
    }
}

async fn crashes(prefix: &str, calls: Calls, cuts: &[Cut]) -> Option<steersman_testkit::cut::Crashes> {
    let cluster = shared(Flavour::Bare).await?;
    let prepare = async |_: &Namespace| {
        // With a namespace of its own: the profiler's pod and its account are no part of what is compared.
        let scene = Scene::new(cluster, prefix).await;
        scene.write("final_config.yaml", RESULT);
        scene.runs().await;
        Ok(Played { scene, next: Mutex::new(0) })
    };
    // Of the last pass: where it wrote, and whether it ended well.
    let last = Mutex::new(None);
    let pass = async |client: Client, _: &Namespace, played: &Played| {
        // Where it dies, nothing after this line happens.
        *last.lock().unwrap() = Some((played.scene.outputs(), false));
        let lived = life(client, played).await;
        *last.lock().unwrap() = Some((played.scene.outputs(), lived.is_ok()));
        lived
    };
    let always = async |_: &Namespace| {
        let (api, well) = last.lock().unwrap().clone().unwrap();
        let output = api.get_opt(&names::output("qwen")).await?;
        let data = output.and_then(|output| output.data).unwrap_or_default();
        // A pod has one relay and no second try: who ends well has delivered.
        anyhow::ensure!(!well || data.contains_key("final_config.yaml"), "ended well, and lost the result: {data:?}");
        // Never a verdict without its result.
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
    Some(crash_everywhere_and(cluster, prefix, (calls, cuts), prepare, pass, always, snapshot).await.unwrap())
}

#[tokio::test]
async fn the_output_ends_the_same_wherever_a_write_is_cut() {
    let Some(crashes) = crashes("relay-cut", Calls::Writes, &Cut::ALL).await else { return };
    assert_eq!(crashes.calls, 3, "two phases and the verdict");
    assert_eq!(crashes.runs, 3 * Cut::ALL.len());
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
}

#[tokio::test]
async fn the_output_ends_the_same_wherever_the_relay_dies() {
    let Some(crashes) = crashes("relay-dies", Calls::All, &[Cut::NotSent]).await else { return };
    assert!(crashes.calls >= 9, "reads of pod and ConfigMap count too: {}", crashes.calls);
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
}

#[tokio::test]
async fn one_relay_delivers_whatever_becomes_of_one_of_its_calls() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let scene = Scene::new(cluster, "relay-one").await;
    scene.write("final_config.yaml", RESULT);
    scene.status(SUCCESS);
    scene.ends(0, "Completed").await;
    let account = scene.account().await;
    // It reads its pod, then the ConfigMap, and writes that.
    for (number, cut) in (1..=3).flat_map(|number| Cut::ALL.map(|cut| (number, cut))) {
        let cutter = Cutter::at(number, cut).with_reads();
        let server = scene.server(cutter.around(&account));
        let ending = follow(&server, &scene.place(), &quick(), &CancellationToken::new()).await;
        assert_eq!((ending.unwrap(), cutter.hit()), (Ending::Verdict, true), "{cut:?} at call {number}");
        assert_eq!(scene.output().await.data.unwrap()["final_config.yaml"], RESULT, "{cut:?} at call {number}");
        scene.outputs().delete(&names::output("qwen"), &Default::default()).await.unwrap();
    }
}
