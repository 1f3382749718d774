"""Copies a Secret into every namespace that a label selector takes."""

from typing import Any

from mortise_sdk import (
    Description,
    Host,
    Kind,
    Outcome,
    Reconciler,
    Request,
    Selection,
    Verbs,
    WriteRule,
    derived_name,
    export,
    set_condition,
)

SECRET_COPY = Kind[dict[str, Any]]("copy.mortise.dev/v1", "SecretCopy")
SECRET = Kind[dict[str, Any]]("v1", "Secret")
NAMESPACE = Kind[dict[str, Any]]("v1", "Namespace")

FINALIZER = "copy.mortise.dev/copies"
# The label of a copy: the mark of its SecretCopy. Secrets of others lack it and are left alone.
COPY_OF = "copy.mortise.dev/of"


def describe(_config: Any) -> Description:
    return Description(
        name="secret-copy",
        version="0.1.0",
        reconcilers=[Reconciler("secret-copies", Selection(SECRET_COPY), finalizers=[FINALIZER])],
        reads=[
            Selection(NAMESPACE, fields=["metadata.labels"]),
            Selection(SECRET, fields=["data", "type", "metadata.labels"]),
        ],
        writes=[WriteRule(Selection(SECRET), Verbs.CREATE | Verbs.UPDATE | Verbs.DELETE)],
    )


def reconcile(request: Request, _config: Any, host: Host) -> Outcome:
    outcome = Outcome()
    copy = request.object(SECRET_COPY)
    if copy is None:
        return outcome
    home, name = copy["metadata"]["namespace"], copy["spec"]["secret"]
    mark = derived_name(copy["metadata"]["name"], home)
    outcome.prune(Selection(SECRET, labels=f"{COPY_OF}={mark}"))
    if "deletionTimestamp" in copy["metadata"]:
        outcome.finalizers([])
        return outcome
    wrong = [failure.message for failure in request.failed_writes]
    secret = host.get(SECRET, home, name)
    if secret is None:
        wrong.append(f"there is no Secret {name} to copy")
    else:
        content = {field: secret[field] for field in ("data", "type") if field in secret}
        for selected in host.list(Selection(NAMESPACE, labels=copy["spec"]["namespaces"])):
            to = selected["metadata"]["name"]
            there = host.get(SECRET, to, name, ["metadata.labels"])
            if there is None or there["metadata"].get("labels", {}).get(COPY_OF) == mark:
                metadata = {"name": name, "namespace": to, "labels": {COPY_OF: mark}}
                outcome.apply(SECRET.object(metadata, **content))
            elif to != home:
                wrong.append(f"the Secret {name} in {to} is not a copy")
    conditions = copy.get("status", {}).get("conditions", [])
    reason = "Incomplete" if wrong else "Copied"
    set_condition(conditions, "Ready", not wrong, reason, "; ".join(wrong), host)
    outcome.status(request, {"copies": outcome.applied, "conditions": conditions})
    outcome.finalizers([FINALIZER])
    return outcome


Reconciliation = export(describe, reconcile)
