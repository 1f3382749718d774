package main

import (
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
)

// The name of etcd's second port. Nobody uses it: there is one member.
const etcdPeer = "etcd-peer"

func runEtcd(c cluster) error {
	config := embed.NewConfig()
	config.Dir = c.path("etcd")
	client, peer := c.etcdURL("etcd"), c.etcdURL(etcdPeer)
	peer.Scheme = "http"
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.ClientTLSInfo.CertFile, config.ClientTLSInfo.KeyFile = c.certificate(serving), c.key(serving)
	config.ClientTLSInfo.TrustedCAFile = c.certificate(certificateAuthority)
	config.ClientTLSInfo.ClientCertAuth = true
	// The default of 2 GiB does not hold 2,000 objects of 1 MiB.
	config.QuotaBackendBytes = 8 << 30
	// What is written outlives the process, not the machine.
	config.UnsafeNoFsync = true
	config.LogLevel = "warn"
	config.LogOutputs = []string{"stderr"}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer etcd.Close()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	select {
	case <-ended:
		return nil
	case err := <-etcd.Err():
		return err
	}
}

func (c cluster) etcdURL(part string) url.URL {
	return url.URL{Scheme: "https", Host: c.address(part)}
}
