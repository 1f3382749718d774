// Command helm is Helm itself, in the version that go.mod names. The tests render and install the charts in deploy/ with it.
package main

import (
	"errors"
	"fmt"
	"os"

	"helm.sh/helm/v4/pkg/cmd"
	"helm.sh/helm/v4/pkg/kube"
)

func main() {
	// The field manager of what Helm applies; otherwise it is called as the program's file is.
	kube.ManagedFieldsManager = "helm"
	helm, err := cmd.NewRootCmd(os.Stdout, os.Args[1:], cmd.SetupLogging)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := helm.Execute(); err != nil {
		os.Exit(code(err))
	}
}

// Of some commands, such as those of plugins, the exit code says what went wrong. Helm has printed the error.
func code(err error) int {
	var of cmd.CommandError
	if errors.As(err, &of) {
		return of.ExitCode
	}
	return 1
}
