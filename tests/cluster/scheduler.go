package main

import "k8s.io/kubernetes/cmd/kube-scheduler/app"

func runScheduler(c cluster) error {
	flags := append(servingFlags(c, "kube-scheduler"), clientFlags(c, "kube-scheduler")...)
	return execute(app.NewSchedulerCommand(), flags)
}
