/** Copies a Secret into every namespace that a label selector takes. */

import {
  type Condition,
  type Description,
  type Host,
  Kind,
  Outcome,
  type Request,
  derivedName,
  processor,
  setCondition,
} from "mortise-sdk";

type Spec = { secret: string; namespaces: string };
type Status = { copies?: number; conditions?: Condition[] };

const secretCopy = new Kind<{ spec: Spec; status?: Status }>("copy.mortise.dev/v1", "SecretCopy");
const secret = new Kind<{ data?: Record<string, string>; type?: string }>("v1", "Secret");
const namespace = new Kind("v1", "Namespace");

const FINALIZER = "copy.mortise.dev/copies";
/**
 * The label of a copy: the mark of its SecretCopy. Secrets of others lack it and are left alone.
 */
const COPY_OF = "copy.mortise.dev/of";

function describe(): Description {
  return {
    name: "secret-copy",
    version: "0.1.0",
    reconcilers: [{ name: "secret-copies", of: { kind: secretCopy }, finalizers: [FINALIZER] }],
    reads: [
      { kind: namespace, fields: ["metadata.labels"] },
      { kind: secret, fields: ["data", "type", "metadata.labels"] },
    ],
    writes: [{ of: { kind: secret }, verbs: { create: true, update: true, delete: true } }],
  };
}

function reconcile(request: Request, _config: unknown, host: Host): Outcome {
  const outcome = new Outcome();
  const copy = request.object(secretCopy);
  if (copy === undefined) {
    return outcome;
  }
  const home = copy.metadata.namespace ?? "";
  const name = copy.spec.secret;
  const mark = derivedName(copy.metadata.name, home);
  outcome.prune({ kind: secret, labels: `${COPY_OF}=${mark}` });
  if (copy.metadata.deletionTimestamp !== undefined) {
    outcome.finalizers([]);
    return outcome;
  }
  const wrong = request.failedWrites.map((failure) => failure.message);
  const original = host.get(secret, home, name);
  if (original === undefined) {
    wrong.push(`there is no Secret ${name} to copy`);
  } else {
    const { data, type } = original;
    for (const selected of host.list({ kind: namespace, labels: copy.spec.namespaces })) {
      const to = selected.metadata.name;
      const there = host.get(secret, to, name, ["metadata.labels"]);
      if (there === undefined || there.metadata.labels?.[COPY_OF] === mark) {
        const metadata = { name, namespace: to, labels: { [COPY_OF]: mark } };
        outcome.apply(secret.object(metadata, { data, type }));
      } else if (to !== home) {
        wrong.push(`the Secret ${name} in ${to} is not a copy`);
      }
    }
  }
  const conditions = copy.status?.conditions ?? [];
  const reason = wrong.length === 0 ? "Copied" : "Incomplete";
  setCondition(conditions, "Ready", wrong.length === 0, reason, wrong.join("; "), host);
  outcome.status(request, { copies: outcome.applied, conditions });
  outcome.finalizers([FINALIZER]);
  return outcome;
}

export const reconciliation = processor({ describe, reconcile });
