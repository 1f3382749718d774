/**
 * The SDK for writing mortise processors in TypeScript.
 *
 * A processor is two functions, which `processor` makes the exports of a component. `describe`
 * declares what is reconciled, read and written. `reconcile` is handed one object, reads others
 * through the host and returns what should be true. Objects are plain, as in their JSON; a `Kind`
 * carries their type. An error that leaves `reconcile` fails the run, with its message and its
 * line.
 *
 * Every call starts from the state in which the module was when the component was built: nothing
 * survives a call.
 */

import * as clock from "mortise:host/clock@0.1.0";
import * as cluster from "mortise:host/cluster@0.1.0";
import * as log from "mortise:host/log@0.1.0";
import * as outbound from "mortise:host/outbound@0.1.0";
import type {
  DeletionRecord,
  DescriptionRecord,
  FailureRecord,
  GrantedRule,
  Methods,
  OutcomeRecord,
  Propagation,
  RequestRecord,
  Verbs,
  WriteFailure,
} from "mortise:host/reconciliation@0.1.0";
import type { ObjectRef, ReadErrorRecord, SelectionRecord } from "mortise:host/types@0.1.0";
import { located } from "./lines";

export type { GrantedRule, Methods, Verbs, WriteFailure } from "mortise:host/reconciliation@0.1.0";
export type { ObjectRef } from "mortise:host/types@0.1.0";
export { derivedName } from "./names";

/** The metadata of an object, as it is read and as it is applied. */
export type Metadata = {
  name: string;
  namespace?: string;
  uid?: string;
  generation?: number;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  finalizers?: string[];
  ownerReferences?: OwnerReference[];
};

/** A reference to an owner: Kubernetes deletes the object along with it. */
export type OwnerReference = {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
  blockOwnerDeletion?: boolean;
};

/** The part that all objects have. */
export type KubernetesObject = { apiVersion: string; kind: string; metadata: Metadata };

/** A condition of a status. */
export type Condition = {
  type: string;
  status: "True" | "False" | "Unknown";
  reason: string;
  message: string;
  lastTransitionTime: string;
  observedGeneration?: number;
};

/**
 * A kind of objects, such as `new Kind<Deployment>("apps/v1", "Deployment")`; `T` is all that they
 * have besides.
 */
export class Kind<T extends object = Record<string, unknown>> {
  declare readonly type: T;
  readonly group: string;
  readonly version: string;

  constructor(
    readonly apiVersion: string,
    readonly kind: string,
  ) {
    const slash = apiVersion.lastIndexOf("/");
    this.group = apiVersion.slice(0, Math.max(slash, 0));
    this.version = apiVersion.slice(slash + 1);
  }

  /** Formats the kind as the host does: `Deployment apps/v1`. */
  display(): string {
    return `${this.kind} ${this.apiVersion}`;
  }

  /** Returns an object of this kind, or a part of one. */
  object(metadata: Metadata, fields: Partial<T>): KubernetesObject & Partial<T> {
    return { apiVersion: this.apiVersion, kind: this.kind, metadata, ...fields };
  }
}

/**
 * The objects of a kind that fit every condition; as `selection` in wit/types.wit. The cluster is
 * absent for the home cluster, `clusterOf(…)` or, in a declaration, "*" for every cluster.
 */
export type Selection<T extends object = object> = {
  cluster?: string;
  kind: Kind<T>;
  namespace?: string;
  name?: string;
  labels?: string;
  matching?: [path: string, value: string][];
  fields?: string[];
};

/**
 * The name of a processor, and everything that it reconciles, reads and writes. Times are
 * milliseconds. A reconciler that is `onDemand` runs for no object until outcomes start it; with
 * `wholeStatus`, the status of an outcome replaces that of the object.
 */
export type Description = {
  name: string;
  version: string;
  reconcilers: {
    name: string;
    of: Selection;
    finalizers?: string[];
    resync?: number;
    triggeredByStatus?: boolean;
    minInterval?: number;
    onDemand?: boolean;
    wholeStatus?: boolean;
  }[];
  reads?: Selection[];
  writes?: { of: Selection; verbs: Verbs; fields?: string[] }[];
  grants?: GrantedRule[];
  outbound?: OutboundRule[];
  /** The JSON schema of the configuration; without one, `describe` checks it. */
  configSchema?: object;
};

/**
 * A system outside of the cluster that the processor may call. The credentials are the objects that
 * hold what calls are authenticated with, with the paths of the values as `fields`. `pause`: the
 * milliseconds in which nothing is sent after 429 that names no time.
 */
