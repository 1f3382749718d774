{{- define "mortise.labels" -}}
app.kubernetes.io/name: mortise
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mortise.metadata" -}}
name: {{ .Release.Name }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "mortise.labels" . | nindent 2 }}
{{- end }}

{{- define "mortise.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* The memory limit: host + 2 × compile + calls, and the reviews that the host holds at most, as a canonical quantity, as the API
server writes it. */ -}}
{{- define "mortise.memory" -}}
{{- $reviews := .Values.webhooks.enabled | ternary 256 0 -}}
{{- with .Values.memoryMib -}}
{{- $sum := add .host .compile .compile .calls $reviews -}}
{{ eq (mod $sum 1024) 0 | ternary (printf "%dGi" (div $sum 1024)) (printf "%dMi" $sum) }}
{{- end }}
{{- end }}

{{- define "mortise.clientCa" -}}
{{- if .Values.webhooks.enabled }}{{ .Values.webhooks.clientCa }}{{ end }}
{{- end }}

{{- define "mortise.hasFiles" -}}
{{- if or .Values.registryCa .Values.requireSignatures (include "mortise.clientCa" .) }}true{{ end }}
{{- end }}

{{- /* The ports that the Pods may reach, each once, as a list in JSON: the given ones, and those of the servers in `options.clusters` and `options.egress`. */ -}}
{{- define "mortise.egressPorts" -}}
{{- $ports := list }}
{{- range .Values.networkPolicy.egressPorts }}
{{- $ports = append $ports (int .) }}
{{- end }}
{{- range list "clusters" "egress" }}
{{- range get $.Values.options . | default "" | splitList "," | compact }}
{{- $server := urlParse (trim .) }}
{{- $port := regexFind ":[0-9]+$" $server.host | trimPrefix ":" | default (eq $server.scheme "http" | ternary "80" "443") }}
{{- $ports = append $ports (int $port) }}
{{- end }}
{{- end }}
{{- $ports | uniq | toJson }}
{{- end }}

{{- /* An option of `mortise run`. Arguments: its name and its value. Helm passes numbers as floats. */ -}}
{{- define "mortise.option" -}}
{{- $name := index . 0 }}
{{- $value := index . 1 }}
{{- if has $name (splitList " " "admin admin-host cache compile-memory-mib context kubeconfig leader-elect lease-name lease-namespace listen log-format modules once registry-ca require-signatures webhook-certificate webhook-client-ca webhook-path webhooks") }}
{{- fail (printf "options.%s: not accepted, since the chart sets it, or no Pod of it can use it" $name) }}
{{- end }}
{{- if kindIs "string" $value }}
{{- printf "--%s=%s" $name $value | quote }}
{{- else if kindIs "bool" $value }}
{{- printf "--%s" $name | quote }}
{{- else }}
{{- printf "--%s=%d" $name (int64 $value) | quote }}
{{- end }}
{{- end }}
