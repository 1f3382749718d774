//! kubectl itself against the embedded API: its output is what users know from a cluster.
//!
//! Each test has an API of its own, on a free port, and types commands into a shell. Most tests are
//! tables of commands, with the exit code and the output of each. Output that kubectl alone decides
//! is left open (`…`), so that every version of kubectl passes that is used with a cluster of 1.34.

mod apply;
mod create;
mod delete;
mod discover;
mod edit;
mod get;
mod hand_over;
mod refuse;
mod shell;
mod wait;
mod workload;

use self::shell::Shell;

/// A custom resource with printer columns, validation rules, a status, a scale and a selectable
/// field.
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
