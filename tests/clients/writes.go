package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
)

func writes() []check {
	return []check{
		{"typed apply owns what it sets", typedApply},
		{"typed apply tells its conflicts", applyConflict},
		{"an update of an old version is a conflict", updateConflict},
		{"no update is lost where many retry", manyUpdates},
		{"protobuf bodies are read", protobufBodies},
		{"refusals have reasons and causes", refusals},
		{"preconditions and propagation of deletions hold", deletions},
		{"an eviction honours the budget", eviction},
		{"repeated events are counted", repeatedEvents},
	}
}

func deployment(replicas int32, image string) *applyapps.DeploymentApplyConfiguration {
	labels := map[string]string{"app": "web"}
	container := applycore.Container().WithName("web").WithImage(image).
		WithPorts(applycore.ContainerPort().WithContainerPort(80))
	template := applycore.PodTemplateSpec().WithLabels(labels).WithSpec(applycore.PodSpec().WithContainers(container))
	selector := applymeta.LabelSelector().WithMatchLabels(labels)
	return applyapps.Deployment("web", "").WithSpec(
		applyapps.DeploymentSpec().WithReplicas(replicas).WithSelector(selector).WithTemplate(template))
}

func typedApply(ctx context.Context, e env) error {
	client := e.typed.AppsV1().Deployments(e.namespace)
	options := metav1.ApplyOptions{FieldManager: "author"}
	wanted := deployment(2, "nginx:1").WithNamespace(e.namespace)
	made, err := client.Apply(ctx, wanted, options)
	if err != nil {
		return err
	}
	if made.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return fmt.Errorf("no defaults: %+v", made.Spec)
	}
	extracted, err := applyapps.ExtractDeployment(made, "author")
	if err != nil {
		return err
	}
	container := extracted.Spec.Template.Spec.Containers[0]
	if *extracted.Spec.Replicas != 2 || *container.Image != "nginx:1" || extracted.Spec.Strategy != nil || container.ImagePullPolicy != nil {
		return fmt.Errorf("owned are %+v with %+v", extracted.Spec, container)
	}
	// Read, changed, applied: what was owned stays owned.
	container.WithImage("nginx:2")
	extracted.Spec.Template.Spec.Containers[0] = container
	extracted.Spec.Replicas = nil
	made, err = client.Apply(ctx, extracted, options)
	if err != nil {
		return err
	}
	if image := made.Spec.Template.Spec.Containers[0].Image; image != "nginx:2" || *made.Spec.Replicas != 1 {
		return fmt.Errorf("the image is %s, replicas %d: not given up for the default", image, *made.Spec.Replicas)
	}
	return nil
}

func applyConflict(ctx context.Context, e env) error {
	client := e.typed.AppsV1().Deployments(e.namespace)
	if _, err := client.Apply(ctx, deployment(2, "nginx:1"), metav1.ApplyOptions{FieldManager: "author"}); err != nil {
		return err
	}
	other := metav1.ApplyOptions{FieldManager: "other"}
	_, err := client.Apply(ctx, deployment(3, "nginx:1"), other)
	if !apierrors.IsConflict(err) {
		return fmt.Errorf("the second got %v", err)
	}
	causes := err.(apierrors.APIStatus).Status().Details.Causes
	if len(causes) != 1 || causes[0].Type != metav1.CauseTypeFieldManagerConflict || causes[0].Field != ".spec.replicas" {
		return fmt.Errorf("causes are %+v", causes)
	}
	other.Force = true
	made, err := client.Apply(ctx, deployment(3, "nginx:1"), other)
	if err != nil {
		return err
	}
	extracted, err := applyapps.ExtractDeployment(made, "author")
	if err != nil {
		return err
	}
	if *made.Spec.Replicas != 3 || extracted.Spec.Replicas != nil {
		return fmt.Errorf("replicas are %d, the first one's %v", *made.Spec.Replicas, extracted.Spec.Replicas)
	}
	return nil
}

