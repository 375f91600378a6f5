//! A client that fails where it is told to, on the way to a real API server.
//! Comes in: a client, the number of a call and how that call shall fail; goes out: the same client with that one flaw,
//! and [`crash_everywhere`], which tries every flaw at every call and compares what is left.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result};
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::namespace::Namespace;

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The connection breaks before anything is sent.
    NotSent,
    /// The server does what was asked, and the connection breaks before the answer.
    AnswerLost,
    /// The server does nothing and answers with this code.
    Status(u16),
    /// The server does what was asked, and there is never an answer.
    Timeout,
}

impl Cut {
    /// All that happens to a call in real life.
    pub const ALL: [Self; 7] = [
        Self::NotSent,
        Self::AnswerLost,
        Self::Status(409),
        Self::Status(429),
        Self::Status(500),
        Self::Status(504),
        Self::Timeout,
    ];

    /// Whether the process is taken to die with this call.
    fn kills(self) -> bool {
        matches!(self, Self::NotSent | Self::AnswerLost)
    }
}

/// Which calls are counted and cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Those that change something.
    Writes,
    /// Reads too.
    All,
}

/// Counts the calls of its clients and cuts one of them.
#[derive(Clone, Debug)]
pub struct Cutter {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The number of the call, from 1, and how it fails.
    cut: Option<(usize, Cut)>,
    /// After the cut every call fails.
    then_dead: bool,
    counted: Calls,
    calls: AtomicUsize,
    /// Those that change something, counted or not.
    writes: AtomicUsize,
    hit: AtomicBool,
}

impl Cutter {
    /// Cuts nothing and counts the calls that change something.
    pub fn counting() -> Self {
        Self::new(Calls::Writes, None, false)
    }

    /// Cuts call `number`, from 1, of those that change something.
    pub fn at(number: usize, cut: Cut) -> Self {
        Self::new(Calls::Writes, Some((number, cut)), false)
    }

    fn new(counted: Calls, cut: Option<(usize, Cut)>, then_dead: bool) -> Self {
        let (calls, writes, hit) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { cut, then_dead, counted, calls, writes, hit }) }
    }

    /// The process is dead after the cut: no further call is sent.
    pub fn then_dead(self) -> Self {
        Self::new(self.shared.counted, self.shared.cut, true)
    }

    /// Counts and cuts reads too.
    pub fn with_reads(self) -> Self {
        Self::new(Calls::All, self.shared.cut, self.shared.then_dead)
    }

    /// How many calls were counted, the cut one included.
    pub fn calls(&self) -> usize {
        self.shared.calls.load(Ordering::SeqCst)
    }

    fn writes(&self) -> usize {
        self.shared.writes.load(Ordering::SeqCst)
    }

    /// Whether the cut has happened.
    pub fn hit(&self) -> bool {
        self.shared.hit.load(Ordering::SeqCst)
    }

    /// The same client, cut by this.
    pub fn around(&self, client: &Client) -> Client {
        let (inner, namespace) = (client.clone(), client.default_namespace().to_owned());
        let cutter = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, cutter) = (inner.clone(), cutter.clone());
            async move { cutter.send(&client, request).await }
        });
        Client::new(service, namespace)
    }

    async fn send(&self, client: &Client, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let shared = &self.shared;
        if shared.then_dead && self.hit() {
            return Err(broken("the process is dead; this call is not made"));
        }
        let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if !reads {
            shared.writes.fetch_add(1, Ordering::SeqCst);
        } else if shared.counted == Calls::Writes {
            return Ok(client.send(request).await?);
        }
        let number = shared.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let Some((_, cut)) = shared.cut.filter(|(at, _)| *at == number) else {
            return Ok(client.send(request).await?);
        };
        shared.hit.store(true, Ordering::SeqCst);
        match cut {
            Cut::NotSent => Err(broken("cut before the call was sent")),
            Cut::AnswerLost => {
                client.send(request).await?;
                Err(broken("cut before the answer came"))
            }
            Cut::Timeout => {
                client.send(request).await?;
                std::future::pending().await
            }
            Cut::Status(code) => Ok(answer(code)?),
        }
    }
}

