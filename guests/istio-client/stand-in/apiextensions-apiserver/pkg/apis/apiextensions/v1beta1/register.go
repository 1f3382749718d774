// Package v1beta1 has the kinds of apiextensions.k8s.io/v1beta1: none, since no chart
// asks for them.
package v1beta1

import "k8s.io/apimachinery/pkg/runtime"

// AddToScheme adds nothing.
func AddToScheme(*runtime.Scheme) error {
	return nil
}
