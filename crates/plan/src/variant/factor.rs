//! Defines the factors of a decision: codes that code compares, and a text that only people read.

use std::fmt;

use serde::Serialize;
use steersman_api::variant::v1alpha1::DecisionFactor;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Signal,
    Limits,
    Hold,
}

impl Stage {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Limits => "limits",
            Self::Hold => "hold",
        }
    }
}

macro_rules! factor_codes {
    ($($name:ident,)*) => {
        /// Codes in `status.decision.factors`. A code keeps its meaning once a version has stored it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        pub enum FactorCode { $($name,)* }

        impl FactorCode {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

factor_codes! {
    AcceleratorNotOffered,
    AcceleratorUnknown,
    AcceleratorsNotCounted,
    AcceleratorsShort,
    DecisionPending,
    EndpointPickerQueueUnknown,
    FirstReplica,
    GrowthPerReconcile,
    InTransition,
    InternalError,
    KvCacheInUse,
    LastReplica,
    MaxReplicas,
    MaxReplicasBelowOne,
    MetricsAvailable,
    MetricsMissing,
    MetricsNotRequested,
    MetricsPending,
    MetricsQueryFailed,
    MetricsStale,
    MinReplicas,
    ModelIDEmpty,
    ModelIDTooLong,
    ModelNotQueried,
    MorePodsThanReplicas,
    NamespaceExcluded,
    NoReplicaReady,
    NoReplicas,
    OtherVariantsLimited,
    PodCapacityUnknown,
    PodKvCacheUnknown,
    PodQueueUnknown,
    PodsNotFound,
    PrometheusNotConfigured,
    QueueUnknown,
    RecentDecision,
    ReplicaSaturation,
    ReplicasNotReady,
    ReplicasWithoutMetrics,
    RequestLengthUnknown,
    RequestsAtEndpointPicker,
    RequestsQueued,
    RequestsUnknown,
    ScaleDownTakenBack,
    ScaleTargetMissing,
    ScaleTargetNotFound,
    ScaleTargetUnreadable,
    ScaleToZeroBlocked,
    ScaleToZeroEntryInvalid,
    ScaledToZero,
    StabilizationWindow,
    TargetConflict,
    TokenDemand,
    WorkloadUnmoved,
}

/// The subject of a factor, if it is not the object itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub enum FactorSubject {
    #[default]
    Own,
    Variant(String),
    Pod(String),
    Model(String),
    Accelerator(String),
    /// Key of an entry in a ConfigMap.
    Key(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Factor {
    pub code: FactorCode,
    pub about: FactorSubject,
    /// A number that does not move with the load: a bound, or the replicas of a scale target that does not change.
    pub replicas: Option<i32>,
}

impl Factor {
    pub const fn new(code: FactorCode) -> Self {
        Self { code, about: FactorSubject::Own, replicas: None }
    }

    pub const fn about(code: FactorCode, about: FactorSubject) -> Self {
        Self { code, about, replicas: None }
    }

    pub fn replicas(code: FactorCode, replicas: i32) -> Self {
        Self { code, about: FactorSubject::Own, replicas: Some(replicas.max(0)) }
    }

    /// The form in `status.decision.factors`.
    pub fn stored(&self, stage: Stage) -> DecisionFactor {
        let mut stored = DecisionFactor {
            stage: stage.as_str().to_owned(),
            code: self.code.as_str().to_owned(),
            replicas: self.replicas,
            ..DecisionFactor::default()
        };
        match &self.about {
            FactorSubject::Own => {}
            FactorSubject::Variant(name) => stored.variant = Some(name.clone()),
            FactorSubject::Pod(name) => stored.pod = Some(name.clone()),
            FactorSubject::Model(name) => stored.model = Some(name.clone()),
            FactorSubject::Accelerator(name) => stored.accelerator = Some(name.clone()),
            FactorSubject::Key(name) => stored.key = Some(name.clone()),
        }
        stored
    }
}

pub fn is(stored: &DecisionFactor, stage: Stage, code: FactorCode) -> bool {
    stored.stage == stage.as_str() && stored.code == code.as_str()
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub factors: Vec<Factor>,
    pub text: String,
}

impl Explanation {
    pub fn new(code: FactorCode, text: impl Into<String>) -> Self {
        Self::of(Factor::new(code), text)
    }

    pub fn of(factor: Factor, text: impl Into<String>) -> Self {
        Self { factors: vec![factor], text: text.into() }
    }

    pub fn has(&self, code: FactorCode) -> bool {
        self.factors.iter().any(|factor| factor.code == code)
    }

    #[must_use]
    pub fn reworded(self, text: impl Into<String>) -> Self {
        Self { text: text.into(), ..self }
    }

    /// Puts `code` in front of the factors that cause it.
    #[must_use]
    pub fn as_cause_of(mut self, code: FactorCode, text: impl Into<String>) -> Self {
        self.factors.insert(0, Factor::new(code));
        self.reworded(text)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}
