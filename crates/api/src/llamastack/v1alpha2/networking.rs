//! Port, certificates, exposure and allowed clients of the server.

use std::collections::BTreeMap;

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use super::form::form;
use super::{AllowedFrom, CaBundle, rules};

/// Port, certificates, exposure and allowed clients.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Networking {
    /// Port of the server, from 1024 to 65535. Default: 8321. A server without a generated configuration can use lower
    /// ports.
    #[schemars(extend("default" = 8321))]
    pub port: Option<i32>,
    /// Certificate of the server, and certificate authorities that it trusts. If absent, the server uses plain HTTP.
    pub tls: Option<Tls>,
    /// Exposes the server outside the cluster by an Ingress, or by a Route on OpenShift: `true`, `false`, or an object.
    /// `{}` means `true`. If absent, the server is not exposed.
    pub expose: Option<ExposeForm>,
    /// Namespaces whose pods may connect to the server. A NetworkPolicy then allows these namespaces, the namespace of
    /// this object, the operator's namespace and OpenShift's routers, and denies all others. If absent, there is a
    /// NetworkPolicy only if ConfigMap `llama-stack-operator-config` enables `enableNetworkPolicy`; it allows the
    /// namespace of this object, the operator's namespace and, if the server is exposed, OpenShift's routers.
    pub allowed_from: Option<AllowedFrom>,
}

/// Certificate of the server, and certificate authorities that it trusts.
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
    /// True makes the server use HTTPS with the certificate in `secretName`. Default: false.
    pub enabled: Option<bool>,
    /// Secret with the keys `tls.crt` and `tls.key` in the namespace of this object. Required if `enabled` is true,
    /// ignored otherwise.
    pub secret_name: Option<String>,
    /// ConfigMap with certificate authorities that the server trusts, even if `enabled` is false. The variable
    /// `SSL_CERT_FILE` of the server names a file with these and with those of ConfigMap `odh-trusted-ca-bundle`, if
    /// the namespace has that one.
    pub ca_bundle: Option<CaBundle>,
}

/// Exposure of the server outside the cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expose {
    /// False disables the exposure. Default: true.
    pub enabled: Option<bool>,
    /// Host name of the Ingress or Route. If absent, the Ingress accepts requests for any host, and the Route gets a
    /// host name from OpenShift.
    pub hostname: Option<String>,
    /// Unknown fields, to be reported. The API server does not prune them, because the node has no type.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// The exposure in the form in which it was written.
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
