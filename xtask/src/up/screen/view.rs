//! Arranges the objects, the latest events and the commands on a screen of a given size. Texts are shortened to their
//! columns, and objects that do not fit are counted.

use jiff::{SignedDuration, Timestamp};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::terminal::{Line, Size, Span, Style};
use crate::up::object_state::{Health, ObjectState};

/// Everything that the screen shows.
pub struct Model {
    pub title: &'static str,
    pub started: Timestamp,
    /// The parts of the cluster that are simulated.
    pub simulated: String,
    /// A problem of this program itself.
    pub notice: Option<String>,
    pub sections: Vec<Section>,
    /// The newest first.
    pub events: Vec<EventRow>,
    pub commands: Vec<Command>,
}

pub struct Section {
    pub title: &'static str,
    /// The state of all objects together.
    pub summary: String,
    /// In the order in which they are shown.
    pub objects: Vec<ObjectRow>,
}

pub struct ObjectRow {
    pub name: String,
    pub state: ObjectState,
    pub created: Option<Timestamp>,
}

pub struct EventRow {
    pub time: Timestamp,
    /// Such as `dgdr/rapid`.
    pub object: String,
    pub warning: bool,
    pub text: String,
}

#[derive(Clone)]
pub struct Command {
    pub line: String,
    pub purpose: &'static str,
}

const EXIT: &str = "Ctrl-C ends everything";

const MAX_EVENTS: usize = 12;

/// Events that are shown even if some objects do not fit for it.
const MIN_EVENTS: usize = 3;

/// Objects of each section, on average, that must fit before events are shown.
const MIN_OBJECTS: usize = 3;

/// Columns between two fields.
const GAP: usize = 2;

/// Columns of an age, such as `119s`.
const AGE_WIDTH: usize = 4;

/// Reasons with fewer columns are left out.
const MIN_REASON_WIDTH: usize = 12;

/// The lines of the screen at `now`: at most `size.height`, each of at most `size.width` columns.
pub fn render(model: &Model, now: Timestamp, size: Size) -> Vec<Line> {
    let Size { width, height } = size;
    let mut lines = head(model, now, width);
    let commands = commands(&model.commands, width);
    let layout = layout(model, lines.len(), commands.len(), height);
    let name_width = name_width(model, width);
    for (section, shown) in model.sections.iter().zip(&layout.objects) {
        lines.extend(layout.blank());
        lines.push(heading(section, *shown, width));
        let phase_width = longest(section.objects.iter().map(|object| object.state.phase.as_str())).min(width / 3);
        for object in shown_objects(&section.objects, *shown) {
            lines.push(object_line(object, now, name_width, phase_width, width));
        }
    }
    if layout.events > 0 {
        lines.extend(layout.blank());
        lines.push(bounded(vec![span("Events", Style::Heading)], width));
        let events = &model.events[..layout.events];
        let object_width = longest(events.iter().map(|event| event.object.as_str())).min(width / 3);
        lines.extend(events.iter().map(|event| event_line(event, now, object_width, width)));
    }
    if layout.commands {
        lines.extend(layout.blank());
        lines.extend(commands);
    }
    lines.truncate(height);
    lines
}

/// Title, simulated parts and notice.
fn head(model: &Model, now: Timestamp, width: usize) -> Vec<Line> {
    let title = format!("{}, up {}", model.title, age(now, model.started));
    let free = width.saturating_sub(columns(&title) + columns(EXIT));
    let mut first = vec![span(title, Style::Heading)];
    if free >= GAP {
        first.push(span(" ".repeat(free), Style::Plain));
        first.push(span(EXIT, Style::Faint));
    }
    let mut lines = vec![bounded(first, width)];
    lines.extend(wrap_words(&model.simulated, width).into_iter().map(|line| vec![span(line, Style::Faint)]));
    if let Some(notice) = &model.notice {
        lines.push(bounded(vec![span(notice.as_str(), Style::Failed)], width));
    }
    lines
}

