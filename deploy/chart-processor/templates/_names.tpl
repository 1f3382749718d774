{{- define "processor.labels" -}}
app.kubernetes.io/name: mortise-processor
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "processor.metadata" -}}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "processor.labels" . | nindent 2 }}
{{- end }}

{{- /* Parses the YAML documents in a text, and returns a JSON list. Arguments: `text`, and `value`, its name in errors. */ -}}
{{- define "processor.documents" -}}
{{- $value := .value }}
{{- $documents := list }}
{{- range regexSplit "(?m)^---[ \t]*$" (.text | replace "\r\n" "\n") -1 }}
{{- $document := fromYaml . }}
{{- if hasKey $document "Error" }}
{{- fail (printf "%s: a document is no object in YAML: %s" $value $document.Error) }}
{{- end }}
{{- if $document }}
{{- $documents = append $documents $document }}
{{- end }}
{{- end }}
{{- $documents | toJson }}
{{- end }}
