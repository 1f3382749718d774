package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
)

// More changes than the API under test remembers (it is told so): a watch from before them is answered with 410.
const forgotten = 250

func reads() []check {
	return []check{
		{"an informer's cache ends as the list", informerCache},
		{"an informer resyncs", informerResync},
		{"an informer starts as the feature gate says", informerStart},
		{"an informer lists again after 410", informerAfterGone},
		{"a watch from a forgotten version is refused", watchFromForgotten},
		{"a list comes in pages of one version", pagedList},
	}
}

// The API's objects by name and version.
func listed(ctx context.Context, e env) (map[string]string, error) {
	list, err := e.typed.CoreV1().ConfigMaps(e.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for _, object := range list.Items {
		versions[object.Name] = object.ResourceVersion
	}
	return versions, nil
}

// Waits until what an informer holds is what is listed.
func equal(ctx context.Context, e env, informer cache.SharedIndexInformer) error {
	versions, err := listed(ctx, e)
	if err != nil {
		return err
	}
	return until(ctx, fmt.Sprintf("the cache holds %v", versions), func() bool {
		held := map[string]string{}
		for _, object := range informer.GetStore().List() {
			object := object.(*corev1.ConfigMap)
			held[object.Name] = object.ResourceVersion
		}
		return fmt.Sprint(held) == fmt.Sprint(versions)
	})
}

func start(ctx context.Context, client kubernetes.Interface, e env, resync time.Duration) (cache.SharedIndexInformer, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithNamespace(e.namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("the informer of %v did not sync", kind)
		}
	}
	return informer, nil
}

func informerCache(ctx context.Context, e env) error {
	if err := fill(ctx, e, 10); err != nil {
		return err
	}
	informer, err := start(ctx, e.typed, e, 0)
	if err != nil {
		return err
	}
	var added, deleted atomic.Int32
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { added.Add(1) },
		DeleteFunc: func(any) { deleted.Add(1) },
	}); err != nil {
		return err
	}
	client := e.typed.CoreV1().ConfigMaps(e.namespace)
	for number := range 10 {
		name := fmt.Sprintf("object-%02d", number)
		if number%2 == 0 {
			err = client.Delete(ctx, name, metav1.DeleteOptions{})
		} else {
			_, err = client.Update(ctx, configMap(name, map[string]string{"count": "1"}), metav1.UpdateOptions{})
		}
		if err != nil {
			return err
		}
	}
	if _, err := client.Create(ctx, configMap("late", nil), metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := equal(ctx, e, informer); err != nil {
		return err
	}
	return until(ctx, "11 additions and 5 deletions are told", func() bool { return added.Load() == 11 && deleted.Load() == 5 })
}

func informerResync(ctx context.Context, e env) error {
	if err := fill(ctx, e, 1); err != nil {
		return err
	}
	// A second is the shortest that client-go takes.
	informer, err := start(ctx, e.typed, e, time.Second)
	if err != nil {
		return err
	}
	var resynced atomic.Int32
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		if before.(*corev1.ConfigMap).ResourceVersion == after.(*corev1.ConfigMap).ResourceVersion {
			resynced.Add(1)
		}
	}}); err != nil {
		return err
	}
	return until(ctx, "the object is told again though it did not change", func() bool { return resynced.Load() >= 2 })
}

// counting counts requests by a mark in their query.
type counting struct {
	http.RoundTripper
	streams, lists *atomic.Int32
}

func (c counting) RoundTrip(request *http.Request) (*http.Response, error) {
	switch query := request.URL.Query(); {
	case !strings.HasSuffix(request.URL.Path, "/configmaps") || request.Method != http.MethodGet:
	case query.Get("sendInitialEvents") == "true":
		c.streams.Add(1)
	case query.Get("watch") == "":
		c.lists.Add(1)
	}
	return c.RoundTripper.RoundTrip(request)
}

