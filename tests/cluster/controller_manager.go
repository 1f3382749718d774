package main

import "k8s.io/kubernetes/cmd/kube-controller-manager/app"

func runControllerManager(c cluster) error {
	flags := append(servingFlags(c, "kube-controller-manager"), clientFlags(c, "kube-controller-manager")...)
	return execute(app.NewControllerManagerCommand(), append(flags,
		"--controllers="+c.Options.Controllers,
		"--service-account-private-key-file="+c.key(serviceAccounts),
		"--root-ca-file="+c.certificate(certificateAuthority),
		"--cluster-signing-cert-file="+c.certificate(certificateAuthority),
		"--cluster-signing-key-file="+c.key(certificateAuthority),
		// It makes this folder; where it would by itself is not ours.
		"--flex-volume-plugin-dir="+c.path("volume-plugins"),
	))
}

// clientFlags are those of the parts that work for kube-apiserver, and of which there is one each.
func clientFlags(c cluster, part string) []string {
	config := c.kubeconfig(part)
	return []string{
		"--kubeconfig=" + config,
		"--authentication-kubeconfig=" + config,
		"--authorization-kubeconfig=" + config,
		"--leader-elect=false",
	}
}