export type OutboundRule = {
  origin: string;
  methods: Methods;
  credentials?: Selection[];
  pause?: number;
};

/**
 * What a call is authenticated with: the text at a path of an object, such as `data.token`, which
 * the processor never sees. It is sent as a bearer token, as the password of `user`, or in a header.
 */
export type Credential = {
  kind: Kind<object>;
  namespace?: string;
  name: string;
  at: string;
  user?: string;
  header?: string;
};

/** The parts of a call. `json` is a body of JSON; `timeout` is milliseconds, 10,000 by default. */
export type CallOptions = {
  headers?: Record<string, string>;
  body?: Uint8Array;
  json?: unknown;
  credential?: Credential;
  timeout?: number;
};

/** The answer to a call, of any status. The names of the headers are in lower case. */
export class Answer {
  constructor(
    readonly status: number,
    readonly headers: [name: string, value: string][],
    readonly body: Uint8Array,
  ) {}

  /** True if the status is one of 200 to 299. */
  get isSuccess(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  /** Returns the first value of a header, whose name is given in lower case. */
  header(name: string): string | undefined {
    return this.headers.find(([held]) => held === name)?.[1];
  }

  /** Parses the body. */
  json<T = unknown>(): T {
    return JSON.parse(new TextDecoder().decode(this.body));
  }
}

/**
 * A call has no answer. Where it leaves `reconcile`, the object runs again when it may have one.
 *
 * After `no-answer` and `too-large`, what was asked for may have been done; after the others nothing
 * was sent. `pause` is the milliseconds of `paused`.
 */
export class CallError extends Error {
  constructor(
    message: string,
    readonly reason: outbound.CallErrorRecord["tag"],
    readonly pause?: number,
  ) {
    super(message);
  }
}

/** A read has no answer. Where it leaves `reconcile`, the object waits for it. */
export class ReadError extends Error {
  constructor(
    message: string,
    readonly reason: ReadErrorRecord["tag"],
  ) {
    super(message);
  }
}

/**
 * The reconcile could not be done: thrown by `reconcile`, told to people without a line.
 *
 * It is tried again with exponential back-off, after so many milliseconds, or when something that
 * was read changes. The outcome gives the status and the events that are written nevertheless, and
 * the note.
 */
export class Failure extends Error {
  constructor(
    message: string,
    readonly options: { outcome?: Outcome; retry?: "back-off" | "on-change" | number } = {},
  ) {
    super(message);
  }
}

/** One object to reconcile; as `request` in wit/reconciliation.wit. */
export class Request {
  readonly reconciler: string;
  readonly ref: ObjectRef;
  readonly attempt: number;
  readonly failedWrites: WriteFailure[];
  /** The note of the last outcome or failure for the object, if the host still has it. */
  readonly note: string | undefined;
  readonly #object: string | undefined;

  constructor(record: RequestRecord) {
    this.reconciler = record.reconciler;
    this.ref = record.ref;
    this.attempt = record.attempt;
    this.failedWrites = record.failedWrites;
    this.note = record.note;
    this.#object = record.object;
  }

  /** Returns the reconciled object; `undefined` if it is gone or has left the selection. */
  object<T extends object>(kind: Kind<T>): (KubernetesObject & T) | undefined {
    const { group, version, kind: name } = this.ref.kind;
    const given = new Kind(group === "" ? version : `${group}/${version}`, name).display();
    if (given !== kind.display()) {
      throw new TypeError(`the request is for ${given}, not for ${kind.display()}`);
    }
    return this.#object === undefined ? undefined : JSON.parse(this.#object);
  }
}

/** The host as a processor sees it: reads, calls to the outside, the clock and the log. */
export class Host {
  /**
   * Reads an object; `undefined` if there is no such object. Without `fields`, all declared fields
   * are read.
   */
  get<T extends object>(
    kind: Kind<T>,
    namespace: string | undefined,
    name: string,
    fields: string[] = [],
    inCluster = "",
  ): (KubernetesObject & T) | undefined {
    const place = namespace === undefined ? name : `${namespace}/${name}`;
    const text = read(`${kind.display()} \`${place}\``, () =>
      cluster.get(ref(kind, namespace, name, inCluster), fields),
    );
    return text === undefined ? undefined : JSON.parse(text);
  }

