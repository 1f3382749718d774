package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// How long a part may take to end by itself.
	grace = 5 * time.Second
	// How soon it is seen that a process has ended.
	glance = 100 * time.Millisecond
	// How much of a log is shown when a part does not start.
	tailBytes = 2000
)

// become makes this process the part. For as long as it lives it holds a lock on DIR/PART.lock, which tells its id to those who
// ask: a number in a file would outlive it, and be another's one day.
func become(part part, dir string) error {
	cluster, err := openCluster(dir)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(cluster.lock(part), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open `%s`: %w", cluster.lock(part), err)
	}
	defer file.Close()
	lock := syscall.Flock_t{Type: syscall.F_WRLCK}
	if err := syscall.FcntlFlock(file.Fd(), syscall.F_SETLK, &lock); err != nil {
		return fmt.Errorf("%s of `%s` runs already: %w", part.name, cluster.dir, err)
	}
	if cluster.Options.Parent != 0 {
		go endWith(cluster.Options.Parent)
	}
	// By this name it introduces itself, and so it is called in metadata.managedFields.
	os.Args = []string{part.name}
	return part.run(cluster)
}

// endWith ends this process when another one has ended.
func endWith(parent int) {
	for isAlive(parent) {
		time.Sleep(glance)
	}
	os.Exit(1)
}

func isAlive(id int) bool {
	// Signal 0 only asks.
	return !errors.Is(syscall.Kill(id, 0), syscall.ESRCH)
}

// spawn starts the process of a part, which goes on when this one ends.
func spawn(part part, cluster cluster) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot tell which program this is: %w", err)
	}
	log, err := os.OpenFile(cluster.log(part), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open `%s`: %w", cluster.log(part), err)
	}
	defer log.Close()
	command := exec.Command(program, "run", part.name, cluster.dir)
	command.Stdout, command.Stderr = log, log
	// What they look for in the home folder is not whoever's is at home here.
	command.Env = append(os.Environ(), "HOME="+cluster.dir)
	// A session of its own: an interrupt at the terminal is not for it.
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", part.name, err)
	}
	return command, nil
}

// running is the id of a part's process, or 0.
func running(part part, cluster cluster) (int, error) {
	file, err := os.OpenFile(cluster.lock(part), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("cannot tell whether %s runs: %w", part.name, err)
	}
	defer file.Close()
	lock := syscall.Flock_t{Type: syscall.F_WRLCK}
	if err := syscall.FcntlFlock(file.Fd(), syscall.F_GETLK, &lock); err != nil {
		return 0, fmt.Errorf("cannot tell who holds `%s`: %w", cluster.lock(part), err)
	}
	if lock.Type == syscall.F_UNLCK {
		return 0, nil
	}
	return int(lock.Pid), nil
}

// end signals a part and waits until it has ended; false when it has not in that time.
func end(part part, cluster cluster, signal syscall.Signal, within time.Duration) (bool, error) {
	id, err := running(part, cluster)
	if err != nil || id == 0 {
		return true, err
	}
	if err := syscall.Kill(id, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return false, fmt.Errorf("cannot end %s, process %d: %w", part.name, id, err)
	}
	for until := time.Now().Add(within); time.Now().Before(until); time.Sleep(glance) {
		if now, err := running(part, cluster); err != nil || now != id {
			return true, err
		}
	}
	return false, nil
}

func (c cluster) lock(part part) string { return c.path(part.name + ".lock") }

func (c cluster) log(part part) string { return c.path(part.name + ".log") }

// tail is the end of a part's log.
func (c cluster) tail(part part) string {
	text, err := os.ReadFile(c.log(part))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-tailBytes):])
}