fn broken(what: &str) -> tower::BoxError {
    io::Error::new(io::ErrorKind::ConnectionReset, what).into()
}

fn answer(code: u16) -> http::Result<Response<Body>> {
    let reason = match code {
        409 => "Conflict",
        429 => "TooManyRequests",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {}, "code": code,
        "reason": reason, "message": format!("cut: answered {code}") });
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(Body::from(status.to_string().into_bytes()))
}

/// What came of [`crash_everywhere`].
#[derive(Debug)]
pub struct Crashes {
    /// How many calls the undisturbed run made.
    pub calls: usize,
    /// How many disturbed runs there were.
    pub runs: usize,
    /// The runs that did not end as the undisturbed one, or not at all.
    pub broken: Vec<String>,
}

/// No work needs more passes than this to settle.
const MOST_PASSES: usize = 10;

/// Runs some work undisturbed, then once more for each of its calls and each of `cuts`, each time in a fresh namespace,
/// and compares the objects that are left when nothing is written any more.
///
/// `prepare` makes what is there before; `pass` does the work once, with the client it is given and no other for what it
/// writes; `snapshot` lists all objects that matter. A process that dies starts again with a client that works.
pub async fn crash_everywhere<T>(
    cluster: &Cluster,
    prefix: &str,
    cuts: &[Cut],
    prepare: impl AsyncFn(&Namespace) -> Result<T>,
    pass: impl AsyncFn(Client, &Namespace, &T) -> Result<()>,
    snapshot: impl AsyncFn(&Namespace) -> Result<Vec<Value>>,
) -> Result<Crashes> {
    crash_everywhere_and(cluster, prefix, (Calls::Writes, cuts), prepare, pass, async |_| Ok(()), snapshot).await
}

/// The same with a choice of the calls, and with what must hold `always`: it is looked at after every pass, also after one
/// that was cut, before anything can mend what it left.
pub async fn crash_everywhere_and<T>(
    cluster: &Cluster,
    prefix: &str,
    (counted, cuts): (Calls, &[Cut]),
    prepare: impl AsyncFn(&Namespace) -> Result<T>,
    pass: impl AsyncFn(Client, &Namespace, &T) -> Result<()>,
    always: impl AsyncFn(&Namespace) -> Result<()>,
    snapshot: impl AsyncFn(&Namespace) -> Result<Vec<Value>>,
) -> Result<Crashes> {
    let admin = cluster.admin().await?;
    let work = async |cutter: &Cutter| {
        let namespace = cluster.namespace(prefix).await?;
        let given = prepare(&namespace).await.context("preparing")?;
        let pass = async |client| pass(client, &namespace, &given).await;
        let settled = settle(&admin, cutter, pass, async || always(&namespace).await).await;
        let left = snapshot(&namespace).await.context("reading what is left")?;
        anyhow::Ok((settled, normalised(left, namespace.name())))
    };

    let counter = Cutter::new(counted, None, false);
    let (settled, expected) = work(&counter).await?;
    settled.context("the undisturbed run")?;
    let calls = counter.calls();
    let mut crashes = Crashes { calls, runs: 0, broken: Vec::new() };
    for (number, cut) in (1..=calls).flat_map(|number| cuts.iter().map(move |cut| (number, *cut))) {
        let cutter = Cutter::new(counted, Some((number, cut)), cut.kills());
        let (settled, left) = work(&cutter).await?;
        crashes.runs += 1;
        let flaw = match settled {
            Err(error) => Some(format!("{error:#}")),
            Ok(()) if !cutter.hit() => Some("there was no such call".to_owned()),
            Ok(()) => compare(&expected, &left),
        };
        if let Some(flaw) = flaw {
            crashes.broken.push(format!("{cut:?} at call {number} of {calls}: {flaw}"));
        }
    }
    Ok(crashes)
}

