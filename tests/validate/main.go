// Validates objects as Istio does: its own kinds as its webhook does, and `meshConfig`s of IstioOperators as istiod does when it
// reads them. Standard input has one JSON object a line; standard output has one a line for each: {"error": "…", "warning": "…"}.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"istio.io/istio/pilot/pkg/config/kube/crd"
	"istio.io/istio/pkg/config/mesh"
	"istio.io/istio/pkg/config/schema/collections"
	"istio.io/istio/pkg/config/validation/agent"
)

// The longest line of the input.
const maxLine = 16 << 20

type verdict struct {
	Error   string `json:"error"`
	Warning string `json:"warning"`
}

type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		MeshConfig json.RawMessage `json:"meshConfig"`
	} `json:"spec"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, maxLine)
	verdicts := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		warning, err := validate(lines.Bytes())
		answer := verdict{Warning: warning}
		if err != nil {
			answer.Error = err.Error()
		}
		if err := verdicts.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func validate(line []byte) (string, error) {
	var of header
	if err := json.Unmarshal(line, &of); err != nil {
		return "", err
	}
	if of.Kind == "IstioOperator" {
		return validateMesh(string(of.Spec.MeshConfig))
	}
	if !strings.Contains(of.APIVersion, ".istio.io/") {
		return "", fmt.Errorf("%s %s is no kind of Istio's", of.APIVersion, of.Kind)
	}
	configs, others, err := crd.ParseInputs(string(line))
	if err != nil {
		return "", err
	}
	if len(configs) != 1 || len(others) != 0 {
		return "", fmt.Errorf("%s %s is not known to Istio", of.APIVersion, of.Kind)
	}
	config := configs[0]
	schema, found := collections.PilotGatewayAPI().FindByGroupVersionAliasesKind(config.GroupVersionKind)
	if !found {
		return "", fmt.Errorf("%s %s has no validation", of.APIVersion, of.Kind)
	}
	warning, err := schema.ValidateConfig(config)
	return text(warning), err
}

func validateMesh(config string) (string, error) {
	applied, err := mesh.ApplyMeshConfig(config, mesh.DefaultMeshConfig())
	if err != nil {
		return "", err
	}
	warning, err := agent.ValidateMeshConfig(applied)
	return text(warning), err
}

func text(warning error) string {
	if warning == nil {
		return ""
	}
	return warning.Error()
}
