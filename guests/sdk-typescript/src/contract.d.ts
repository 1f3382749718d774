/**
 * The contract in wit/, as componentize-js maps it: what the host gives, and what a component must
 * export.
 */

declare module "mortise:host/types@0.1.0" {
  export type KindRecord = { group: string; version: string; kind: string };

  export type ObjectRef = {
    cluster: string;
    kind: KindRecord;
    namespace?: string;
    name: string;
  };

  export type SelectionRecord = {
    cluster: string;
    kind: KindRecord;
    namespace?: string;
    name?: string;
    labels: string;
    matching: [path: string, value: string][];
    fields: string[];
  };

  export type ReadErrorRecord =
    { tag: "denied" | "unavailable" | "invalid"; val: string } | { tag: "unknown-kind" };
}

declare module "mortise:host/cluster@0.1.0" {
  import type { ObjectRef, SelectionRecord } from "mortise:host/types@0.1.0";

  /** Throws an error whose `payload` is a `ReadErrorRecord`, as does `list`. */
  export function get(ref: ObjectRef, fields: string[]): string | undefined;
  export function list(
    of: SelectionRecord,
    limit: number,
    from: string | undefined,
  ): { objects: string[]; next?: string };
}

declare module "mortise:host/clock@0.1.0" {
  export function now(): bigint;
}

declare module "mortise:host/log@0.1.0" {
  export type Level = "trace" | "debug" | "info" | "warn" | "error";
  export function write(level: Level, message: string, fields: [string, string][]): void;
}

declare module "mortise:host/outbound@0.1.0" {
  import type { ObjectRef } from "mortise:host/types@0.1.0";

  export type MethodRecord = "get" | "head" | "post" | "put" | "patch" | "delete";

  export type SchemeRecord = { tag: "bearer" } | { tag: "basic" | "header"; val: string };

  export type CallRecord = {
    method: MethodRecord;
    url: string;
    headers: [name: string, value: string][];
    body?: Uint8Array;
    credential?: { of: ObjectRef; at: string; scheme: SchemeRecord };
    timeout: bigint;
  };

  export type AnswerRecord = {
    status: number;
    headers: [name: string, value: string][];
    body: Uint8Array;
  };

  export type CallErrorRecord =
    | { tag: "denied" | "not-sent" | "no-answer" | "invalid"; val: string }
    | { tag: "credential"; val: "no-object" | "no-value" | "not-text" }
    | { tag: "paused"; val: bigint }
    | { tag: "not-held" | "too-large" };

  /** Throws an error whose `payload` is a `CallErrorRecord`. */
  export function send(of: CallRecord): AnswerRecord;
}

declare module "mortise:host/reconciliation@0.1.0" {
  import type { ObjectRef, SelectionRecord } from "mortise:host/types@0.1.0";

  export type ReconcilerRecord = {
    name: string;
    of: SelectionRecord;
    finalizers: string[];
    resync: bigint;
    triggeredByStatus: boolean;
    minInterval: bigint;
    onDemand: boolean;
    wholeStatus: boolean;
  };

  export type Verbs = { create?: boolean; update?: boolean; delete?: boolean; evict?: boolean };

  export type Methods = {
    get?: boolean;
    head?: boolean;
    post?: boolean;
    put?: boolean;
    patch?: boolean;
    delete?: boolean;
  };

  export type DescriptionRecord = {
    name: string;
    version: string;
    reconcilers: ReconcilerRecord[];
    reads: SelectionRecord[];
    writes: { of: SelectionRecord; verbs: Verbs; fields: string[] }[];
    grants: Required<GrantedRule>[];
    outbound: {
      origin: string;
      methods: Methods;
      credentials: SelectionRecord[];
      pause: bigint;
    }[];
    configSchema?: string;
  };

  export type GrantedRule = {
    apiGroups?: string[];
    resources?: string[];
    resourceNames?: string[];
    verbs: string[];
    nonResourceUrls?: string[];
  };

  export type WriteFailure = {
    action: "apply" | "patch" | "evict" | "delete" | "prune" | "finalize" | "status";
    ref: ObjectRef;
    code: number;
    reason: string;
    message: string;
    conflictingManagers: string[];
  };

  export type RequestRecord = {
    reconciler: string;
    ref: ObjectRef;
    object?: string;
    config: string;
    attempt: number;
    failedWrites: WriteFailure[];
    note?: string;
  };

  export type ManifestRecord = {
    cluster: string;
    object: string;
    mode: "apply" | "create";
    leave: string[];
    absent: string[];
  };

  export type Propagation = "background" | "foreground" | "orphan";

  export type DeletionRecord = {
    ref: ObjectRef;
    uid?: string;
    propagation: Propagation;
    gracePeriod?: number;
  };

  export type EventRecord = {
    on?: ObjectRef;
    eventType: "normal" | "warning";
    reason: string;
    message: string;
  };

  export type OutcomeRecord = {
    apply: ManifestRecord[];
    patch: ManifestRecord[];
    evict: DeletionRecord[];
    delete: DeletionRecord[];
    prune: SelectionRecord[];
    status?: string;
    events: EventRecord[];
    requeue: { tag: "by-default" | "never" } | { tag: "after"; val: bigint };
    finalizers?: string[];
    start: { reconciler: string; of: SelectionRecord }[];
    note?: string;
  };

  export type FailureRecord = {
    message: string;
    status?: string;
    events: EventRecord[];
    retry: { tag: "back-off" | "on-change" } | { tag: "after"; val: bigint };
    note?: string;
  };
}
