//! The charts in `deploy/`, with Helm itself: their values, what they render, and
//! `deploy/install.yaml`; and what `deploy/release` makes. `cluster::chart` installs them.

mod release;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use clap::CommandFactory as _;
use mortise::args::Args;
use mortise_host::{oci::MAX_MODULE_BYTES, operator::api::definition};
use mortise_tests::helm;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The chart of the host.
const HOST: &str = "deploy/chart";
/// The chart of a processor.
const PROCESSOR: &str = "deploy/chart-processor";
/// The value that a Processor cannot be without.
const MODULE: &str = "spec.module.path=a.wasm";

/// Helm, and a folder for its files.
pub(crate) struct Helm {
    pub(crate) program: PathBuf,
    pub(crate) home: TempDir,
}

// === impl Helm ===

impl Helm {
    /// Builds Helm on first use. Returns `None` without Go.
    pub(crate) fn open() -> Option<Self> {
        let program = helm::program().unwrap()?;
        Some(Self { program, home: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn command(&self) -> Command {
        helm::command(&self.program, self.home.path())
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    /// Runs Helm, which has to succeed; returns what it prints.
    #[track_caller]
    fn output(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "helm {arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Renders a chart with these values, and options of Helm before them.
    fn template(&self, chart: &str, options: &[&str], values: &[&str]) -> Output {
        let mut arguments = vec!["template", "shop", chart, "--namespace", "edge"];
        arguments.extend(options);
        arguments.extend(values.iter().flat_map(|value| ["--set-json", value]));
        self.run(&arguments)
    }

    /// Returns the objects of a rendered chart.
    #[track_caller]
    fn objects(&self, chart: &str, options: &[&str], values: &[&str]) -> Vec<Value> {
        let output = self.template(chart, options, values);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{chart} {values:?}: {error}");
        let text = String::from_utf8(output.stdout).unwrap();
        let found: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        found.into_iter().filter(Value::is_object).collect()
    }

    /// Returns the reason for which a chart is not rendered.
    #[track_caller]
    fn refusal(&self, chart: &str, options: &[&str], values: &[&str]) -> String {
        let output = self.template(chart, options, values);
        assert!(!output.status.success(), "{chart} {options:?} {values:?} is rendered");
        String::from_utf8(output.stderr).unwrap()
    }
}

/// Returns the only object of a kind.
#[track_caller]
fn one<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found: Vec<&Value> = objects.iter().filter(|object| object["kind"] == kind).collect();
    let [one] = found.as_slice() else { panic!("{} objects of the kind {kind}", found.len()) };
    one
}

fn kinds(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["kind"].as_str().unwrap()).collect()
}

/// Returns the only container of a workload.
fn container(workload: &Value) -> &Value {
    let containers = workload["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let [container] = containers.as_slice() else { panic!("one container") };
    container
}

fn arguments(workload: &Value) -> Vec<&str> {
    let arguments = container(workload)["args"].as_array().unwrap();
    arguments.iter().map(|argument| argument.as_str().unwrap()).collect()
}

fn write(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.into_os_string().into_string().unwrap()
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(path).unwrap()
}

/// Returns a constant of the host, which is written as `2 << 30`.
fn constant(file: &str, name: &str) -> u64 {
    let (text, start) = (read(file), format!("const {name}: u64 = "));
    let value = text.lines().find_map(|line| line.strip_prefix(start.as_str())?.strip_suffix(';'));
    let (number, shift) = value.and_then(|value| value.split_once(" << ")).unwrap();
    number.parse::<u64>().unwrap() << shift.parse::<u32>().unwrap()
}

/// Returns the default value of an option of `mortise run`.
fn default_of(option: &str) -> u64 {
    let command = Args::command();
    let run = command.find_subcommand("run").unwrap();
    let found = run.get_arguments().find(|of| of.get_long() == Some(option)).unwrap();
    found.get_default_values()[0].to_str().unwrap().parse().unwrap()
}

// === tests ===

#[test]
fn the_installation_is_the_chart_with_its_default_values() {
    let Some(rendered) = helm::rendered().unwrap() else { return };
    let found = std::fs::read_to_string(helm::installation()).unwrap();
    assert!(
        found == rendered,
        "deploy/install.yaml is not what deploy/chart renders: run `cargo chart` and look at what it changes"
    );
}

#[test]
fn the_charts_have_the_version_of_the_host() {
    let version = env!("CARGO_PKG_VERSION");
    for chart in [HOST, PROCESSOR] {
        let about: Value = serde_saphyr::from_str(&read(&format!("{chart}/Chart.yaml"))).unwrap();
        assert_eq!([&about["version"], &about["appVersion"]], [version, version], "{chart}");
    }
}

#[test]
fn helm_finds_no_fault_with_the_charts() {
    let Some(helm) = Helm::open() else { return };
    helm.output(&["lint", "--strict", HOST]);
    helm.output(&["lint", "--strict", PROCESSOR, "--set", MODULE]);
}

#[test]
fn values_of_the_host_that_it_cannot_use_are_refused() {
    let Some(helm) = Helm::open() else { return };
    let cases = [
        ("replica=3", "additional properties 'replica' not allowed"),
        ("replicas=0", "at '/replicas': minimum: got 0, want 1"),
        ("replicas=\"2\"", "at '/replicas': got string, want integer"),
        ("image.repository=\"\"", "at '/image/repository'"),
        ("image.digest=\"sha256:12\"", "at '/image/digest': 'sha256:12' does not match"),
        ("memoryMib.compile=\"1Gi\"", "at '/memoryMib/compile': got string, want integer"),
        ("memoryMib.compile=8", "at '/memoryMib/compile': minimum: got 8, want 64"),
        ("options.cache=\"/tmp\"", "options.cache: not accepted, since the chart sets it"),
        ("options.once=true", "options.once: not accepted"),
        (
            "options={\"--workers\": 2}",
            "at '/options': additional properties '--workers' not allowed",
        ),
        ("options.workers=1.5", "at '/options/workers'"),
        ("cache.size=\"4 GB\"", "at '/cache/size': '4 GB' does not match"),
        ("networkPolicy.egressPorts=[]", "at '/networkPolicy/egressPorts': minItems"),
        ("networkPolicy.egressPorts=[70000]", "maximum: got 70,000, want 65,535"),
        ("webhooks.enabled=true", "webhooks.certificate: needed with webhooks.enabled"),
        ("webhooks.certificate=\"tls\"", "at '/webhooks/certificate': 'tls' does not match"),
        ("webhooks.paths=[\"/convert\"]", "at '/webhooks/paths/0'"),
        ("registryCa=\"/ca.pem\"", "at '/registryCa': '/ca.pem' does not match"),
        ("requireSignatures=[{\"keys\": [\"key\"]}]", "at '/requireSignatures/0/keys/0'"),
        ("serviceMonitor.interval=30", "at '/serviceMonitor/interval': got number, want string"),
    ];
    for (value, expected) in cases {
        let refusal = helm.refusal(HOST, &[], &[value]);
        assert!(refusal.contains(expected), "{value}: {refusal}");
    }
}

#[test]
fn webhooks_have_their_port_their_service_and_the_right_to_their_certificate() {
    let Some(helm) = Helm::open() else { return };
    let webhooks = r#"webhooks={"enabled": true, "certificate": "shop/tls", "paths": ["/c=/convert/shop/rule"]}"#;
    let objects = helm.objects(HOST, &[], &[webhooks]);
    let of = |kind: &str, name: &str| {
        let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        objects.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} {name}")).clone()
    };
    let hosts = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    for argument in [
        "--webhooks=0.0.0.0:9443",
        "--webhook-certificate=shop/tls",
        "--webhook-path=/c=/convert/shop/rule",
    ] {
        assert!(arguments(hosts).contains(&argument), "{argument}: {:?}", arguments(hosts));
    }
    let port = json!({"name": "webhooks", "containerPort": 9443});
    assert!(container(hosts)["ports"].as_array().unwrap().contains(&port));
    let service = of("Service", "shop-webhooks");
    let unready = &service["spec"]["publishNotReadyAddresses"];
    assert!(unready.is_null(), "an endpoint goes before its host has ended");
    assert_eq!(service["spec"]["ports"][0]["targetPort"], "webhooks");
    let role = of("Role", "shop-webhooks");
    assert_eq!(role["metadata"]["namespace"], "shop");
    let read = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["tls"], "verbs": ["list", "watch"]});
    assert_eq!(role["rules"], json!([read]));
    let policy = objects.iter().find(|object| object["kind"] == "NetworkPolicy").unwrap();
    assert_eq!(policy["spec"]["ingress"][1]["ports"][0]["port"], "webhooks");
    assert!(policy["spec"]["ingress"][1].get("from").is_none(), "the API server has no selector");
}

#[test]
fn values_of_a_processor_that_it_cannot_use_are_refused() {
    let Some(helm) = Helm::open() else { return };
    let cases = [
        ("host={}", "missing property 'module'"),
        ("spec.module={\"file\": \"a.wasm\"}", "additional properties 'file' not allowed"),
        ("spec.module.path=\"/etc/passwd\"", "at '/spec/module/path'"),
        ("spec.serviceAccountName=\"a\"", "additional properties 'serviceAccountName' not allowed"),
        ("spec.limits.memory=\"64MB\"", "at '/spec/limits/memory'"),
        ("spec.mode=\"Dry\"", "at '/spec/mode': value must be one of 'Reconcile', 'Observe'"),
        ("spec.egress=[{\"origin\": \"ftp://a\"}]", "at '/spec/egress/0/origin'"),
        ("spec.clusters=[{\"servers\": [\"a\"]}]", "at '/spec/clusters/0/servers/0'"),
        ("crds={\"a.b\": \"c\"}", "at '/crds': additional properties 'a.b' not allowed"),
        ("crds=[]", "at '/crds': got array, want object"),
        ("host.serviceAccount=\"a/b\"", "at '/host/serviceAccount'"),
    ];
    for (value, expected) in cases {
        let refusal = helm.refusal(PROCESSOR, &[], &[value]);
        assert!(refusal.contains(expected), "{value}: {refusal}");
    }
}

#[test]
fn the_limit_of_memory_holds_the_host_two_compilers_and_the_calls() {
    let Some(helm) = Helm::open() else { return };
    let limit = |values: &[&str]| {
        let objects = helm.objects(HOST, &[], values);
        let hosts = one(&objects, "Deployment");
        let compile = arguments(hosts).into_iter().find(|of| of.starts_with("--compile-memory"));
        let limit = container(hosts)["resources"]["limits"]["memory"].as_str().unwrap().to_owned();
        (compile.unwrap().to_owned(), limit)
    };
    assert_eq!(limit(&[]), ("--compile-memory-mib=768".into(), "2Gi".into()));
    let values = ["memoryMib.compile=1024", "memoryMib.host=300", "memoryMib.calls=100"];
    assert_eq!(limit(&values), ("--compile-memory-mib=1024".into(), "2448Mi".into()));
    let values = ["webhooks.enabled=true", "webhooks.certificate=\"a/b\""];
    assert_eq!(limit(&values), ("--compile-memory-mib=768".into(), "2304Mi".into()));
}

#[test]
fn default_values_render_no_optional_objects() {
    let Some(helm) = Helm::open() else { return };
    let objects = helm.objects(HOST, &[], &[]);
    let expected = [
        "NetworkPolicy",
        "PodDisruptionBudget",
        "ServiceAccount",
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "Deployment",
    ];
    assert_eq!(kinds(&objects), expected);
    let none = ["networkPolicy.enabled=false", "crd.install=false"];
    let left = helm.objects(HOST, &[], &none);
    assert_eq!(left.len(), expected.len() - 2, "{:?}", kinds(&left));
}

#[test]
fn every_object_has_the_name_and_the_namespace_of_the_release() {
    let Some(helm) = Helm::open() else { return };
    let all = [
        "serviceMonitor.enabled=true",
        "registryCa=\"-----BEGIN CERTIFICATE-----\"",
        "spec.module.path=\"a.wasm\"",
    ];
    for (chart, values) in [(HOST, &all[..2]), (PROCESSOR, &all[2..])] {
        for object in helm.objects(chart, &[], values) {
            let kind = object["kind"].as_str().unwrap();
            if kind == "CustomResourceDefinition" {
                continue;
            }
            let name = object["metadata"]["name"].as_str().unwrap();
            assert!(["shop", "mortise-acts-as-shop"].contains(&name), "{kind} {name}");
            let is_in = object["metadata"].get("namespace");
            let expected = (!kind.starts_with("Cluster")).then(|| json!("edge"));
            assert_eq!(is_in, expected.as_ref(), "{kind}");
            assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/instance"], "shop");
        }
    }
}

#[test]
fn metrics_get_a_service_and_a_monitor_that_select_the_hosts() {
    let Some(helm) = Helm::open() else { return };
    let with = helm.objects(HOST, &[], &["service.enabled=true"]);
    let service = one(&with, "Service");
    let pods = &one(&with, "Deployment")["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&service["spec"]["selector"], pods);
    assert!(!kinds(&with).contains(&"ServiceMonitor"));

    let labels = "serviceMonitor.labels={\"release\": \"prometheus\"}";
    let with = helm.objects(HOST, &[], &["serviceMonitor.enabled=true", labels]);
    let (service, monitor) = (one(&with, "Service"), one(&with, "ServiceMonitor"));
    assert_eq!(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"]);
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    assert_eq!(monitor["spec"]["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);
}

#[test]
fn a_lasting_cache_is_each_pods_own_and_stays_the_hosts() {
    let Some(helm) = Helm::open() else { return };
    let values = ["cache.claim={\"enabled\": true, \"storageClassName\": \"fast\"}"];
    let objects = helm.objects(HOST, &[], &values);
    let hosts = one(&objects, "StatefulSet");
    let claim = &hosts["spec"]["volumeClaimTemplates"][0];
    assert_eq!(claim["metadata"]["name"], "cache");
    assert_eq!(claim["spec"]["storageClassName"], "fast");
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "5Gi");
    let pod = &hosts["spec"]["template"]["spec"];
    let volumes: Vec<&Value> =
        pod["volumes"].as_array().unwrap().iter().map(|volume| &volume["name"]).collect();
    assert_eq!(volumes, ["modules"], "the claim is the cache");
    assert_eq!(pod["securityContext"]["fsGroup"], 65532);
    // Otherwise each start makes compiled code writable for the group, and the host refuses it.
    assert_eq!(pod["securityContext"]["fsGroupChangePolicy"], "OnRootMismatch");
}

#[test]
fn the_volume_of_the_cache_holds_all_that_a_host_keeps() {
    let values: Value = serde_saphyr::from_str(&read("deploy/chart/values.yaml")).unwrap();
    let size = values["cache"]["size"].as_str().unwrap().strip_suffix("Gi").unwrap();
    let size = size.parse::<u64>().unwrap() << 30;
    let code = constant("host/src/wasm/cache.rs", "MAX_TOTAL_BYTES");
    let modules = default_of("max-modules-mib") << 20;
    // The code of two modules at once, a few times their size, before older code goes.
    let unfinished = 2 * 4 * MAX_MODULE_BYTES;
    let all = code + modules + unfinished;
    assert!(size > all, "cache.size is {} MiB; all is {} MiB", size >> 20, all >> 20);
}

#[test]
fn a_host_writes_to_its_volumes_only_and_has_no_privileges() {
    let objects: Vec<Value> = serde_saphyr::from_multiple(&read("deploy/install.yaml")).unwrap();
    let hosts = one(&objects, "Deployment");
    let expected = json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
    });
    assert_eq!(container(hosts)["securityContext"], expected);
    let of_pod = &hosts["spec"]["template"]["spec"]["securityContext"];
    assert_eq!(of_pod["runAsNonRoot"], true);
    assert_eq!(of_pod["seccompProfile"]["type"], "RuntimeDefault");
    let mounts = container(hosts)["volumeMounts"].as_array().unwrap();
    let written = mounts.iter().filter(|mount| mount["readOnly"] != true);
    let written: Vec<&Value> = written.map(|mount| &mount["mountPath"]).collect();
    assert_eq!(written, ["/cache"]);
}

#[test]
fn files_of_the_host_are_mounted_and_others_start_it_anew() {
    let Some(helm) = Helm::open() else { return };
    let render = |values: &[&str]| {
        let objects = helm.objects(HOST, &[], values);
        let hosts = one(&objects, "Deployment").clone();
        (one(&objects, "ConfigMap")["data"].clone(), hosts)
    };
    let digest = |hosts: &Value| {
        hosts["spec"]["template"]["metadata"]["annotations"]["mortise.dev/files"].clone()
    };
    let (data, first) = render(&["registryCa=\"-----BEGIN CERTIFICATE-----\\n\""]);
    assert_eq!(data, json!({"registry-ca.pem": "-----BEGIN CERTIFICATE-----\n"}));
    assert!(arguments(&first).contains(&"--registry-ca=/files/registry-ca.pem"));

    let rules = json!([{"prefix": "/modules/try-out", "unsigned": true}]);
    let (data, second) = render(&[&format!("requireSignatures={rules}")]);
    let policy: Value = serde_saphyr::from_str(data["signatures.yaml"].as_str().unwrap()).unwrap();
    assert_eq!(policy, json!({"rules": rules}));
    assert!(arguments(&second).contains(&"--require-signatures=/files/signatures.yaml"));
    assert_ne!(digest(&first), digest(&second));
    let clients = "webhooks.clientCa=\"-----BEGIN CERTIFICATE-----\"";
    let (data, third) = render(&["webhooks.enabled=true", "webhooks.certificate=\"a/b\"", clients]);
    assert_eq!(data, json!({"webhook-client-ca.pem": "-----BEGIN CERTIFICATE-----"}));
    assert!(arguments(&third).contains(&"--webhook-client-ca=/files/webhook-client-ca.pem"));
    let mounts = container(&second)["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().any(|mount| mount["mountPath"] == "/files"), "{mounts:?}");
}

#[test]
fn options_are_given_to_the_program_as_it_takes_them() {
    let Some(helm) = Helm::open() else { return };
    let options = "options={\"drain-seconds\": 60, \"namespace\": \"shop\", \"max-store-mib\": 1048576, \"plain\": true}";
    let objects = helm.objects(HOST, &[], &[options]);
    let hosts = one(&objects, "Deployment");
    let expected = ["--drain-seconds=60", "--max-store-mib=1048576", "--namespace=shop", "--plain"];
    assert!(arguments(hosts).ends_with(&expected), "{:?}", arguments(hosts));
    // The Pod is killed after what runs had its time.
    assert_eq!(hosts["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 65);
}

#[test]
fn a_host_of_one_namespace_has_no_right_to_the_processors_and_accounts_of_others() {
    let Some(helm) = Helm::open() else { return };
    let resources = |role: &Value| {
        let rules = role["rules"].as_array().unwrap();
        let resources = rules.iter().flat_map(|rule| rule["resources"].as_array().unwrap());
        resources.map(|of| of.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let roles = |options: &str| {
        let objects = helm.objects(HOST, &[], &[options]);
        let roles =
            objects.into_iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Role"));
        let place = |role: Value| {
            (role["metadata"]["namespace"].as_str().map(str::to_owned), resources(&role))
        };
        roles.map(place).collect::<Vec<_>>()
    };
    let of = |namespace: Option<&str>, resources: &[&[&str]]| {
        let resources = resources.concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
        (namespace.map(str::to_owned), resources)
    };
    let followed: &[_] =
        &["processors", "processors/status", "serviceaccounts", "roles", "rolebindings"];
    let reviews: &[_] = &["subjectaccessreviews"];
    let of_cluster: &[_] = &["customresourcedefinitions", "clusterroles", "clusterrolebindings"];
    let leases = of(Some("edge"), &[&["leases", "leases"]]);
    let of_all = of(None, &[followed, reviews, of_cluster]);
    assert_eq!(roles("options={}"), [of_all, leases.clone()]);
    let of_shop = "options={\"namespace\": \"shop\"}";
    let expected = [of(None, &[of_cluster]), of(Some("shop"), &[followed]), leases];
    assert_eq!(roles(of_shop), expected);
    let bindings = helm.objects(HOST, &[], &[of_shop]);
    let bound = bindings.iter().find(|object| {
        object["kind"] == "RoleBinding" && object["metadata"]["namespace"] == "shop"
    });
    let bound = bound.unwrap();
    assert_eq!(bound["roleRef"]["name"], "shop-processors");
    assert_eq!(
        bound["subjects"],
        json!([{"kind": "ServiceAccount", "namespace": "edge", "name": "shop"}])
    );
}

#[test]
fn options_that_the_chart_gives_are_refused_among_the_others() {
    let Some(helm) = Helm::open() else { return };
    let files =
        ["registryCa=\"-----BEGIN CERTIFICATE-----\"", "requireSignatures=[{\"unsigned\": true}]"];
    let objects = helm.objects(HOST, &[], &files);
    let given = arguments(one(&objects, "Deployment"));
    let given = given.iter().filter_map(|argument| argument.strip_prefix("--"));
    let given: Vec<&str> = given.map(|option| option.split('=').next().unwrap()).collect();
    assert_eq!(given.len(), 7, "{given:?}");
    for option in given {
        let refusal = helm.refusal(HOST, &[], &[&format!("options={{\"{option}\": \"a\"}}")]);
        assert!(refusal.contains(&format!("options.{option}: not accepted")), "{refusal}");
    }
}

#[test]
fn the_network_lets_scrapers_in_and_the_named_ports_out() {
    let Some(helm) = Helm::open() else { return };
    let scrapers = json!([{"namespaceSelector": {"matchLabels": {"team": "metrics"}}}]);
    let values =
        [format!("networkPolicy.scrapers={scrapers}"), "networkPolicy.egressPorts=[8443]".into()];
    let objects = helm.objects(HOST, &[], &[&values[0], &values[1]]);
    let policy = &one(&objects, "NetworkPolicy")["spec"];
    assert_eq!(
        policy["ingress"],
        json!([{"from": scrapers, "ports": [{"port": "http", "protocol": "TCP"}]}])
    );
    let ports = policy["egress"][0]["ports"].as_array().unwrap();
    let ports: Vec<&Value> = ports.iter().map(|port| &port["port"]).collect();
    assert_eq!(ports, [53, 53, 8443]);
}

#[test]
fn the_network_lets_out_the_ports_of_other_clusters_and_of_origins_each_once() {
    let Some(helm) = Helm::open() else { return };
    let options = json!({
        "clusters": "https://a.example:6443,https://[fd00::1]/k8s,https://b.example:7443/c",
        "egress": "https://*.c.example,http://d.example,https://e.example:8443",
    });
    let values = format!("options={options}");
    let objects = helm.objects(HOST, &[], &[&values]);
    let ports = one(&objects, "NetworkPolicy")["spec"]["egress"][0]["ports"].as_array().unwrap();
    let ports: Vec<&Value> = ports.iter().map(|port| &port["port"]).collect();
    assert_eq!(ports, [53, 53, 443, 6443, 7443, 80, 8443]);
}

#[test]
fn definitions_stay_when_a_chart_is_uninstalled() {
    let Some(helm) = Helm::open() else { return };
    let keep = json!({"helm.sh/resource-policy": "keep"});
    let mut objects = helm.objects(HOST, &[], &[]);
    objects.retain(|object| object["kind"] == "CustomResourceDefinition");
    let [definition] = objects.as_mut_slice() else { panic!("one definition") };
    let annotations = definition["metadata"].as_object_mut().unwrap().remove("annotations");
    assert_eq!(annotations, Some(keep.clone()));
    assert_eq!(*definition, definition::processors());

    let both = read("crds/gateway.kyma-project.io/ratelimits.gateway.kyma-project.io.yaml")
        + "---\n"
        + &read("crds/copy.mortise.dev/secretcopies.copy.mortise.dev.yaml");
    let set = format!("crds.both={}", write(&helm.home, "both.yaml", &both));
    let options = ["--set", MODULE, "--set-file", &set];
    let mut objects = helm.objects(PROCESSOR, &options, &[]);
    objects.retain(|object| object["kind"] == "CustomResourceDefinition");
    let mut expected: Vec<Value> = serde_saphyr::from_multiple(&both).unwrap();
    for definition in &mut expected {
        definition["metadata"]["annotations"] = keep.clone();
    }
    objects.sort_by_key(|object| object["metadata"]["name"].to_string());
    expected.sort_by_key(|object| object["metadata"]["name"].to_string());
    assert_eq!(objects, expected);
}

#[test]
fn chart_crds_that_are_no_definitions_are_refused() {
    let Some(helm) = Helm::open() else { return };
    let cases = [
        (
            "kind: Secret",
            "crds.a: only objects of the kind CustomResourceDefinition are accepted, found Secret",
        ),
        (
            "a: 1",
            "crds.a: only objects of the kind CustomResourceDefinition are accepted, found an object without a kind",
        ),
        ("text", "crds.a: a document is no object in YAML"),
    ];
    for (text, expected) in cases {
        let refusal =
            helm.refusal(PROCESSOR, &["--set", MODULE], &[&format!("crds.a={}", json!(text))]);
        assert!(refusal.contains(expected), "{text}: {refusal}");
    }
}

#[test]
fn roles_of_another_account_and_other_kinds_are_refused() {
    let Some(helm) = Helm::open() else { return };
    let binding = |name: &str, namespace: &str| {
        format!(
            "kind: RoleBinding\nmetadata: {{name: a}}\nsubjects:\n- {{kind: ServiceAccount, name: {name}, namespace: {namespace}}}\n"
        )
    };
    let cases = [
        (
            binding("other", "edge"),
            "bound to ServiceAccount edge/other, not to the account of this release: print them with --service-account edge/shop",
        ),
        (binding("shop", "other"), "bound to ServiceAccount other/shop"),
        (
            "kind: Secret\n".into(),
            "only objects of the kinds ClusterRole, ClusterRoleBinding, Role, RoleBinding are accepted, found Secret",
        ),
        ("[]".into(), "roles: a document is no object in YAML"),
        ("kind: [".into(), "roles: a document is no object in YAML"),
    ];
    for (number, (text, expected)) in cases.iter().enumerate() {
        let set = format!("roles={}", write(&helm.home, &format!("{number}.yaml"), text));
        let refusal = helm.refusal(PROCESSOR, &["--set", MODULE, "--set-file", &set], &[]);
        assert!(refusal.contains(expected), "{text}: {refusal}");
    }
    let set = format!("roles={}", write(&helm.home, "own.yaml", &binding("shop", "edge")));
    let objects = helm.objects(PROCESSOR, &["--set", MODULE, "--set-file", &set], &[]);
    assert!(objects.iter().any(|object| object["metadata"]["name"] == "a"));
}

#[test]
fn the_egress_and_the_clusters_of_the_spec_are_those_that_are_given() {
    let Some(helm) = Helm::open() else { return };
    let egress = json!([{
        "origin": "https://*.api.example.com", "credentials": [{"kind": "Secret", "labels": "a=b"}],
        "rate": {"perSecond": 20, "burst": 100},
    }]);
    let clusters = json!([{
        "servers": ["https://*.provider.example:6443"], "secrets": {"namespace": "shop"},
    }]);
    let values = [format!("spec.egress={egress}"), format!("spec.clusters={clusters}")];
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let objects = helm.objects(PROCESSOR, &["--set", MODULE], &values);
    let spec = &one(&objects, "Processor")["spec"];
    assert_eq!((&spec["egress"], &spec["clusters"]), (&egress, &clusters));
}

#[test]
fn the_account_may_get_the_pull_secrets_that_the_spec_names() {
    let Some(helm) = Helm::open() else { return };
    let secrets = "spec.imagePullSecrets=[{\"name\": \"pull\"}, {\"name\": \"other\"}]";
    let objects = helm.objects(PROCESSOR, &["--set", MODULE], &[secrets]);
    let is_for_secrets = |object: &&Value| object["rules"][0]["resources"] == json!(["secrets"]);
    let role = objects.iter().find(is_for_secrets).unwrap();
    let get = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["pull", "other"], "verbs": ["get"]});
    assert_eq!(role["rules"], json!([get]));
    let name = role["metadata"]["name"].as_str().unwrap();
    let binds = |object: &&Value| object["roleRef"]["name"] == name;
    let binding = objects.iter().find(binds).unwrap();
    let account = json!([{"kind": "ServiceAccount", "namespace": "edge", "name": "shop"}]);
    assert_eq!(binding["subjects"], account);
}
