//! The profiler of the scene's Job, played by the test, with the real relay beside it.
//! Comes in: what the profiler says and how it ends; goes out: the Job's end, once nothing was seen to tell the token.

use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::Value;
use steersman_plan::dynamo::{names, profile_job};
use steersman_testkit::profiler::RESULT;
use steersman_testkit::{Profiler as Played, wait};
use tempfile::TempDir;

use crate::scene::Scene;

pub struct Profiler<'a> {
    scene: &'a Scene,
    // In this order: the folder goes last.
    played: Played,
    _folder: TempDir,
}

impl<'a> Profiler<'a> {
    /// Once the pod runs.
    pub async fn start(scene: &'a Scene) -> Self {
        let pod = scene.pod().await;
        let runs = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        let pod = wait::until(scene.all(), &pod.name_any(), "runs", wait::LIMIT, runs).await.unwrap();
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!(spec.service_account_name.as_deref(), Some(names::SERVICE_ACCOUNT));
        let copier = spec.containers.iter().find(|known| known.name == profile_job::COPIER).unwrap();
        assert_eq!(copier.command.as_deref(), Some(&["steersman".to_owned(), "relay".to_owned()][..]));
        let folder = tempfile::tempdir().unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_steersman"));
        let played = Played::start(&scene.world.cluster, program, folder.path(), &pod).await.unwrap();
        Self { scene, played, _folder: folder }
    }

    pub fn says(&self, phase: &str, message: &str) {
        self.played.says(phase, message).unwrap();
    }

    /// The same, until the request says it.
    pub async fn is_heard(&self, phase: &str, message: &str) -> Value {
        self.says(phase, message);
        let heard = |request: &Value| {
            let said = crate::scene::condition(request, "Profiling");
            request["status"]["profilingPhase"] == phase && said["message"] == message
        };
        self.scene.until_or(&format!("{phase} is relayed"), heard, || self.played.log()).await
    }

    pub async fn succeeds(mut self) {
        self.played.succeeds(RESULT).await.unwrap();
        self.assert_mute();
    }

    /// In the phase that it was in.
    pub async fn fails(mut self, phase: &str, error: &str) {
        self.played.fails(phase, error).await.unwrap();
        self.assert_mute();
    }

    /// The whole pod, without a word of anybody.
    pub async fn dies(mut self) {
        self.played.dies().await.unwrap();
        self.assert_mute();
    }

    /// No line has the token in it.
    fn assert_mute(&self) {
        let kubeconfig = fs::read_to_string(self.played.kubeconfig()).unwrap();
        let kubeconfig: Value = serde_saphyr::from_str(&kubeconfig).unwrap();
        assert!(!self.played.log().contains(kubeconfig["users"][0]["user"]["token"].as_str().unwrap()));
    }
}
