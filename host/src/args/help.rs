//! The texts that `--help` prints after the options: examples, and the meaning of the exit codes.

pub(super) const MORTISE_HOST: &str = "\
Examples:
  mortise-host run --modules modules/

`mortise-host COMMAND --help` has more of them.

Exit codes:
  0  well
  1  bad input: the message says what would be accepted
  3  with `run --once`: a reconcile failed, or a Processor does not run
  4  `run` was ended before all runs had ended";

pub const RUN: &str = "\
Every option can be given as an environment variable, too. SIGTERM and SIGINT shut it down: no new runs start, running ones finish and
are written, the Lease is released. A second one ends it at once.

The files in --cache save the next start work. Without them (no folder is named and there is no home, or it cannot be written to) each
start compiles its modules and runs every key once, which writes nothing that is unchanged.

Examples:
  mortise run --modules /modules                                    # in a pod
  mortise run --kubeconfig ~/.kube/config --modules modules/ --namespace shop
  mortise run --modules /modules --leader-elect --log-format json   # several of them: one leads
  mortise run --modules modules/ --once                             # reconciles every object once, and ends

Exit codes:
  0  ended by a signal, after all runs had ended; with --once: no reconcile failed
  1  bad input: the message says what would be accepted; or the host failed: the Lease was lost, a task ended
  3  with --once: the last run of a reconcile failed, or a Processor does not run
  4  ended before all runs had ended: by a second signal, or since they took longer than --drain-seconds";

pub const CHECK_CONFIG: &str = "\
A JSON object with the texts `schema` and `config` is read from standard input, the verdict written to standard output. It runs at a low
priority.

Examples:
  mortise check-config < question.json

Exit codes:
  0  well: the verdict says what is wrong
  1  bad input: the message says what is wrong with it
  none: a signal has ended it. SIGABRT, where it takes more memory than it may; SIGXCPU, where it takes more time";

pub const COMPILE: &str = "\
The module is read from standard input, its code written to standard output. The code is for this version of the program, on a CPU like
this one, and is trusted by who loads it: it is machine code. It runs at a low priority.

Examples:
  mortise compile < my.wasm > my.code
  mortise compile --memory-mib 512 --seconds 30 < my.wasm > /dev/null   # does it fit the limits of a host?

Exit codes:
  0  well
  1  bad input: the message says what is wrong with it
  none: a signal has ended it. SIGABRT, where it takes more memory than it may; SIGXCPU, where it takes more time";