func informerStart(ctx context.Context, e env) error {
	if err := fill(ctx, e, 5); err != nil {
		return err
	}
	var streams, lists atomic.Int32
	config := rest.CopyConfig(e.config)
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return counting{inner, &streams, &lists} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	informer, err := start(ctx, client, e, 0)
	if err != nil {
		return err
	}
	if err := equal(ctx, e, informer); err != nil {
		return err
	}
	wanted := [2]int32{0, 1}
	if features.FeatureGates().Enabled(features.WatchListClient) {
		wanted = [2]int32{1, 0}
	}
	if seen := [2]int32{streams.Load(), lists.Load()}; seen != wanted {
		return fmt.Errorf("streams and lists are %v, not %v", seen, wanted)
	}
	return nil
}

// forget makes so many changes that the API no longer knows what was before.
func forget(ctx context.Context, e env) error {
	client := e.typed.CoreV1().ConfigMaps(e.namespace)
	for number := range forgotten {
		object := configMap("object-00", map[string]string{"count": fmt.Sprint(number + 1)})
		if _, err := client.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func informerAfterGone(ctx context.Context, e env) error {
	if err := fill(ctx, e, 3); err != nil {
		return err
	}
	client := e.typed.CoreV1().ConfigMaps(e.namespace)
	opened, gate := make(chan struct{}), make(chan struct{})
	var watches, lists atomic.Int32
	listWatch := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			lists.Add(1)
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			// The second one comes when all has changed that it asks for.
			if options.SendInitialEvents == nil && watches.Add(1) == 1 {
				close(opened)
				<-gate
			}
			return client.Watch(ctx, options)
		},
	}
	informer := cache.NewSharedIndexInformer(listWatch, &corev1.ConfigMap{}, 0, cache.Indexers{})
	go informer.RunWithContext(ctx)
	if features.FeatureGates().Enabled(features.WatchListClient) {
		// The stream that begins with the list goes on as the watch: there is no second one.
		close(gate)
	} else {
		<-opened
	}
	if err := forget(ctx, e); err != nil {
		return err
	}
	if !features.FeatureGates().Enabled(features.WatchListClient) {
		close(gate)
	}
	if err := equal(ctx, e, informer); err != nil {
		return err
	}
	if !features.FeatureGates().Enabled(features.WatchListClient) && lists.Load() != 2 {
		return fmt.Errorf("it listed %d times, not twice", lists.Load())
	}
	return nil
}

func watchFromForgotten(ctx context.Context, e env) error {
	if err := fill(ctx, e, 1); err != nil {
		return err
	}
	client := e.typed.CoreV1().ConfigMaps(e.namespace)
	before, err := client.Get(ctx, "object-00", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := forget(ctx, e); err != nil {
		return err
	}
	events, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: before.ResourceVersion})
	if err == nil {
		event := <-events.ResultChan()
		err = apierrors.FromObject(event.Object)
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		return fmt.Errorf("the watch got %v", err)
	}
	return nil
}

func pagedList(ctx context.Context, e env) error {
	if err := fill(ctx, e, 10); err != nil {
		return err
	}
	client := e.typed.CoreV1().ConfigMaps(e.namespace)
	pages, versions := 0, map[string]bool{}
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		page, err := client.List(ctx, options)
		if err == nil {
			pages++
			versions[page.ResourceVersion] = true
			// What comes between two pages is on neither.
			_, err = client.Create(ctx, configMap(fmt.Sprintf("late-%d", pages), nil), metav1.CreateOptions{})
		}
		return page, err
	})
	list.PageSize, list.PageBufferSize = 4, 0
	count := 0
	options := metav1.ListOptions{LabelSelector: labels.Set{"app": "check"}.String()}
	if err := list.EachListItem(ctx, options, func(runtime.Object) error { count++; return nil }); err != nil {
		return err
	}
	if count != 10 || pages != 3 || len(versions) != 1 {
		return fmt.Errorf("%d objects on %d pages of %d versions", count, pages, len(versions))
	}
	return nil
}
