// Package kubernetes has the part of a client of Kubernetes' kinds that a renderer's code names.
package kubernetes

import corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

// Interface is a client of Kubernetes' kinds.
type Interface interface {
	CoreV1() corev1.CoreV1Interface
}
