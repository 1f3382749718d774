//! kubectl itself before the embedded API: what it prints there is what its users know from a cluster.
//!
//! Each test has an API of its own, on a free port, and types commands into a shell. Most are tables: a command, the code that it
//! exits with, what it prints. What kubectl alone decides is left open (`…`), so that any version of it passes that a
//! cluster of 1.34 is used with.

mod apply;
mod create;
mod delete;
mod discover;
mod edit;
mod get;
mod refuse;
mod shell;
mod wait;
mod workload;

use shell::Shell;

/// A custom resource with printer columns, rules, a status, a scale and a field to select by.
const CRON_TABS: &str = include_str!("kubectl/crontabs.yaml");
const CRON_TAB: &str = r#"
apiVersion: stable.example.com/v1
kind: CronTab
metadata: {name: mine}
spec: {cronSpec: "*/5 * * * *", image: runner}
"#;
const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "nginx:1", ports: [{containerPort: 80}]}]}
"#;
const CONFIG_MAP: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: colours, labels: {app: paint}}
data: {sky: blue, grass: green}
";
