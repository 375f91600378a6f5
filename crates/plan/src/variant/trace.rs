//! Records how a number came about, stage by stage. Code compares the codes of the factors; the texts are for people only.

use std::fmt;

use serde::Serialize;
use steersman_api::variant::v1alpha1::DecisionFactor;

use super::analyze::measured_demand::FlipPoints;
use super::snapshot::ObservedVariant;

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
    ArrivalRate,
    ArrivalRateUnknown,
    DecisionPending,
    EndpointPickerQueueUnknown,
    FirstReplica,
    GrowthPerReconcile,
    InTransition,
    InternalError,
    KvCacheInUse,
    LastReplica,
    LatencyTargetMissed,
    LatencyTargetUnreachable,
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
    PodWithoutMetrics,
    PodsNotFound,
    PrometheusNotConfigured,
    QueueUnknown,
    RecentDecision,
    ReplicaSaturation,
    ReplicasNotReady,
    ReplicasStarting,
    ReplicasWithoutMetrics,
    RequestCountersMissing,
    RequestDemand,
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
    ServiceClassMissing,
    StabilizationWindow,
    TargetConflict,
    TokenDemand,
    VariantProfileInvalid,
    VariantProfileMissing,
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

impl FactorSubject {
    pub fn of(variant: &ObservedVariant) -> Self {
        Self::Variant(variant.key.name.clone())
    }
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

/// The stage that determined the replica target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DecidedBy {
    /// The metrics ask for no change.
    #[default]
    Signal,
    /// The solver's target.
    Solver,
    /// Bounds, scale to zero, GPUs or another limit.
    Limits,
    /// Unknown data or an unfinished decision keeps the number.
    Hold,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DecisionTrace {
    /// The load that the metrics show.
    pub signal: Explanation,
    /// The capacity that is missing or spare.
    pub need: String,
    /// The request rates of the model at which the need changes.
    pub flip: FlipPoints,
    /// The solver's result for this variant.
    pub solver: String,
    pub limits: Vec<Explanation>,
    pub hold: Option<Explanation>,
    pub decided_by: DecidedBy,
    /// The solver's target without any limit.
    pub wanted: i32,
    pub granted: i32,
}

impl DecisionTrace {
    /// The target is granted, but the scale target stays below it.
    pub fn is_unmoved(&self) -> bool {
        self.limits.iter().any(|limit| limit.has(FactorCode::WorkloadUnmoved))
    }

    /// The variant waits for an earlier decision to be carried out.
    pub fn in_transition(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.has(FactorCode::InTransition))
    }

    /// The factors of all stages.
    pub fn factors(&self) -> impl Iterator<Item = &Factor> {
        let explanations = [&self.signal].into_iter().chain(&self.limits).chain(&self.hold);
        explanations.flat_map(|explanation| &explanation.factors)
    }

    pub fn limit_texts(&self) -> Vec<&str> {
        self.limits.iter().map(|limit| limit.text.as_str()).collect()
    }

    pub fn hold_text(&self) -> Option<&str> {
        self.hold.as_ref().map(|hold| hold.text.as_str())
    }
}

impl DecidedBy {
    /// The value in `status.decision.decidedBy` and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Solver => "solver",
            Self::Limits => "limits",
            Self::Hold => "hold",
        }
    }
}

impl fmt::Display for DecisionTrace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stages = [("signal", &self.signal.text), ("need", &self.need), ("solver", &self.solver)];
        for (name, text) in stages.iter().filter(|(_, text)| !text.is_empty()) {
            write!(out, "{name}: {text}; ")?;
        }
        if !self.limits.is_empty() {
            write!(out, "limits: {}; ", self.limit_texts().join(", "))?;
        }
        if let Some(hold) = &self.hold {
            write!(out, "hold: {hold}; ")?;
        }
        write!(out, "wanted {}, granted {}, decided by {}", self.wanted, self.granted, self.decided_by.as_str())
    }
}

/// The number of a variant on its way through the stages.
#[derive(Clone, Debug)]
pub struct Proposal<'a> {
    pub variant: &'a ObservedVariant,
    pub replicas: i32,
    pub reason: String,
    /// `reason` without what bounds changed; None if they changed nothing.
    pub unclamped_reason: Option<String>,
    /// The number was decided in this reconcile, not kept.
    pub is_decided: bool,
    /// The obstacle between the number and the unconstrained one, other than the bounds.
    pub obstacle: Option<Explanation>,
    pub trace: DecisionTrace,
}

impl Proposal<'_> {
    pub fn set_reason(&mut self, reason: String) {
        (self.reason, self.unclamped_reason) = (reason, None);
    }

    pub fn extend_reason(&mut self, text: &str) {
        self.set_reason(format!("{}; {text}", self.reason));
    }
}
