package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	"sigs.k8s.io/kwok/kustomize/stage/node/heartbeat"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
)

// writeStages writes what becomes of nodes and pods: they are ready at once.
func writeStages(c cluster) error {
	stages := []string{
		nodefast.DefaultNodeInit, heartbeat.DefaultNodeHeartbeat,
		podfast.DefaultPodReady, podfast.DefaultPodComplete, podfast.DefaultPodDelete,
	}
	return writeFile(c.path("stages.yaml"), []byte(strings.Join(stages, "\n---\n")))
}

func runKwok(c cluster) error {
	// kwok reads its configuration from the process' own arguments, before its command does.
	os.Args = append(os.Args,
		"--config="+c.path("stages.yaml"),
		"--kubeconfig="+c.kubeconfig("kwok"),
		"--manage-all-nodes=true",
		"--server-address="+c.address("kwok"),
		"--tls-cert-file="+c.certificate(serving),
		"--tls-private-key-file="+c.key(serving),
	)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	ctx, _ = log.InitFlags(ctx, flags)
	ctx, err := config.InitFlags(ctx, flags)
	if err != nil {
		return err
	}
	command := cmd.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	// Its flag --version is taken: Kubernetes' parts have one of another type, for the whole process.
	command.Version = ""
	return command.ExecuteContext(ctx)
}