/// Passes until one succeeds and writes nothing. The passes after a death have a client that works.
async fn settle(
    client: &Client,
    cutter: &Cutter,
    pass: impl AsyncFn(Client) -> Result<()>,
    always: impl AsyncFn() -> Result<()>,
) -> Result<()> {
    let again = Cutter::counting();
    let mut last = None;
    for _ in 0..MOST_PASSES {
        let current = if cutter.shared.then_dead && cutter.hit() { &again } else { cutter };
        let before = current.writes();
        let passed = pass(current.around(client)).await;
        always().await.context("what must hold always")?;
        match passed {
            Ok(()) if current.writes() == before => return Ok(()),
            Ok(()) => last = None,
            Err(error) => last = Some(error),
        }
    }
    let last = last.unwrap_or_else(|| anyhow::anyhow!("it still writes"));
    Err(last.context(format!("not settled after {MOST_PASSES} passes")))
}

/// Runs some work as it goes, then once more for each of its passes with a watch that was held back: after that pass, one
/// is made on each of the views that were taken before it. What is left in the end must be the same.
///
/// `view` takes in all that a pass may look at; `pass` does the work once on a view; `change` is what the user does when
/// the first part of the work has settled.
pub async fn stale_everywhere<V>(
    cluster: &Cluster,
    prefix: &str,
    prepare: impl AsyncFn(&Namespace) -> Result<()>,
    change: impl AsyncFn(&Namespace) -> Result<()>,
    view: impl AsyncFn(&Namespace) -> Result<V>,
    pass: impl AsyncFn(Client, &V) -> Result<()>,
    snapshot: impl AsyncFn(&Namespace) -> Result<Vec<Value>>,
) -> Result<Crashes> {
    let admin = cluster.admin().await?;
    // Held back after this pass, from 1; 0: never. Returns how many passes there were and what is left.
    let work = async |held_back: usize| {
        let namespace = cluster.namespace(prefix).await?;
        prepare(&namespace).await.context("preparing")?;
        let mut views = Vec::new();
        let mut changed = false;
        loop {
            let counter = Cutter::counting();
            views.push(view(&namespace).await.context("looking")?);
            if let Some(newest) = views.last() {
                pass(counter.around(&admin), newest).await?;
            }
            if views.len() == held_back {
                for old in &views {
                    // An old view may well lead to a refusal; it must not lead anywhere else.
                    let _ = pass(admin.clone(), old).await;
                }
            } else if counter.writes() == 0 && changed {
                break;
            } else if counter.writes() == 0 {
                change(&namespace).await.context("changing")?;
                changed = true;
            }
            anyhow::ensure!(views.len() < 3 * MOST_PASSES, "it still writes");
        }
        let left = snapshot(&namespace).await.context("reading what is left")?;
        anyhow::Ok((views.len(), normalised(left, namespace.name())))
    };
    let (passes, expected) = work(0).await?;
    let mut crashes = Crashes { calls: passes, runs: 0, broken: Vec::new() };
    for held_back in 1..=passes {
        crashes.runs += 1;
        let flaw = match work(held_back).await {
            Err(error) => Some(format!("{error:#}")),
            Ok((_, left)) => compare(&expected, &left),
        };
        crashes.broken.extend(flaw.map(|flaw| format!("held back after pass {held_back} of {passes}: {flaw}")));
    }
    Ok(crashes)
}

/// How the objects of two runs differ, if they do.
fn compare(expected: &[Value], left: &[Value]) -> Option<String> {
    let names = |objects: &[Value]| objects.iter().map(name).collect::<Vec<_>>().join(", ");
    if expected.len() != left.len() {
        let (expected_names, left_names) = (names(expected), names(left));
        return Some(format!(
            "{} objects instead of {}: [{left_names}] instead of [{expected_names}]",
            left.len(),
            expected.len()
        ));
    }
    let (expected, left) = expected.iter().zip(left).find(|(expected, left)| expected != left)?;
    Some(format!("{} differs at {}", name(left), first_difference(expected, left)))
}

