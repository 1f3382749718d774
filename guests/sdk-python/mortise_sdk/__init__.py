"""The SDK for writing mortise processors in Python.

A processor is two functions, which `export` makes the exports of a component:

    def describe(config) -> Description
    def reconcile(request, config, host) -> Outcome

`describe` declares what is reconciled, read and written. `reconcile` is handed one object, reads
others through `host` and returns what should be true. Objects are dictionaries, as in their JSON; a
`Kind` may carry the type of its objects for type checkers. An exception that leaves `reconcile`
fails the run, with its message and its line.

Every call starts from the state in which the module was when the component was built: nothing
survives a call.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Generic, Literal, TypeVar

from componentize_py_types import Err
from wit_world.exports import reconciliation as records
from wit_world.exports.reconciliation import Methods, Verbs
from wit_world.imports import clock, cluster, log, outbound, types

from .names import derived_name

__all__ = [
    "Answer",
    "CallError",
    "Credential",
    "Description",
    "Failure",
    "GrantedRule",
    "Host",
    "Kind",
    "Methods",
    "OutboundRule",
    "Outcome",
    "ReadError",
    "Reconciler",
    "Request",
    "Selection",
    "Verbs",
    "WriteRule",
    "cluster_of",
    "controller",
    "derived_name",
    "export",
    "set_condition",
]

T = TypeVar("T", bound=Mapping[str, Any])


@dataclass
class Kind(Generic[T]):
    """A kind of objects of type `T`, such as `Kind("apps/v1", "Deployment")`."""

    api_version: str
    kind: str

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    def display(self) -> str:
        """Formats the kind as the host does: `Deployment apps/v1`."""
        return f"{self.kind} {self.api_version}"

    def object(self, metadata: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
        """Returns an object of this kind with these fields."""
        named = {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata}
        return named | fields


@dataclass
class Selection(Generic[T]):
    """The objects of a kind that fit every condition; as `selection` in wit/types.wit.

    `cluster` is "" for the home cluster, `cluster_of(…)` or, in a declaration, "*" for every
    cluster.
    """

    kind: Kind[T]
    namespace: str | None = None
    name: str | None = None
    labels: str = ""
    matching: list[tuple[str, str]] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    cluster: str = ""


@dataclass
class Reconciler:
    """One kind of objects that is reconciled, and how; as `reconciler` in wit/reconciliation.wit.

    `resync` and `min_interval` are milliseconds. With `on_demand` it runs for no object until
    outcomes start it. With `whole_status` the status of an outcome replaces that of the object.
    """

    name: str
    of: Selection[Any]
    finalizers: list[str] = field(default_factory=list)
    resync: int = 0
    triggered_by_status: bool = False
    min_interval: int = 0
    on_demand: bool = False
    whole_status: bool = False


@dataclass
class WriteRule:
    """Objects that may be written, with these verbs and, if any are given, only at these paths."""

    of: Selection[Any]
    verbs: Verbs
    fields: list[str] = field(default_factory=list)


@dataclass
class GrantedRule:
    """A rule that the processor grants in roles that it writes or binds."""

    api_groups: list[str] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)
    resource_names: list[str] = field(default_factory=list)
    verbs: list[str] = field(default_factory=list)
    non_resource_urls: list[str] = field(default_factory=list)


@dataclass
class OutboundRule:
    """A system outside of the cluster that the processor may call.

    `origin` is `https://api.example.com` or `https://*.example.com:8443`. `credentials` are the
    objects that hold what calls are authenticated with, with the paths of the values as `fields`.
    `pause` is the milliseconds in which nothing is sent after 429 that names no time.
    """

    origin: str
    methods: Methods = Methods.GET
    credentials: list[Selection[Any]] = field(default_factory=list)
    pause: int = 0


@dataclass
class Description:
    """The name of a processor, and everything that it reconciles, reads, writes and calls.

    `config_schema` is the JSON schema of the configuration; without one, `describe` checks it.
    """

    name: str
    version: str
    reconcilers: list[Reconciler]
    reads: list[Selection[Any]] = field(default_factory=list)
    writes: list[WriteRule] = field(default_factory=list)
    grants: list[GrantedRule] = field(default_factory=list)
    outbound: list[OutboundRule] = field(default_factory=list)
    config_schema: Mapping[str, Any] | None = None


class Request:
    """One object to reconcile; as `request` in wit/reconciliation.wit.

    `note` is the note of the last outcome or failure for the object, if the host still has it.
    """

    def __init__(self, record: records.Request):
        self.reconciler = record.reconciler
        self.cluster = record.ref.cluster
        self.namespace = record.ref.namespace
        self.name = record.ref.name
        self.attempt = record.attempt
        self.failed_writes = record.failed_writes
        self.ref = record.ref
        self.note = record.note
        self._object = record.object

    def object(self, kind: Kind[T]) -> T | None:
        """Returns the reconciled object; `None` if it is gone or has left the selection."""
        of = self.ref.kind
        given = Kind(f"{of.group}/{of.version}" if of.group else of.version, of.kind)
        if given != kind:
            raise TypeError(f"the request is for {given.display()}, not for {kind.display()}")
        return json.loads(self._object) if self._object is not None else None


class ReadError(Exception):
    """A read has no answer. Where it leaves `reconcile`, the object waits for it.

    `reason` is `denied`, `unknown-kind`, `unavailable` or `invalid`.
    """

    def __init__(self, what: str, error: types.ReadError):
        self.reason, text = _READ_ERRORS[type(error).__name__]
        message = getattr(error, "value", "the cluster does not know the kind")
        super().__init__(f"reading {what}{text}: {message}")


_READ_ERRORS: dict[str, tuple[str, str]] = {
    "ReadError_Denied": ("denied", " is denied"),
    "ReadError_UnknownKind": ("unknown-kind", ""),
    "ReadError_Unavailable": ("unavailable", " is not possible now"),
    "ReadError_Invalid": ("invalid", " is not a valid query"),
}


@dataclass
class Credential:
    """What a call is authenticated with: the text at a path of an object, such as `data.token`.

    The processor never sees it. It is sent as a bearer token, as the password of `user`, or in the
    header `header`.
    """

    kind: Kind[Any]
    namespace: str | None
    name: str
    at: str
    user: str | None = None
    header: str | None = None


@dataclass
class Answer:
    """The answer to a call, of any status. The names of the headers are in lower case."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def is_success(self) -> bool:
        """True if the status is one of 200 to 299."""
        return 200 <= self.status < 300

    def header(self, name: str) -> str | None:
        """Returns the first value of a header, whose name is given in lower case."""
        return next((value for held, value in self.headers if held == name), None)

    def json(self) -> Any:
        """Parses the body."""
        return json.loads(self.body)


