"""{{about}}"""

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
    controller,
    derived_name,
    export,
)

RECONCILED = Kind[dict[str, Any]]("{{api-version}}", "{{kind}}")
CONFIG_MAP = Kind[dict[str, Any]]("v1", "ConfigMap")


def describe(_config: Any) -> Description:
    """Nothing but what is named here can be read or written."""
    return Description(
        name="{{package}}",
        version="0.1.0",
        reconcilers=[Reconciler("{{plural}}", {{selection}})],
        writes=[WriteRule(Selection(CONFIG_MAP), Verbs.CREATE | Verbs.UPDATE)],
    )


def reconcile(request: Request, _config: Any, _host: Host) -> Outcome:
    """What should be for one {{kind}}: again when anything that it read or wrote changes."""
    outcome = Outcome()
    object = request.object(RECONCILED)
    if object is None:
        return outcome
    metadata = {
        "name": derived_name(object["metadata"]["name"], "text"),
        "namespace": object["metadata"].get("namespace", "default"),
        "ownerReferences": [controller(object)],
    }
    outcome.apply(CONFIG_MAP.object(metadata, data={"text": {{text}}}))
{{status}}    return outcome


Reconciliation = export(describe, reconcile)
