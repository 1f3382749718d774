// Marks the root of the module. The requirements are those of a version of Istio: `1.31/go.mod`, by `-modfile`.
module mortise/istio-client

go 1.26.0
