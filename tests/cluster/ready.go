package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Long enough for a machine that does much else; a part that ends is seen at once.
	patience = 2 * time.Minute
	nodeName = "node-0"
)

// awaitReady waits until what is asked for holds, and says at the end what was missing.
func awaitReady(ctx context.Context, what string, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %w", what, context.Cause(ctx), err)
		case <-time.After(glance):
		}
	}
}

func isHealthy(part, path string) func(context.Context, cluster) error {
	return func(ctx context.Context, c cluster) error {
		client, err := c.httpClient()
		if err != nil {
			return err
		}
		defer client.CloseIdleConnections()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url(part)+path, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s%s answers %s", c.url(part), path, response.Status)
		}
		return errors.Join(err, response.Body.Close())
	}
}

// httpClient is one that trusts the parts, and that they take for the administrator.
func (c cluster) httpClient() (*http.Client, error) {
	config, err := c.tlsAs(administrator)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, nil
}

// tlsAs trusts the parts, and shows them one of the certificates.
func (c cluster) tlsAs(name string) (*tls.Config, error) {
	authority, err := os.ReadFile(c.certificate(certificateAuthority))
	if err != nil {
		return nil, fmt.Errorf("cannot read the authority's certificate: %w", err)
	}
	own, err := tls.LoadX509KeyPair(c.certificate(name), c.key(name))
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate `%s`: %w", name, err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	return &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{own}}, nil
}

// makeNode makes the node that kwok simulates, unless it is there.
func makeNode(ctx context.Context, c cluster) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   nodeName,
		Labels: map[string]string{corev1.LabelHostname: nodeName, corev1.LabelOSStable: "linux"},
	}}
	_, err = client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("cannot make the node `%s`: %w", nodeName, err)
	}
	return nil
}

func nodeIsReady(ctx context.Context, c cluster) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	node, err := client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("the node `%s` has no condition Ready that is True", nodeName)
}