/// The number of lines of each part.
struct Layout {
    /// Objects of each section.
    objects: Vec<usize>,
    events: usize,
    commands: bool,
    /// Whether empty lines separate the parts.
    spaced: bool,
}

impl Layout {
    fn blank(&self) -> Option<Line> {
        self.spaced.then(Line::new)
    }
}

/// The commands come first, because a newcomer needs them, then some events, then the objects. What is left goes to empty
/// lines and further events.
fn layout(model: &Model, head: usize, commands: usize, height: usize) -> Layout {
    let wanted: Vec<usize> = model.sections.iter().map(|section| section.objects.len()).collect();
    let sections = wanted.len();
    let mut free = height.saturating_sub(head + sections);
    let shows_commands = commands > 0 && free >= commands + sections;
    if shows_commands {
        free -= commands;
    }
    let mut events = model.events.len().min(MIN_EVENTS);
    if events > 0 && free > events + MIN_OBJECTS * sections {
        free -= events + 1;
    } else {
        events = 0;
    }
    let objects = share(&wanted, free);
    free -= objects.iter().sum::<usize>();
    let gaps = sections + usize::from(events > 0) + usize::from(shows_commands);
    let spaced = free >= gaps;
    if spaced {
        free -= gaps;
    }
    if events > 0 {
        events = model.events.len().min(MAX_EVENTS).min(events + free);
    }
    Layout { objects, events, commands: shows_commands, spaced }
}

/// Divides `free` lines: every section gets one more in turn, until it has what it wants.
fn share(wanted: &[usize], mut free: usize) -> Vec<usize> {
    let mut shares = vec![0; wanted.len()];
    while free > 0 && shares != wanted {
        for (share, wanted) in shares.iter_mut().zip(wanted) {
            if *share < *wanted && free > 0 {
                *share += 1;
                free -= 1;
            }
        }
    }
    shares
}

/// If not all objects fit, those with problems are shown. The order stays, so that lines do not jump.
fn shown_objects(objects: &[ObjectRow], shown: usize) -> Vec<&ObjectRow> {
    let mut ranked: Vec<usize> = (0..objects.len()).collect();
    ranked.sort_by_key(|index| objects[*index].state.health);
    ranked.truncate(shown);
    ranked.sort_unstable();
    ranked.into_iter().map(|index| &objects[index]).collect()
}

fn heading(section: &Section, shown: usize, width: usize) -> Line {
    let all = section.objects.len();
    let text = match all {
        0 => "none".to_owned(),
        _ if shown < all => format!("{shown} of {all} shown: {}", section.summary),
        _ => format!("{all}: {}", section.summary),
    };
    bounded(vec![span(section.title, Style::Heading), span("  ", Style::Plain), span(text, Style::Plain)], width)
}

fn object_line(object: &ObjectRow, now: Timestamp, name_width: usize, phase_width: usize, width: usize) -> Line {
    let ObjectState { health, phase, part, reason } = &object.state;
    let (mark, style) = match health {
        Health::Failed => ("! ", Style::Failed),
        Health::Waiting => ("~ ", Style::Waiting),
        Health::Good => ("  ", Style::Good),
    };
    let fixed = columns(mark) + name_width + GAP + phase_width + GAP + AGE_WIDTH;
    let reason_width = width.saturating_sub(fixed + GAP);
    let mut line = vec![
        span(mark, style),
        span(pad(&object.name, name_width + GAP, name_width), Style::Plain),
        span(pad(phase, phase_width + GAP, phase_width), style),
    ];
    if reason_width >= MIN_REASON_WIDTH {
        let reason = part.iter().chain([reason]).map(String::as_str).collect::<Vec<_>>().join(": ");
        line.push(span(pad(&reason, reason_width + GAP, reason_width), Style::Plain));
    }
    let age = object.created.map(|created| age(now, created)).unwrap_or_default();
    line.push(span(format!("{age:>AGE_WIDTH$}"), Style::Faint));
    bounded(line, width)
}

