// Package v1 has the part of a client of core/v1 that a renderer's code names.
package v1

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CoreV1Interface is a client of core/v1.
type CoreV1Interface interface {
	Namespaces() NamespaceInterface
	ConfigMaps(namespace string) ConfigMapInterface
}

// NamespaceInterface is a client of Namespaces.
type NamespaceInterface interface {
	Create(
		ctx context.Context, namespace *corev1.Namespace, options metav1.CreateOptions,
	) (*corev1.Namespace, error)
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Namespace, error)
}

// ConfigMapInterface is a client of ConfigMaps.
type ConfigMapInterface interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.ConfigMap, error)
}
