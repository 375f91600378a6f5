//! Log lines of the workload variant autoscaler that stay word for word, with the names of their fields: users count
//! them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use super::tests::{controller, stored};
use super::*;

/// Level, message and fields of one line. Values are as in Debug.
type Line = (String, String, BTreeMap<&'static str, String>);

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<Line>>>);

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.0.remove("message").unwrap_or_default();
        self.0.lock().unwrap().push((event.metadata().level().to_string(), message, fields.0));
    }
}

impl Lines {
    fn take(&self) -> Vec<Line> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn info(message: &str, fields: &[(&'static str, &str)]) -> Line {
    let fields = fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    ("INFO".to_owned(), message.to_owned(), fields)
}

#[tokio::test]
async fn wva_04_config_map_change_keeps_log_line() {
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(lines.clone()));
    let controller = controller();
    controller.synced.get_or_init(|| ());
    let config_map = || Trigger::ConfigMapChanged(NamespacedName::new("system", "variantautoscaling-config"));
    let name = ("configMap", "\"variantautoscaling-config\"");
    lines.take();
    controller.on_trigger(config_map());
    let skipped = info("No VariantAutoscalings found, skipping ConfigMap reconciliation", &[name]);
    assert_eq!(lines.take(), [skipped]);
    for namespace in ["a", "b"] {
        controller.fleet.put_variant(&stored(namespace, "decode"));
    }
    controller.on_trigger(config_map());
    let fields = [name, ("totalVAs", "2"), ("trigger", "\"v\"")];
    assert_eq!(lines.take(), [info("ConfigMap changed, triggering global reconciliation", &fields)]);
}

#[tokio::test]
async fn empty_fleet_keeps_log_lines() {
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(lines.clone()));
    controller().reconcile().await;
    let messages: Vec<String> = lines.take().into_iter().map(|(_, message, _)| message).collect();
    for kept in ["Starting reconciliation", "No active VariantAutoscalings found, skipping optimization"] {
        assert!(messages.iter().any(|message| message == kept), "{messages:?}");
    }
}