fn event_line(event: &EventRow, now: Timestamp, object_width: usize, width: usize) -> Line {
    let (mark, style) = if event.warning { ("! ", Style::Waiting) } else { ("  ", Style::Plain) };
    let age = age(now, event.time);
    let line = vec![
        span(mark, style),
        span(format!("{age:>AGE_WIDTH$}  "), Style::Faint),
        span(pad(&event.object, object_width + GAP, object_width), Style::Plain),
        span(event.text.as_str(), style),
    ];
    bounded(line, width)
}

/// The lines with the commands. A command is never shortened: it continues on the next line.
fn commands(commands: &[Command], width: usize) -> Vec<Line> {
    const INDENT: usize = 2;
    let mut lines = vec![bounded(vec![span("Try in another terminal", Style::Heading)], width)];
    let command_width = longest(commands.iter().map(|command| command.line.as_str()));
    for Command { line, purpose } in commands {
        if INDENT + command_width + GAP + 2 + columns(purpose) <= width {
            let command = format!("  {}", pad(line, command_width + GAP, command_width));
            lines.push(vec![span(command, Style::Plain), span(format!("# {purpose}"), Style::Faint)]);
            continue;
        }
        let indent = if INDENT + columns(line) <= width { "  " } else { "" };
        let parts = wrap(line, width.saturating_sub(indent.len()).max(1));
        lines.extend(parts.into_iter().map(|part| bounded(vec![span(format!("{indent}{part}"), Style::Plain)], width)));
    }
    lines
}

/// One width for all sections, so that their columns are in line.
fn name_width(model: &Model, width: usize) -> usize {
    let names = model.sections.iter().flat_map(|section| &section.objects).map(|object| object.name.as_str());
    longest(names).min(width / 3)
}

fn longest<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(columns).max().unwrap_or_default()
}

/// An age as `kubectl get` shows it: `119s`, `15m`, `5h`, `3d`.
fn age(now: Timestamp, then: Timestamp) -> String {
    let seconds = SignedDuration::as_secs(&now.duration_since(then)).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn span(text: impl Into<String>, style: Style) -> Span {
    Span { text: text.into(), style }
}

/// Columns of a text on the terminal.
fn columns(text: &str) -> usize {
    text.width()
}

/// The text in at most `limit` columns, filled with spaces to `width`.
fn pad(text: &str, width: usize, limit: usize) -> String {
    let mut padded = fit(text, limit);
    padded.push_str(&" ".repeat(width.saturating_sub(columns(&padded))));
    padded
}

/// The text in at most `limit` columns, on one line. Control characters become spaces: texts of users must not control the
/// terminal.
fn fit(text: &str, limit: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let text = text.trim_end();
    if columns(text) <= limit {
        return text.to_owned();
    }
    let dots = ".".repeat(limit.min(3));
    take_columns(text, limit - dots.len()).trim_end().to_owned() + &dots
}

/// The beginning of a text.
fn take_columns(text: &str, limit: usize) -> &str {
    let mut taken = 0;
    let too_wide = text.char_indices().find(|(_, c)| {
        taken += c.width().unwrap_or_default();
        taken > limit
    });
    too_wide.map_or(text, |(at, _)| &text[..at])
}

/// Cuts a text into lines of at most `width` columns.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let mut line = take_columns(rest, width);
        if line.is_empty() {
            // Not even one character fits; the end of the line is cut.
            line = rest;
        }
        lines.push(line.to_owned());
        rest = &rest[line.len()..];
    }
    lines
}

/// Cuts a text between words.
fn wrap_words(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if columns(line) + 1 + columns(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fit(word, width)),
        }
    }
    lines
}

/// The line in at most `width` columns.
fn bounded(line: Line, width: usize) -> Line {
    let mut free = width;
    let mut bounded = Line::new();
    for mut part in line {
        if columns(&part.text) > free || part.text.contains(char::is_control) {
            part.text = fit(&part.text, free);
        }
        free -= columns(&part.text);
        bounded.push(part);
    }
    bounded
}

#[cfg(test)]
mod tests;
