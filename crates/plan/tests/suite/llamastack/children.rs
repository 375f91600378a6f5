//! The complete manifests of all children.

use std::time::Duration;

use serde_json::{Value, json};
use steersman_plan::llamastack::validate::SHARED_WITH_LABEL;
use steersman_plan::llamastack::{ObservedDeployment, ReplicasOwner, Snapshot, plan};
use steersman_reconcile::{Outcome, Requeue, Severity};

use super::configuration::with_references;
use super::status::render_status;
use super::trust::CERTIFICATE;
use super::{
    observed_deployment, planned_object, settled_snapshot, v1alpha1_snapshot, v1alpha2_snapshot, write_order, yaml,
};

fn assert_child(snapshot: &Snapshot, kind: &str, expected: &str) {
    let found = planned_object(&plan(snapshot), kind).unwrap_or_else(|| panic!("no {kind}"));
    let expected = yaml(&expected.replace("#METADATA", METADATA).replace("#SPREAD", SPREAD));
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    assert!(found == expected, "found {}\nexpected {}", pretty(&found), pretty(&expected));
}

fn child_spec(snapshot: &Snapshot, kind: &str) -> Value {
    planned_object(&plan(snapshot), kind).unwrap()["spec"].clone()
}

fn server_env(snapshot: &Snapshot) -> Vec<(String, String)> {
    let container = child_spec(snapshot, "Deployment")["template"]["spec"]["containers"][0].clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    container["env"].as_array().unwrap().iter().map(|env| (text(&env["name"]), text(&env["value"]))).collect()
}

const MINIMAL_SPEC: &str = "{server: {distribution: {name: starter}}}";

const TYPICAL_SPEC: &str = r"
replicas: 1
server:
  distribution: {name: starter}
  containerSpec:
    port: 8321
    env:
    - {name: OLLAMA_URL, value: 'http://ollama:11434'}
    - name: TOKEN
      valueFrom: {secretKeyRef: {name: hf, key: token}}
  storage: {size: 20Gi, mountPath: /data}
";

const LARGE_SPEC: &str = r"
replicas: 3
server:
  distribution: {image: 'registry.example/stack:9'}
  workers: 4
  containerSpec:
    name: stack
    port: 9000
    command: [/bin/serve]
    args: [--fast]
    resources:
      requests: {cpu: '0', nvidia.com/gpu: 1}
      limits: {memory: 8Gi, nvidia.com/gpu: 1}
  podOverrides:
    serviceAccountName: mine
    terminationGracePeriodSeconds: 0
    volumes: [{name: models, emptyDir: {}}]
    volumeMounts: [{name: models, mountPath: /models, readOnly: true}]
";

const METADATA: &str = r"
  namespace: team-a
  labels:
    app.kubernetes.io/managed-by: llama-stack-operator
    app.kubernetes.io/part-of: llama-stack
    llamastack.io/watch: 'true'
  ownerReferences:
  - apiVersion: llamastack.io/v1alpha2
    kind: LlamaStackDistribution
    name: starter
    uid: 8f3c
    controller: true
    blockOwnerDeletion: true
";

/// Preferred scheduling of pods.
const SPREAD: &str = r"
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            podAffinityTerm:
              topologyKey: kubernetes.io/hostname
              labelSelector: {matchLabels: {app.kubernetes.io/instance: starter}}
              matchLabelKeys: [pod-template-hash]
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: topology.kubernetes.io/region
        whenUnsatisfiable: ScheduleAnyway
        labelSelector: {matchLabels: {app.kubernetes.io/instance: starter}}
        matchLabelKeys: [pod-template-hash]
      - maxSkew: 1
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: ScheduleAnyway
        labelSelector: {matchLabels: {app.kubernetes.io/instance: starter}}
        matchLabelKeys: [pod-template-hash]
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway
        labelSelector: {matchLabels: {app.kubernetes.io/instance: starter}}
        matchLabelKeys: [pod-template-hash]
";

#[test]
fn minimal_spec_yields_deployment_with_defaults() {
    let snapshot = v1alpha1_snapshot(MINIMAL_SPEC);
    assert_eq!(
        write_order(&plan(&snapshot)),
        ["apply ServiceAccount starter-sa", "apply Deployment starter", "apply Service starter-service"]
    );
    let expected = r"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: starter#METADATA
spec:
  replicas: 1
  selector:
    matchLabels: {app: llama-stack, app.kubernetes.io/instance: starter}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 25%, maxUnavailable: 25%}
  template:
    metadata:
      labels: {app: llama-stack, app.kubernetes.io/instance: starter}
    spec:
      serviceAccountName: starter-sa
      securityContext: {fsGroup: 1001}
