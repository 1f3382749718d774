package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	_ "istio.io/api/label" // so that Istio's module is one of ours
)

const istio = "istio.io/api"

// printIstioCRDs prints the file that Istio's own installation applies. It is no Go code, so it is not in this program: it is
// read from the module, which Go has fetched and compared with go.sum to build us.
func printIstioCRDs(to io.Writer) error {
	version, err := moduleVersion(istio)
	if err != nil {
		return err
	}
	modules, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("cannot ask `go env GOMODCACHE` where the modules are: %w", err)
	}
	module := filepath.Join(strings.TrimSpace(string(modules)), istio+"@"+version)
	file, err := os.Open(filepath.Join(module, "kubernetes", "customresourcedefinitions.gen.yaml"))
	if err != nil {
		return fmt.Errorf("cannot read Istio's definitions: run `go mod download %s` in tests/cluster: %w", istio, err)
	}
	defer file.Close()
	_, err = io.Copy(to, file)
	return err
}
