package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// up starts all parts and returns when the control plane is ready; if one of them does not start, none is left.
func up(ctx context.Context, dir string, options options) error {
	if options.Parent != 0 && !isAlive(options.Parent) {
		return fmt.Errorf("no process %d to end with", options.Parent)
	}
	if err := isDown(dir); err != nil {
		return err
	}
	cluster, err := makeCluster(dir, options)
	if err != nil {
		return err
	}
	const tries = 3
	for try := 1; ; try++ {
		err := startAll(ctx, cluster)
		if err == nil {
			return nil
		}
		// Of two that start at the same time both may have found the same port free.
		err = errors.Join(err, down(cluster.dir))
		if try == tries || !cluster.hasLostAPort() {
			return err
		}
		if err := cluster.move(); err != nil {
			return err
		}
	}
}

func isDown(dir string) error {
	cluster, err := openCluster(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, part := range parts {
		if err := isEnded(part, cluster); err != nil {
			return fmt.Errorf("%w: end it with `down`", err)
		}
	}
	return nil
}

func isEnded(part part, cluster cluster) error {
	id, err := running(part, cluster)
	if err == nil && id != 0 {
		err = fmt.Errorf("%s of `%s` runs already, as process %d", part.name, cluster.dir, id)
	}
	return err
}

// startAll starts the parts that others need, one after the other, then the others.
func startAll(ctx context.Context, cluster cluster) error {
	const needed = 2
	for _, part := range parts[:needed] {
		if err := startIfWanted(ctx, part, cluster); err != nil {
			return err
		}
	}
	err := inParallel(parts[needed:], func(part part) error { return startIfWanted(ctx, part, cluster) })
	if err != nil {
		return err
	}
	if kwok := parts[len(parts)-1]; !cluster.has(kwok) {
		return nil
	}
	if err := makeNode(ctx, cluster); err != nil {
		return err
	}
	return awaitReady(ctx, "node "+nodeName, func(ctx context.Context) error { return nodeIsReady(ctx, cluster) })
}

func startIfWanted(ctx context.Context, part part, cluster cluster) error {
	if !cluster.has(part) {
		return nil
	}
	return start(ctx, part, cluster)
}

// start starts a part and waits until it is ready or has ended.
func start(ctx context.Context, part part, cluster cluster) error {
	if err := isEnded(part, cluster); err != nil {
		return err
	}
	process, err := spawn(part, cluster)
	if err != nil {
		return err
	}
	alive, ended := context.WithCancelCause(ctx)
	go func() {
		err := process.Wait()
		ended(fmt.Errorf("it ended (%v), and its log `%s` with:\n%s", err, cluster.log(part), cluster.tail(part)))
	}()
	err = awaitReady(alive, part.name, func(ctx context.Context) error { return part.ready(ctx, cluster) })
	if err != nil {
		return errors.Join(err, ignoreEnded(process.Process.Kill()))
	}
	return nil
}

func ignoreEnded(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// kill ends a part as a crash would.
func kill(part part, dir string) error {
	cluster, err := openCluster(dir)
	if err != nil {
		return err
	}
	if id, err := running(part, cluster); err != nil {
		return err
	} else if id == 0 {
		return fmt.Errorf("%s of `%s` does not run", part.name, cluster.dir)
	}
	return endSurely(part, cluster)
}

// down ends all parts that run.
func down(dir string) error {
	cluster, err := openCluster(dir)
	if err != nil {
		return err
	}
	return inParallel(parts, func(part part) error {
		if ended, err := end(part, cluster, syscall.SIGTERM, grace); ended || err != nil {
			return err
		}
		return endSurely(part, cluster)
	})
}

func endSurely(part part, cluster cluster) error {
	if ended, err := end(part, cluster, syscall.SIGKILL, grace); err != nil {
		return err
	} else if !ended {
		return fmt.Errorf("%s of `%s` does not end", part.name, cluster.dir)
	}
	return nil
}

func inParallel(parts []part, do func(part) error) error {
	var group sync.WaitGroup
	errs := make([]error, len(parts))
	for number, part := range parts {
		group.Go(func() { errs[number] = do(part) })
	}
	group.Wait()
	return errors.Join(errs...)
}
