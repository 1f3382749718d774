//! The texts of `--help` after the options: examples and exit codes.

pub(super) const MORTISE: &str = "\
Examples:
  mortise dev guests/api-rule
  mortise simulate --module my.wasm --objects objects.yaml --crds crds/
  mortise inspect my.wasm --rbac --service-account shop/my
  mortise run --modules modules/

`mortise COMMAND --help` shows more examples.

Exit codes:
  0  success
  1  bad input: the message says what would be accepted
  3  a reconcile failed, or with `run --once` a Processor does not run
  4  `run` was ended before all runs had ended
  5  `diff`: the second module needs more";

pub(super) const DEV: &str = "\
A guest calls a system outside of the cluster only if its description declares it, and --egress or its companion grants it. The companion is
a program that the guest's manifest names (`dev.companion.run`); it starts and ends with `mortise dev`. Its first line is JSON,
`{\"egress\": […]}`, as in the spec of a Processor.

Values of Secrets, and of the credentials that guests declare, are printed as `(masked)`, with a digest where they change, unless
--show-secrets is given. Objects of other kinds are printed and saved as they are, also with a value that a guest has copied into them.

Examples:
  mortise dev guests/api-rule                     # builds it, runs it, prints the kubeconfig's path
  mortise dev guests/api-rule --apply objects/    # with other objects than its examples
  mortise dev --api-only --port 8001              # the API alone
  mortise dev guests/mirror --cluster shop/provider/kubeconfig=provider/     # a second API, with the objects in provider/
  mortise dev guests/my-guest --egress 'https://*.example.com=127.0.0.1:8443,ca.pem'

Exit codes:
  0  ended by Ctrl-C
  1  bad input: the message says what would be accepted";

pub(super) const SIMULATE: &str = "\
The same input with the same --now gives the same output, but for digests of changed secret values, and for answers to calls that
--call-safe sends. The first call that would change something outside of the cluster ends the simulation, and is printed.

Values of Secrets, and of the credentials that the processor declares, are printed as `(masked)`, with a digest where they change, unless
--show-secrets is given. Objects of other kinds are printed as they are, also with a value that the processor has copied into them.

Examples:
  mortise simulate --module my.wasm --objects objects.yaml --crds crds/       # a difference to read
  mortise simulate --module my.wasm --objects objects/ -o json                # one JSON document
  mortise simulate --module my.wasm --objects objects/ --only apirule/shop/orders
  mortise simulate --module my.wasm --objects objects/ --missing-kind virtualservices.networking.istio.io
  mortise simulate --module my.wasm --objects objects/ --call-safe             # GET and HEAD are sent
  mortise simulate --module my.wasm --objects objects/ --answers calls.yaml
  mortise simulate --module my.wasm --objects objects/ --library example:shouting/shout@1.0.0=shout.wasm,deadline=30s

Exit codes:
  0  no reconcile failed, even if keys are still queued, or if a call ended the simulation
  1  bad input: the message says what would be accepted
  3  the last run of a reconcile failed";

pub(super) const TEST: &str = "\
A case is a folder: objects.yaml (or a folder objects), expected.yaml, and, if needed, config.yaml, case.yaml (the time, missing kinds,
refused writes, other clusters, steps) and calls.yaml (the expected calls to systems outside of the cluster, and their answers; nothing is
sent, and a case with calls or notes runs twice, the second time with all notes forgotten). The folder clusters holds the objects of other
clusters. The folders convert and review hold cases of the processor's webhooks: object.yaml, case.yaml
and the answer in expected.yaml. mortise_sdk::testing::case documents them; the same folders run in `cargo test`.

Examples:
  mortise test guests/my-guest                          # builds the guest, runs its cases
  mortise test guests/my-guest --filter deleted         # cases whose names hold the text
  mortise test guests/my-guest --update                 # accepts the results
  mortise test my.wasm --cases cases/ --crds crds/ -o junit --output-file report.xml

Exit codes:
  0  all cases passed
  1  bad input: the message says what would be accepted
  3  a case did not pass";

pub(super) const INSPECT: &str = "\
--rbac prints a ClusterRole for declarations in all namespaces, and a Role in each namespace that is declared by name, with only the
verbs of the requests that the host sends for the processor. Events are created for the objects that it reconciles.
For calls to systems outside of the cluster, the block that grants them is printed for `spec.egress` of the Processor, with a warning for each
read that holds a credential.

