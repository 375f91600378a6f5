{{- define "steersman.fullname" -}}
{{- if contains "steersman" .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-steersman" (.Release.Name | trunc 42 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "steersman.selectorLabels" -}}
app.kubernetes.io/name: steersman
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "steersman.labels" -}}
{{ include "steersman.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "steersman.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "steersman.fullname" .) -}}
{{- end -}}

{{- define "steersman.image" -}}
{{- $image := .Values.image -}}
{{- if $image.registry }}{{ trimSuffix "/" $image.registry }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end -}}

{{- /* The enabled controllers, separated by commas. */ -}}
{{- define "steersman.controllers" -}}
{{- $enabled := list -}}
{{- range $name := list "dgdr" "llsd" "va" -}}
{{- if index $.Values.controllers $name }}{{ $enabled = append $enabled $name }}{{ end -}}
{{- end -}}
{{- join "," $enabled -}}
{{- end -}}

{{- /* "true" if the operator serves webhooks: it converts and admits the objects of all namespaces. */ -}}
{{- define "steersman.webhooks" -}}
{{- if and .Values.webhooks.enabled (not .Values.watchNamespace) }}true{{ end -}}
{{- end -}}

{{- define "steersman.applyCrds" -}}
{{- if and .Values.crds.apply (not .Values.watchNamespace) }}true{{ end -}}
{{- end -}}

{{- define "steersman.detachCrds" -}}
{{- if and .Values.crds.detach (include "steersman.applyCrds" .) (include "steersman.webhooks" .) }}true{{ end -}}
{{- end -}}

{{- /* "true" if the operator has rules that no Role can have. */ -}}
{{- define "steersman.clusterRules" -}}
{{- if or (not .Values.watchNamespace) .Values.rbac.clusterRole }}true{{ end -}}
{{- end -}}

{{- /* Name of cluster-wide objects. Installations of single namespaces may have the same release name. */ -}}
{{- define "steersman.clusterName" -}}
{{- if .Values.watchNamespace -}}
{{- printf "%s-%s" (include "steersman.fullname" .) .Release.Namespace | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- include "steersman.fullname" . -}}
{{- end -}}
{{- end -}}

{{- /* The rules of files/rbac.yaml for a place: own, objects or cluster. The argument is a dict of root and place. */ -}}
{{- define "steersman.rules" -}}
{{- $values := .root.Values -}}
{{- $levels := dict "none" 0 "get" 1 "watch" 2 -}}
{{- $webhooks := include "steersman.webhooks" .root -}}
{{- range (.root.Files.Get "files/rbac.yaml" | fromYaml).operator -}}
{{- $enabled := eq .place $.place -}}
{{- if .controller }}{{ $enabled = and $enabled (index $values.controllers .controller) }}{{ end -}}
{{- if .webhooks }}{{ $enabled = and $enabled (eq $webhooks "true") }}{{ end -}}
{{- if .secrets }}{{ $enabled = and $enabled (le (index $levels .secrets) (index $levels $values.secrets)) }}{{ end -}}
{{- if eq (default "" .installations) "cluster-wide" }}{{ $enabled = and $enabled (not $values.watchNamespace) }}{{ end -}}
{{- if eq (default "" .installations) "single-namespace" }}{{ $enabled = and $enabled (not (not $values.watchNamespace)) }}{{ end -}}
{{- if $enabled }}
{{ list .rule | toYaml }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* All rules under a key of files/rbac.yaml, of enabled controllers. */ -}}
{{- define "steersman.rulesOf" -}}
{{- $values := .root.Values -}}
{{- range index (.root.Files.Get "files/rbac.yaml" | fromYaml) .key -}}
{{- if or (not .controller) (index $values.controllers (default "" .controller)) }}
{{ list .rule | toYaml }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "steersman.roleBinding" -}}
subjects:
- kind: ServiceAccount
  name: {{ .account }}
  namespace: {{ .namespace }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .role }}
{{- end -}}

{{- /* Security contexts with which pods meet the level restricted of Pod Security. */ -}}
{{- define "steersman.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "steersman.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* Values that exclude each other. */ -}}
{{- define "steersman.validate" -}}
{{- if not (include "steersman.controllers" .) -}}
{{- fail "controllers: enable at least one of dgdr, llsd and va" -}}
{{- end -}}
{{- if and (not .Values.webhooks.enabled) (include "steersman.applyCrds" .) (or .Values.controllers.dgdr .Values.controllers.llsd) -}}
{{- fail "webhooks.enabled=false: the CRDs of dgdr and llsd need a conversion webhook; set crds.apply=false if another installation serves it, or enable va only" -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not (include "steersman.clusterRules" .)) -}}
{{- fail "metrics.serviceMonitor.enabled: with watchNamespace, set rbac.clusterRole=true, because Steersman checks who may read its metrics" -}}
{{- end -}}
{{- end -}}
