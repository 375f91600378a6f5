//! The labels that reconciles see while registries respond, fail, hang or move a tag. No log line or message holds a
//! credential.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use steersman::llamastack::oci::{Bases, CredentialSource, ImageRequest, PullCredentials, ReadSchedule};
use steersman_plan::llamastack::config::base::BaseSource;
use steersman_plan::oci::{Choice, Credentials, ObservedLabels, choose};
use steersman_reconcile::NamespacedName;
use steersman_testkit::wait;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, SubscriberExt};

use super::fake::{FakeRegistry, HOST, RequiredAuth, TOKEN};
use super::{credentials, in_label};

const FAST_INTERVALS: ReadSchedule = ReadSchedule {
    tag_interval: Duration::from_millis(20),
    first_retry: Duration::from_millis(20),
    last_retry: Duration::from_millis(40),
    max_concurrent: 2,
};

/// CredentialSource with the same credentials for every image.
#[derive(Clone, Default)]
struct FixedCredentials(Arc<Mutex<Credentials>>);

impl CredentialSource for FixedCredentials {
    fn of<'a>(&'a self, _: &'a ImageRequest) -> BoxFuture<'a, PullCredentials> {
        let credentials = self.0.lock().unwrap().clone();
        async move { PullCredentials { credentials, remarks: vec!["the pull secret \"old\" does not exist".to_owned()] } }
            .boxed()
    }
}

fn start_bases(served: &FakeRegistry, logins: &FixedCredentials, limit: Duration) -> (Bases, DropGuard) {
    let bases = Bases::new(served.registry_with_timeout(limit), logins.clone(), FAST_INTERVALS);
    let stop = CancellationToken::new();
    let (running, until) = (bases.clone(), stop.clone());
    tokio::spawn(async move { running.run(until).await });
    (bases, stop.drop_guard())
}

fn want(name: &str) -> ImageRequest {
    ImageRequest {
        namespace: "here".to_owned(),
        name: name.to_owned(),
        image: format!("{HOST}/a/b:1"),
        service_account: String::new(),
        pull_secrets: vec![],
    }
}

/// Waits for changes until the labels that an object sees are as expected, and returns them.
async fn wait_for_labels(
    bases: &Bases,
    want: &ImageRequest,
    expected: impl Fn(&ObservedLabels) -> bool,
) -> ObservedLabels {
    let expected_labels = async {
        loop {
            let labels = bases.observe(want);
            if expected(&labels) {
                return labels;
            }
            bases.changed().await;
        }
    };
    tokio::time::timeout(wait::TIMEOUT, expected_labels).await.expect("the labels change in time")
}

fn base_and_remark(labels: &ObservedLabels) -> Option<(&str, Option<&str>)> {
    match labels {
        ObservedLabels::Found { base: Ok(Some(base)), remark, .. } => {
            Some((base.config["distro_name"].as_str().unwrap(), remark.as_deref()))
        }
        _ => None,
    }
}

#[tokio::test]
async fn labels_are_read_in_the_background() {
    let served = FakeRegistry::start().await;
    served.push("a/b", "1", in_label("x"), &[]);
    let (bases, _running) = start_bases(&served, &FixedCredentials::default(), wait::TIMEOUT);
    assert_eq!(bases.observe(&want("one")), ObservedLabels::Pending);
    assert_eq!(bases.observe(&want("two")), ObservedLabels::Pending);
    let changed = tokio::time::timeout(wait::TIMEOUT, bases.changed()).await.unwrap();
    assert_eq!(changed, ["one", "two"].map(|name| NamespacedName::new("here", name)).into());
    assert_eq!(base_and_remark(&bases.observe(&want("one"))), Some(("x", None)));
}

#[tokio::test]
async fn moved_tag_enqueues_its_objects() {
    let served = FakeRegistry::start().await;
    served.push("a/b", "1", in_label("first"), &[]);
    let (bases, _running) = start_bases(&served, &FixedCredentials::default(), wait::TIMEOUT);
    wait_for_labels(&bases, &want("one"), |labels| base_and_remark(labels) == Some(("first", None))).await;
    let digest = served.push("a/b", "1", in_label("second"), &[]);
    let labels =
        wait_for_labels(&bases, &want("one"), |labels| base_and_remark(labels) == Some(("second", None))).await;
    assert!(matches!(labels, ObservedLabels::Found { digest: found, .. } if found == digest));
}

#[tokio::test]
async fn unavailable_registry_falls_back_to_embedded_base() {
    let served = FakeRegistry::start().await;
    served.push("a/b", "1", in_label("late"), &[]);
    served.change(|state| state.error_status = Some(503));
    let (bases, _running) = start_bases(&served, &FixedCredentials::default(), wait::TIMEOUT);
    let labels =
        wait_for_labels(&bases, &want("one"), |labels| matches!(labels, ObservedLabels::Unavailable { .. })).await;
    let Choice::Use { resolved, remark: Some(remark) } = choose(Some("starter"), &labels, None) else {
        panic!("no base: {labels:?}")
    };
    assert_eq!(resolved.source, BaseSource::Embedded);
    assert_eq!(
        remark,
        "the labels of image registry.test/a/b:1 cannot be read: registry registry.test answered HTTP 503 to the \
         request for 1 (the \
         pull secret \"old\" does not exist)"
    );
    // A server that already runs with the base of the labels keeps it after a restart of the operator.
    assert!(matches!(choose(Some("starter"), &labels, Some(BaseSource::OciLabel)), Choice::Wait(_)));

    served.change(|state| state.error_status = None);
    let labels = wait_for_labels(&bases, &want("one"), |labels| base_and_remark(labels).is_some()).await;
    assert_eq!(base_and_remark(&labels), Some(("late", None)));
}