class CallError(Exception):
    """A call has no answer. Where it leaves `reconcile`, the object runs again when it may have one.

    `reason` is `denied`, `not-held`, `credential`, `paused`, `not-sent`, `no-answer`, `too-large` or
    `invalid`; after `no-answer` and `too-large`, what was asked for may have been done, after the
    others nothing was sent. `pause` is the milliseconds of `paused`.
    """

    def __init__(self, error: outbound.CallError):
        self.reason, text = _CALL_ERRORS[type(error).__name__]
        value = getattr(error, "value", None)
        self.pause: int | None = value if self.reason == "paused" else None
        if self.reason == "paused":
            text += f" for {value} ms"
        elif self.reason == "credential":
            text += value.name.lower().replace("_", " ")
        elif value is not None:
            text += value
        super().__init__(text)


_CALL_ERRORS: dict[str, tuple[str, str]] = {
    "CallError_Denied": ("denied", "the call is denied: "),
    "CallError_NotHeld": (
        "not-held",
        "nothing was sent: the stored object holds no finalizer yet",
    ),
    "CallError_Credential": ("credential", "nothing was sent: credential: "),
    "CallError_Paused": ("paused", "nothing was sent: calls are paused"),
    "CallError_NotSent": ("not-sent", "nothing was sent: "),
    "CallError_NoAnswer": ("no-answer", "no answer to what was sent: "),
    "CallError_TooLarge": ("too-large", "the answer is too large"),
    "CallError_Invalid": ("invalid", "the call is not valid: "),
}


