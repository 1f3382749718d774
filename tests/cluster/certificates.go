package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

const (
	certificateAuthority = "ca"
	// What all parts show to those who connect.
	serving = "serving"
	// What kube-apiserver shows to etcd.
	etcdClient = "etcd-client"
	// What service account tokens are signed with.
	serviceAccounts = "service-accounts"

	// What nobody accepts, neither from those who connect nor from those who are connected to.
	expired = "expired"

	validity = 365 * 24 * time.Hour
)

// An authority that signs the certificates of one control plane.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func (c cluster) certificate(name string) string { return c.path(name + ".crt") }

func (c cluster) key(name string) string { return c.path(name + ".key") }

func writeCertificates(c cluster) error {
	authority, err := newAuthority(c)
	if err != nil {
		return err
	}
	names := pkix.Name{CommonName: "kube-apiserver"}
	if err := authority.issue(c, serving, names); err != nil {
		return err
	}
	if err := authority.issue(c, etcdClient, names); err != nil {
		return err
	}
	for name, user := range users {
		if err := authority.issue(c, name, user); err != nil {
			return err
		}
	}
	_, err = newKey(c.key(serviceAccounts))
	return err
}

func newAuthority(c cluster) (authority, error) {
	key, err := newKey(c.key(certificateAuthority))
	if err != nil {
		return authority{}, err
	}
	template, err := template(pkix.Name{CommonName: "tests/cluster"})
	if err != nil {
		return authority{}, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	made := authority{template, key}
	return made, made.sign(c.certificate(certificateAuthority), template, key)
}

// issue writes a certificate and its key: for whoever connects, and for whoever is connected to on the loopback address.
func (a authority) issue(c cluster, name string, subject pkix.Name) error {
	key, err := newKey(c.key(name))
	if err != nil {
		return err
	}
	template, err := template(subject)
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	template.IPAddresses = []net.IP{net.ParseIP(loopback), net.ParseIP(serviceIP)}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	if name == expired {
		template.NotBefore, template.NotAfter = template.NotBefore.Add(-validity), template.NotBefore
	}
	return a.sign(c.certificate(name), template, key)
}

func (a authority) sign(path string, template *x509.Certificate, key *ecdsa.PrivateKey) error {
	signed, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("cannot sign `%s`: %w", path, err)
	}
	return writeFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}))
}

func template(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	// An hour of the past, for clocks that are set back.
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
	}, nil
}

func newKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writeFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}))
}
