//! What passes see of images while registries answer, fail, hang or move a tag; and that nothing secret is said on the way.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use steersman::llamastack::oci::{Bases, Gathered, Logins, Rhythm, Want};
use steersman_plan::llamastack::config::base::Source;
use steersman_plan::oci::{Choice, Credentials, LabelsSeen, choose};
use steersman_reconcile::NamespacedName;
use steersman_testkit::wait;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, SubscriberExt};

use super::served::{HOST, Served, TOKEN, Wants};
use super::{credentials, in_label};

const QUICK: Rhythm = Rhythm {
    moved: Duration::from_millis(20),
    first_retry: Duration::from_millis(20),
    last_retry: Duration::from_millis(40),
    at_once: 2,
};

/// The same for everyone, until changed.
#[derive(Clone, Default)]
struct Fixed(Arc<Mutex<Credentials>>);

impl Logins for Fixed {
    fn of<'a>(&'a self, _: &'a Want) -> BoxFuture<'a, Gathered> {
        let credentials = self.0.lock().unwrap().clone();
        async move { Gathered { credentials, remarks: vec!["the pull secret \"old\" does not exist".to_owned()] } }
            .boxed()
    }
}

fn started(served: &Served, logins: &Fixed, limit: Duration) -> (Bases, DropGuard) {
    let bases = Bases::new(served.registry_within(limit), logins.clone(), QUICK);
    let stop = CancellationToken::new();
    let (running, until) = (bases.clone(), stop.clone());
    tokio::spawn(async move { running.run(until).await });
    (bases, stop.drop_guard())
}

fn want(name: &str) -> Want {
    Want {
        namespace: "here".to_owned(),
        name: name.to_owned(),
        image: format!("{HOST}/a/b:1"),
        service_account: String::new(),
        pull_secrets: vec![],
    }
}

/// Waits for the news and gives what an object sees then, once it is as expected.
async fn next(bases: &Bases, want: &Want, expected: impl Fn(&LabelsSeen) -> bool) -> LabelsSeen {
    let news = async {
        loop {
            let seen = bases.seen(want);
            if expected(&seen) {
                return seen;
            }
            bases.changed().await;
        }
    };
    tokio::time::timeout(wait::LIMIT, news).await.expect("the news came")
}

fn found(seen: &LabelsSeen) -> Option<(&str, Option<&str>)> {
    match seen {
        LabelsSeen::Found { base: Ok(Some(base)), remark, .. } => {
            Some((base.config["distro_name"].as_str().unwrap(), remark.as_deref()))
        }
        _ => None,
    }
}

#[tokio::test]
async fn a_pass_never_waits_and_is_woken_when_the_labels_are_there() {
    let served = Served::start().await;
    served.push("a/b", "1", in_label("x"), &[]);
    let (bases, _running) = started(&served, &Fixed::default(), wait::LIMIT);
    assert_eq!(bases.seen(&want("one")), LabelsSeen::Awaited);
    assert_eq!(bases.seen(&want("two")), LabelsSeen::Awaited);
    let woken = tokio::time::timeout(wait::LIMIT, bases.changed()).await.unwrap();
    assert_eq!(woken, ["one", "two"].map(|name| NamespacedName::new("here", name)).into());
    assert_eq!(found(&bases.seen(&want("one"))), Some(("x", None)));
}

#[tokio::test]
async fn a_tag_that_moves_wakes_who_wants_it() {
    let served = Served::start().await;
    served.push("a/b", "1", in_label("first"), &[]);
    let (bases, _running) = started(&served, &Fixed::default(), wait::LIMIT);
    next(&bases, &want("one"), |seen| found(seen) == Some(("first", None))).await;
    let digest = served.push("a/b", "1", in_label("second"), &[]);
    let seen = next(&bases, &want("one"), |seen| found(seen) == Some(("second", None))).await;
    assert!(matches!(seen, LabelsSeen::Found { digest: seen, .. } if seen == digest));
}

#[tokio::test]
async fn a_registry_that_is_down_at_first_leaves_the_embedded_base_with_a_remark() {
    let served = Served::start().await;
    served.push("a/b", "1", in_label("late"), &[]);
    served.change(|inside| inside.fails = Some(503));
    let (bases, _running) = started(&served, &Fixed::default(), wait::LIMIT);
    let seen = next(&bases, &want("one"), |seen| matches!(seen, LabelsSeen::Silent { .. })).await;
    let Choice::Use { resolved, remark: Some(remark) } = choose(Some("starter"), &seen, None) else {
        panic!("no base: {seen:?}")
    };
    assert_eq!(resolved.source, Source::Embedded);
    assert_eq!(
        remark,
        "the labels of image registry.test/a/b:1 cannot be read: registry registry.test answered 503 when asked for 1 (the \
         pull secret \"old\" does not exist)"
    );
    // A server that runs with the labels' base, as before a restart of the operator, keeps it.
    assert!(matches!(choose(Some("starter"), &seen, Some(Source::OciLabel)), Choice::Wait(_)));

    served.change(|inside| inside.fails = None);
    let seen = next(&bases, &want("one"), |seen| found(seen).is_some()).await;
    assert_eq!(found(&seen), Some(("late", None)));
}

