package main

import (
	"strconv"

	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

const (
	serviceRange = "10.0.0.0/16"
	// The first address of the range: the Service `kubernetes`.
	serviceIP = "10.0.0.1"

	// Who asked what of which object, as whom, and what came of it. Watches are told when they begin, too.
	auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`
)

func writeAuditPolicy(c cluster) error {
	return writeFile(c.path("audit-policy.yaml"), []byte(auditPolicy))
}

func runAPIServer(c cluster) error {
	return execute(app.NewAPIServerCommand(), append(servingFlags(c, "kube-apiserver"),
		// Without an address the parts would look for one that is not the loopback's, and not all machines have one. As the
		// endpoint of a Service it is not valid.
		"--advertise-address="+loopback,
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range="+serviceRange,
		"--etcd-servers="+c.url("etcd"),
		"--etcd-cafile="+c.certificate(certificateAuthority),
		"--etcd-certfile="+c.certificate(etcdClient),
		"--etcd-keyfile="+c.key(etcdClient),
		"--client-ca-file="+c.certificate(certificateAuthority),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.key(serviceAccounts),
		"--service-account-signing-key-file="+c.key(serviceAccounts),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--audit-policy-file="+c.path("audit-policy.yaml"),
		"--audit-log-path="+c.path("audit.log"),
		// An event is in the file before the next one: nothing is kept back, nothing lost.
		"--audit-log-mode=blocking",
		// One file, however long a test runs.
		"--audit-log-maxsize=100000",
	))
}

// servingFlags are those of all of Kubernetes' own parts.
func servingFlags(c cluster, part string) []string {
	return []string{
		"--bind-address=" + loopback,
		"--secure-port=" + strconv.Itoa(c.Ports[part]),
		"--tls-cert-file=" + c.certificate(serving),
		"--tls-private-key-file=" + c.key(serving),
		"--profiling=false",
	}
}
