//! Port, certificates, exposure and allowed clients of the server.

use std::collections::BTreeMap;

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use super::form::form;
use super::{AllowedFrom, CaBundle, rules};

/// How the server is reached.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Networking {
    /// Port that the server listens on, 8321 unless given; servers refuse ports below 1024.
    #[schemars(extend("default" = 8321))]
    pub port: Option<i32>,
    /// Certificates: the server's own, and those that it trusts. Absent: plain HTTP.
    pub tls: Option<Tls>,
    /// Whether an Ingress, or a Route on OpenShift, makes the server reachable from outside the cluster: `true`, `false`, or
    /// an object with a `hostname`; `{}` means `true`. Absent: not exposed.
    pub expose: Option<ExposeForm>,
    /// Namespaces that may reach the server. Given: a NetworkPolicy admits these and the operator. Absent: the operator's
    /// default policy.
    pub allowed_from: Option<AllowedFrom>,
}

/// Certificates: the server's own, and those that it trusts.
#[skip_serializing_none]
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = (
        rules::TLS_NEEDS_SECRET,
        "secretName is required when TLS is enabled"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Whether the server speaks HTTPS, with the certificate of `secretName`. Absent: it does not.
    pub enabled: Option<bool>,
    /// A Secret of type `kubernetes.io/tls` in the namespace of this object. Needed when `enabled` is true, unused
    /// otherwise.
    pub secret_name: Option<String>,
    /// Certificate authorities that the server trusts when it calls others, whether `enabled` or not.
    pub ca_bundle: Option<CaBundle>,
}

/// How the server is exposed.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expose {
    /// Whether the server is exposed. Absent: it is.
    pub enabled: Option<bool>,
    /// Host name of the Ingress or Route. Absent: the Ingress takes requests for any host, the Route gets a host of its own.
    pub hostname: Option<String>,
    /// Fields that are none of the above. The API server prunes nothing below a node without a type, so a misspelt name
    /// is still there to be reported.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// Exposure, as it was written.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ExposeForm {
    Flag(bool),
    Detail(Expose),
}

impl ExposeForm {
    /// An object enables exposure unless its `enabled` is false.
    pub fn enabled(&self) -> bool {
        match self {
            Self::Flag(flag) => *flag,
            Self::Detail(expose) => expose.enabled.unwrap_or(true),
        }
    }

    pub fn hostname(&self) -> Option<&str> {
        match self {
            Self::Flag(_) => None,
            Self::Detail(expose) => expose.hostname.as_deref(),
        }
    }
}

form! {
    ExposeForm,
    "true, false or an object such as `hostname: llama.example.com`",
    Expose => ExposeForm::Detail,
    {
        fn visit_bool<E>(self, flag: bool) -> Result<ExposeForm, E> {
            Ok(ExposeForm::Flag(flag))
        }
    },
    |expose| { "x-kubernetes-preserve-unknown-fields": true, "properties": expose.get("properties") }
}
