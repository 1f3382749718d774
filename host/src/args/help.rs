//! The texts that `--help` prints after the options: examples, and the meaning of the exit codes.

pub(super) const MORTISE_HOST: &str = "\
Examples:
  mortise-host run --modules modules/

`mortise-host COMMAND --help` shows more examples.

Exit codes:
  0  success
  1  bad input: the message says what would be accepted
  3  with `run --once`: a reconcile failed, or a Processor does not run
  4  `run` was ended before all runs had ended";

pub const RUN: &str = "\
Every option can be given as an environment variable, too. SIGTERM and SIGINT shut the host down: no new runs start, running ones finish
and are written, the Lease is released. A second signal ends it at once.

The files in --cache make the next start faster. Without them (no folder is named and there is no home, or the folder cannot be written)
each start compiles its modules and runs every key once, which writes nothing that is unchanged.

Examples:
  mortise run --modules /modules                                    # in a pod
  mortise run --kubeconfig ~/.kube/config --modules modules/ --namespace shop
  mortise run --modules /modules --leader-elect --log-format json   # several hosts: one leads
  mortise run --modules modules/ --once                             # reconciles every object once, then ends

Exit codes:
  0  ended by a signal, after all runs had ended; with --once: no reconcile failed
  1  bad input: the message says what would be accepted; or the host failed: the Lease was lost, a task ended
  3  with --once: the last run of a reconcile failed, or a Processor does not run
  4  ended before all runs had ended: by a second signal, or because they took longer than --drain-seconds";

pub const CHECK_CONFIG: &str = "\
Reads a JSON object with the strings `schema` and `config` from standard input, and writes the verdict to standard output. Runs at a low
priority.

Examples:
  mortise check-config < question.json

Exit codes:
  0  success: the verdict says what is wrong
  1  bad input: the message says what is wrong with it
  none: ended by a signal: SIGABRT if it takes more memory than allowed, SIGXCPU if it takes more time";

pub const COMPILE: &str = "\
Reads the module from standard input, and writes its machine code to standard output. The code is for this version of the program, on a CPU
like this one. A program that loads the code trusts it. Runs at a low priority.

Examples:
  mortise compile < my.wasm > my.code
  mortise compile --memory-mib 512 --seconds 30 < my.wasm > /dev/null   # does it fit the limits of a host?

Exit codes:
  0  success
  1  bad input: the message says what is wrong with it
  none: ended by a signal: SIGABRT if it takes more memory than allowed, SIGXCPU if it takes more time";
