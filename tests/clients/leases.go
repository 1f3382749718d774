package main

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func leases() []check {
	return []check{{"one leads, and the next takes over", leaderElection}}
}

// Leads until it is stopped, and says when it begins.
func candidate(ctx context.Context, e env, name string, leads chan<- string) (*leaderelection.LeaderElector, error) {
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: "leader", Namespace: e.namespace},
		Client:     e.typed.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: name},
	}
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, ReleaseOnCancel: true,
		LeaseDuration: 4 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: 100 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { leads <- name },
			OnStoppedLeading: func() {},
		},
	})
}

func leaderElection(ctx context.Context, e env) error {
	leads := make(chan string, 2)
	stops := map[string]context.CancelFunc{}
	for _, name := range []string{"one", "two"} {
		own, stop := context.WithCancel(ctx)
		defer stop()
		elector, err := candidate(own, e, name, leads)
		if err != nil {
			return err
		}
		stops[name] = stop
		go elector.Run(own)
	}
	wait := func() (string, error) {
		select {
		case name := <-leads:
			return name, nil
		case <-ctx.Done():
			return "", errors.New("nobody leads")
		}
	}
	first, err := wait()
	if err != nil {
		return err
	}
	stops[first]()
	second, err := wait()
	if err != nil {
		return err
	}
	if second == first {
		return errors.New("the first one leads again")
	}
	client := e.typed.CoordinationV1().Leases(e.namespace)
	return until(ctx, "the lease names the second", func() bool {
		lease, err := client.Get(ctx, "leader", metav1.GetOptions{})
		return err == nil && *lease.Spec.HolderIdentity == second && *lease.Spec.LeaseTransitions > 0
	})
}
