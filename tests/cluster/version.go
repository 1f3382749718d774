package main

import (
	"fmt"
	"runtime/debug"
	"strings"
	_ "unsafe" // for go:linkname

	"k8s.io/component-base/version"
)

// Releases of Kubernetes are told their version by the linker. By these names it is set where the program was only built or
// run, so that the API says of itself what is in go.mod, and not v0.0.0.

//go:linkname gitVersion k8s.io/component-base/version.gitVersion
var gitVersion string

//go:linkname gitMajor k8s.io/component-base/version.gitMajor
var gitMajor string

//go:linkname gitMinor k8s.io/component-base/version.gitMinor
var gitMinor string

func init() {
	linked, err := moduleVersion("k8s.io/kubernetes")
	if err != nil {
		panic(err)
	}
	numbers := strings.Split(strings.TrimPrefix(linked, "v"), ".")
	gitVersion, gitMajor, gitMinor = linked, numbers[0], numbers[1]
	if err := version.SetDynamicVersion(gitVersion); err != nil {
		panic(err)
	}
}

// moduleVersion is that of a module which this program was linked from.
func moduleVersion(path string) (string, error) {
	build, known := debug.ReadBuildInfo()
	if !known {
		return "", fmt.Errorf("this program does not know what it was linked from")
	}
	for _, module := range build.Deps {
		if module.Path == path {
			return module.Version, nil
		}
	}
	return "", fmt.Errorf("this program was not linked from `%s`", path)
}
