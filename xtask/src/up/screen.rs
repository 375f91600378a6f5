//! Shows the state of all objects on one screen, which is updated in place.

mod view;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::DynamicObject;
use steersman_api::Family;
use steersman_testkit::Cluster;
use steersman_testkit::binaries::Binaries;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{self, Instant};

pub use self::view::Command;
use self::view::{EventRow, Model, ObjectRow, Section, render};
use super::object_state::{Health, ObjectState, count, object_state};
use super::observe::Observer;
use crate::terminal::{self, Screen};

/// Interval of the lists. The ages on the screen change as often.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the size of the terminal is read.
const RESIZE_INTERVAL: Duration = Duration::from_millis(200);

/// Notes of the simulators that are kept for the list of events.
const MAX_NOTES: usize = 20;

/// The sections, in the order of the screen.
const SECTIONS: [(Family, &str); 3] = [(Family::Dgdr, "Requests"), (Family::Llsd, "Servers"), (Family::Va, "Variants")];

/// The parts of the screen that do not change.
pub struct Frame {
    pub title: &'static str,
    /// The parts of the cluster that are simulated.
    pub simulated: String,
    /// The namespace of the objects.
    pub namespace: &'static str,
    /// The command that sets up a shell for the cluster.
    pub environment: String,
    /// Commands after those about the objects.
    pub commands: Vec<Command>,
}

/// Shows the screen. Ends with the error of `ensure_running`.
pub async fn show(
    mut ensure_running: impl FnMut() -> Result<()>,
    observer: &Observer,
    mut notes: UnboundedReceiver<String>,
    frame: Frame,
) -> Result<()> {
    let mut screen = Screen::enter()?;
    let mut state = ScreenState::new(frame);
    let (mut next_update, mut drawn_size) = (Instant::now(), None);
    loop {
        let mut changed = Instant::now() >= next_update;
        if changed {
            next_update = Instant::now() + UPDATE_INTERVAL;
            ensure_running()?;
            state.update(observer).await;
        }
        while let Ok(note) = notes.try_recv() {
            state.add_note(note, Timestamp::now());
            changed = true;
        }
        let size = terminal::size()?;
        if changed || drawn_size != Some(size) {
            screen.draw(render(&state.model(), Timestamp::now(), size), size)?;
            drawn_size = Some(size);
        }
        time::sleep(RESIZE_INTERVAL).await;
    }
}

/// Writes a file that sets up a shell for the cluster, and returns the command that reads it.
pub fn write_environment(folder: &Path, cluster: &Cluster, binaries: &Binaries) -> Result<String> {
    let file = folder.join("env");
    let kubectl = binaries.path("kubectl");
    let text = format!(
        "export KUBECONFIG={}\nalias kubectl={}\n",
        quoted(&cluster.admin_kubeconfig().display().to_string()),
        quoted(&quoted(&kubectl.display().to_string())),
    );
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let home = std::env::var("HOME").unwrap_or_default();
    Ok(format!(". {}", shell_path(&file.display().to_string(), &home)))
}

