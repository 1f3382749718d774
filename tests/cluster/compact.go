package main

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// compact makes etcd forget all former states of all that it holds: who watches from then on is told that it is too long ago, as
// soon as kube-apiserver, which remembers some of it, was started again.
func compact(ctx context.Context, c cluster) (err error) {
	config, err := c.tlsAs(etcdClient)
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{c.url("etcd")}, TLS: config, DialTimeout: patience,
	})
	if err != nil {
		return fmt.Errorf("cannot connect to etcd of `%s`: %w", c.dir, err)
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// Any key tells at which revision all is.
	now, err := client.Get(ctx, "/registry", clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("cannot ask etcd of `%s` for its revision: %w", c.dir, err)
	}
	if _, err := client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		return fmt.Errorf("cannot compact etcd of `%s`: %w", c.dir, err)
	}
	return nil
}
