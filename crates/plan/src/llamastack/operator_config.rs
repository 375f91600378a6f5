//! Parses the operator's ConfigMap with images and feature flags for all objects. A key that cannot be parsed keeps the
//! value that was read before.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use steersman_reconcile::Finding;

use super::config::base;
use super::fields;
use super::snapshot::{ObservedObject, Settings};
use crate::oci::ImageReference;
use crate::yaml::{Budget, YamlError};

/// The name that the Go operator uses, so that its ConfigMap works unchanged.
pub const NAME: &str = "llama-stack-operator-config";

const IMAGES: &str = "image-overrides";
const FLAGS: &str = "featureFlags";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorConfig {
    /// Namespace and name, as in `steersman-system/llama-stack-operator-config`. Empty: there is no ConfigMap.
    pub place: String,
    pub images: Images,
    pub policy: DefaultPolicy,
    pub faults: Vec<ConfigFault>,
}

/// Images that replace the defaults of this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Images {
    Known(BTreeMap<String, String>),
    /// The images were never read. Running servers keep theirs.
    Unknown,
}

impl Default for Images {
    fn default() -> Self {
        Self::Known(BTreeMap::new())
    }
}

/// Whether an object without `allowedFrom` gets a NetworkPolicy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultPolicy {
    #[default]
    Off,
    On,
    /// The flag was never read. An existing policy stays.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    pub about: About,
    pub message: String,
    pub remedy: String,
}

/// The objects that a fault concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    Everything,
    /// Objects whose image follows from a distribution name.
    Images,
    Distribution(String),
}

impl OperatorConfig {
    /// `before` is the last state. None: nothing was read since the operator started.
    pub fn read(place: &str, data: &BTreeMap<String, String>, before: Option<&Self>) -> Self {
        let mut config = Self { place: place.to_owned(), ..Self::default() };
        let mut budget = Budget::default();
        match parse::<BTreeMap<String, Value>>(&mut budget, data.get(IMAGES)) {
            Ok(given) => config.images = Images::Known(config.images(given)),
            Err(at) => {
                config.images = before.map_or(Images::Unknown, |before| before.images.clone());
                config.faults.push(config.unreadable(
                    About::Images,
                    IMAGES,
                    &at,
                    "Images stay unchanged.",
                    "Write one line for each distribution, as in `starter: registry.example.com/starter:0.7.1`.",
                ));
            }
        }
        match parse::<Flags>(&mut budget, data.get(FLAGS)) {
            Ok(flags) => {
                let on = flags.enable_network_policy.and_then(|flag| flag.enabled).unwrap_or_default();
                config.policy = if on { DefaultPolicy::On } else { DefaultPolicy::Off };
            }
            Err(at) => {
                config.policy = before.map_or(DefaultPolicy::Unknown, |before| before.policy);
                config.faults.push(config.unreadable(
                    About::Everything,
                    FLAGS,
                    &at,
                    "NetworkPolicies stay unchanged.",
                    "Write `enableNetworkPolicy: {enabled: true}` or `enableNetworkPolicy: {enabled: false}`.",
                ));
            }
        }
        config
    }

    /// The state while the ConfigMap cannot be read.
    pub fn unknown(place: &str, cause: &str, before: Option<&Self>) -> Self {
        let fault = ConfigFault {
            about: About::Everything,
            message: format!(
                "ConfigMap {place} cannot be read: {cause}. Images and NetworkPolicies that depend on it stay unchanged"
            ),
            remedy: "Give Steersman the right to get, list and watch it; `steersman rbac` prints the rule.".to_owned(),
        };
        let known = before.cloned().unwrap_or(Self {
            images: Images::Unknown,
            policy: DefaultPolicy::Unknown,
            ..Self::default()
        });
        Self { place: place.to_owned(), faults: vec![fault], ..known }
    }

    /// Returns the valid images and records a fault for each of the others.
    fn images(&mut self, given: BTreeMap<String, Value>) -> BTreeMap<String, String> {
        let mut images = BTreeMap::new();
        for (name, image) in given {
            let (cause, remedy) = match image.as_str().map(|image| (image, ImageReference::parse(image))) {
                _ if base::distribution(&name).is_none() => {
                    let known = base::names().collect::<Vec<_>>().join(", ");
                    ("unknown distribution".to_owned(), format!("Use one of {known}."))
                }
                Some((image, Ok(_))) => {
                    images.insert(name, image.to_owned());
                    continue;
                }
                Some((_, Err(bad))) => (bad.to_string(), "Correct the image.".to_owned()),
                None => ("the image is not a string".to_owned(), "Write the image after the colon.".to_owned()),
            };
            let message =
                format!("ConfigMap {}, key {IMAGES}, entry {name}: {cause}. Steersman ignores the entry", self.place);
            self.faults.push(ConfigFault { about: About::Distribution(name), message, remedy });
        }
        images
    }

    fn unreadable(&self, about: About, key: &str, at: &str, meanwhile: &str, remedy: &str) -> ConfigFault {
        let message =
            format!("ConfigMap {}, key {key}: the value is not YAML of the expected form{at}. {meanwhile}", self.place);
        ConfigFault { about, message, remedy: remedy.to_owned() }
    }

    pub fn findings(&self, object: &ObservedObject) -> Vec<Finding> {
        let name = fields::distribution(&object.spec);
        let concerned = |fault: &&ConfigFault| match &fault.about {
            About::Everything => true,
            About::Images => name.is_some(),
            About::Distribution(known) => name == Some(known),
        };
        let finding = |fault: &ConfigFault| {
            Finding::warning("OperatorConfigInvalid", fault.message.as_str(), fault.remedy.as_str())
        };
        self.faults.iter().filter(concerned).map(finding).collect()
    }
}

impl Settings {
    /// The same settings with another ConfigMap of the operator.
    pub fn under(&self, config: OperatorConfig) -> Self {
        let mut settings = self.clone();
        if let Images::Known(images) = &config.images {
            settings.distributions.extend(images.clone());
        }
        settings.operator_config = config;
        settings
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Flags {
    enable_network_policy: Option<Flag>,
}

#[derive(Deserialize)]
struct Flag {
    enabled: Option<bool>,
}

/// A missing or blank key yields the default. The error names the limit or the position and quotes nothing of the text.
fn parse<T: DeserializeOwned + Default>(budget: &mut Budget, text: Option<&String>) -> Result<T, String> {
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return Ok(T::default()) };
    budget.parse::<Option<T>>(text).map(Option::unwrap_or_default).map_err(|error| match error {
        YamlError::Limit(limit) => format!(" ({limit})"),
        YamlError::Invalid { location: Some((line, column)), .. } => format!(" (line {line}, column {column})"),
        YamlError::Invalid { location: None, .. } => String::new(),
    })
}