  /** Reads the objects of a selection, ordered by namespace and name, page by page. */
  *list<T extends object>(of: Selection<T>, limit = 0): Generator<KubernetesObject & T> {
    let from: string | undefined;
    do {
      const page = read(`a list of ${of.kind.display()}`, () =>
        cluster.list(selection(of), limit, from),
      );
      for (const text of page.objects) {
        yield JSON.parse(text);
      }
      from = page.next;
    } while (from !== undefined);
  }

  /**
   * Calls a system outside of the cluster, and returns the answer, of any status. The host never
   * repeats a call.
   */
  call(
    method: "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE",
    url: string,
    options: CallOptions = {},
  ): Answer {
    const headers = Object.entries(options.headers ?? {});
    let { body } = options;
    if (options.json !== undefined) {
      body = new TextEncoder().encode(JSON.stringify(options.json));
      headers.push(["content-type", "application/json"]);
    }
    const answer = sent({
      method: method.toLowerCase() as outbound.MethodRecord,
      url,
      headers,
      body,
      credential: options.credential && credential(options.credential),
      timeout: BigInt(options.timeout ?? 10_000),
    });
    return new Answer(answer.status, answer.headers, answer.body);
  }

  /** Returns the time of this call, which stands still. A run that asks is never skipped later. */
  now(): Date {
    return new Date(Number(clock.now()));
  }

  /** Writes a line to the host's log. */
  log(message: string, fields: Record<string, unknown> = {}, level: log.Level = "info"): void {
    log.write(
      level,
      message,
      Object.entries(fields).map(([key, value]) => [key, String(value)]),
    );
  }
}

/** The details of a deletion; as `deletion` in wit/reconciliation.wit. */
export type DeletionOptions = {
  uid?: string;
  propagation?: Propagation;
  gracePeriod?: number;
  inCluster?: string;
};

/** Everything that should be true; as `outcome` in wit/reconciliation.wit. */
export class Outcome {
  readonly record: OutcomeRecord = {
    apply: [],
    patch: [],
    evict: [],
    delete: [],
    prune: [],
    events: [],
    requeue: { tag: "by-default" },
    start: [],
  };

  /** The number of objects that are applied. */
  get applied(): number {
    return this.record.apply.length;
  }

  /** Adds an object to create or to update with server-side apply. */
  apply(
    object: KubernetesObject,
    options: { createOnly?: boolean; leave?: string[]; absent?: string[]; inCluster?: string } = {},
  ): void {
    const { createOnly = false, leave = [], absent = [], inCluster: cluster = "" } = options;
    const mode = createOnly ? "create" : "apply";
    this.record.apply.push({ cluster, object: JSON.stringify(object), mode, leave, absent });
  }

  /** Adds a part of an object that belongs to others. */
  patch(object: KubernetesObject, options: { absent?: string[]; inCluster?: string } = {}): void {
    const { absent = [], inCluster: cluster = "" } = options;
    const text = JSON.stringify(object);
    this.record.patch.push({ cluster, object: text, mode: "apply", leave: [], absent });
  }

  /** Deletes objects of the selection that former outcomes applied and this one does not. */
  prune(of: Selection): void {
    this.record.prune.push(selection(of));
  }

  /** Adds an object to delete. An object that is gone already is no failure. */
  delete(
    kind: Kind<object>,
    namespace: string | undefined,
    name: string,
    options: DeletionOptions = {},
  ): void {
    this.record.delete.push(deletion(kind, namespace, name, options));
  }

  /** Adds a Pod to evict. */
  evict(
    namespace: string,
    name: string,
    options: Pick<DeletionOptions, "uid" | "inCluster"> = {},
  ): void {
    this.record.evict.push(deletion(new Kind("v1", "Pod"), namespace, name, options));
  }

  /** Sets the status of the reconciled object, or the part of it that this processor owns. */
  status(request: Request, status: object): void {
    const { kind, namespace, name } = request.ref;
    const apiVersion = kind.group === "" ? kind.version : `${kind.group}/${kind.version}`;
    const metadata = { name, namespace };
    this.record.status = JSON.stringify({ apiVersion, kind: kind.kind, metadata, status });
  }

  /** Adds an event, on the reconciled object unless `on` names another one. */
  event(
    reason: string,
    message: string,
    options: { warning?: boolean; on?: ObjectRef } = {},
  ): void {
    const eventType = options.warning ? "warning" : "normal";
    this.record.events.push({ on: options.on, eventType, reason, message });
  }

  /** Runs the object again after so many milliseconds. */
  requeueAfter(milliseconds: number): void {
    this.record.requeue = { tag: "after", val: BigInt(milliseconds) };
  }