class Failure(Exception):
    """The reconcile could not be done: raised by `reconcile`, told to people without a line.

    It is tried again with exponential back-off, `retry_after` this many milliseconds, or when
    something that was read changes (`retry_on_change`). `outcome` gives the status and the events
    that are written nevertheless, and the note.
    """

    def __init__(
        self,
        message: str,
        *,
        outcome: Outcome | None = None,
        retry_after: int | None = None,
        retry_on_change: bool = False,
    ):
        super().__init__(message)
        self.outcome = outcome or Outcome()
        self.retry: records.Retry = records.Retry_BackOff()
        if retry_after is not None:
            self.retry = records.Retry_After(retry_after)
        elif retry_on_change:
            self.retry = records.Retry_OnChange()


class Host:
    """The host as a processor sees it: reads, calls to the outside, the clock and the log."""

    def get(
        self,
        kind: Kind[T],
        namespace: str | None,
        name: str,
        fields: Iterable[str] = (),
        *,
        in_cluster: str = "",
    ) -> T | None:
        """Reads an object; `None` if there is no such object.

        `namespace` is `None` for kinds without namespaces. Without `fields`, all declared fields
        are read.
        """
        try:
            text = cluster.get(_ref(kind, namespace, name, in_cluster), list(fields))
        except Err as error:
            place = f"{namespace}/{name}" if namespace else name
            raise ReadError(f"{kind.display()} `{place}`", error.value) from None
        return None if text is None else json.loads(text)

    def list(self, of: Selection[T], limit: int = 0) -> Iterator[T]:
        """Reads the objects of a selection, ordered by namespace and name, page by page."""
        start = None
        while True:
            try:
                page = cluster.list(_selection(of), limit, start)
            except Err as error:
                raise ReadError(f"a list of {of.kind.display()}", error.value) from None
            yield from map(json.loads, page.objects)
            start = page.next
            if start is None:
                return

    def call(
        self,
        method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        json_body: Any = None,
        credential: Credential | None = None,
        timeout: int = 10_000,
    ) -> Answer:
        """Calls a system outside of the cluster, and returns the answer, of any status.

        `json_body` is a body of JSON, with its content type. `timeout` is milliseconds; a call never
        takes longer than what is left of the reconcile's own time. The host never repeats it.
        """
        named = list((headers or {}).items())
        if json_body is not None:
            body = json.dumps(json_body).encode()
            named.append(("content-type", "application/json"))
        of = None if credential is None else _credential(credential)
        call = outbound.Call(outbound.Method[method], url, named, body, of, timeout)
        try:
            answer = outbound.send(call)
        except Err as error:
            raise CallError(error.value) from None
        return Answer(answer.status, answer.headers, answer.body)

    def now(self) -> datetime:
        """Returns the time of this call, which stands still.

        A run that asks is never skipped later.
        """
        return datetime.fromtimestamp(clock.now() / 1000, timezone.utc)

    def log(self, message: str, level: str = "info", **fields: Any) -> None:
        """Writes a line to the host's log; `level` is trace, debug, info, warn or error."""
        named = [(key, str(value)) for key, value in fields.items()]
        log.write(log.Level[level.upper()], message, named)


