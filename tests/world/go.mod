// The projects whose CRDs and samples the test `cluster::world` applies. Nothing here is compiled, so `go mod tidy` is no use.
module mortise/world

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
	istio.io/istio v0.0.0-20260827124520-eed52ebb66ad
	sigs.k8s.io/gateway-api v1.6.0
	sigs.k8s.io/gateway-api-inference-extension v1.5.0
	sigs.k8s.io/kueue v0.17.0
)
