//! Writes `tracing` events as one JSON object per line: `level`, `ts` and `msg` first, then all other fields at the
//! same level, as users of the autoscaler grep them.

use std::fmt::{Debug, Write as _};
use std::io::Write;

use jiff::Timestamp;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

#[derive(Debug, thiserror::Error)]
#[error("logging is already set up")]
pub struct AlreadySetUp;

/// Sends what this process logs to standard output from now on.
pub fn install(own: Level) -> Result<(), AlreadySetUp> {
    // Debug lines of libraries are about sockets and frames, and would hide ours.
    let others = own.min(Level::INFO);
    // The caller reports a failed call in one line with its consequence, so the libraries' own lines are suppressed.
    let filter = Targets::new()
        .with_default(others)
        .with_target("steersman", own)
        .with_target("kube_runtime", LevelFilter::OFF)
        .with_target("kube_client", LevelFilter::OFF);
    let lines = JsonLines {
        write: |line: &str| drop(std::io::stdout().lock().write_all(line.as_bytes())),
        now: Timestamp::now,
    };
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(filter));
    tracing::subscriber::set_global_default(subscriber).map_err(|_| AlreadySetUp)
}

/// Turns each event into a line. A line that cannot be written is lost: there is no other place to report it.
struct JsonLines<W> {
    write: W,
    now: fn() -> Timestamp,
}

/// The fields of one span or event, in the order in which they were given.
#[derive(Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    /// The last value of a name wins, in the place of the first.
    fn put(&mut self, name: &'static str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field.name(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no NaN and no infinity; as text they are at least readable.
        self.put(field.name(), if value.is_finite() { value.into() } else { value.to_string().into() });
    }
}

impl<S, W> Layer<S> for JsonLines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Fn(&str) + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().replace(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(given) = span.extensions().get::<Fields>() {
                given.0.iter().for_each(|(name, value)| fields.put(name, value.clone()));
            }
        }
        event.record(&mut fields);
        (self.write)(&line(event.metadata(), (self.now)(), fields));
    }
}

fn line(metadata: &Metadata<'_>, now: Timestamp, mut fields: Fields) -> String {
    let place = fields.0.iter().position(|(name, _)| *name == "message");
    let message = place.map_or(Value::String(String::new()), |place| fields.0.remove(place).1);
    let mut line = format!(r#"{{"level":"{}","ts":"{now:.3}","msg":{message}"#, metadata.level());
    for (name, value) in fields.0 {
        // A key that comes twice would hide one of the two from most readers.
        let taken = matches!(name, "level" | "ts" | "msg");
        let key = Value::String(if taken { format!("{name}_") } else { name.to_owned() });
        let _ = write!(line, ",{key}:{value}");
    }
    line.push_str("}\n");
    line
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn logged(act: impl FnOnce()) -> String {
        let text = Arc::new(Mutex::new(String::new()));
        let sink = text.clone();
        let lines = JsonLines {
            write: move |line: &str| sink.lock().unwrap().push_str(line),
            now: || "2026-11-16T00:42:03.370912Z".parse().unwrap(),
        };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), act);
        let lines = text.lock().unwrap().clone();
        for line in lines.lines() {
            assert!(serde_json::from_str::<Value>(line).unwrap().is_object(), "{line}");
        }
        lines
    }

    #[test]
    fn line_starts_with_level_time_and_message() {
        let lines = logged(|| tracing::info!(lease = "steersman", count = 3, ratio = 0.5, done = true, "leading"));
        assert_eq!(
            lines,
            r#"{"level":"INFO","ts":"2026-11-16T00:42:03.370Z","msg":"leading","lease":"steersman","count":3,"ratio":0.5,"done":true}"#
                .to_owned()
                + "\n"
        );
    }

    #[test]
    fn innermost_span_field_wins() {
        let lines = logged(|| {
            let outer =
                tracing::info_span!("reconcile", controller = "llsd", namespace = "a", late = tracing::field::Empty);
            let _outer = outer.enter();
            outer.record("late", 7);
            let inner = tracing::info_span!("apply", namespace = "b");
            let _inner = inner.enter();
            tracing::warn!(controller = "dgdr", name = "x", "slow");
        });
        assert_eq!(
            lines,
            r#"{"level":"WARN","ts":"2026-11-16T00:42:03.370Z","msg":"slow","controller":"dgdr","namespace":"b","late":7,"name":"x"}"#
                .to_owned()
                + "\n"
        );
    }

    #[test]
    fn values_are_escaped_within_one_line() {
        let lines = logged(|| {
            let error = std::io::Error::other("line one\nline \"two\"");
            tracing::error!(%error, level = "x", ts = 1, nan = f64::NAN, "a\tb");
            tracing::debug!(only = "a field");
        });
        assert_eq!(
            lines,
            concat!(
                r#"{"level":"ERROR","ts":"2026-11-16T00:42:03.370Z","msg":"a\tb","error":"line one\nline \"two\"","level_":"x","ts_":1,"nan":"NaN"}"#,
                "\n",
                r#"{"level":"DEBUG","ts":"2026-11-16T00:42:03.370Z","msg":"","only":"a field"}"#,
                "\n"
            )
        );
    }
}
