// Marks the root of the module. A version of Istio has the requirements, in `1.31/go.mod`: Go gets
// them with `-modfile`.
module mortise/istio-client

go 1.26.0
