//! Reads the latency targets and priorities of models from ConfigMap `service-classes-config`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::note::{Notes, entries};

/// The model name of a target that applies to every model without its own.
const ANY: &str = "default/default";
/// The lowest priority, which models without a class have.
pub const LAST: i64 = 100;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Class {
    #[serde(default)]
    pub name: String,
    /// A smaller number is a higher priority.
    #[serde(default)]
    pub priority: i64,
    #[serde(default)]
    pub data: Vec<Target>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Empty for any namespace.
    #[serde(default)]
    pub namespace: String,
    #[serde(default)]
    pub model: String,
    /// Milliseconds per output token.
    #[serde(default, rename = "slo-tpot")]
    pub tpot: f64,
    /// Milliseconds to the first token.
    #[serde(default, rename = "slo-ttft")]
    pub ttft: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Classes {
    pub by_key: BTreeMap<String, Class>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ClassTarget<'a> {
    /// Key of the class in the ConfigMap.
    pub key: &'a str,
    pub class: &'a Class,
    pub target: &'a Target,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "model {model:?} in namespace {namespace:?} not found in any service class and default/default fallback not found"
)]
pub struct NoTarget {
    pub model: String,
    pub namespace: String,
}

impl Classes {
    /// `key`: the class that the object references. If it has no target for the model, all classes are searched.
    pub fn find(&self, namespace: &str, model: &str, key: Option<&str>) -> Result<ClassTarget<'_>, NoTarget> {
        let referred = key.and_then(|key| self.by_key.get_key_value(key));
        let places = [(namespace, model), ("", model), (namespace, ANY), ("", ANY)];
        let all: Vec<(&String, &Class)> = self.by_key.iter().collect();
        referred
            .and_then(|class| among(&[class], &places))
            .or_else(|| among(&all, &places))
            .ok_or_else(|| NoTarget { model: model.to_owned(), namespace: namespace.to_owned() })
    }
}

fn among<'a>(classes: &[(&'a String, &'a Class)], places: &[(&str, &str)]) -> Option<ClassTarget<'a>> {
    places.iter().find_map(|(namespace, model)| {
        classes.iter().find_map(|(key, class)| {
            // An entry whose targets are both missing or 0 sets none, for example after a misspelled field.
            let has_target = |target: &Target| target.tpot > 0.0 || target.ttft > 0.0;
            let fits =
                |target: &&Target| target.namespace == *namespace && target.model == *model && has_target(target);
            class.data.iter().find(fits).map(|target| ClassTarget { key, class, target })
        })
    })
}

pub fn read(data: &BTreeMap<String, String>, last: &Classes, notes: &mut Notes<'_>) -> Classes {
    let by_key = entries(
        data,
        |_| true,
        &last.by_key,
        notes,
        |_, class: &mut Class, _, _| {
            if !(1..=LAST).contains(&class.priority) {
                class.priority = LAST;
            }
            let bad = class.data.iter().find(|target| {
                let usable = |slo: f64| slo.is_finite() && slo >= 0.0;
                !usable(target.tpot) || !usable(target.ttft)
            });
            match bad {
                Some(target) => Err(format!("the targets of model {:?} must be milliseconds, 0 or more", target.model)),
                None => Ok(()),
            }
        },
    );
    Classes { by_key }
}