class Outcome:
    """Everything that should be true; as `outcome` in wit/reconciliation.wit."""

    def __init__(self) -> None:
        self._record = records.Outcome(
            [], [], [], [], [], None, [], records.Requeue_ByDefault(), None, [], None
        )

    @property
    def applied(self) -> int:
        """The number of objects that are applied."""
        return len(self._record.apply)

    def apply(
        self,
        object: Mapping[str, Any],
        *,
        create_only: bool = False,
        leave: Iterable[str] = (),
        absent: Iterable[str] = (),
        in_cluster: str = "",
    ) -> None:
        """Adds an object to create or to update with server-side apply."""
        mode = records.Mode.CREATE if create_only else records.Mode.APPLY
        text = json.dumps(object)
        manifest = records.Manifest(in_cluster, text, mode, list(leave), list(absent))
        self._record.apply.append(manifest)

    def patch(
        self, object: Mapping[str, Any], *, absent: Iterable[str] = (), in_cluster: str = ""
    ) -> None:
        """Adds a part of an object that belongs to others."""
        text, mode = json.dumps(object), records.Mode.APPLY
        self._record.patch.append(records.Manifest(in_cluster, text, mode, [], list(absent)))

    def prune(self, selection: Selection[Any]) -> None:
        """Deletes objects of the selection that former outcomes applied and this one does not."""
        self._record.prune.append(_selection(selection))

    def delete(
        self,
        kind: Kind[Any],
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        propagation: Literal["background", "foreground", "orphan"] = "background",
        grace_period: int | None = None,
        in_cluster: str = "",
    ) -> None:
        """Adds an object to delete. An object that is gone already is no failure."""
        policy = records.Propagation[propagation.upper()]
        ref = _ref(kind, namespace, name, in_cluster)
        self._record.delete.append(records.Deletion(ref, uid, policy, grace_period))

    def evict(
        self, namespace: str, name: str, *, uid: str | None = None, in_cluster: str = ""
    ) -> None:
        """Adds a Pod to evict."""
        ref = _ref(Kind("v1", "Pod"), namespace, name, in_cluster)
        deletion = records.Deletion(ref, uid, records.Propagation.BACKGROUND, None)
        self._record.evict.append(deletion)

    def status(self, request: Request, status: Mapping[str, Any]) -> None:
        """Sets the status of the reconciled object, or the part of it that this processor owns."""
        kind = request.ref.kind
        api_version = f"{kind.group}/{kind.version}" if kind.group else kind.version
        metadata = {"name": request.name}
        if request.namespace is not None:
            metadata["namespace"] = request.namespace
        named = Kind(api_version, kind.kind).object(metadata, status=status)
        self._record.status = json.dumps(named)

    def event(
        self, reason: str, message: str, *, warning: bool = False, on: types.ObjectRef | None = None
    ) -> None:
        """Adds an event, on the reconciled object unless `on` names another one."""
        kind = records.EventType.WARNING if warning else records.EventType.NORMAL
        self._record.events.append(records.Event(on, kind, reason, message))

    def requeue_after(self, milliseconds: int) -> None:
        """Runs the object again after this time."""
        self._record.requeue = records.Requeue_After(milliseconds)

    def requeue_never(self) -> None:
        """Runs the object again only when something that it read changes."""
        self._record.requeue = records.Requeue_Never()

    def finalizers(self, finalizers: Iterable[str]) -> None:
        """Sets the finalizers wanted now, of those that the reconciler declares."""
        self._record.finalizers = list(finalizers)

    def start(self, reconciler: str, of: Selection[Any]) -> None:
        """Runs an on-demand reconciler for the objects of a selection within the declared one."""
        self._record.start.append(records.Start(reconciler, _selection(of)))

    def note(self, note: str) -> None:
        """Leaves a text of up to 1 KiB for the next run of the object: `request.note`.

        The host keeps it in memory only, and may forget it: a processor must be right without it.
        """
        self._record.note = note


def cluster_of(namespace: str, name: str, key: str) -> str:
    """Returns the name of the cluster whose kubeconfig a Secret of the home cluster holds."""
    return f"{namespace}/{name}/{key}"


def controller(owner: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an owner reference to an object, as it was read, that manages another one."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def set_condition(
    conditions: list[Any],
    type: str,
    status: bool | None,
    reason: str,
    message: str,
    host: Host,
) -> None:
    """Sets a condition in a list of conditions, where it replaces the one of the same type.

    A status of `None` is `Unknown`. `lastTransitionTime` changes only when the status does.
    """
    text = "Unknown" if status is None else str(status)
    condition = {"type": type, "status": text, "reason": reason, "message": message}
    former = next((other for other in conditions if other["type"] == type), None)
    if former and former["status"] == text and former.get("lastTransitionTime"):
        condition["lastTransitionTime"] = former["lastTransitionTime"]
    else:
        condition["lastTransitionTime"] = host.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    if former is None:
        conditions.append(condition)
    else:
        conditions[conditions.index(former)] = condition


