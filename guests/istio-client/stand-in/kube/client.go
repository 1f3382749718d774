// Package kube stands in for Istio's package of that path: what the renderer asks of a cluster.
package kube

import (
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// Client is a client of a cluster.
type Client interface {
	GetKubernetesVersion() (*version.Info, error)
	Kube() kubernetes.Interface
	Dynamic() dynamic.Interface
}

// IsAtLeastVersion is named by code that a renderer does not run.
func IsAtLeastVersion(Client, uint) bool {
	panic("the renderer asks for no version in this way")
}
