{{- define "tasker.labels" -}}
app.kubernetes.io/name: tasker
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .kind }}
{{- with .name }}
tasker.dev/group: {{ . }}
{{- end }}
{{- end }}

{{- define "tasker.meta" -}}
{{ include "tasker.labels" . }}
app.kubernetes.io/version: {{ .root.Values.image.tag | default .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "tasker.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* All Deployments: a dict of lists, because templates return text: tasker.groups is JSON. */}}
{{- define "tasker.groups" -}}
{{- $groups := list }}
{{- range $name, $group := .Values.orchestrators }}
{{- $groups = append $groups (dict "kind" "orchestrator" "name" $name "group" $group) }}
{{- end }}
{{- range $name, $group := .Values.workers }}
{{- $groups = append $groups (dict "kind" "worker" "name" $name "group" $group) }}
{{- end }}
{{- toJson (dict "all" $groups) }}
{{- end }}

{{/* The keys of a group as a dict, the group's own over those of all. */}}
{{- define "tasker.config" -}}
{{- toJson (merge (dict "common.database.migrate_on_start" (eq .root.Values.migration.by "start")) (.group.config | default dict) (include "tasker.brokers" .root | fromJson) (include "tasker.tls" .root | fromJson) .root.Values.config) }}
{{- end }}

{{/* The keys of the brokers that are used. */}}
{{- define "tasker.brokers" -}}
{{- $keys := dict }}
{{- with .Values.rabbitmq }}
{{- if .secret }}
{{- $_ := set $keys "common.queues.rabbitmq.namespace" .namespace }}
{{- $_ := set $keys "common.queues.rabbitmq.queues" .queues }}
{{- $_ := set $keys "orchestration.bridge.rabbitmq_queue.enabled" .bridge }}
{{- if .caSecret }}
{{- $_ := set $keys "common.queues.rabbitmq.tls_ca_path" "/run/secrets/tasker/rabbitmq/ca.crt" }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.redis.secret }}
{{- $_ := set $keys "orchestration.bridge.redis_queue.enabled" .Values.redis.bridge }}
{{- end }}
{{- toJson $keys }}
{{- end }}

{{/* The keys of the servers with the certificate of tls.secret. */}}
{{- define "tasker.tls" -}}
{{- $keys := dict }}
{{- if .Values.tls.secret }}
{{- range $server := list "orchestration.web" "orchestration.grpc" "worker.web" "worker.grpc" }}
{{- $_ := set $keys (printf "%s.tls_enabled" $server) true }}
{{- $_ := set $keys (printf "%s.tls_cert_path" $server) "/run/secrets/tasker/tls/tls.crt" }}
{{- $_ := set $keys (printf "%s.tls_key_path" $server) "/run/secrets/tasker/tls/tls.key" }}
{{- end }}
{{- end }}
{{- toJson $keys }}
{{- end }}

{{- define "tasker.probe" -}}
httpGet: {path: {{ .path }}, port: http{{ if .root.Values.tls.secret }}, scheme: HTTPS{{ end }}}
{{- end }}

{{/* Keys as TOML of dotted keys, of one root (common, orchestration, worker). JSON writes values as TOML does. */}}
{{- define "tasker.toml" -}}
{{- $prefix := printf "%s." .table }}
{{- range $key, $value := .config }}
{{- if hasPrefix $prefix $key }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}

{{/* Seconds that a pod may take to end: it is unready for the delay, then what it has begun ends. */}}
{{- define "tasker.grace" -}}
{{- $config := include "tasker.config" . | fromJson }}
{{- $work := index $config "orchestration.shutdown_timeout_ms" }}
{{- if eq .kind "worker" }}
{{- $work = add (index $config "worker.mpsc_channels.handler_dispatch.handler_timeout_ms") 5000 }}
{{- end }}
{{- div (add (index $config "common.shutdown.delay_ms") $work 6999) 1000 }}
{{- end }}

{{/* Connections that one pod may open: its pool, those of handlers' transactions, listening and probes. */}}
{{- define "tasker.connections" -}}
{{- $config := include "tasker.config" . | fromJson }}
{{- $n := add (index $config "common.database.pool.max_connections") 2 }}
{{- if eq .kind "worker" }}
{{- $n = add $n (index $config "worker.transactions.max_connections") }}
{{- else if eq (index $config "common.signals.event_source" | default "notify") "relay" }}
{{- $n = add $n 1 }}
{{- end }}
{{- $n }}
{{- end }}

{{/* The pods of a group at their most: twice as many, since pods that end do not count in a roll-out and keep their connections, so that all old ones may end while all new ones run. */}}
{{- define "tasker.most" -}}
{{- mul 2 (ternary .group.replicas (.group.maxReplicas | default .group.replicas) (eq .root.Values.autoscaling.by "none")) }}
{{- end }}

{{/* Connections that all pods open at their most, and the migration. */}}
{{- define "tasker.connections.all" -}}
{{- $root := . }}
{{- $need := 2 }}
{{- range (include "tasker.groups" . | fromJson).all }}
{{- $of := merge (dict "root" $root) . }}
{{- $need = add $need (mul (include "tasker.most" $of) (include "tasker.connections" $of)) }}
{{- end }}
{{- $need }}
{{- end }}

{{- define "tasker.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "tasker.pod.security" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}
