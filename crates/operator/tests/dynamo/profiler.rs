//! The profiler of the Job, simulated by the test, with the real relay. After its end, the log must not contain the token.

use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::Value;
use steersman_plan::dynamo::{names, profile_job};
use steersman_testkit::fake_profiler::SAMPLE_RESULT;
use steersman_testkit::{FakeProfiler as SimulatedProfiler, wait};
use tempfile::TempDir;

use crate::test_namespace::TestNamespace;

pub struct Profiler<'a> {
    ns: &'a TestNamespace,
    // Dropped before the folder.
    simulated: SimulatedProfiler,
    _folder: TempDir,
}

impl<'a> Profiler<'a> {
    /// Waits until the pod runs.
    pub async fn start(ns: &'a TestNamespace) -> Self {
        let pod = ns.pod().await;
        let is_running = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        let pod = wait::until(ns.api(), &pod.name_any(), "is running", wait::TIMEOUT, is_running).await.unwrap();
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!(spec.service_account_name.as_deref(), Some(names::SERVICE_ACCOUNT));
        let copier = spec.containers.iter().find(|container| container.name == profile_job::COPIER).unwrap();
        assert_eq!(copier.command.as_deref(), Some(&["steersman".to_owned(), "relay".to_owned()][..]));
        let folder = tempfile::tempdir().unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_steersman"));
        let simulated = SimulatedProfiler::start(&ns.env.cluster, program, folder.path(), &pod).await.unwrap();
        Self { ns, simulated, _folder: folder }
    }

    /// Writes the progress of the profiler.
    pub fn report(&self, phase: &str, message: &str) {
        self.simulated.report_progress(phase, message).unwrap();
    }

    /// Writes the progress of the profiler, and waits until the request's status shows it.
    pub async fn report_and_wait(&self, phase: &str, message: &str) -> Value {
        self.report(phase, message);
        let is_relayed = |request: &Value| {
            let profiling = crate::test_namespace::condition(request, "Profiling");
            request["status"]["profilingPhase"] == phase && profiling["message"] == message
        };
        self.ns.wait_for_or_show(&format!("{phase} is relayed"), is_relayed, || self.simulated.log()).await
    }

    pub async fn succeed(mut self) {
        self.simulated.succeed(SAMPLE_RESULT).await.unwrap();
        self.assert_token_not_logged();
    }

    /// Ends with an error in this phase.
    pub async fn fail(mut self, phase: &str, error: &str) {
        self.simulated.fail(phase, error).await.unwrap();
        self.assert_token_not_logged();
    }

    /// Ends the whole pod without any message.
    pub async fn kill(mut self) {
        self.simulated.kill().await.unwrap();
        self.assert_token_not_logged();
    }

    fn assert_token_not_logged(&self) {
        let kubeconfig = fs::read_to_string(self.simulated.kubeconfig()).unwrap();
        let kubeconfig: Value = serde_saphyr::from_str(&kubeconfig).unwrap();
        assert!(!self.simulated.log().contains(kubeconfig["users"][0]["user"]["token"].as_str().unwrap()));
    }
}