/// Where two values differ first, with both: whole objects would hide it.
fn first_difference(expected: &Value, left: &Value) -> String {
    let nothing = Value::Null;
    let below = match (expected, left) {
        (Value::Object(one), Value::Object(other)) => one.keys().chain(other.keys()).find_map(|key| {
            let (one, other) = (one.get(key).unwrap_or(&nothing), other.get(key).unwrap_or(&nothing));
            (one != other).then(|| format!(".{key}{}", first_difference(one, other)))
        }),
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let place = one.iter().zip(other).position(|(one, other)| one != other);
            place.map(|place| format!("[{place}]{}", first_difference(&one[place], &other[place])))
        }
        _ => None,
    };
    below.unwrap_or_else(|| format!(": {left} instead of {expected}"))
}

fn name(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or("?");
    format!("{} {}", text("/kind"), text("/metadata/name"))
}

/// Objects without what differs between any two runs: uids, versions, times, addresses and the namespace's name.
pub fn normalised(mut objects: Vec<Value>, namespace: &str) -> Vec<Value> {
    let mut uids = Vec::new();
    for object in &mut objects {
        collect_uids(object, &mut uids);
        scrub(object);
    }
    // Uids and the namespace also stand inside of names and of the keys of managed fields.
    let mut text = Value::Array(objects).to_string().replace(namespace, "NAMESPACE");
    for uid in uids {
        text = text.replace(&uid, "UID");
    }
    let mut objects: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
    objects.sort_by_cached_key(|object| (name(object), object.to_string()));
    objects
}

fn collect_uids(value: &Value, uids: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(uid)) = fields.get("uid") {
                uids.push(uid.clone());
            }
            fields.values().for_each(|value| collect_uids(value, uids));
        }
        Value::Array(items) => items.iter().for_each(|value| collect_uids(value, uids)),
        _ => {}
    }
}

fn scrub(value: &mut Value) {
    const OWN_TO_A_RUN: [&str; 10] = [
        "resourceVersion",
        "creationTimestamp",
        "time",
        "lastTransitionTime",
        "lastUpdateTime",
        "lastUpdated",
        "startTime",
        "clusterIP",
        "clusterIPs",
        "nodePort",
    ];
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !OWN_TO_A_RUN.contains(&name.as_str()));
            fields.values_mut().for_each(scrub);
            // The API server keeps the entries in the order of their times, which are gone now.
            if let Some(Value::Array(entries)) = fields.get_mut("managedFields") {
                entries.sort_by_cached_key(Value::to_string);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(scrub),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(namespace: &str, uid: &str, version: &str) -> Value {
        json!({ "kind": "ServiceAccount", "metadata": { "name": "a", "namespace": namespace, "uid": uid,
            "resourceVersion": version, "managedFields": [{ "time": version, "manager": "x",
            "fieldsV1": { format!("k:{{\"uid\":\"{uid}\"}}"): {} } }] } })
    }

    #[test]
    fn two_runs_look_the_same_but_for_what_they_did() {
        let one = normalised(vec![account("run-1", "u-1", "5")], "run-1");
        let two = normalised(vec![account("run-2", "u-2", "9")], "run-2");
        assert_eq!(one, two);
        assert_eq!(compare(&one, &two), None);
        let mut other = two.clone();
        other[0]["metadata"]["labels"] = json!({ "a": "b" });
        let said = "ServiceAccount a differs at .metadata.labels: {\"a\":\"b\"} instead of null";
        assert_eq!(compare(&one, &other).as_deref(), Some(said));
        let doubled = [two.clone(), two].concat();
        assert!(compare(&one, &doubled).unwrap().starts_with("2 objects instead of 1"));
    }
}
