package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// A part of the control plane.
type part struct {
	name string
	// Runs until the process is told to end.
	run func(cluster) error
	// Nil when the part does its work.
	ready func(context.Context, cluster) error
}

// In the order in which they need each other.
var parts []part

func init() {
	parts = []part{
		{"etcd", runEtcd, isHealthy("etcd", "/health")},
		{"kube-apiserver", runAPIServer, isHealthy("kube-apiserver", "/readyz")},
		{"kube-controller-manager", runControllerManager, isHealthy("kube-controller-manager", "/healthz")},
		{"kube-scheduler", runScheduler, isHealthy("kube-scheduler", "/readyz")},
		{"kwok", runKwok, isHealthy("kwok", "/healthz")},
	}
}

func partNames() []string {
	names := make([]string, 0, len(parts))
	for _, part := range parts {
		names = append(names, part.name)
	}
	return names
}

func partNamed(name string) (part, error) {
	for _, part := range parts {
		if part.name == name {
			return part, nil
		}
	}
	return part{}, fmt.Errorf("unknown part `%s`, expected one of %s", name, strings.Join(partNames(), ", "))
}

// execute runs one of Kubernetes' own commands as its own program would.
func execute(command *cobra.Command, arguments []string) error {
	command.SetArgs(arguments)
	if code := cli.Run(command); code != 0 {
		// The command has said why.
		os.Exit(code)
	}
	return nil
}