#SPREAD
      containers:
      - name: llama-stack
        image: docker.io/llamastack/distribution-starter:0.7.1
        ports: [{containerPort: 8321}]
        env:
        - {name: HF_HOME, value: /.llama}
        - {name: LLS_WORKERS, value: '1'}
        - {name: LLS_PORT, value: '8321'}
        - {name: LLAMA_STACK_CONFIG, value: /etc/llama-stack/config.yaml}
        resources:
          requests: {cpu: '1', memory: 1Gi}
        lifecycle: {preStop: {sleep: {seconds: 5}}}
        startupProbe:
          httpGet: {path: /v1/health, port: 8321}
          initialDelaySeconds: 15
          timeoutSeconds: 30
          failureThreshold: 30
          successThreshold: 1
        volumeMounts: [{name: lls-storage, mountPath: /.llama}]
      volumes: [{name: lls-storage, emptyDir: {}}]
";
    assert_child(&snapshot, "Deployment", expected);
}

#[test]
fn storage_and_port_yield_claim_and_service() {
    let snapshot = v1alpha1_snapshot(TYPICAL_SPEC);
    assert_eq!(
        write_order(&plan(&snapshot)),
        [
            "create PersistentVolumeClaim starter-pvc",
            "apply ServiceAccount starter-sa",
            "apply Deployment starter",
            "apply Service starter-service",
        ]
    );
    let claim = r"
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: starter-pvc#METADATA
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 20Gi}}
";
    let account = r"
apiVersion: v1
kind: ServiceAccount
metadata:
  name: starter-sa#METADATA
";
    let service = r"
apiVersion: v1
kind: Service
metadata:
  name: starter-service#METADATA
spec:
  type: ClusterIP
  selector: {app: llama-stack, app.kubernetes.io/instance: starter}
  ports: [{name: http, protocol: TCP, port: 8321, targetPort: 8321}]
";
    let deployment = r"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: starter#METADATA
spec:
  replicas: 1
  selector:
    matchLabels: {app: llama-stack, app.kubernetes.io/instance: starter}
  strategy: {type: Recreate}
  template:
    metadata:
      labels: {app: llama-stack, app.kubernetes.io/instance: starter}
    spec:
      serviceAccountName: starter-sa
      securityContext: {fsGroup: 1001}
#SPREAD
      containers:
      - name: llama-stack
        image: docker.io/llamastack/distribution-starter:0.7.1
        ports: [{containerPort: 8321}]
        env:
        - {name: HF_HOME, value: /data}
        - {name: LLS_WORKERS, value: '1'}
        - {name: LLS_PORT, value: '8321'}
        - {name: LLAMA_STACK_CONFIG, value: /etc/llama-stack/config.yaml}
        - {name: OLLAMA_URL, value: 'http://ollama:11434'}
        - name: TOKEN
          valueFrom: {secretKeyRef: {name: hf, key: token}}
        resources:
          requests: {cpu: '1', memory: 1Gi}
        lifecycle: {preStop: {sleep: {seconds: 5}}}
        startupProbe:
          httpGet: {path: /v1/health, port: 8321}
          initialDelaySeconds: 15
          timeoutSeconds: 30
          failureThreshold: 30
          successThreshold: 1
        volumeMounts: [{name: lls-storage, mountPath: /data}]
      volumes:
      - name: lls-storage
        persistentVolumeClaim: {claimName: starter-pvc}
";
    for (kind, expected) in [
        ("PersistentVolumeClaim", claim),
        ("ServiceAccount", account),
        ("Service", service),
        ("Deployment", deployment),
    ] {
        assert_child(&snapshot, kind, expected);
    }
}

#[test]
fn workers_overrides_and_replicas_reach_pod() {
    let expected = r"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: starter#METADATA
spec:
  replicas: 3
  selector:
    matchLabels: {app: llama-stack, app.kubernetes.io/instance: starter}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 25%, maxUnavailable: 25%}
  template:
    metadata:
      labels: {app: llama-stack, app.kubernetes.io/instance: starter}
    spec:
      serviceAccountName: mine
      terminationGracePeriodSeconds: 0
      securityContext: {fsGroup: 1001}