Examples:
  mortise inspect my.wasm
  mortise inspect guests/api-rule -o json
  mortise inspect my.wasm --crds crds/ --rbac --service-account shop/my | kubectl apply -f -
  mortise inspect registry.example.com/team/my:1.0.0

Exit codes:
  0  success
  1  bad input: the message says what would be accepted";

pub(super) const BENCH: &str = "\
Each call is for one object and has a fresh instance, as in the host. Outcomes are not written: each call sees the objects as they were
loaded. To measure calls that have nothing to change, give objects in their desired state: `mortise simulate -o json` prints them
(`| jq .objects`). Calls of two modules alternate.

Examples:
  mortise bench my.wasm --objects objects.yaml --crds crds/
  mortise bench old.wasm new.wasm --objects objects/ --seconds 20
  mortise bench my.wasm --objects objects/ --only apirule/shop/orders -o json

Exit codes:
  0  no call failed
  1  bad input: the message says what would be accepted
  3  a call failed";

pub(super) const COMPLETION: &str = "\
Examples:
  mortise completion bash > /etc/bash_completion.d/mortise
  mortise completion zsh > \"${fpath[1]}/_mortise\"
  mortise completion fish > ~/.config/fish/completions/mortise.fish

Exit codes:
  0  success
  1  unknown shell: the message lists the known ones";

pub(super) const NEW: &str = "\
In a workspace a guest in Rust becomes a member of it; elsewhere it is a workspace of its own, and depends on the SDK of the
checkout that this program was built from. A guest in another language holds a copy of its SDK; its first build installs its tools.

Examples:
  mortise new greeter                                  # a kind of its own: Greeter of example.com/v1
  mortise new greeter --kind example.com/v1/Greeting   # this one
  mortise new keeper --kind apps/v1/Deployment         # one of Kubernetes' own
  mortise new greeter --path guests/greeter
  mortise new greeter --language typescript

Exit codes:
  0  success
  1  bad input: the message says what would be accepted; nothing was written";

pub(super) const PUSH: &str = "\
The artifact has the layout that other tools for Wasm use. The annotation `dev.mortise.permissions` holds the permissions that the processor
declares. The same component with the same annotations has the same digest. Credentials are those of `docker login`.

Examples:
  mortise push my.wasm registry.example.com/team/my:1.0.0
  mortise push guests/my-guest registry.example.com/team/my:1.0.0 --revision 4f2a91c
  mortise push my.wasm localhost:5000/my:1 --registry-ca ca.pem

Exit codes:
  0  success: the reference with its digest is printed
  1  bad input, or the registry refused it: the message says why";

pub(super) const PULL: &str = "\
Examples:
  mortise pull registry.example.com/team/my:1.0.0
  mortise pull registry.example.com/team/my:1.0.0 -o modules/my.wasm

Exit codes:
  0  success: the reference with its digest is printed
  1  bad input, or the registry did not return it: the message says why";

pub(super) const DIFF: &str = "\
Compares the rules of the roles that each module needs, the rules that it grants in roles, the calls that it may make to systems outside of
the cluster, the kinds that it reconciles, the version of the contract, its imports, and its size.

Examples:
  mortise diff old.wasm new.wasm
  mortise diff registry.example.com/team/my:1.0.0 registry.example.com/team/my:1.1.0
  mortise diff registry.example.com/team/my:1.0.0 guests/my-guest -o json

Exit codes:
  0  the second module needs nothing more
  1  bad input: the message says what would be accepted
  5  the second module needs more rights, calls, kinds or imports";

pub(super) const SIGN: &str = "\
The formats are cosign's with a key and without a transparency log. `cosign verify --insecure-ignore-tlog` and `cosign verify-blob` accept
them.

Examples:
  mortise sign registry.example.com/team/my:1.0.0 --key cosign.key
  mortise sign modules/my.wasm --key cosign.key                # writes modules/my.wasm.sig
  openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out my.key
  openssl pkey -in my.key -pubout -out my.pub

Exit codes:
  0  success: what was signed is printed, with its digest
  1  bad input, or the registry refused it: the message says why";

pub(super) const VERIFY: &str = "\
Examples:
  mortise verify registry.example.com/team/my:1.0.0 --key cosign.pub
  mortise verify modules/my.wasm --key cosign.pub --key other.pub

Exit codes:
  0  the component is signed by one of the keys
  1  it is not signed by any of them, or bad input: the message says what was found";