/// A path as a word of a shell, with `~` for the home folder if no character needs quotes.
fn shell_path(path: &str, home: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if !path.chars().all(is_plain) {
        return quoted(path);
    }
    match path.strip_prefix(home).filter(|rest| !home.is_empty() && rest.starts_with('/')) {
        Some(rest) => format!("~{rest}"),
        None => path.to_owned(),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The last observation of the cluster.
struct ScreenState {
    started: Timestamp,
    frame: Frame,
    objects: BTreeMap<Family, Vec<DynamicObject>>,
    events: Vec<Event>,
    notes: VecDeque<(Timestamp, String)>,
    /// Whether a list failed; the objects are then older than the others.
    outdated: bool,
}

impl ScreenState {
    fn new(frame: Frame) -> Self {
        Self {
            started: Timestamp::now(),
            frame,
            objects: BTreeMap::new(),
            events: Vec::new(),
            notes: VecDeque::new(),
            outdated: false,
        }
    }

    async fn update(&mut self, observer: &Observer) {
        self.outdated = false;
        for (family, objects) in observer.objects().await {
            match objects {
                Some(objects) => {
                    self.objects.insert(family, objects);
                }
                None => self.outdated = true,
            }
        }
        match observer.events().await {
            Some(events) => self.events = events,
            None => self.outdated = true,
        }
    }

    fn add_note(&mut self, note: String, now: Timestamp) {
        self.notes.push_front((now, note));
        self.notes.truncate(MAX_NOTES);
    }

    fn model(&self) -> Model {
        let sections: Vec<Section> = SECTIONS
            .iter()
            .map(|(family, title)| section(*family, title, self.objects.get(family).map_or(&[], Vec::as_slice)))
            .collect();
        Model {
            title: self.frame.title,
            started: self.started,
            simulated: self.frame.simulated.clone(),
            notice: self.outdated.then(|| "The API server does not answer; the states below may be old".to_owned()),
            commands: commands(&self.frame, &sections),
            sections,
            events: self.events(),
        }
    }

    /// The events of our objects and the notes of the simulators, the newest first.
    fn events(&self) -> Vec<EventRow> {
        let notes = self.notes.iter().map(|(time, note)| EventRow {
            time: *time,
            object: "simulated".to_owned(),
            warning: false,
            text: note.clone(),
        });
        let mut events: Vec<EventRow> = self.events.iter().filter_map(event).chain(notes).collect();
        events.sort_by_key(|event| std::cmp::Reverse(event.time));
        events
    }
}

fn section(family: Family, title: &'static str, objects: &[DynamicObject]) -> Section {
    let row = |object: &DynamicObject| ObjectRow {
        name: object.name_any(),
        state: object_state(family, &object.data["status"]),
        created: object.creation_timestamp().map(|created| created.0),
    };
    let mut objects: Vec<ObjectRow> = objects.iter().map(row).collect();
    objects.sort_by(|one, other| one.name.cmp(&other.name));
    Section { title, summary: summary(family, &objects), objects }
}

/// The number of objects in each phase. The phase of a variant is a number of replicas, so its health is counted instead.
fn summary(family: Family, objects: &[ObjectRow]) -> String {
    let mut counts: BTreeMap<(std::cmp::Reverse<Health>, &str), usize> = BTreeMap::new();
    for object in objects {
        let ObjectState { health, phase, .. } = &object.state;
        let word = match (family, health) {
            (Family::Va, Health::Good) => "decided",
            (Family::Va, Health::Waiting) => "waiting for metrics",
            (Family::Va, Health::Failed) => "without a decision",
            _ => phase.as_str(),
        };
        *counts.entry((std::cmp::Reverse(*health), word)).or_default() += 1;
    }
    counts.iter().map(|((_, word), number)| format!("{number} {word}")).collect::<Vec<_>>().join(", ")
}

/// `None` for events of other objects, such as pods.
fn event(event: &Event) -> Option<EventRow> {
    let regarding = event.regarding.as_ref()?;
    let family = Family::ALL.iter().find(|family| regarding.kind.as_deref() == Some(family.kind()))?;
    let series = event.series.as_ref();
    let time = series.map(|series| series.last_observed_time.0).or(event.event_time.as_ref().map(|time| time.0))?;
    let repeated = series.map(|series| format!(" ({})", count(series.count.unsigned_abs() as usize, "time")));
    let (reason, note) = (event.reason.as_deref().unwrap_or_default(), event.note.as_deref().unwrap_or_default());
    Some(EventRow {
        time,
        object: format!("{}/{}", family.short_name(), regarding.name.as_deref().unwrap_or_default()),
        warning: event.type_.as_deref() == Some("Warning"),
        text: format!("{reason}{}: {note}", repeated.unwrap_or_default()),
    })
}

/// Commands for a newcomer, about objects that exist.
fn commands(frame: &Frame, sections: &[Section]) -> Vec<Command> {
    let kubectl = format!("kubectl -n {}", frame.namespace);
    let mut commands = vec![
        Command { line: frame.environment.clone(), purpose: "sets KUBECONFIG and kubectl" },
        Command { line: format!("{kubectl} get dgdr,dgd,llsd,va,pods"), purpose: "all objects" },
    ];
    let objects = || {
        let families = SECTIONS.iter().zip(sections);
        families.flat_map(|((family, _), section)| section.objects.iter().map(|object| (*family, object)))
    };
    if let Some((family, object)) = objects().min_by_key(|(_, object)| object.state.health) {
        let purpose = if object.state.health == Health::Good { "all conditions" } else { "why it is not ready" };
        let line = format!("{kubectl} describe {} {}", family.short_name(), object.name);
        commands.push(Command { line, purpose });
    }
    let server = objects().find(|(family, object)| *family == Family::Llsd && object.state.health == Health::Good);
    if let Some((family, object)) = server {
        let line = format!("{kubectl} edit {} {}", family.short_name(), object.name);
        commands.push(Command { line, purpose: "change a server" });
    }
    commands.extend(frame.commands.iter().cloned());
    commands
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use steersman_testkit::object;

    use super::*;

    fn dynamic(family: Family, name: &str, status: &Value) -> DynamicObject {
        object(json!({ "apiVersion": format!("{}/v1", family.group()), "kind": family.kind(),
            "metadata": { "name": name, "creationTimestamp": "2026-01-02T03:04:05Z" }, "status": status }))
    }

    fn published(kind: &str, name: &str, time: &str, more: &Value) -> Event {
        let mut event = json!({ "metadata": { "name": "e" }, "eventTime": time, "type": "Normal", "reason": "Did",
            "note": "it is done", "regarding": { "kind": kind, "name": name } });
        for (field, value) in more.as_object().into_iter().flatten() {
            event[field] = value.clone();
        }
        object(event)
    }

    fn frame() -> Frame {
        Frame {
            title: "Steersman on a local cluster",
            simulated: "No containers run".to_owned(),
            namespace: "examples",
            environment: ". env".to_owned(),
            commands: Vec::new(),
        }
    }

    fn state() -> ScreenState {
        let mut state = ScreenState::new(frame());
        state.objects.insert(
            Family::Dgdr,
            vec![
                dynamic(Family::Dgdr, "rapid", &json!({ "phase": "Deployed" })),
                dynamic(Family::Dgdr, "late", &json!({ "phase": "Profiling", "profilingPhase": "SweepingDecode" })),
                dynamic(Family::Dgdr, "older", &json!({ "phase": "Deployed" })),
            ],
        );
        state.objects.insert(Family::Llsd, vec![dynamic(Family::Llsd, "simple", &json!({ "phase": "Ready" }))]);
        state
    }

    #[test]
    fn model_has_sections_in_order_of_names() {
        let model = state().model();
        let shown: Vec<_> = model.sections.iter().map(|section| (section.title, section.summary.as_str())).collect();
        assert_eq!(shown, [("Requests", "2 Deployed, 1 Profiling"), ("Servers", "1 Ready"), ("Variants", "")]);
        let names: Vec<_> = model.sections[0].objects.iter().map(|object| object.name.as_str()).collect();
        assert_eq!(names, ["late", "older", "rapid"]);
        assert_eq!(model.sections[0].objects[0].created, "2026-01-02T03:04:05Z".parse().ok());
        assert!(model.notice.is_none());
    }

    #[test]
    fn commands_are_about_existing_objects() {
        let lines =
            |state: &ScreenState| state.model().commands.into_iter().map(|command| command.line).collect::<Vec<_>>();
        let get = "kubectl -n examples get dgdr,dgd,llsd,va,pods".to_owned();
        let describe = "kubectl -n examples describe dgdr late".to_owned();
        let edit = "kubectl -n examples edit llsd simple".to_owned();
        assert_eq!(lines(&state()), [". env".to_owned(), get.clone(), describe, edit]);
        assert_eq!(lines(&ScreenState::new(frame())), [". env".to_owned(), get.clone()]);
        let more = Command { line: "curl".to_owned(), purpose: "a request" };
        let with_more = ScreenState::new(Frame { commands: vec![more], ..frame() });
        assert_eq!(lines(&with_more), [". env".to_owned(), get, "curl".to_owned()]);
    }

    #[test]
    fn events_of_our_objects_and_notes_are_sorted() {
        let mut state = state();
        let series = json!({ "series": { "count": 3, "lastObservedTime": "2026-01-02T03:00:09.000000Z" } });
        state.events = vec![
            published("Pod", "a-pod", "2026-01-02T03:00:08.000000Z", &json!({})),
            published("LlamaStackDistribution", "simple", "2026-01-02T03:00:01.000000Z", &series),
            published("VariantAutoscaling", "a", "2026-01-02T03:00:02.000000Z", &json!({ "type": "Warning" })),
        ];
        state.add_note("the load rises".to_owned(), "2026-01-02T03:00:05Z".parse().unwrap());
        let events = state.model().events;
        let shown: Vec<_> =
            events.iter().map(|event| (event.object.as_str(), event.warning, event.text.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("llsd/simple", false, "Did (3 times): it is done"),
                ("simulated", false, "the load rises"),
                ("va/a", true, "Did: it is done"),
            ]
        );
    }

    #[test]
    fn path_is_a_word_of_a_shell() {
        for (path, home, expected) in [
            ("/home/me/.cache/env", "/home/me", "~/.cache/env"),
            ("/home/mexico/env", "/home/me", "/home/mexico/env"),
            ("/var/x/env", "", "/var/x/env"),
            ("/home/me/a b/env", "/home/me", "'/home/me/a b/env'"),
            ("/it's/env", "/home/me", r"'/it'\''s/env'"),
        ] {
            assert_eq!(shell_path(path, home), expected);
        }
    }
}
