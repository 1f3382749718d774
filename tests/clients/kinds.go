package main

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func kinds() []check {
	return []check{
		{"the built-in kinds are discovered", discovered},
		{"a kind is mapped once it is defined", mapped},
		{"custom resources are written and watched without types", dynamicClient},
		{"metadata alone is read and patched", metadataClient},
		{"whatever has a scale is scaled", scaled},
		{"schemas are published in OpenAPI v3", schemas},
	}
}

// Defines a kind `Gadget` in a group of its own, and waits until it is served.
func define(ctx context.Context, e env) (schema.GroupVersionResource, error) {
	group := e.namespace + ".example.com"
	var definition map[string]any
	text := fmt.Sprintf(`{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gadgets.%[1]s"},
		"spec": {
			"group": "%[1]s", "scope": "Namespaced", "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
			"versions": [{
				"name": "v1", "served": true, "storage": true,
				"subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
				"schema": {"openAPIV3Schema": {"type": "object", "properties": {
					"spec": {"type": "object", "properties": {"size": {"type": "integer"}, "colour": {"type": "string", "default": "blue"}}},
					"status": {"type": "object", "properties": {"size": {"type": "integer"}}}
				}}}
			}]
		}
	}`, group)
	gadgets := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "gadgets"}
	if err := json.Unmarshal([]byte(text), &definition); err != nil {
		return gadgets, err
	}
	client := e.dynamic.Resource(definitions)
	if _, err := client.Create(ctx, &unstructured.Unstructured{Object: definition}, metav1.CreateOptions{}); err != nil {
		return gadgets, err
	}
	return gadgets, until(ctx, "the kind is established", func() bool {
		made, err := client.Get(ctx, "gadgets."+group, metav1.GetOptions{})
		if err != nil {
			return false
		}
		conditions, _, _ := unstructured.NestedSlice(made.Object, "status", "conditions")
		for _, condition := range conditions {
			condition := condition.(map[string]any)
			if condition["type"] == "Established" && condition["status"] == "True" {
				return true
			}
		}
		return false
	})
}

func gadget(gadgets schema.GroupVersionResource, name string, size int64) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": size}}}
	object.SetGroupVersionKind(gadgets.GroupVersion().WithKind("Gadget"))
	object.SetName(name)
	return object
}

func discovered(_ context.Context, e env) error {
	client := e.typed.Discovery()
	version, err := client.ServerVersion()
	if err != nil {
		return err
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			found[list.GroupVersion+"/"+resource.Name] = true
		}
	}
	for _, wanted := range []string{"v1/pods", "v1/pods/eviction", "apps/v1/deployments/scale", "coordination.k8s.io/v1/leases"} {
		if !found[wanted] {
			return fmt.Errorf("%s is missing in version %s", wanted, version)
		}
	}
	return nil
}

func mapped(ctx context.Context, e env) error {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(e.typed.Discovery()))
	kind := schema.GroupKind{Group: e.namespace + ".example.com", Kind: "Gadget"}
	if _, err := mapper.RESTMapping(kind); !meta.IsNoMatchError(err) {
		return fmt.Errorf("before it is defined: %v", err)
	}
	gadgets, err := define(ctx, e)
	if err != nil {
		return err
	}
	mapper.Reset()
	mapping, err := mapper.RESTMapping(kind)
	if err != nil {
		return err
	}
	if mapping.Resource != gadgets || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return fmt.Errorf("mapped to %+v", mapping)
	}
	expanded := restmapper.NewShortcutExpander(mapper, e.typed.Discovery(), nil)
	short, err := expanded.ResourceFor(schema.GroupVersionResource{Resource: "deploy"})
	if err != nil || short.Resource != "deployments" {
		return fmt.Errorf("`deploy` is %v, %v", short, err)
	}
	return nil
}