  /** Runs the object again only when something that it read changes. */
  requeueNever(): void {
    this.record.requeue = { tag: "never" };
  }

  /** Sets the finalizers wanted now, of those that the reconciler declares. */
  finalizers(finalizers: string[]): void {
    this.record.finalizers = finalizers;
  }

  /** Runs an on-demand reconciler for the objects of a selection within the declared one. */
  start(reconciler: string, of: Selection): void {
    this.record.start.push({ reconciler, of: selection(of) });
  }

  /**
   * Leaves a text of up to 1 KiB for the next run of the object: `request.note`. The host keeps it
   * in memory only, and may forget it: a processor must be right without it.
   */
  note(note: string): void {
    this.record.note = note;
  }
}

/** Returns the name of the cluster whose kubeconfig a Secret of the home cluster holds. */
export function clusterOf(namespace: string, name: string, key: string): string {
  return `${namespace}/${name}/${key}`;
}

/** Returns an owner reference to an object, as it was read, that manages another one. */
export function controller(owner: KubernetesObject): OwnerReference {
  const { apiVersion, kind, metadata } = owner;
  const uid = metadata.uid ?? "";
  return { apiVersion, kind, name: metadata.name, uid, controller: true, blockOwnerDeletion: true };
}

/**
 * Sets a condition in a list of conditions, where it replaces the one of the same type.
 *
 * A status of `undefined` is `Unknown`. `lastTransitionTime` changes only when the status does.
 */
export function setCondition(
  conditions: Condition[],
  type: string,
  holds: boolean | undefined,
  reason: string,
  message: string,
  host: Host,
): void {
  const status = holds === undefined ? "Unknown" : holds ? "True" : "False";
  const at = conditions.findIndex((other) => other.type === type);
  const former = conditions[at];
  const kept = former?.status === status ? former.lastTransitionTime : undefined;
  // Kubernetes writes times in whole seconds.
  const lastTransitionTime = kept || `${host.now().toISOString().slice(0, 19)}Z`;
  const condition: Condition = { type, status, reason, message, lastTransitionTime };
  if (former === undefined) {
    conditions.push(condition);
  } else {
    conditions[at] = condition;
  }
}

/** Returns the export of the component, which the module must name `reconciliation`. */
export function processor<C = Record<string, unknown>>(functions: {
  describe(config: C): Description;
  reconcile(request: Request, config: C, host: Host): Outcome;
}) {
  return {
    describe(config: string): DescriptionRecord {
      try {
        return described(functions.describe(parsed<C>(config)));
      } catch (error) {
        throw told(error);
      }
    },
    reconcile(record: RequestRecord): OutcomeRecord {
      try {
        const config = parsed<C>(record.config);
        return functions.reconcile(new Request(record), config, new Host()).record;
      } catch (error) {
        throw failed(error);
      }
    },
  };
}

function described(description: Description): DescriptionRecord {
  const { name, version, reconcilers, reads = [], writes = [], grants = [] } = description;
  const { outbound = [] } = description;
  const schema = description.configSchema;
  return {
    name,
    version,
    reconcilers: reconcilers.map((reconciler) => ({
      name: reconciler.name,
      of: selection(reconciler.of),
      finalizers: reconciler.finalizers ?? [],
      resync: BigInt(reconciler.resync ?? 0),
      triggeredByStatus: reconciler.triggeredByStatus ?? false,
      minInterval: BigInt(reconciler.minInterval ?? 0),
      onDemand: reconciler.onDemand ?? false,
      wholeStatus: reconciler.wholeStatus ?? false,
    })),
    reads: reads.map(selection),
    writes: writes.map(({ of, verbs, fields = [] }) => ({ of: selection(of), verbs, fields })),
    grants: grants.map((rule) => ({
      apiGroups: rule.apiGroups ?? [],
      resources: rule.resources ?? [],
      resourceNames: rule.resourceNames ?? [],
      verbs: rule.verbs,
      nonResourceUrls: rule.nonResourceUrls ?? [],
    })),
    outbound: outbound.map(({ origin, methods, credentials = [], pause = 0 }) => ({
      origin,
      methods,
      credentials: credentials.map(selection),
      pause: BigInt(pause),
    })),
    configSchema: schema === undefined ? undefined : JSON.stringify(schema),
  };
}

function selection(of: Selection): SelectionRecord {
  const { cluster = "", namespace, name, labels = "", matching = [], fields = [] } = of;
  return { cluster, kind: record(of.kind), namespace, name, labels, matching, fields };
}

function record<T extends object>({ group, version, kind }: Kind<T>) {
  return { group, version, kind };
}

function ref<T extends object>(
  kind: Kind<T>,
  namespace: string | undefined,
  name: string,
  cluster: string,
): ObjectRef {
  return { cluster, kind: record(kind), namespace, name };
}

function credential(of: Credential): outbound.CallRecord["credential"] {
  const { kind, namespace, name, at, user, header } = of;
  let scheme: outbound.SchemeRecord = { tag: "bearer" };
  if (user !== undefined) {
    scheme = { tag: "basic", val: user };
  } else if (header !== undefined) {
    scheme = { tag: "header", val: header };
  }
  return { of: ref(kind, namespace, name, ""), at, scheme };
}

function deletion<T extends object>(
  kind: Kind<T>,
  namespace: string | undefined,
  name: string,
  { inCluster = "", ...options }: DeletionOptions,
): DeletionRecord {
  return { ref: ref(kind, namespace, name, inCluster), propagation: "background", ...options };
}

function parsed<C>(config: string): C {
  return JSON.parse(config.trim() === "" ? "{}" : config);
}

const READ_ERRORS: Record<ReadErrorRecord["tag"], string> = {
  denied: " is denied",
  "unknown-kind": "",
  unavailable: " is not possible now",
  invalid: " is not a valid query",
};

function read<A>(what: string, answer: () => A): A {
  try {
    return answer();
  } catch (error) {
    const payload = (error as { payload?: ReadErrorRecord }).payload;
    if (payload === undefined) {
      throw error;
    }
    const message = "val" in payload ? payload.val : "the cluster does not know the kind";
    throw new ReadError(`reading ${what}${READ_ERRORS[payload.tag]}: ${message}`, payload.tag);
  }
}

const CALL_ERRORS: Record<outbound.CallErrorRecord["tag"], string> = {
  denied: "the call is denied: ",
  "not-held": "nothing was sent: the stored object holds no finalizer yet",
  credential: "nothing was sent: credential: ",
  paused: "nothing was sent: calls are paused for ",
  "not-sent": "nothing was sent: ",
  "no-answer": "no answer to what was sent: ",
  "too-large": "the answer is too large",
  invalid: "the call is not valid: ",
};

function sent(call: outbound.CallRecord): outbound.AnswerRecord {
  try {
    return outbound.send(call);
  } catch (error) {
    const payload = (error as { payload?: outbound.CallErrorRecord }).payload;
    if (payload === undefined) {
      throw error;
    }
    const text = CALL_ERRORS[payload.tag];
    if (payload.tag === "paused") {
      throw new CallError(`${text}${payload.val} ms`, payload.tag, Number(payload.val));
    }
    const value = "val" in payload ? payload.val : "";
    const said = payload.tag === "credential" ? value.replace("-", " ") : value;
    throw new CallError(`${text}${said}`, payload.tag);
  }
}

function callRetry(error: CallError): FailureRecord["retry"] {
  if (error.pause !== undefined) {
    return { tag: "after", val: BigInt(error.pause) };
  }
  const waits = !["not-held", "not-sent", "no-answer"].includes(error.reason);
  return { tag: waits ? "on-change" : "back-off" };
}

function failed(error: unknown): FailureRecord {
  const message = told(error);
  if (error instanceof Failure) {
    const { outcome, retry = "back-off" } = error.options;
    return {
      message,
      status: outcome?.record.status,
      events: outcome?.record.events ?? [],
      retry: typeof retry === "number" ? { tag: "after", val: BigInt(retry) } : { tag: retry },
      note: outcome?.record.note,
    };
  }
  if (error instanceof CallError) {
    return { message, events: [], retry: callRetry(error) };
  }
  if (error instanceof ReadError) {
    const waits = error.reason === "denied" || error.reason === "unknown-kind";
    return { message, events: [], retry: { tag: waits ? "on-change" : "back-off" } };
  }
  return { message, events: [], retry: { tag: "back-off" } };
}

/** Returns the message of an error with its type and the line that threw it. */
function told(error: unknown): string {
  if (error instanceof Failure || error instanceof ReadError || error instanceof CallError) {
    return error.message;
  }
  if (!(error instanceof Error)) {
    return `thrown: ${String(error)}`;
  }
  const lines = located(error.stack ?? "");
  log.write("error", `${error}`, [["stack", lines.join("\n")]]);
  const [first] = lines;
  return first === undefined ? `${error}` : `${error} (${first})`;
}
