package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const loopback = "127.0.0.1"

// A control plane in a folder, as cluster.json there describes it.
type cluster struct {
	dir string
	// The port of each part on the loopback address; the same for as long as the folder lives.
	Ports map[string]int `json:"ports"`
	// How it was started last.
	Options options `json:"options"`
}

type options struct {
	// The process that it ends with, or 0.
	Parent int `json:"parent"`
	// Names of parts that do not run.
	Without []string `json:"without"`
	// As kube-controller-manager has it.
	Controllers string `json:"controllers"`
}

// leaveOut reads the option of that sense.
func (o *options) leaveOut(names string) error {
	for _, name := range strings.Split(names, ",") {
		if _, err := partNamed(name); err != nil {
			return err
		}
		o.Without = append(o.Without, name)
	}
	return nil
}

// openCluster reads what `up` wrote.
func openCluster(dir string) (cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return cluster{}, fmt.Errorf("`%s` is no path: %w", dir, err)
	}
	opened := cluster{dir: dir}
	text, err := os.ReadFile(opened.path("cluster.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return cluster{}, fmt.Errorf("no control plane in `%s`: make one with `up`: %w", dir, err)
	} else if err != nil {
		return cluster{}, fmt.Errorf("cannot read what is in `%s`: %w", dir, err)
	}
	if err := json.Unmarshal(text, &opened); err != nil {
		return cluster{}, fmt.Errorf("`%s` is not as `up` writes it: %w", opened.path("cluster.json"), err)
	}
	return opened, nil
}

// makeCluster opens a folder, or makes a new control plane there: ports, certificates, the files that the parts read.
func makeCluster(dir string, options options) (cluster, error) {
	made, err := openCluster(dir)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err != nil && !isNew {
		return cluster{}, err
	}
	if isNew {
		if made, err = newCluster(dir); err != nil {
			return cluster{}, err
		}
	}
	made.Options = options
	return made, made.save()
}

func (c cluster) save() error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(c.path("cluster.json"), text)
}

func newCluster(dir string) (cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return cluster{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return cluster{}, fmt.Errorf("cannot make `%s`: %w", dir, err)
	}
	ports, err := freePorts(append(partNames(), etcdPeer))
	if err != nil {
		return cluster{}, err
	}
	made := cluster{dir: dir, Ports: ports}
	for _, write := range []func(cluster) error{writeCertificates, writeKubeconfigs, writeAuditPolicy, writeStages} {
		if err := write(made); err != nil {
			return cluster{}, err
		}
	}
	return made, nil
}

// move gives it other ports.
func (c *cluster) move() error {
	ports, err := freePorts(append(partNames(), etcdPeer))
	if err != nil {
		return err
	}
	c.Ports = ports
	return errors.Join(writeKubeconfigs(*c), c.save())
}

// hasLostAPort tells whether somebody else listens where a part of this one, which is down, would.
func (c cluster) hasLostAPort() bool {
	for _, port := range c.Ports {
		if !isFree(port) {
			return true
		}
	}
	return false
}

// has tells whether a part belongs to it.
func (c cluster) has(part part) bool {
	return !slices.Contains(c.Options.Without, part.name)
}

func (c cluster) path(name string) string {
	return filepath.Join(c.dir, name)
}

func (c cluster) address(part string) string {
	return net.JoinHostPort(loopback, strconv.Itoa(c.Ports[part]))
}

func (c cluster) url(part string) string {
	return "https://" + c.address(part)
}

// freePorts finds a port for each name, below those that systems hand out by themselves: a part that was killed finds its own
// again.
func freePorts(names []string) (map[string]int, error) {
	const lowest, highest, tries = 12000, 32000, 1000
	ports, taken := map[string]int{}, map[int]bool{}
	for range tries {
		if len(ports) == len(names) {
			return ports, nil
		}
		port := lowest + rand.IntN(highest-lowest)
		if !taken[port] && isFree(port) {
			ports[names[len(ports)]], taken[port] = port, true
		}
	}
	return nil, fmt.Errorf("no %d free ports on %s between %d and %d", len(names), loopback, lowest, highest)
}

func isFree(port int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

// writeFile writes what only its owner may read: keys are among it.
func writeFile(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("cannot write `%s`: %w", path, err)
	}
	return nil
}
