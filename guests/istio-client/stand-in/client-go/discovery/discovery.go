// Package discovery has a client that fails: there is no API server.
package discovery

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

var errNoServer = errors.New("discovery needs an API server")

// DiscoveryClient asks an API server for its kinds.
type DiscoveryClient struct{}

// NewDiscoveryClientForConfig fails.
func NewDiscoveryClientForConfig(*rest.Config) (*DiscoveryClient, error) {
	return nil, errNoServer
}

// ServerResourcesForGroupVersion fails.
func (*DiscoveryClient) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	return nil, errNoServer
}