def export(
    describe: Callable[[Any], Description],
    reconcile: Callable[[Request, Any, Host], Outcome],
) -> type:
    """Returns the exports of the component, which the module must name `Reconciliation`."""

    class Reconciliation:
        def describe(self, config: str) -> records.Description:
            try:
                return _description(describe(_config(config)))
            except Exception as error:
                raise Err(_told(error)) from None

        def reconcile(self, record: records.Request) -> records.Outcome:
            try:
                return reconcile(Request(record), _config(record.config), Host())._record
            except Exception as error:
                raise Err(_failure(error)) from None

    return Reconciliation


def _description(given: Description) -> records.Description:
    schema = given.config_schema
    return records.Description(
        given.name,
        given.version,
        [
            records.Reconciler(
                reconciler.name,
                _selection(reconciler.of),
                reconciler.finalizers,
                reconciler.resync,
                reconciler.triggered_by_status,
                reconciler.min_interval,
                reconciler.on_demand,
                reconciler.whole_status,
            )
            for reconciler in given.reconcilers
        ],
        [_selection(read) for read in given.reads],
        [records.WriteRule(_selection(rule.of), rule.verbs, rule.fields) for rule in given.writes],
        [
            records.GrantedRule(
                rule.api_groups,
                rule.resources,
                rule.resource_names,
                rule.verbs,
                rule.non_resource_urls,
            )
            for rule in given.grants
        ],
        [
            records.OutboundRule(
                rule.origin, rule.methods, list(map(_selection, rule.credentials)), rule.pause
            )
            for rule in given.outbound
        ],
        None if schema is None else json.dumps(schema),
    )


def _selection(of: Selection[Any]) -> types.Selection:
    kind = types.Kind(of.kind.group, of.kind.version, of.kind.kind)
    return types.Selection(
        of.cluster, kind, of.namespace, of.name, of.labels, of.matching, of.fields
    )


def _ref(kind: Kind[Any], namespace: str | None, name: str, in_cluster: str) -> types.ObjectRef:
    kind_record = types.Kind(kind.group, kind.version, kind.kind)
    return types.ObjectRef(in_cluster, kind_record, namespace, name)


def _credential(of: Credential) -> outbound.Credential:
    scheme: outbound.Scheme = outbound.Scheme_Bearer()
    if of.user is not None:
        scheme = outbound.Scheme_Basic(of.user)
    elif of.header is not None:
        scheme = outbound.Scheme_Header(of.header)
    return outbound.Credential(_ref(of.kind, of.namespace, of.name, ""), of.at, scheme)


def _config(text: str) -> Any:
    return json.loads(text) if text.strip() else {}


def _failure(error: Exception) -> records.Failure:
    if isinstance(error, Failure):
        record = error.outcome._record
        return records.Failure(str(error), record.status, record.events, error.retry, record.note)
    if isinstance(error, ReadError):
        waits = error.reason in ("denied", "unknown-kind")
        retry = records.Retry_OnChange() if waits else records.Retry_BackOff()
        return records.Failure(str(error), None, [], retry, None)
    if isinstance(error, CallError):
        return records.Failure(str(error), None, [], _call_retry(error), None)
    log.write(log.Level.ERROR, "".join(traceback.format_exception(error)), [])
    return records.Failure(_told(error), None, [], records.Retry_BackOff(), None)


def _call_retry(error: CallError) -> records.Retry:
    if error.pause is not None:
        return records.Retry_After(error.pause)
    if error.reason in ("not-held", "not-sent", "no-answer"):
        return records.Retry_BackOff()
    return records.Retry_OnChange()


def _told(error: Exception) -> str:
    """Returns the message of an exception with its type and the line that raised it."""
    if isinstance(error, (Failure, ReadError, CallError)):
        return str(error)
    message = "".join(traceback.format_exception_only(error)).strip()
    lines = traceback.extract_tb(error.__traceback__)
    # The innermost line of the processor itself says more than one of a library.
    own = [line for line in lines if line.filename.startswith(_OWN)]
    if not own:
        return message
    place = own[-1].filename.replace(_OWN, "src/", 1)
    return f"{message} ({place}:{own[-1].lineno}, in {own[-1].name})"


# The folder of the processor's modules in the component.
_OWN = "/0/"