#SPREAD
      containers:
      - name: stack
        image: registry.example/stack:9
        command: [/bin/serve]
        args: [--fast]
        ports: [{containerPort: 9000}]
        env:
        - {name: HF_HOME, value: /.llama}
        - {name: LLS_WORKERS, value: '4'}
        - {name: LLS_PORT, value: '9000'}
        - {name: LLAMA_STACK_PORT, value: '9000'}
        - {name: LLAMA_STACK_CONFIG, value: /etc/llama-stack/config.yaml}
        resources:
          requests: {cpu: '4', memory: 1Gi, nvidia.com/gpu: '1'}
          limits: {cpu: '4', memory: 8Gi, nvidia.com/gpu: '1'}
        startupProbe:
          httpGet: {path: /v1/health, port: 9000}
          initialDelaySeconds: 15
          timeoutSeconds: 30
          failureThreshold: 30
          successThreshold: 1
        volumeMounts:
        - {name: lls-storage, mountPath: /.llama}
        - {name: models, mountPath: /models, readOnly: true}
      volumes:
      - {name: lls-storage, emptyDir: {}}
      - {name: models, emptyDir: {}}
";
    let snapshot = v1alpha1_snapshot(LARGE_SPEC);
    assert_child(&snapshot, "Deployment", expected);
    assert_eq!(
        write_order(&plan(&snapshot)),
        [
            "apply ServiceAccount starter-sa",
            "apply Deployment starter",
            "apply Service starter-service",
            "apply PodDisruptionBudget starter-pdb",
        ],
        "the ServiceAccount is created even if the pod uses another one"
    );
}

#[test]
fn every_server_has_a_service() {
    let v1alpha1 = ["{}", "{name: x}", "{port: 0}", "{env: []}", "{port: 80}"];
    let v1alpha1 = v1alpha1.map(|container| {
        let spec = format!("{{server: {{distribution: {{name: starter}}, containerSpec: {container}}}}}");
        (v1alpha1_snapshot(&spec), if container.contains("80") { 80 } else { 8321 })
    });
    let v1alpha2 = [
        "{distribution: {name: starter}}",
        "{distribution: {name: starter}, workload: {replicas: 2}}",
        "{distribution: {name: starter}, overrideConfig: {configMapName: mine}}",
        "{distribution: {name: starter}, providers: {inference: {provider: vllm}}}",
    ];
    let v1alpha2 = v1alpha2.map(|spec| (with_references(v1alpha2_snapshot(spec)), 8321));
    for (snapshot, port) in v1alpha1.into_iter().chain(v1alpha2) {
        let service = planned_object(&plan(&snapshot), "Service");
        assert_eq!(service.map(|service| service["spec"]["ports"][0]["port"].clone()), Some(json!(port)));
        assert!(render_status(&snapshot, &Outcome::default()).service_url.is_some());
    }
}

