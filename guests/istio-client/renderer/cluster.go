package renderer

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"istio.io/istio/pkg/kube"
)

// Cluster has the facts of a cluster that the rendering depends on.
type Cluster struct {
	GitVersion string `json:"gitVersion"`
	Major      string `json:"major"`
	Minor      string `json:"minor"`
	// The data of the ConfigMap kube-system/cilium-config; nil: there is none.
	CiliumConfig map[string]string `json:"ciliumConfig"`
	// The FelixConfiguration `default` as JSON; nil: there is none.
	FelixConfiguration *string `json:"felixConfiguration"`
}

// A client of a cluster that has these facts and nothing else. Upstream calls no more of these
// interfaces; the methods that are not ours panic.
type client struct {
	kube.Client
	cluster *Cluster
	felix   map[string]any
}

func newClient(cluster *Cluster) (*client, error) {
	client := &client{cluster: cluster}
	if cluster.FelixConfiguration != nil {
		if err := json.Unmarshal([]byte(*cluster.FelixConfiguration), &client.felix); err != nil {
			return nil, fmt.Errorf("read the FelixConfiguration: %v", err)
		}
	}
	return client, nil
}

func (c *client) GetKubernetesVersion() (*version.Info, error) {
	return &version.Info{
		GitVersion: c.cluster.GitVersion,
		Major:      c.cluster.Major,
		Minor:      c.cluster.Minor,
	}, nil
}

func (c *client) Kube() kubernetes.Interface {
	return clientset{cluster: c.cluster}
}

func (c *client) Dynamic() dynamic.Interface {
	return dynamicClient{felix: c.felix}
}

type clientset struct {
	kubernetes.Interface
	cluster *Cluster
}

func (c clientset) CoreV1() typedcorev1.CoreV1Interface {
	return coreV1{cluster: c.cluster}
}

type coreV1 struct {
	typedcorev1.CoreV1Interface
	cluster *Cluster
}

func (c coreV1) ConfigMaps(namespace string) typedcorev1.ConfigMapInterface {
	return configMaps{namespace: namespace, cluster: c.cluster}
}

type configMaps struct {
	typedcorev1.ConfigMapInterface
	namespace string
	cluster   *Cluster
}

func (c configMaps) Get(
	_ context.Context, name string, _ metav1.GetOptions,
) (*corev1.ConfigMap, error) {
	if c.namespace != "kube-system" || name != "cilium-config" || c.cluster.CiliumConfig == nil {
		return nil, errors.NewNotFound(corev1.Resource("configmaps"), name)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name},
		Data:       c.cluster.CiliumConfig,
	}, nil
}

type dynamicClient struct {
	dynamic.Interface
	felix map[string]any
}

func (c dynamicClient) Resource(
	resource schema.GroupVersionResource,
) dynamic.NamespaceableResourceInterface {
	return resources{resource: resource, felix: c.felix}
}

type resources struct {
	dynamic.NamespaceableResourceInterface
	resource schema.GroupVersionResource
	felix    map[string]any
}

func (r resources) Get(
	_ context.Context, name string, _ metav1.GetOptions, _ ...string,
) (*unstructured.Unstructured, error) {
	felix := schema.GroupResource{Group: "projectcalico.org", Resource: "felixconfigurations"}
	if r.resource.GroupResource() != felix || name != "default" || r.felix == nil {
		return nil, errors.NewNotFound(r.resource.GroupResource(), name)
	}
	return &unstructured.Unstructured{Object: r.felix}, nil
}
