package main

import (
	"crypto/x509/pkix"
	"fmt"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

const administrator = "admin"

// Those who may do all.
var masters = []string{"system:masters"}

// Who connects to kube-apiserver, by the name of the certificate. The controllers have no accounts of their own: to get them one
// by one, kube-controller-manager takes seconds, in which it ends for good when kube-apiserver does.
var users = map[string]pkix.Name{
	administrator:             {CommonName: "admin", Organization: masters},
	expired:                   {CommonName: "expired", Organization: masters},
	"kube-controller-manager": {CommonName: "system:kube-controller-manager", Organization: masters},
	"kube-scheduler":          {CommonName: "system:kube-scheduler"},
	"kwok":                    {CommonName: "kwok", Organization: masters},
}

// kubeconfig is the path of a user's; the administrator's has no name, since it is the one to be handed out.
func (c cluster) kubeconfig(user string) string {
	if user == administrator {
		return c.path("kubeconfig")
	}
	return c.path(user + ".kubeconfig")
}

func writeKubeconfigs(c cluster) error {
	for user := range users {
		config := api.NewConfig()
		// All in one file, so that it can be taken elsewhere.
		files := []string{c.certificate(certificateAuthority), c.certificate(user), c.key(user)}
		contents := make([][]byte, 0, len(files))
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("cannot read `%s`: %w", file, err)
			}
			contents = append(contents, content)
		}
		config.Clusters["tests"] = &api.Cluster{Server: c.url("kube-apiserver"), CertificateAuthorityData: contents[0]}
		config.AuthInfos[user] = &api.AuthInfo{ClientCertificateData: contents[1], ClientKeyData: contents[2]}
		config.Contexts["tests"] = &api.Context{Cluster: "tests", AuthInfo: user}
		config.CurrentContext = "tests"
		if err := clientcmd.WriteToFile(*config, c.kubeconfig(user)); err != nil {
			return fmt.Errorf("cannot write `%s`: %w", c.kubeconfig(user), err)
		}
	}
	return nil
}

// client is one with the administrator's rights.
func (c cluster) client() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig(administrator))
	if err != nil {
		return nil, fmt.Errorf("cannot use `%s`: %w", c.kubeconfig(administrator), err)
	}
	return kubernetes.NewForConfig(config)
}
