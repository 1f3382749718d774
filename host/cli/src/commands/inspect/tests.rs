use std::sync::Arc;

use mortise_core::{
    contract::{
        Methods, OutboundRule,
        bounds::text::{escaped, is_unsafe},
        hooks::Hooks,
    },
    fixture::{HOSTILE_TEXTS, all, description},
};

use super::*;

fn selected(kind: &str) -> Selected {
    Selected {
        cluster: String::new(),
        api_version: "example.dev/v1".into(),
        kind: kind.into(),
        namespace: None,
        name: None,
        labels: String::new(),
        matching: Vec::new(),
        fields: Vec::new(),
    }
}

fn inspection() -> Inspection {
    let matching = vec![
        Match { path: "spec.hosts[]".into(), value: "*".into() },
        Match { path: "status.phase".into(), value: "Running".into() },
    ];
    let reads = Selected {
        namespace: Some("shop".into()),
        name: Some("settings".into()),
        fields: vec!["data".into(), "metadata.labels".into()],
        ..selected("Gadget")
    };
    let written =
        WriteEntry { of: selected("Widget"), verbs: vec!["create", "update"], fields: vec![] };
    Inspection {
        name: "widgets".into(),
        version: "1.2.3".into(),
        file: Some("widgets.wasm".into()),
        image: None,
        digest: "sha256:00".into(),
        size: 2049,
        contract: "mortise:host@0.1.0".into(),
        libraries: Vec::new(),
        imports: vec![
            "mortise:host/clock@0.1.0".into(),
            "mortise:host/log@0.1.0".into(),
            "wasi:io/poll@0.2.6".into(),
        ],
        reconcilers: vec![ReconcilerEntry {
            name: "widget".into(),
            of: selected("Widget"),
            finalizers: vec!["example.dev/hold".into()],
            resync: Duration::from_mins(30),
            min_interval: Duration::from_millis(500),
            triggered_by_status: true,
            on_demand: false,
            whole_status: false,
        }],
        reads: vec![reads, Selected { matching, labels: "app=a".into(), ..selected("Widget") }],
        writes: vec![written],
        grants: vec![json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})],
        outbound: Vec::new(),
        egress: Vec::new(),
        warnings: Vec::new(),
        config_schema: Some(json!({"type": "object"})),
    }
}

const PAGE: &str = "\
widgets 1.2.3
  file      widgets.wasm
  digest    sha256:00
  size      3 KiB (2049 bytes)
  contract  mortise:host@0.1.0
  imports   mortise:host@0.1.0: clock, log
            wasi:io@0.2.6: poll

reconciles
  name    of                     where       finalizers        resync
  widget  Widget example.dev/v1  everywhere  example.dev/hold  after 30m
                                                               at most every 500ms
                                                               also on changes of the status

reads
  kind                   where          selected by           fields
  Gadget example.dev/v1  shop/settings                        data
                                                              metadata.labels
  Widget example.dev/v1  everywhere     app=a                 whole objects
                                        spec.hosts[]
                                        status.phase=Running

writes
  kind                   where       selected by  verbs           fields
  Widget example.dev/v1  everywhere               create, update  any

