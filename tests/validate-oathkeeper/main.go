// Validates Rules of Oathkeeper as Oathkeeper does when it reads them, with the configuration whose path is the argument. Standard input has
// one JSON object a line; standard output has one a line for each: {"error": "…"}.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/ory/oathkeeper/driver"
	"github.com/ory/oathkeeper/rule"
	"github.com/ory/x/configx"
	"github.com/ory/x/logrusx"
	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
)

// The longest line of the input.
const maxLine = 16 << 20

type verdict struct {
	Error string `json:"error"`
}

type handler struct {
	Name   string          `json:"handler"`
	Config json.RawMessage `json:"config,omitempty"`
}

// The parts of a Rule, as the resource has them and as Oathkeeper reads them.
type parts struct {
	ID             string          `json:"id"`
	Upstream       json.RawMessage `json:"upstream,omitempty"`
	Match          json.RawMessage `json:"match"`
	Authenticators []handler       `json:"authenticators,omitempty"`
	Authorizer     *handler        `json:"authorizer,omitempty"`
	Mutators       []handler       `json:"mutators,omitempty"`
}

type resource struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec parts `json:"spec"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: validate-oathkeeper CONFIGURATION < OBJECTS")
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	logger := logrusx.New("validate", "", logrusx.UseLogger(quiet))
	flags := pflag.NewFlagSet("none", pflag.ContinueOnError)
	validator := driver.NewDefaultDriver(logger, "", "", "", flags, configx.WithConfigFiles(os.Args[1])).Registry().RuleValidator()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, maxLine)
	verdicts := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		answer := verdict{}
		if err := validate(validator, lines.Bytes()); err != nil {
			answer.Error = fmt.Sprintf("%+v", err)
		}
		if err := verdicts.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func validate(validator rule.Validator, line []byte) error {
	var of resource
	if err := json.Unmarshal(line, &of); err != nil {
		return err
	}
	if of.APIVersion != "oathkeeper.ory.sh/v1alpha1" || of.Kind != "Rule" {
		return fmt.Errorf("%s %s is no Rule of Oathkeeper", of.APIVersion, of.Kind)
	}
	read, err := json.Marshal(asRead(of))
	if err != nil {
		return err
	}
	var wanted rule.Rule
	if err := json.Unmarshal(read, &wanted); err != nil {
		return err
	}
	return validator.Validate(&wanted)
}

// Fills in what the controller of Oathkeeper's Rules fills in before Oathkeeper reads them.
func asRead(of resource) parts {
	all := of.Spec
	all.ID = of.Metadata.Name + "." + of.Metadata.Namespace
	if len(all.Authenticators) == 0 {
		all.Authenticators = []handler{{Name: "unauthorized"}}
	}
	if all.Authorizer == nil {
		all.Authorizer = &handler{Name: "deny"}
	}
	if len(all.Mutators) == 0 {
		all.Mutators = []handler{{Name: "noop"}}
	}
	return all
}
