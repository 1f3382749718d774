// Command cluster is a Kubernetes control plane for tests: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
// kwok, which simulates nodes and pods, linked into one program. Each part is a process of its own; all listen on 127.0.0.1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `A Kubernetes control plane for tests.

  up [OPTIONS] DIR    start it, or start again what is in DIR, and return when it is ready; DIR/kubeconfig is an
                      administrator's
  down DIR            end it; what it holds stays in DIR
  kill PART DIR       end a part at once (SIGKILL)
  start PART DIR      start a part and return when it is ready
  compact DIR         make etcd forget all former states of what it holds: watches from then are told that it is gone, once
                      kube-apiserver was started again
  crds istio          print Istio's definitions of its kinds

PART is one of %s. The log of each is DIR/PART.log, what was asked of the
API is in DIR/audit.log. The options of up:

  --parent PID        end when this process has ended
  --without PARTS     parts that are not started, with commas between
  --controllers LIST  which controllers run, as kube-controller-manager has it; all that it runs by itself if not given
`

// A command of this program, with the arguments after its name.
type command func(ctx context.Context, arguments []string) error

var commands = map[string]command{"up": runUp, "down": runDown, "kill": runKill, "start": runStart, "compact": runCompact, "crds": runCRDs, "run": runPart}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	err := dispatch(ctx, os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		printUsage()
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, arguments []string) error {
	if len(arguments) == 0 || arguments[0] == "help" || arguments[0] == "--help" || arguments[0] == "-h" {
		return flag.ErrHelp
	}
	run, known := commands[arguments[0]]
	if !known {
		return fmt.Errorf("unknown command `%s`, expected up, down, kill, start, compact or crds", arguments[0])
	}
	return run(ctx, arguments[1:])
}

func printUsage() {
	fmt.Printf(usage, strings.Join(partNames(), ", "))
}

func runUp(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	// What is wrong with them is said once, below.
	flags.SetOutput(io.Discard)
	var options options
	flags.IntVar(&options.Parent, "parent", 0, "")
	flags.StringVar(&options.Controllers, "controllers", "*", "")
	flags.Func("without", "", options.leaveOut)
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("expected `up [OPTIONS] DIR`")
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return up(ctx, flags.Arg(0), options)
}

func runDown(_ context.Context, arguments []string) error {
	if len(arguments) != 1 {
		return errors.New("expected `down DIR`")
	}
	return down(arguments[0])
}

func runKill(_ context.Context, arguments []string) error {
	part, dir, err := partAndDir("kill", arguments)
	if err != nil {
		return err
	}
	return kill(part, dir)
}

func runStart(ctx context.Context, arguments []string) error {
	part, dir, err := partAndDir("start", arguments)
	if err != nil {
		return err
	}
	cluster, err := openCluster(dir)
	if err != nil {
		return err
	}
	return start(ctx, part, cluster)
}

func runCompact(ctx context.Context, arguments []string) error {
	if len(arguments) != 1 {
		return errors.New("expected `compact DIR`")
	}
	cluster, err := openCluster(arguments[0])
	if err != nil {
		return err
	}
	return compact(ctx, cluster)
}

// runPart is what `start` runs: the process of a part.
func runPart(_ context.Context, arguments []string) error {
	part, dir, err := partAndDir("run", arguments)
	if err != nil {
		return err
	}
	return become(part, dir)
}

func runCRDs(_ context.Context, arguments []string) error {
	if len(arguments) != 1 || arguments[0] != "istio" {
		return errors.New("expected `crds istio`")
	}
	return printIstioCRDs(os.Stdout)
}

func partAndDir(command string, arguments []string) (part, string, error) {
	if len(arguments) != 2 {
		return part{}, "", fmt.Errorf("expected `%s PART DIR`", command)
	}
	part, err := partNamed(arguments[0])
	return part, arguments[1], err
}
