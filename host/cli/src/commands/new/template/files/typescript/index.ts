/** {{about}} */

import {
  type Description,
  type Host,
  Kind,
  Outcome,
  type Request,
  controller,
  derivedName,
  processor,
} from "mortise-sdk";

const reconciled = new Kind<{{type}}>("{{api-version}}", "{{kind}}");
const configMap = new Kind<{ data?: Record<string, string> }>("v1", "ConfigMap");

/** Nothing but what is named here can be read or written. */
function describe(): Description {
  return {
    name: "{{package}}",
    version: "0.1.0",
    reconcilers: [{ name: "{{plural}}", of: {{selection}} }],
    writes: [{ of: { kind: configMap }, verbs: { create: true, update: true } }],
  };
}

/** What should be for one {{kind}}: again when anything that it read or wrote changes. */
function reconcile(request: Request, _config: unknown, _host: Host): Outcome {
  const outcome = new Outcome();
  const object = request.object(reconciled);
  if (object === undefined) {
    return outcome;
  }
  const metadata = {
    name: derivedName(object.metadata.name, "text"),
    namespace: object.metadata.namespace ?? "default",
    ownerReferences: [controller(object)],
  };
  outcome.apply(configMap.object(metadata, { data: { text: {{text}} } }));
{{status}}  return outcome;
}

export const reconciliation = processor({ describe, reconcile });
