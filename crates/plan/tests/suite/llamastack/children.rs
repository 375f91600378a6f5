//! Children in full, as they must stand in the cluster.

use serde_json::{Value, json};
use steersman_plan::llamastack::{ObservedDeployment, ReplicasOwner, Snapshot, plan};
use steersman_reconcile::{Requeue, Severity};

use super::{a_deployment, a_new_object, a_settled_object, order, written, yaml};

fn expect(seen: &Snapshot, kind: &str, expected: &str) {
    let found = written(&plan(seen), kind).unwrap_or_else(|| panic!("no {kind}"));
    let expected = yaml(&expected.replace("#METADATA", METADATA).replace("#APART", APART));
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    assert!(found == expected, "found {}\nexpected {}", pretty(&found), pretty(&expected));
}

fn spec_of(seen: &Snapshot, kind: &str) -> Value {
    written(&plan(seen), kind).unwrap()["spec"].clone()
}

fn env_of(seen: &Snapshot) -> Vec<(String, String)> {
    let container = spec_of(seen, "Deployment")["template"]["spec"]["containers"][0].clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    container["env"].as_array().unwrap().iter().map(|env| (text(&env["name"]), text(&env["value"]))).collect()
}

const SMALL: &str = "{server: {distribution: {name: starter}}}";

const USUAL: &str = r"
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

const LARGE: &str = r"
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

/// Where pods had better run.
const APART: &str = r"
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
fn the_smallest_spec_gives_a_deployment_with_every_default() {
    let seen = a_new_object(SMALL);
    assert_eq!(order(&plan(&seen)), ["apply ServiceAccount starter-sa", "apply Deployment starter"]);
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
#APART
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
        startupProbe:
          httpGet: {path: /v1/health, port: 8321}
          initialDelaySeconds: 15
          timeoutSeconds: 30
          failureThreshold: 3
          successThreshold: 1
        volumeMounts: [{name: lls-storage, mountPath: /.llama}]
      volumes: [{name: lls-storage, emptyDir: {}}]
";
    expect(&seen, "Deployment", expected);
}

#[test]
fn storage_and_a_port_give_a_claim_and_a_service() {
    let seen = a_new_object(USUAL);
    assert_eq!(
        order(&plan(&seen)),
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
#APART
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
        startupProbe:
          httpGet: {path: /v1/health, port: 8321}
          initialDelaySeconds: 15
          timeoutSeconds: 30
          failureThreshold: 3
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
        expect(&seen, kind, expected);
    }
}

#[test]
fn workers_overrides_and_several_replicas_reach_the_pod() {
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
#APART
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
          failureThreshold: 3
          successThreshold: 1
        volumeMounts:
        - {name: lls-storage, mountPath: /.llama}
        - {name: models, mountPath: /models, readOnly: true}
      volumes:
      - {name: lls-storage, emptyDir: {}}
      - {name: models, emptyDir: {}}
";
    let seen = a_new_object(LARGE);
    expect(&seen, "Deployment", expected);
    assert_eq!(
        order(&plan(&seen)),
        [
            "apply ServiceAccount starter-sa",
            "apply Deployment starter",
            "apply Service starter-service",
            "apply PodDisruptionBudget starter-pdb",
        ],
        "the account is made even where another one is used"
    );
}

#[test]
fn a_service_is_made_where_the_container_gives_a_port_or_an_environment() {
    for (container, expected) in [
        ("{}", None),
        ("{name: x}", None),
        ("{port: 0}", None),
        ("{env: []}", None),
        ("{port: 80}", Some(80)),
        ("{env: [{name: A, value: b}]}", Some(8321)),
    ] {
        let seen =
            a_new_object(&format!("{{server: {{distribution: {{name: starter}}, containerSpec: {container}}}}}"));
        let port = written(&plan(&seen), "Service").map(|service| service["spec"]["ports"][0]["port"].clone());
        assert_eq!(port, expected.map(|port| json!(port)), "{container}");
        let swept = plan(&seen).prune.iter().any(|kind| kind.kind == "Service");
        assert!(swept, "{container}: one that is no longer wanted goes");
    }
}

#[test]
fn what_the_user_repeats_in_the_environment_counts_once_and_where_it_stands_last() {
    let seen = a_new_object(
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
    assert_eq!(env_of(&seen), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn constraints_of_the_user_replace_the_usual_ones() {
    let seen = a_new_object(
        "{replicas: 2, server: {distribution: {name: starter}, topologySpreadConstraints: \
         [{maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]}}",
    );
    let pod = spec_of(&seen, "Deployment")["template"]["spec"].clone();
    let expected = json!([{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]);
    assert_eq!(pod["topologySpreadConstraints"], expected);
    assert!(pod["affinity"].is_object());
}

/// A server that answers is not restarted because others join it, or leave.
#[test]
fn pods_are_the_same_however_many_there_are() {
    let template = |spec: &str| spec_of(&a_new_object(spec), "Deployment")["template"].clone();
    let one = template(USUAL);
    for replicas in [0, 2, 9] {
        let spec = USUAL.replace("replicas: 1", &format!("replicas: {replicas}"));
        assert_eq!(template(&spec), one, "{replicas}");
    }
}

#[test]
fn replicas_are_left_to_an_autoscaler_only_once_it_owns_them() {
    let plain = "{replicas: 2, server: {distribution: {name: starter}}}";
    let scaled = "{replicas: 2, server: {distribution: {name: starter}, autoscaling: {maxReplicas: 9}}}";
    let off = "{replicas: 2, server: {distribution: {name: starter}, autoscaling: {maxReplicas: 0}}}";
    let other = || ReplicasOwner::Other("kube-controller-manager".into());
    let live = |replicas_owner| Some(ObservedDeployment { replicas_owner, ..a_deployment(5, 5) });
    for (name, spec, deployment, expected) in [
        ("nothing there", plain, None, json!(2)),
        ("scaled by hand", plain, live(ReplicasOwner::Ours), json!(2)),
        ("scaled by another", plain, live(other()), Value::Null),
        ("an autoscaler of somebody else's", plain, live(ReplicasOwner::Autoscaler("theirs".into())), Value::Null),
        ("autoscaled, nothing there", scaled, None, json!(2)),
        ("autoscaled, still ours", scaled, live(ReplicasOwner::Ours), json!(5)),
        ("autoscaled by another", scaled, live(other()), Value::Null),
        ("autoscaling to at most 0 is none", off, live(ReplicasOwner::Ours), json!(2)),
    ] {
        let seen = Snapshot { deployment, ..a_new_object(spec) };
        assert_eq!(spec_of(&seen, "Deployment")["replicas"], expected, "{name}");
    }
}

#[test]
fn a_new_spec_is_looked_at_again_soon_and_a_settled_one_only_on_a_change() {
    assert!(matches!(plan(&a_new_object(USUAL)).requeue, Requeue::After(_)));
    let settled = plan(&a_settled_object(USUAL));
    assert_eq!((settled.requeue, settled.events.len(), settled.findings.len()), (Requeue::AwaitChange, 0, 0));
}

#[test]
fn an_object_that_is_being_deleted_gets_nothing() {
    let mut seen = a_settled_object(USUAL);
    seen.object.deleting = true;
    let plan = plan(&seen);
    assert!(plan.writes.is_empty() && plan.prune.is_empty() && plan.events.is_empty());
    assert!(plan.findings.iter().all(|finding| finding.severity != Severity::Blocker));
}