#[tokio::test]
async fn last_labels_are_kept_while_registry_fails() {
    let served = FakeRegistry::start().await;
    served.push("a/b", "1", in_label("kept"), &[]);
    let (bases, _running) = start_bases(&served, &FixedCredentials::default(), Duration::from_millis(500));
    wait_for_labels(&bases, &want("one"), |labels| base_and_remark(labels) == Some(("kept", None))).await;
    served.change(|state| state.hangs = true);
    let slow = |remark: &str| remark.contains("did not return the labels of the image within 500ms");
    let keeps_base_with = |labels: &ObservedLabels, is_expected: &dyn Fn(&str) -> bool| {
        assert_eq!(base_and_remark(labels).unwrap().0, "kept");
        base_and_remark(labels).unwrap().1.is_some_and(is_expected)
    };
    wait_for_labels(&bases, &want("one"), |labels| keeps_base_with(labels, &slow)).await;
    served.change(|state| (state.hangs, state.error_status) = (false, Some(500)));
    let labels = wait_for_labels(&bases, &want("one"), |labels| {
        keeps_base_with(labels, &|remark| remark.contains("answered HTTP 500"))
    })
    .await;
    let Choice::Use { resolved, remark } = choose(Some("starter"), &labels, Some(BaseSource::OciLabel)) else {
        panic!("no base: {labels:?}")
    };
    assert_eq!(resolved.source, BaseSource::OciLabel);
    assert!(remark.is_some());
    served.change(|state| state.error_status = None);
    wait_for_labels(&bases, &want("one"), |labels| base_and_remark(labels) == Some(("kept", None))).await;
}

#[tokio::test]
async fn forgotten_object_causes_no_requests() {
    let served = FakeRegistry::start().await;
    served.push("a/b", "1", in_label("x"), &[]);
    let (bases, _running) = start_bases(&served, &FixedCredentials::default(), wait::TIMEOUT);
    wait_for_labels(&bases, &want("one"), |labels| base_and_remark(labels).is_some()).await;
    bases.forget("here", "one");
    // The image of another object is requested several times meanwhile, the forgotten one is not.
    served.push("c/d", "1", in_label("other"), &[]);
    let other = ImageRequest { image: format!("{HOST}/c/d:1"), ..want("two") };
    wait_for_labels(&bases, &other, |labels| base_and_remark(labels).is_some()).await;
    served.take_requests();
    for name in ["second", "third"] {
        served.push("c/d", "1", in_label(name), &[]);
        wait_for_labels(&bases, &other, |labels| base_and_remark(labels) == Some((name, None))).await;
    }
    let requests = served.take_requests();
    assert!(!requests.is_empty() && requests.iter().all(|request| request.contains("/v2/c/d/")), "{requests:?}");
}

thread_local! {
    /// The log of this thread. None unless a test captures it.
    static LOG: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Subscriber of the whole process. A subscriber of one thread misses lines whose callsite another thread registered first.
struct LogCapture;

impl Visit for LogCapture {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        LOG.with_borrow_mut(|log| log.as_mut().map(|log| write!(log, "{}={value:?} ", field.name())));
    }
}

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for LogCapture {
    fn on_new_span(&self, attributes: &tracing::span::Attributes<'_>, _: &tracing::Id, _: Context<'_, S>) {
        attributes.record(&mut LogCapture);
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        event.record(&mut LogCapture);
    }
}

#[tokio::test]
async fn logs_and_messages_hold_no_credentials() {
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(LogCapture)).unwrap();
    LOG.set(Some(String::new()));
    let served = FakeRegistry::start().await;
    served.push("a/b", "1", in_label("x"), &[]);
    served.require_auth(RequiredAuth::Token, "the-user", "the-password");
    served.change(|state| state.redirects_blobs = true);
    let logins = FixedCredentials(Arc::new(Mutex::new(credentials(HOST, "the-user", "the-wrong-password"))));
    let (bases, _running) = start_bases(&served, &logins, wait::TIMEOUT);
    let silent =
        wait_for_labels(&bases, &want("one"), |labels| matches!(labels, ObservedLabels::Unavailable { .. })).await;
    *logins.0.lock().unwrap() = credentials(HOST, "the-user", "the-password");
    let labels = wait_for_labels(&bases, &want("one"), |labels| base_and_remark(labels).is_some()).await;

    let text = format!("{} {silent:?} {labels:?} {:?}", LOG.take().unwrap(), logins.0.lock().unwrap());
    assert!(text.contains("rejects the credentials") && text.contains("read the labels of an image"));
    assert!(text.contains("(secret)"), "the dump shows the credentials redacted");
    let encoded = ["the-user:the-password", "the-user:the-wrong-password"]
        .map(|login| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, login));
    for secret in ["the-user", "the-password", "the-wrong-password", TOKEN, "SIGNED", &encoded[0], &encoded[1]] {
        assert!(!text.contains(secret), "{secret} is in the output");
    }
}