func updateConflict(ctx context.Context, e env) error {
	if err := fill(ctx, e, 1); err != nil {
		return err
	}
	client := e.typed.CoreV1().ConfigMaps(e.namespace)
	old, err := client.Get(ctx, "object-00", metav1.GetOptions{})
	if err != nil {
		return err
	}
	first := old.DeepCopy()
	first.Data["count"] = "1"
	if _, err := client.Update(ctx, first, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if _, err := client.Update(ctx, old, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		return fmt.Errorf("the second got %v", err)
	}
	return nil
}

// Many that count together, each with the version that it has read.
func manyUpdates(ctx context.Context, e env) error {
	const writers, each = 5, 8
	if err := fill(ctx, e, 1); err != nil {
		return err
	}
	client := e.typed.CoreV1().ConfigMaps(e.namespace)
	backoff := wait.Backoff{Steps: 1000, Duration: time.Millisecond, Jitter: 1}
	add := func() error {
		object, err := client.Get(ctx, "object-00", metav1.GetOptions{})
		if err != nil {
			return err
		}
		count, err := strconv.Atoi(object.Data["count"])
		if err != nil {
			return err
		}
		object.Data["count"] = strconv.Itoa(count + 1)
		_, err = client.Update(ctx, object, metav1.UpdateOptions{})
		return err
	}
	errors := make(chan error, writers*each)
	var all sync.WaitGroup
	for range writers {
		all.Add(1)
		go func() {
			defer all.Done()
			for range each {
				errors <- retry.RetryOnConflict(backoff, add)
			}
		}()
	}
	all.Wait()
	close(errors)
	for err := range errors {
		if err != nil {
			return err
		}
	}
	object, err := client.Get(ctx, "object-00", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if object.Data["count"] != strconv.Itoa(writers*each) {
		return fmt.Errorf("the count is %s", object.Data["count"])
	}
	return nil
}

func protobufBodies(ctx context.Context, e env) error {
	config := rest.CopyConfig(e.config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	maps := client.CoreV1().ConfigMaps(e.namespace)
	made, err := maps.Create(ctx, configMap("binary", map[string]string{"a": "b"}), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	made.Data["a"] = "c"
	if made, err = maps.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	if made.Data["a"] != "c" || made.Labels["app"] != "check" {
		return fmt.Errorf("stored are %+v", made)
	}
	uid := types.UID("no such object")
	err = maps.Delete(ctx, "binary", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if !apierrors.IsConflict(err) {
		return fmt.Errorf("a deletion of another uid got %v", err)
	}
	return maps.Delete(ctx, "binary", metav1.DeleteOptions{})
}

func refusals(ctx context.Context, e env) error {
	client := e.typed.CoreV1().ConfigMaps(e.namespace)
	if err := fill(ctx, e, 1); err != nil {
		return err
	}
	create := func(name, namespace string) error {
		_, err := e.typed.CoreV1().ConfigMaps(namespace).Create(ctx, configMap(name, nil), metav1.CreateOptions{})
		return err
	}
	_, absent := client.Get(ctx, "absent", metav1.GetOptions{})
	_, malformed := client.Patch(ctx, "object-00", types.JSONPatchType, []byte(`{`), metav1.PatchOptions{})
	invalid := create("Not_A_Name", e.namespace)
	for _, refused := range []struct {
		what string
		is   func(error) bool
		err  error
	}{
		{"an object that is absent", apierrors.IsNotFound, absent},
		{"a name that is taken", apierrors.IsAlreadyExists, create("object-00", e.namespace)},
		{"a name that is none", apierrors.IsInvalid, invalid},
		{"a namespace that is absent", apierrors.IsNotFound, create("object", "absent")},
		{"a patch that is none", apierrors.IsBadRequest, malformed},
	} {
		if !refused.is(refused.err) {
			return fmt.Errorf("%s: %v", refused.what, refused.err)
		}
	}
	cause, found := apierrors.StatusCause(invalid, metav1.CauseTypeFieldValueInvalid)
	if !found || cause.Field != "metadata.name" {
		return fmt.Errorf("the cause is %+v", cause)
	}
	return nil
}

func deletions(ctx context.Context, e env) error {
	client := e.typed.CoreV1().ConfigMaps(e.namespace)
	owner, err := client.Create(ctx, configMap("owner", nil), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	owned := func(name string) error {
		object := configMap(name, nil)
		object.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}
		_, err := client.Create(ctx, object, metav1.CreateOptions{})
		return err
	}
	if err := owned("first"); err != nil {
		return err
	}
	version := "1"
	err = client.Delete(ctx, "owner", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
	if !apierrors.IsConflict(err) {
		return fmt.Errorf("a deletion of another version got %v", err)
	}
	orphan := metav1.DeletePropagationOrphan
	if err := client.Delete(ctx, "owner", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		return err
	}
	first, err := client.Get(ctx, "first", metav1.GetOptions{})
	if err != nil || len(first.OwnerReferences) != 0 {
		return fmt.Errorf("the orphan is %+v, %v", first, err)
	}
	// Its owner is gone already: it goes too.
	if err := owned("second"); err != nil {
		return err
	}
	if err := until(ctx, "the second is collected", func() bool {
		_, err := client.Get(ctx, "second", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}); err != nil {
		return err
	}
	selected := metav1.ListOptions{LabelSelector: "app=check"}
	if err := client.DeleteCollection(ctx, metav1.DeleteOptions{}, selected); err != nil {
		return err
	}
	versions, err := listed(ctx, e)
	if err != nil || len(versions) != 0 {
		return fmt.Errorf("left are %v, %v", versions, err)
	}
	return nil
}

// runPod makes a pod and says, as a kubelet would, that it runs.
func runPod(ctx context.Context, e env, name string, labels map[string]string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}},
	}
	pods := e.typed.CoreV1().Pods(e.namespace)
	pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

func eviction(ctx context.Context, e env) error {
	labels := map[string]string{"app": "web"}
	for _, name := range []string{"one", "two"} {
		if err := runPod(ctx, e, name, labels); err != nil {
			return err
		}
	}
	one := intstr.FromInt32(1)
	budgets := e.typed.PolicyV1().PodDisruptionBudgets(e.namespace)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	if _, err := budgets.Create(ctx, budget, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := until(ctx, "one disruption is allowed", func() bool {
		budget, err := budgets.Get(ctx, "web", metav1.GetOptions{})
		return err == nil && budget.Status.DisruptionsAllowed == 1
	}); err != nil {
		return err
	}
	evict := func(name string) error {
		of := metav1.ObjectMeta{Name: name, Namespace: e.namespace}
		return e.typed.CoreV1().Pods(e.namespace).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: of})
	}
	if err := evict("one"); err != nil {
		return fmt.Errorf("the first: %w", err)
	}
	err := evict("two")
	if !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		return fmt.Errorf("the second, against the budget: %v", err)
	}
	return nil
}

func repeatedEvents(ctx context.Context, e env) error {
	about, err := e.typed.CoreV1().ConfigMaps(e.namespace).Create(ctx, configMap("about", nil), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: e.typed.CoreV1().Events(e.namespace)})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "clients"})
	for range 3 {
		recorder.Event(about, corev1.EventTypeNormal, "Tried", "it was tried")
	}
	return until(ctx, "one event that counts three", func() bool {
		events, err := e.typed.CoreV1().Events(e.namespace).Search(scheme.Scheme, about)
		return err == nil && len(events.Items) == 1 && events.Items[0].Count == 3
	})
}
