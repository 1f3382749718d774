// Command clients tries a Kubernetes API with client-go, Kubernetes' own client, and prints a line of JSON for each thing tried:
// {"check": "…", "error": "…"}, the error empty where all is well. It exits with 1 if one failed.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Only a fault takes longer.
const guard = time.Minute

// A check is tried in a namespace of its own.
type check struct {
	name string
	run  func(context.Context, env) error
}

// What a check works with.
type env struct {
	config    *rest.Config
	typed     kubernetes.Interface
	dynamic   dynamic.Interface
	namespace string
}

// The line that is printed for a check.
type result struct {
	Check string `json:"check"`
	Error string `json:"error"`
}

func main() {
	server := flag.String("server", "", "the URL of the API")
	flag.Parse()
	checks := append(append(append(reads(), writes()...), kinds()...), leases()...)
	results := make(chan result)
	for number, check := range checks {
		go func() {
			results <- result{check.name, message(try(check, *server, fmt.Sprintf("check-%d", number)))}
		}()
	}
	failed := false
	for range checks {
		result := <-results
		failed = failed || result.Error != ""
		if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if failed {
		os.Exit(1)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func try(check check, server, namespace string) error {
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	defer cancel()
	// client-go waits by itself from the fifth request in a second on, unless told otherwise.
	config := &rest.Config{Host: server, QPS: -1}
	e := env{config: config, namespace: namespace}
	var err error
	if e.typed, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if e.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := e.typed.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("cannot create the namespace: %w", err)
	}
	return check.run(ctx, e)
}

// until waits for something that nobody tells.
func until(ctx context.Context, what string, isSo func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !isSo() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("it did not come to this: %s", what)
		case <-tick.C:
		}
	}
	return nil
}

// configMap is the object that most checks use.
func configMap(name string, data map[string]string) *corev1.ConfigMap {
	labels := map[string]string{"app": "check"}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: data}
}

// fill creates so many of them.
func fill(ctx context.Context, e env, count int) error {
	for number := range count {
		object := configMap(fmt.Sprintf("object-%02d", number), map[string]string{"count": "0"})
		if _, err := e.typed.CoreV1().ConfigMaps(e.namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}
