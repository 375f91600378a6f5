//! What the operator's own ConfigMap says about all objects.
//! Comes in: its content, and what was read of it before; goes out: images and switches, and what is wrong with it. A part
//! that cannot be read counts as it did before.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use steersman_reconcile::{Finding, Severity};

use super::config::base;
use super::fields;
use super::snapshot::{ObservedObject, Settings};
use crate::oci::Reference;

/// Under the name that the Go operator gave it, so that those who come from there need not write it anew.
pub const NAME: &str = "llama-stack-operator-config";
/// Where the Go operator is installed, unless somebody chose otherwise.
pub const FORMER_NAMESPACE: &str = "llama-stack-k8s-operator-system";

const IMAGES: &str = "image-overrides";
const FLAGS: &str = "featureFlags";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorConfig {
    /// As in `steersman-system/llama-stack-operator-config`. Empty: there is none.
    pub place: String,
    pub images: Images,
    pub policy: DefaultPolicy,
    pub faults: Vec<Fault>,
}

/// Images that take the place of those of this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Images {
    /// By the name of their distribution.
    Known(BTreeMap<String, String>),
    /// They were never read, so that a server that runs keeps the image that it has.
    Unknown,
}

impl Default for Images {
    fn default() -> Self {
        Self::Known(BTreeMap::new())
    }
}

/// Whether an object that says nothing of who may connect gets a NetworkPolicy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultPolicy {
    #[default]
    Off,
    On,
    /// It was never read, so that a policy that is there stays.
    Unknown,
}

/// One thing that is wrong with the ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub about: About,
    pub message: String,
    pub remedy: String,
}

/// Which objects a fault concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// All.
    Everything,
    /// Those whose image follows from a name.
    Images,
    /// Those of this distribution.
    Distribution(String),
}

impl OperatorConfig {
    /// `before` is what was last read; None: nothing was since the operator started.
    pub fn read(place: &str, data: &BTreeMap<String, String>, before: Option<&Self>) -> Self {
        let mut config = Self { place: place.to_owned(), ..Self::default() };
        match parse::<BTreeMap<String, Value>>(data.get(IMAGES)) {
            Ok(given) => config.images = Images::Known(config.images(given)),
            Err(at) => {
                config.images = before.map_or(Images::Unknown, |before| before.images.clone());
                config.faults.push(config.unreadable(
                    About::Images,
                    IMAGES,
                    &at,
                    "Images stay as they were.",
                    "Write one line for each distribution, as in `starter: registry.example.com/starter:0.7.1`.",
                ));
            }
        }
        match parse::<Flags>(data.get(FLAGS)) {
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
                    "NetworkPolicies stay as they were.",
                    "Write `enableNetworkPolicy: {enabled: true}`, or false.",
                ));
            }
        }
        config
    }

    /// Where the ConfigMap may be and cannot be read.
    pub fn unknown(place: &str, cause: &str, before: Option<&Self>) -> Self {
        let fault = Fault {
            about: About::Everything,
            message: format!(
                "ConfigMap {place} cannot be read: {cause}. Images and NetworkPolicies that follow from it stay as they were"
            ),
            remedy: "Let Steersman get, list and watch it; `steersman rbac` prints the rule.".to_owned(),
        };
        let known = before.cloned().unwrap_or(Self {
            images: Images::Unknown,
            policy: DefaultPolicy::Unknown,
            ..Self::default()
        });
        Self { place: place.to_owned(), faults: vec![fault], ..known }
    }

    /// Those that can be used. What is wrong with the others is told.
    fn images(&mut self, given: BTreeMap<String, Value>) -> BTreeMap<String, String> {
        let mut images = BTreeMap::new();
        for (name, image) in given {
            let wrong = match image.as_str().map(Reference::parse) {
                _ if base::distribution(&name).is_none() => {
                    let known = base::names().collect::<Vec<_>>().join(", ");
                    Some(("there is no such distribution".to_owned(), format!("Use one of {known}.")))
                }
                Some(Err(bad)) => Some((bad.to_string(), "Correct it.".to_owned())),
                None => Some(("it is not a text".to_owned(), "Write the image behind the colon.".to_owned())),
                Some(Ok(_)) => None,
            };
            match (wrong, image) {
                (None, Value::String(image)) => _ = images.insert(name, image),
                (wrong, _) => {
                    let (cause, remedy) = wrong.unwrap_or_default();
                    let message =
                        format!("ConfigMap {}, key {IMAGES}, entry {name}: {cause}. It is passed over", self.place);
                    self.faults.push(Fault { about: About::Distribution(name), message, remedy });
                }
            }
        }
        images
    }

    fn unreadable(&self, about: About, key: &str, at: &str, meanwhile: &str, remedy: &str) -> Fault {
        let message = format!(
            "ConfigMap {}, key {key}: this is not YAML of the form that is needed{at}. {meanwhile}",
            self.place
        );
        Fault { about, message, remedy: remedy.to_owned() }
    }

    /// What those who look after an object should know of the ConfigMap's faults.
    pub fn findings(&self, object: &ObservedObject) -> Vec<Finding> {
        let name = fields::distribution(&object.spec);
        let concerned = |fault: &&Fault| match &fault.about {
            About::Everything => true,
            About::Images => name.is_some(),
            About::Distribution(known) => name == Some(known),
        };
        let finding = |fault: &Fault| Finding {
            severity: Severity::Warning,
            reason: "OperatorConfigInvalid",
            message: fault.message.clone(),
            remedy: fault.remedy.clone(),
        };
        self.faults.iter().filter(concerned).map(finding).collect()
    }
}

impl Settings {
    /// The same under another ConfigMap of the operator.
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

/// A key that is absent or blank says nothing. The reason quotes nothing of the text, only where it went wrong.
fn parse<T: DeserializeOwned + Default>(text: Option<&String>) -> Result<T, String> {
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return Ok(T::default()) };
    serde_saphyr::from_str::<Option<T>>(text).map(Option::unwrap_or_default).map_err(|error| match error.location() {
        Some(at) => format!(" (line {}, column {})", at.line(), at.column()),
        None => String::new(),
    })
}