#[test]
fn repeated_env_keeps_last_value_and_position() {
    let snapshot = v1alpha1_snapshot(
        "server:\n  distribution: {name: starter}\n  containerSpec:\n    env:\n    \
         - {name: A, value: first}\n    - {name: B, value: b}\n    - {name: HF_HOME, value: $(B)/hf}\n    \
         - {name: A, value: last}\n",
    );
    let expected = [
        ("LLS_WORKERS", "1"),
        ("LLS_PORT", "8321"),
        ("LLAMA_STACK_CONFIG", "/etc/llama-stack/config.yaml"),
        ("B", "b"),
        ("HF_HOME", "$(B)/hf"),
        ("A", "last"),
    ];
    assert_eq!(server_env(&snapshot), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn user_spread_constraints_replace_defaults() {
    let snapshot = v1alpha1_snapshot(
        "{replicas: 2, server: {distribution: {name: starter}, topologySpreadConstraints: \
         [{maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]}}",
    );
    let pod = child_spec(&snapshot, "Deployment")["template"]["spec"].clone();
    let expected = json!([{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]);
    assert_eq!(pod["topologySpreadConstraints"], expected);
    assert!(pod["affinity"].is_object());
}

/// Scaling must not restart running pods.
#[test]
fn pod_template_is_independent_of_replicas() {
    let template = |spec: &str| child_spec(&v1alpha1_snapshot(spec), "Deployment")["template"].clone();
    let one = template(TYPICAL_SPEC);
    for replicas in [0, 2, 9] {
        let spec = TYPICAL_SPEC.replace("replicas: 1", &format!("replicas: {replicas}"));
        assert_eq!(template(&spec), one, "{replicas}");
    }
}

#[test]
fn replicas_yield_only_to_actual_owner() {
    let fixed = "{replicas: 2, server: {distribution: {name: starter}}}";
    let scaled = "{replicas: 2, server: {distribution: {name: starter}, autoscaling: {maxReplicas: 9}}}";
    let disabled = "{replicas: 2, server: {distribution: {name: starter}, autoscaling: {maxReplicas: 0}}}";
    let other_owner = || ReplicasOwner::Other("kube-controller-manager".into());
    let running = |replicas_owner| Some(ObservedDeployment { replicas_owner, ..observed_deployment(5, 5) });
    for (name, spec, deployment, expected) in [
        ("no Deployment", fixed, None, json!(2)),
        ("scaled by hand", fixed, running(ReplicasOwner::Ours), json!(2)),
        ("scaled by another", fixed, running(other_owner()), Value::Null),
        ("foreign autoscaler", fixed, running(ReplicasOwner::Autoscaler("theirs".into())), Value::Null),
        ("autoscaled, no Deployment", scaled, None, json!(2)),
        ("autoscaled, still ours", scaled, running(ReplicasOwner::Ours), json!(5)),
        ("autoscaled by another", scaled, running(other_owner()), Value::Null),
        ("autoscaling to at most 0 is disabled", disabled, running(ReplicasOwner::Ours), json!(2)),
    ] {
        let snapshot = Snapshot { deployment, ..v1alpha1_snapshot(spec) };
        assert_eq!(child_spec(&snapshot, "Deployment")["replicas"], expected, "{name}");
    }
}

#[test]
fn new_spec_requeues_and_settled_awaits_change() {
    assert!(matches!(plan(&v1alpha1_snapshot(TYPICAL_SPEC)).requeue, Requeue::After(_)));
    let settled = plan(&settled_snapshot(TYPICAL_SPEC));
    assert_eq!((settled.requeue, settled.events.len(), settled.findings.len()), (Requeue::AwaitChange, 0, 0));
}

/// No watch reports the deletion of an autoscaler that the object does not own.
#[test]
fn foreign_autoscaler_is_checked_again_soon() {
    let scaled_by = |replicas_owner| {
        let mut snapshot = settled_snapshot(TYPICAL_SPEC);
        snapshot.deployment.as_mut().unwrap().replicas_owner = replicas_owner;
        plan(&snapshot).requeue
    };
    assert_eq!(scaled_by(ReplicasOwner::Autoscaler("theirs".into())), Requeue::After(Duration::from_secs(30)));
    assert_eq!(scaled_by(ReplicasOwner::Other("scaler".into())), Requeue::AwaitChange, "its writes are watched");
}

#[test]
fn deleting_object_gets_no_writes() {
    let mut snapshot = settled_snapshot(TYPICAL_SPEC);
    snapshot.object.deleting = true;
    let plan = plan(&snapshot);
    assert!(plan.writes.is_empty() && plan.prune.is_empty() && plan.events.is_empty());
    assert!(plan.findings.iter().all(|finding| finding.severity != Severity::Blocker));
}

/// The label opens a ConfigMap to other namespaces, so that only its owner may set it.
#[test]
fn no_child_shares_itself() {
    let spec = "{distribution: {name: starter}, providers: {inference: {provider: vllm, endpoint: http://x}}, \
        workload: {storage: {size: 1Gi}, autoscaling: {maxReplicas: 3}, podDisruptionBudget: {minAvailable: 1}}, \
        networking: {expose: true, allowedFrom: {namespaces: [a]}, tls: {caBundle: {configMapName: ca}}}}";
    let mut snapshot = with_references(v1alpha2_snapshot(spec));
    snapshot.trust.named = Some([("ca-bundle.crt".to_owned(), CERTIFICATE.to_owned())].into());
    let plan = plan(&snapshot);
    let maps = plan.writes.iter().filter(|write| format!("{write:?}").contains("ConfigMap")).count();
    assert!(plan.writes.len() >= 8 && maps >= 2, "{:?}", plan.findings);
    for write in &plan.writes {
        let text = format!("{write:?}");
        assert!(!text.contains(SHARED_WITH_LABEL), "{text}");
    }
}
