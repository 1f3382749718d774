//! Refusals, in the words that users of a cluster know.

use super::{CONFIG_MAP, CRON_TAB, CRON_TABS, DEPLOYMENT, Shell};

fn shell() -> Option<Shell> {
    let shell = Shell::open()?;
    shell.write("crontabs.yaml", CRON_TABS);
    shell.write("crontab.yaml", CRON_TAB);
    shell.output("kubectl apply -f crontabs.yaml");
    shell.output("kubectl apply -f crontab.yaml");
    Some(shell)
}

#[test]
fn unknown_fields_are_refused_or_warned_about() {
    let Some(shell) = shell() else { return };
    shell.write("typo.yaml", &CRON_TAB.replace("mine", "typo").replace("image:", "imag:"));
    shell.write("deployment.yaml", &DEPLOYMENT.replace("containers:", "container:"));
    shell.write("cm.yaml", &CONFIG_MAP.replace("data: {sky", "dat: {sky"));
    let refused = "CronTab in version \"v1\" cannot be handled as a CronTab: strict decoding error: unknown field \"spec.imag\"";
    shell.table(&[
        ("kubectl apply -f typo.yaml", 1, &format!("Error from server (BadRequest): error when creating \"typo.yaml\": {refused}")),
        ("kubectl apply --validate=warn -f typo.yaml", 0, "Warning: unknown field \"spec.imag\"\ncrontab.stable.example.com/typo created"),
        ("kubectl apply --validate=ignore -f typo.yaml", 0, "crontab.stable.example.com/typo configured"),
        (
            "kubectl apply --server-side -f typo.yaml",
            1,
            "Error from server: failed to create typed patch object (default/typo; stable.example.com/v1, Kind=CronTab): .spec.imag: field not declared in schema",
        ),
        (
            "kubectl apply -f deployment.yaml",
            1,
            "Error from server (BadRequest): error when creating \"deployment.yaml\": Deployment in version \"v1\" cannot be handled as \
             a Deployment: strict decoding error: unknown field \"spec.template.spec.container\"",
        ),
        (
            "kubectl create --validate=false -f deployment.yaml",
            1,
            "The Deployment \"web\" is invalid: spec.template.spec.containers: Required value",
        ),
        (
            "kubectl create -f cm.yaml",
            1,
            "Error from server (BadRequest): error when creating \"cm.yaml\": ConfigMap in version \"v1\" cannot be handled as a \
             ConfigMap: strict decoding error: unknown field \"dat\"",
        ),
        ("kubectl patch ct mine --type merge -p '{\"spec\":{\"imag\":\"x\"}}'", 0, "Warning: unknown field \"spec.imag\"\ncrontab.stable.example.com/mine patched (no change)"),
    ]);
}

#[test]
fn wrong_types_are_refused() {
    let Some(shell) = shell() else { return };
    shell.write("deployment.yaml", &DEPLOYMENT.replace("replicas: 2", "replicas: two"));
    shell.write("cm.yaml", &CONFIG_MAP.replace("blue", "3"));
    shell.write("crontab.yaml", &CRON_TAB.replace("image: runner", "replicas: two"));
    let unmarshal = "cannot be handled as a Deployment: json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32";
    shell.table(&[
        (
            "kubectl apply -f deployment.yaml",
            1,
            &format!("Error from server (BadRequest): error when creating \"deployment.yaml\": Deployment in version \"v1\" {unmarshal}"),
        ),
        (
            "kubectl apply --server-side -f deployment.yaml",
            1,
            "Error from server: failed to create typed patch object (default/web; apps/v1, Kind=Deployment): .spec.replicas: expected numeric (int or float), got string",
        ),
        (
            "kubectl create -f cm.yaml",
            1,
            "Error from server (BadRequest): error when creating \"cm.yaml\": ConfigMap in version \"v1\" cannot be handled as a \
             ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "kubectl apply -f crontab.yaml",
            1,
            "The CronTab \"mine\" is invalid: \n* spec.replicas: Invalid value: \"string\": spec.replicas in body must be of type integer: \"string\"\n\
             * .spec.replicas: Invalid value: 0: .spec.replicas accessor error: two is of the type string, expected int64\n\
             * <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        ),
    ]);
}

#[test]
fn rules_and_schemas_are_enforced() {
    let Some(shell) = shell() else { return };
    shell.write(
        "bad.yaml",
        &CRON_TAB
            .replace("mine", "bad")
            .replace("\"*/5 * * * *\", image: runner", "often, replicas: 40, mode: never"),
    );
    shell.table(&[
        (
            "kubectl patch ct mine --type merge -p '{\"spec\":{\"replicas\":9}}'",
            1,
            "The CronTab \"mine\" is invalid: spec: Invalid value: \"object\": replicas must not exceed maxReplicas",
        ),
        (
            "sed s/runner/other/ crontab.yaml | kubectl apply -f -",
            1,
            "The CronTab \"mine\" is invalid: spec: Invalid value: \"object\": image is immutable",
        ),
        (
            "sed s/runner/other/ crontab.yaml | kubectl apply --server-side --force-conflicts -f -",
            1,
            "The CronTab \"mine\" is invalid: spec: Invalid value: \"object\": image is immutable",
        ),
        (
            "kubectl create -f bad.yaml",
            1,
            "The CronTab \"bad\" is invalid: \n\
             * spec.cronSpec: Invalid value: \"often\": spec.cronSpec in body should match '^(\\S+ ){4}\\S+$'\n\
             * spec.mode: Unsupported value: \"never\": supported values: \"once\", \"always\"\n\
             * spec.replicas: Invalid value: 40: spec.replicas in body should be less than or equal to 10\n…",
        ),
        (
            "sed 's/self.replicas <=/self.replica <=/' crontabs.yaml | kubectl apply -f -",
            1,
            "The CustomResourceDefinition \"crontabs.stable.example.com\" is invalid: spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: \
             Invalid value: …: compilation failed: ERROR: <input>:1:5: undefined field 'replica'\n…",
        ),
    ]);
}

#[test]
fn kinds_that_are_not_there_are_named() {
    let Some(shell) = shell() else { return };
    shell.write("other.yaml", &CRON_TAB.replace("stable.example.com/v1", "stable.example.com/v2"));
    shell.write(
        "both.yaml",
        &format!(
            "{}\n---\n{}",
            CRON_TAB.replace("stable", "new"),
            CRON_TABS.replace("stable", "new")
        ),
    );
    let missing = "no matches for kind \"CronTab\" in version";
    shell.table(&[
        (
            "kubectl apply -f other.yaml",
            1,
            &format!("error: resource mapping not found for name: \"mine\" namespace: \"\" from \"other.yaml\": {missing} \"stable.example.com/v2\"\nensure CRDs are installed first"),
        ),
        (
            "kubectl apply -f both.yaml",
            1,
            &format!(
                "customresourcedefinition.apiextensions.k8s.io/crontabs.new.example.com created\n…resource mapping not found for name: \"mine\" \
                 namespace: \"\" from \"both.yaml\": {missing} \"new.example.com/v1\"\nensure CRDs are installed first"
            ),
        ),
        ("kubectl apply -f both.yaml", 0, "crontab.new.example.com/mine created\ncustomresourcedefinition.apiextensions.k8s.io/crontabs.new.example.com unchanged"),
        ("kubectl delete crd crontabs.new.example.com", 0, "customresourcedefinition.apiextensions.k8s.io \"crontabs.new.example.com\" deleted"),
        ("kubectl get crontabs.new.example.com", 1, "error: the server doesn't have a resource type \"crontabs\""),
    ]);
}