func dynamicClient(ctx context.Context, e env) error {
	gadgets, err := define(ctx, e)
	if err != nil {
		return err
	}
	client := e.dynamic.Resource(gadgets).Namespace(e.namespace)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(e.dynamic, 0, e.namespace, nil)
	informer := factory.ForResource(gadgets).Informer()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	made, err := client.Apply(ctx, "one", gadget(gadgets, "one", 3), metav1.ApplyOptions{FieldManager: "author"})
	if err != nil {
		return err
	}
	if colour, _, _ := unstructured.NestedString(made.Object, "spec", "colour"); colour != "blue" {
		return fmt.Errorf("the default is missing: %v", made.Object)
	}
	if err := unstructured.SetNestedField(made.Object, int64(3), "status", "size"); err != nil {
		return err
	}
	made, err = client.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	if made.GetGeneration() != 1 {
		return fmt.Errorf("a status raised the generation to %d", made.GetGeneration())
	}
	if err := until(ctx, "the informer has the status", func() bool {
		object, exists, err := informer.GetStore().GetByKey(e.namespace + "/one")
		return err == nil && exists && object.(*unstructured.Unstructured).GetResourceVersion() == made.GetResourceVersion()
	}); err != nil {
		return err
	}
	patch := []byte(`{"spec":{"size":"three"}}`)
	_, err = client.Patch(ctx, "one", types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) {
		return fmt.Errorf("a wrong type got %v", err)
	}
	return nil
}

func metadataClient(ctx context.Context, e env) error {
	if err := fill(ctx, e, 3); err != nil {
		return err
	}
	all, err := metadata.NewForConfig(e.config)
	if err != nil {
		return err
	}
	client := all.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(e.namespace)
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: "app=check"})
	if err != nil {
		return err
	}
	if len(list.Items) != 3 || list.Items[0].Name != "object-00" || list.Items[0].UID == "" {
		return fmt.Errorf("listed are %+v", list.Items)
	}
	patch := []byte(`{"metadata":{"labels":{"app":"other"}}}`)
	patched, err := client.Patch(ctx, "object-00", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	if patched.Labels["app"] != "other" {
		return fmt.Errorf("patched is %+v", patched)
	}
	return client.Delete(ctx, "object-00", metav1.DeleteOptions{})
}

func scaled(ctx context.Context, e env) error {
	gadgets, err := define(ctx, e)
	if err != nil {
		return err
	}
	client := e.dynamic.Resource(gadgets).Namespace(e.namespace)
	if _, err := client.Create(ctx, gadget(gadgets, "one", 3), metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := e.typed.AppsV1().Deployments(e.namespace).Apply(ctx, deployment(3, "nginx:1"), metav1.ApplyOptions{FieldManager: "author"}); err != nil {
		return err
	}
	cached := memory.NewMemCacheClient(e.typed.Discovery())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	scales, err := scale.NewForConfig(e.config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(cached))
	if err != nil {
		return err
	}
	for _, of := range []struct {
		resource schema.GroupResource
		name     string
	}{{gadgets.GroupResource(), "one"}, {schema.GroupResource{Group: "apps", Resource: "deployments"}, "web"}} {
		current, err := scales.Scales(e.namespace).Get(ctx, of.resource, of.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		old := current.DeepCopy()
		current.Spec.Replicas++
		scaled, err := scales.Scales(e.namespace).Update(ctx, of.resource, current, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		if scaled.Spec.Replicas != 4 {
			return fmt.Errorf("%v is scaled to %d", of.resource, scaled.Spec.Replicas)
		}
		if _, err := scales.Scales(e.namespace).Update(ctx, of.resource, old, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			return fmt.Errorf("an old scale of %v got %v", of.resource, err)
		}
	}
	return nil
}

func schemas(ctx context.Context, e env) error {
	gadgets, err := define(ctx, e)
	if err != nil {
		return err
	}
	paths, err := e.typed.Discovery().OpenAPIV3().Paths()
	if err != nil {
		return err
	}
	for _, path := range []string{"api/v1", "apis/apps/v1", "apis/" + gadgets.GroupVersion().String()} {
		document, found := paths[path]
		if !found {
			return fmt.Errorf("no document for %s", path)
		}
		text, err := document.Schema("application/json")
		if err != nil {
			return err
		}
		var parsed struct {
			Components struct{ Schemas map[string]any }
		}
		if err := json.Unmarshal(text, &parsed); err != nil || len(parsed.Components.Schemas) == 0 {
			return fmt.Errorf("%s has %d schemas, %v", path, len(parsed.Components.Schemas), err)
		}
	}
	return nil
}