#[tokio::test]
async fn the_last_answer_counts_while_a_registry_hangs_or_fails() {
    let served = Served::start().await;
    served.push("a/b", "1", in_label("kept"), &[]);
    let (bases, _running) = started(&served, &Fixed::default(), Duration::from_millis(500));
    next(&bases, &want("one"), |seen| found(seen) == Some(("kept", None))).await;
    served.change(|inside| inside.hangs = true);
    let slow = |remark: &str| remark.contains("did not give the labels of the image within 500ms");
    let stays = |seen: &LabelsSeen, told: &dyn Fn(&str) -> bool| {
        assert_eq!(found(seen).unwrap().0, "kept");
        found(seen).unwrap().1.is_some_and(told)
    };
    next(&bases, &want("one"), |seen| stays(seen, &slow)).await;
    served.change(|inside| (inside.hangs, inside.fails) = (false, Some(500)));
    let seen = next(&bases, &want("one"), |seen| stays(seen, &|remark| remark.contains("answered 500"))).await;
    let Choice::Use { resolved, remark } = choose(Some("starter"), &seen, Some(Source::OciLabel)) else {
        panic!("no base: {seen:?}")
    };
    assert_eq!(resolved.source, Source::OciLabel);
    assert!(remark.is_some());
    served.change(|inside| inside.fails = None);
    next(&bases, &want("one"), |seen| found(seen) == Some(("kept", None))).await;
}

#[tokio::test]
async fn an_object_that_is_gone_is_not_asked_for_any_more() {
    let served = Served::start().await;
    served.push("a/b", "1", in_label("x"), &[]);
    let (bases, _running) = started(&served, &Fixed::default(), wait::LIMIT);
    next(&bases, &want("one"), |seen| found(seen).is_some()).await;
    bases.forget("here", "one");
    // Another object's image is asked for several times meanwhile; the forgotten one's is not.
    served.push("c/d", "1", in_label("other"), &[]);
    let other = Want { image: format!("{HOST}/c/d:1"), ..want("two") };
    next(&bases, &other, |seen| found(seen).is_some()).await;
    served.asked();
    for name in ["second", "third"] {
        served.push("c/d", "1", in_label(name), &[]);
        next(&bases, &other, |seen| found(seen) == Some((name, None))).await;
    }
    let asked = served.asked();
    assert!(!asked.is_empty() && asked.iter().all(|asked| asked.contains("/v2/c/d/")), "{asked:?}");
}

thread_local! {
    /// Everything that is logged on this thread, by anyone; None: nobody listens.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// For the whole process: one that is set for a thread alone misses lines that other threads were the first to log.
struct Listening;

impl Visit for Listening {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        SAID.with_borrow_mut(|said| said.as_mut().map(|said| write!(said, "{}={value:?} ", field.name())));
    }
}

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Listening {
    fn on_new_span(&self, attributes: &tracing::span::Attributes<'_>, _: &tracing::Id, _: Context<'_, S>) {
        attributes.record(&mut Listening);
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        event.record(&mut Listening);
    }
}

#[tokio::test]
async fn nothing_that_is_said_holds_a_credential() {
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Listening)).unwrap();
    SAID.set(Some(String::new()));
    let served = Served::start().await;
    served.push("a/b", "1", in_label("x"), &[]);
    served.guard(Wants::Token, "the-user", "the-password");
    served.change(|inside| inside.sends_on = true);
    let logins = Fixed(Arc::new(Mutex::new(credentials(HOST, "the-user", "the-wrong-password"))));
    let (bases, _running) = started(&served, &logins, wait::LIMIT);
    let silent = next(&bases, &want("one"), |seen| matches!(seen, LabelsSeen::Silent { .. })).await;
    *logins.0.lock().unwrap() = credentials(HOST, "the-user", "the-password");
    let seen = next(&bases, &want("one"), |seen| found(seen).is_some()).await;

    let text = format!("{} {silent:?} {seen:?} {:?}", SAID.take().unwrap(), logins.0.lock().unwrap());
    assert!(text.contains("does not accept the credentials") && text.contains("the labels of an image were read"));
    assert!(text.contains("(secret)"), "the credentials are in the dump, mute");
    let encoded = ["the-user:the-password", "the-user:the-wrong-password"]
        .map(|login| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, login));
    for secret in ["the-user", "the-password", "the-wrong-password", TOKEN, "SIGNED", &encoded[0], &encoded[1]] {
        assert!(!text.contains(secret), "{secret} is said");
    }
}
