// Package scheme has the kinds whose lists are merged by key: what the `k8s` settings and overlays
// of a component can patch.
package scheme

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Scheme has the types.
var Scheme = runtime.NewScheme()

func init() {
	kinds := runtime.NewSchemeBuilder(
		appsv1.AddToScheme,
		autoscalingv2.AddToScheme,
		corev1.AddToScheme,
		policyv1.AddToScheme,
	)
	utilruntime.Must(kinds.AddToScheme(Scheme))
}