grants
  rule
  {\"apiGroups\":[\"\"],\"resources\":[\"pods\"],\"verbs\":[\"get\"]}

configuration
  type: object
";

#[test]
fn a_person_reads_a_page() {
    let page = anstream::adapter::strip_str(&inspection().for_people()).to_string();
    assert_eq!(page, PAGE, "\n{page}");
}

#[test]
fn a_page_says_what_may_be_started_where() {
    let mut started = inspection();
    started.reconcilers[0].on_demand = true;
    started.reconcilers[0].whole_status = true;
    started.reconcilers[0].of.cluster = "*".into();
    started.reads[0].cluster = "shop/provider/kubeconfig".into();
    let page = anstream::adapter::strip_str(&started.for_people()).to_string();
    for part in [
        "on demand, within:",
        "everywhere",
        "of each cluster",
        "of cluster shop/provider/kubeconfig",
        "the whole status is written, and read",
    ] {
        assert!(page.contains(part), "{part} is missing in:\n{page}");
    }
}

const CALLS: &str = "\
calls
  origin                     methods    credentials                                                               pause
  https://*.api.example.com  GET, POST  data.token of Secret v1 (everywhere, example.com/token=yes)               15s
                                        spec.token of Account example.dev/v1 (everywhere, example.com/token=yes)
  https://b.example.com      GET        none                                                                      none

a Processor grants these calls by
  egress:
  - origin: https://*.api.example.com
    credentials:
    - kind: Secret
      labels: example.com/token=yes
    - group: example.dev
      kind: Account
      labels: example.com/token=yes
  - origin: https://b.example.com

warnings
  reads[0] holds a credential: `spec.token` of Account example.dev/v1; read named fields without it

";

#[test]
fn a_page_has_the_block_that_grants_its_calls() {
    let of = |group: &str, version: &str, kind: &str, field: &str| Selection {
        kind: Kind::home(group, version, kind).into(),
        labels: "example.com/token=yes".into(),
        fields: [field.to_owned()].into(),
        ..all("Rule")
    };
    let rule = |origin: &str, methods, credentials, pause| OutboundRule {
        origin: origin.into(),
        methods,
        credentials,
        pause,
    };
    let account = of("example.dev", "v1", "Account", "spec.token");
    let secret = of("", "v1", "Secret", "data.token");
    let mut description = description(all("Rule"), vec![]);
    description.reads = vec![Selection { fields: Arc::default(), ..account.clone() }];
    description.outbound = vec![
        rule(
            "https://*.api.example.com",
            Methods::GET | Methods::POST,
            vec![secret, account],
            15_000,
        ),
        rule("https://b.example.com", Methods::GET, vec![], 0),
    ];
    let inspection = Inspection {
        outbound: description.outbound.iter().map(OutboundEntry::of).collect(),
        egress: Grant::declared(&description),
        warnings: outbound::warnings(&description, &Hooks::default()),
        ..inspection()
    };
    let page = anstream::adapter::strip_str(&inspection.for_people()).to_string();
    let start = page.find("calls\n").unwrap();
    let end = page.find("configuration\n").unwrap();
    assert_eq!(&page[start..end], CALLS, "\n{page}");
    let json = json!(inspection);
    assert_eq!(json["egress"][1], json!({"origin": "https://b.example.com"}));
    assert_eq!(json["outbound"][0]["pauseSeconds"], 15);
    assert_eq!(inspection.permissions()["outbound"], json["outbound"]);
}

#[tokio::test]
async fn the_rights_to_credentials_are_of_the_account_at_home() {
    let credential = Selection {
        namespace: Some("shop".into()),
        fields: ["spec.token".to_owned()].into(),
        ..all("Account")
    };
    let mut description = description(all("Rule"), vec![]);
    description.outbound = vec![OutboundRule {
        origin: "https://a.example.com".into(),
        methods: Methods::GET,
        credentials: vec![credential],
        pause: 0,
    }];
    let format = Some(Structured::Json);
    let text = rbac(&description, Vec::new(), None, format).await.unwrap();
    let list: Value = serde_json::from_str(&text).unwrap();
    let items = list["items"].as_array().unwrap();
    let role = items.iter().find(|of| of["metadata"]["namespace"] == "shop").unwrap();
    assert_eq!(role["rules"][0]["resources"], json!(["accounts"]));
    assert_eq!(role["rules"][0]["verbs"], json!(["get", "list", "watch"]));
    assert!(!text.contains("-elsewhere"), "{text}");
}

#[tokio::test]
async fn the_rights_in_other_clusters_are_a_list_of_their_own() {
    let elsewhere = |cluster: &str, of: Selection| {
        let kind = Kind { cluster: cluster.into(), ..Kind::clone(&of.kind) };
        Selection { kind: kind.into(), ..of }
    };
    let mut description = description(all("Rule"), vec![]);
    description.reads.clear();
    description.reads.push(elsewhere("*", all("Shared")));
    description.reads.push(elsewhere("shop/provider/kubeconfig", all("Remote")));
    let text = rbac(&description, Vec::new(), None, None).await.unwrap();
    let (home, remote) = text.split_once(ELSEWHERE).unwrap();
    for (list, kinds, others) in
        [(home, ["rules", "shareds"], "- remotes\n"), (remote, ["shareds", "remotes"], "- rules\n")]
    {
        assert!(kinds.iter().all(|kind| list.contains(&format!("- {kind}\n"))), "{list}");
        assert!(!list.contains(others), "{list}");
    }
    assert!(remote.contains("-elsewhere"), "{remote}");
}

#[test]
fn absent_parts_of_an_inspection_are_stated() {
    let bare = Inspection {
        imports: vec![],
        reconcilers: vec![],
        reads: vec![],
        writes: vec![],
        grants: Vec::new(),
        config_schema: None,
        ..inspection()
    };
    let page = anstream::adapter::strip_str(&bare.for_people()).to_string();
    for part in ["imports   nothing", "reads\n  nothing", "no schema: it takes none"] {
        assert!(page.contains(part), "{part} is missing in:\n{page}");
    }
}

/// The same table is walked for the formats of the host, in its package.
#[test]
fn a_hostile_text_stays_in_its_place_in_yaml_and_on_a_terminal() {
    let is_odd = |character: char| character != '\n' && is_unsafe(character);
    for hostile in HOSTILE_TEXTS {
        let (name, version) = (hostile.to_owned(), hostile.to_owned());
        let description = Description { name, version, ..description(all("Rule"), vec![]) };
        let comments = manifest(&description, &[], None, std::iter::empty());
        let lines = comments.trim_end().split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']);
        assert!(lines.clone().all(|line| line.starts_with('#')), "{comments}");

        let object = json!({"kind": hostile, "data": {hostile: [hostile]}});
        let yaml = print::yaml(&object);
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), object, "{yaml}");

        let mut inspection = inspection();
        inspection.reads[0].fields = vec![hostile.to_owned()];
        inspection.grants = vec![json!({"nonResourceURLs": [hostile]})];
        inspection.config_schema = Some(object);
        let page = anstream::adapter::strip_str(&inspection.for_people()).to_string();
        assert!(page.contains(&*escaped(hostile)), "{page}");

        let failure = print::guest_text(hostile);
        for text in [comments, yaml, page, failure] {
            assert!(!text.contains(is_odd), "{text:?}");
        }
    }
}
