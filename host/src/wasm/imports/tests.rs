use std::sync::Arc;

use futures::FutureExt as _;
use mortise_core::{
    contract::{
        Description, GrantedRule, Kind, Level, ObjectRef, Selection, Verbs,
        bounds::{text::*, *},
    },
    fixture::{all, description, elsewhere, object, reference, v1, write_rule},
    grant::Grant,
    outbound::pauses::MAX_PAUSE,
    reads::{PAGE_BYTES, View},
    store::Stores,
};
use proptest::prelude::*;
use wasmtime_wasi::p2::bindings::{cli::stdout::Host as _, random::insecure::Host as _};

use crate::{
    outbound,
    wasm::{Limits, state::State},
};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Rows of the tables in wit/world.wit, with the constants that they state.
const ROWS: &[(&str, &str, usize)] = &[
    ("ENTRY", "an entry of a list, beside its texts, in all sums of bytes", ENTRY),
    ("IMPORT_COPY", "arguments of one import, all their texts together", IMPORT_COPY),
    ("READ_ARGUMENTS", "arguments of one read", READ_ARGUMENTS),
    ("CALL_ARGUMENTS", "arguments of all reads of a call together", CALL_ARGUMENTS),
    (
        "FIELDS",
        "`fields`, and conditions of `matching`, of one selection or read; paths of `leave` and `absent`",
        FIELDS,
    ),
    ("PATH", "a path", PATH),
    ("PATH_STEPS", "steps of a path", PATH_STEPS),
    ("PATH_PAIRS", "pairs of one step `[key=value,…]` of a path", PATH_PAIRS),
    ("PAGE_TOKEN", "a page token", PAGE_TOKEN),
    ("READ_ERROR", "the message of a read error", READ_ERROR),
    ("INDEXED_PATHS", "paths of a kind, declared in `matching`, that are indexed", INDEXED_PATHS),
    ("INDEXED_LABELS", "label keys of a kind that are indexed", INDEXED_LABELS),
    ("INDEXED_VALUES", "values of one object at one path that are indexed", INDEXED_VALUES),
    ("STREAM_WRITE", "one write to standard output or error", STREAM_WRITE),
    ("RANDOM_BYTES", "random bytes asked for at once", RANDOM_BYTES),
    ("RESOURCES", "resources of WASI that are open at once", RESOURCES),
    ("TABLE_ELEMENTS", "elements of all tables of functions together", TABLE_ELEMENTS),
    ("COMPONENT_INSTANCES", "core modules that a component instantiates", COMPONENT_INSTANCES),
    (
        "INSTANCE_BYTES",
        "memory of an instance beside its linear memories: 32 bytes for a function, 64 for a global, 8 for an element of a table",
        INSTANCE_BYTES,
    ),
    (
        "LOADED_BYTES",
        "memory of a component while it is loaded: 192 bytes for an import, export or global, 64 for a function",
        LOADED_BYTES,
    ),
    ("LOG_MESSAGE", "a message of the log", LOG_MESSAGE),
    ("LOG_FIELDS", "values of one line of log", LOG_FIELDS),
    ("LOG_VALUE", "a value in the log", LOG_VALUE),
    ("LOG_FIELD_NAME", "the name of a value in the log", LOG_FIELD_NAME),
    ("LIBRARY_ANSWER", "the answer of a library", LIBRARY_ANSWER),
    ("FUNCTION_TYPE", "the type of a library's function in a message", FUNCTION_TYPE),
    ("CALLS", "calls of `outbound`, refused ones too", CALLS),
    ("URL", "the URL of a call", URL),
    ("CALL_HEADERS", "headers of a call", CALL_HEADERS),
    ("CALL_HEADER_BYTES", "names and values of these headers together", CALL_HEADER_BYTES),
    ("CALL_BODY", "the body of a call", CALL_BODY),
    ("CREDENTIAL", "the value of a credential", CREDENTIAL),
    ("CALL_ERROR", "the text of a call's error", CALL_ERROR),
    ("RECORDED_URL", "the URL of a call in the record of a run", RECORDED_URL),
    ("NOTE", "a note", NOTE),
    ("NOTES", "notes of a host together", NOTES),
    ("RECONCILERS", "reconcilers", RECONCILERS),
    ("READS", "declared reads", READS),
    ("WRITES", "declared writes", WRITES),
    ("GRANTS", "granted rules", GRANTS),
    ("OUTBOUND", "outbound rules", OUTBOUND),
    ("OUTBOUND_CREDENTIALS", "credentials of an outbound rule", OUTBOUND_CREDENTIALS),
    ("ORIGIN", "the origin of an outbound rule", ORIGIN),
    ("GRANT_ENTRIES", "entries of one list of a granted rule", GRANT_ENTRIES),
    ("GRANT_TEXT", "a text of a granted rule", GRANT_TEXT),
    (
        "GRANTED_RIGHTS",
        "single rights of all granted rules together: each verb on each resource and name",
        GRANTED_RIGHTS,
    ),
    ("SELECTOR", "a declared label selector", SELECTOR),
    ("FINALIZERS", "finalizers of a reconciler", FINALIZERS),
    ("NAME", "the name of a processor or reconciler, a DNS label", NAME),
    ("VERSION", "a processor's version", VERSION),
    ("DESCRIPTION", "the description, all its texts together", DESCRIPTION),
    ("DESCRIPTION_COPY", "the description, copied out of the guest", DESCRIPTION_COPY),
    ("FAILURE", "the message of a failure, or of a refused configuration", FAILURE),
    ("PANIC", "the message of a panic", PANIC),
    ("FUNCTION", "the name of a function in a backtrace", FUNCTION),
    (
        "OUTCOME_ACCOUNT",
        "objects and status of an outcome together, where each field and item of their JSON counts 64 bytes more",
        OUTCOME_ACCOUNT,
    ),
    ("OWNERS", "owner references of one object", OWNERS),
    ("STARTS", "selections that an outcome starts", STARTS),
    ("STARTED", "different selections that the outcomes of a processor start together", STARTED),
    (
        "STARTED_BYTES",
        "their texts together, and an entry for each object and each selection that it asks for",
        STARTED_BYTES,
    ),
    ("DENIALS", "denied reads and writes of a run that are reported individually", DENIALS),
    ("DENIAL", "the message of such a denial", DENIAL),
    ("CONVERSIONS", "kinds that are converted", CONVERSIONS),
    ("VERSIONS", "versions of such a kind", VERSIONS),
    ("CONVERTED_OBJECTS", "objects of one call of `convert`", CONVERTED_OBJECTS),
    ("CONVERTED_BYTES", "objects of one call of `convert`, all together", CONVERTED_BYTES),
    ("HOOK_ANSWER", "the answer of `convert` or `admit`", HOOK_ANSWER),
    ("HOOKS", "hooks", HOOKS),
    ("HOOK_SECONDS", "the time that a hook may ask for", HOOK_SECONDS),
    ("WARNINGS", "warnings of an answer", WARNINGS),
    ("WARNING", "a warning", WARNING),
];

/// Parses `64 KiB`, `10,000`, `5 s` as a number.
fn number(text: &str) -> Option<usize> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let number: usize = number.trim_end_matches(',').replace(',', "").parse().ok()?;
    Some(match unit.split([' ', ',']).next() {
        Some("KiB") => number * KIB,
        Some("MiB") => number * MIB,
        _ => number,
    })
}

/// Returns the rows of the tables of limits: subject and value.
fn rows() -> Vec<(&'static str, &'static str)> {
    let world = include_str!("../../../../wit/world.wit");
    let rows = world.lines().filter_map(|line| line.trim_start().strip_prefix("/// | "));
    let cells = rows.filter_map(|row| row.split_once(" | "));
    let cells = cells.filter_map(|(what, rest)| Some((what, rest.split_once(" | ")?.0)));
    cells.filter(|(what, _)| !["what", "---"].contains(what)).collect()
}

#[test]
fn the_contract_names_every_limit() {
    let calls = crate::wasm::Limits::default();
    let outcomes = mortise_core::outcome::Limits::default();
    let seconds = usize::try_from(calls.deadline.as_secs()).unwrap();
    let longest_pause = usize::try_from(MAX_PAUSE.as_secs()).unwrap();
    let mut expected: Vec<(&str, usize)> = vec![
        ("time", seconds),
        ("linear memory, all memories and what an instance takes beside them", calls.memory),
        ("depth of calls", 512 * KIB),
        ("the outcome, all its texts together", calls.outcome),
        ("reads (`get` and pages of `list`)", calls.reads as usize),
        ("their arguments and what they return, refused ones too", calls.read_bytes),
        ("one page of `list`", mortise_core::reads::PAGE_BYTES),
        ("lines of log", calls.log_lines as usize),
        (
            "manifests, deletions, prunes and events of an outcome or failure together",
            outcomes.entries,
        ),
        ("one object of an outcome", outcomes.object),
        ("headers of an answer", outbound::MAX_HEADERS),
        ("names and values of these headers together, as they come", outbound::MAX_HEAD_BYTES),
        ("the body of an answer", outbound::MAX_BODY_BYTES),
        (
            "calls that a host sends at once; one namespace has at most half of them",
            usize::try_from(outbound::MAX_OF_HOST).unwrap(),
        ),
        (
            "calls to one origin that a host sends at once; one namespace has at most half of them",
            usize::try_from(outbound::MAX_OF_ORIGIN).unwrap(),
        ),
        ("a pause that the other side asks for", longest_pause / 60),
    ];
    expected.extend(ROWS.iter().map(|(_, what, limit)| (*what, *limit)));
    let rows = rows();
    for (what, limit) in &expected {
        let row = rows.iter().find(|(row, _)| row == what);
        let (_, told) = row.unwrap_or_else(|| panic!("no row says `{what}`"));
        assert_eq!(number(told), Some(*limit), "{what}: {told}");
    }
    for (what, _) in &rows {
        assert!(expected.iter().any(|(known, _)| known == what), "`{what}` is no constant");
    }
}

#[test]
fn every_constant_has_a_row() {
    let source = include_str!("../../../core/src/contract/bounds.rs");
    let constants: Vec<&str> = source
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.split(':').next())
        .collect();
    let rows: Vec<&str> = ROWS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(constants, rows);
}

/// A rule, names that it accepts and names that it refuses.
type Case = (&'static str, fn(&str) -> bool, &'static [&'static str], &'static [&'static str]);

#[test]
fn names_have_the_forms_that_kubernetes_asks_for() {
    let cases: [Case; 6] = [
        (
            "group",
            is_group,
            &["", "apps", "rbac.authorization.k8s.io"],
            &["A", "a/b", "a..b", "a?b", "*"],
        ),
        (
            "version",
            is_version,
            &["v1", "v1beta1", "x-1"],
            &["", "1", "v1/x", "V1", "v1?watch=true"],
        ),
        (
            "kind",
            is_kind_name,
            &["Pod", "APIRule", "x"],
            &["", "1Pod", "Pod/status", "P d", "*", "Pöd"],
        ),
        ("label", is_label, &["a", "1-b"], &["", "-a", "a-", "a.b", "A"]),
        (
            "name",
            is_name,
            &["a", "system:a b", "A.b_c"],
            &["", ".", "..", "d/scale", "a%2F", "x/.."],
        ),
        (
            "finalizer",
            is_finalizer,
            &["a.b/c", "example.com/held_it"],
            &["a", "/a", "a/", "a/b/c", "A/b"],
        ),
    ];
    for (case, is_right, right, wrong) in cases {
        for text in right {
            assert!(is_right(text), "{case} `{text}`");
        }
        for text in wrong {
            assert!(!is_right(text), "{case} `{text}`");
        }
    }
    let long = "x".repeat(64);
    assert!(!is_label(&long) && !is_version(&long) && !is_kind_name(&long));
    assert!(!is_name(&"x".repeat(254)) && is_name(&"x".repeat(253)));
    assert!(!is_subdomain(&format!("{}a", "a.".repeat(127))));
}

#[test]
fn a_text_is_cut_at_the_end_of_a_character_and_gives_its_memory_back() {
    let mut text = "aé".repeat(1 << 20);
    cut(&mut text, 2);
    assert_eq!(text, "a…");
    assert!(text.capacity() < 16, "{}", text.capacity());
    assert_eq!((shortened("aé", 2), shortened("aé", 3)), ("a…".to_owned(), "aé".to_owned()));
    assert_eq!(quoted("a\n\u{1b}[2J"), r"`a\n\u{1b}[2J`");
    assert!(quoted(&"é".repeat(1 << 20)).ends_with("…` (2097152 bytes)"));
}

fn get(change: impl FnOnce(&mut ObjectRef)) -> Result<(), String> {
    let mut of = ObjectRef { kind: v1("apps", "Deployment").into(), ..reference("Rule", "a") };
    change(&mut of);
    check_get(&of, &[])
}

#[test]
fn a_get_names_one_object_as_the_api_server_would_have_it() {
    let kind = |group: &str, version: &str, kind: &str| Kind::home(group, version, kind);
    let cases: [(&str, Result<(), String>, &str); 13] = [
        ("right", get(|_| ()), ""),
        (
            "no cluster",
            get(|of| of.kind = elsewhere(v1("", "Pod"), "ns/../key")),
            "cluster `ns/../key`",
        ),
        ("another cluster", get(|of| of.kind = elsewhere(v1("", "Pod"), "ns/name/key")), ""),
        ("any cluster", get(|of| of.kind = elsewhere(v1("", "Pod"), "*")), "cluster `*`"),
        ("every kind", get(|of| of.kind = kind("apps", "v1", "*").into()), "kind `*`"),
        ("every group", get(|of| of.kind = kind("*", "v1", "Pod").into()), "group `*`"),
        ("no version", get(|of| of.kind = kind("", "", "Pod").into()), "version ``"),
        (
            "a path as group",
            get(|of| of.kind = kind("a/v1/b?watch=true", "v1", "Pod").into()),
            "group `a/v1/b?watch=true`",
        ),
        (
            "no namespace",
            get(|of| of.namespace = Some(String::new())),
            "namespace ``: a namespace is a DNS label",
        ),
        ("a path as namespace", get(|of| of.namespace = Some("../x".into())), "namespace `../x`"),
        ("no name", get(|of| of.name = String::new()), "name ``: a name has 1 to 253 bytes"),
        ("a subresource", get(|of| of.name = "d/scale".into()), "name `d/scale`"),
        ("an escaped one", get(|of| of.name = "d%2Fscale".into()), "name `d%2Fscale`"),
    ];
    for (case, result, part) in cases {
        match result {
            Ok(()) => assert!(part.is_empty(), "{case} passes"),
            Err(message) => {
                assert!(!part.is_empty() && message.contains(part), "{case}: {message}");
            }
        }
    }
}

#[test]
fn arguments_of_reads_are_bounded_in_number_and_size() {
    let of = reference("Rule", "a");
    let fields = |count: usize, length: usize| vec!["x".repeat(length); count];
    let few = fields(FIELDS, 10);
    assert_eq!(check_get(&of, &few), Ok(()));
    let refused = [
        ("too many", check_get(&of, &fields(FIELDS + 1, 1)), "has at most 128 entries"),
        ("too long", check_get(&of, &fields(1, PATH + 1)), "at most 1024 bytes"),
        ("too large", check_get(&of, &fields(FIELDS, PATH)), "at most 65536 bytes"),
    ];
    for (case, result, part) in refused {
        assert!(result.unwrap_err().contains(part), "{case}");
    }
    let matching = vec![("a".to_owned(), "b".to_owned()); FIELDS + 1];
    assert!(check_list(&Selection { matching, ..all("Rule") }, None).is_err());
    let labels = "a,".repeat(READ_ARGUMENTS / ENTRY);
    assert!(check_list(&Selection { labels, ..all("Rule") }, None).is_err());
    assert!(check_list(&all("Rule"), Some(&"x".repeat(PAGE_TOKEN + 1))).is_err());
}

fn described(change: impl FnOnce(&mut Description)) -> Option<String> {
    let mut of = description(all("Rule"), vec![all("Thing")]);
    (of.name, of.version) = ("p".into(), "1.0.0".into());
    of.reconcilers[0].name = "rules".into();
    change(&mut of);
    check_description(&of).err()
}

#[test]
fn a_description_is_no_larger_than_the_host_keeps() {
    let selection = || all("Thing");
    let many = |count: usize| vec![selection(); count];
    let rules = |count: usize| vec![write_rule(selection(), Verbs::UPDATE, &[]); count];
    let long = || "x".repeat(5 << 20);
    let finalizers = |count: usize| (0..count).map(|number| format!("a.b/{number}")).collect();
    assert_eq!(described(|_| ()), None);
    let cases: Vec<(Option<String>, &str)> = vec![
        (described(|of| of.version = long()), "`version`: `xxx"),
        (described(|of| of.version = "1".into()), "`version`: `1`: a version is semantic"),
        (described(|of| of.version = format!("1.0.0+{}", "a".repeat(59))), "at most 64 bytes"),
        (described(|of| of.name = "A b".into()), "`name`: `A b`: a name is a DNS label"),
        (described(|of| of.reads = many(4000)), "`reads` has 4000 entries, at most 256"),
        (described(|of| of.writes = rules(257)), "`writes` has 257 entries, at most 256"),
        (
            described(|of| of.reconcilers = vec![of.reconcilers[0].clone(); 65]),
            "`reconcilers` has 65 entries, at most 64",
        ),
        (described(|of| of.reconcilers[0].name = long()), "`reconcilers[0].name`: `xxx"),
        (
            described(|of| of.reconcilers[0].of.labels = format!("a in ({})", "b,".repeat(4000))),
            "`reconcilers[0].of.labels`: ",
        ),
        (
            described(|of| of.reconcilers[0].finalizers = finalizers(5)),
            "`reconcilers[0].finalizers` has 5 entries, at most 4",
        ),
        (
            described(|of| of.reconcilers[0].finalizers = vec!["held".into()]),
            "a finalizer is named `<domain>/<name>`",
        ),
        (
            described(|of| of.reads[0].kind = v1("a/b", "Pod").into()),
            "`reads[0].kind.group`: `a/b`",
        ),
        (
            described(|of| of.reads[0].kind = v1("", "Pod/x").into()),
            "`reads[0].kind.kind`: `Pod/x`",
        ),
        (described(|of| of.reads[0].namespace = Some("../a".into())), "`reads[0].namespace`"),
        (described(|of| of.reads[0].name = Some("a/b".into())), "`reads[0].name`: `a/b`"),
        (
            described(|of| of.reads[0].fields = vec!["a".into(); 129].into()),
            "`reads[0].fields` has 129 entries",
        ),
        (described(|of| of.reads[0].fields = [long()].into()), "a path has at most 1024 bytes"),
        (
            described(|of| of.writes = vec![write_rule(selection(), Verbs::UPDATE, &["a"; 129])]),
            "`writes[0].fields` has 129 entries",
        ),
        (described(|of| of.reads[0].labels = long()), "`reads[0].labels`: "),
        (described(|of| of.config_schema = Some(long())), "5242880 of them in `config-schema`"),
    ];
    for (found, part) in cases {
        let found = found.unwrap_or_else(|| panic!("not refused: {part}"));
        assert!(found.contains(part) && found.len() < 400, "{part}: {found}");
    }
    let any = Kind::home("*", "*", "*");
    assert_eq!(described(|of| of.reads[0].kind = any.into()), None);
}

#[test]
fn granted_rules_have_the_form_of_rbac_and_are_bounded() {
    let long = || "x".repeat(5 << 20);
    let many_texts = |count: usize| (0..count).map(|number| format!("a{number}")).collect();
    let granted = || GrantedRule {
        api_groups: vec![String::new()],
        resources: vec!["pods".into()],
        verbs: vec!["get".into()],
        ..GrantedRule::default()
    };
    assert_eq!(described(|of| of.grants = vec![granted(); 256]), None);
    let cases: Vec<(Option<String>, &str)> = vec![
        (described(|of| of.grants = vec![granted(); 257]), "`grants` has 257 entries, at most 256"),
        (
            described(|of| of.grants = vec![GrantedRule { verbs: many_texts(129), ..granted() }]),
            "`grants[0].verbs` has 129 entries, at most 128",
        ),
        (
            described(|of| {
                of.grants = vec![GrantedRule { resource_names: vec![long()], ..granted() }];
            }),
            "`grants[0].resource-names`: `xxx",
        ),
        (
            described(|of| {
                let (resources, verbs) = (many_texts(65), many_texts(64));
                of.grants = vec![GrantedRule { resources, verbs, ..granted() }];
            }),
            "`grants` have 4160 single rights together",
        ),
        (
            described(|of| of.grants = vec![GrantedRule { verbs: vec![], ..granted() }]),
            "`grants[0]`: a rule has verbs",
        ),
        (
            described(|of| {
                let non_resource_urls = vec!["/metrics".into()];
                of.grants = vec![GrantedRule { non_resource_urls, ..granted() }];
            }),
            "`grants[0]`: a rule has verbs, and either",
        ),
        (
            described(|of| {
                of.grants = vec![GrantedRule { resources: vec!["Pods".into()], ..granted() }];
            }),
            "`grants[0].resources`: `Pods`",
        ),
        (
            described(|of| {
                let (verbs, non_resource_urls) = (vec!["get".into()], vec!["metrics".into()]);
                let rule = GrantedRule { verbs, non_resource_urls, ..GrantedRule::default() };
                of.grants = vec![rule];
            }),
            "`grants[0].non-resource-urls`: `metrics`",
        ),
    ];
    for (found, part) in cases {
        let found = found.unwrap_or_else(|| panic!("not refused: {part}"));
        assert!(found.contains(part) && found.len() < 400, "{part}: {found}");
    }
}

/// Generates long, empty, unusual and usual texts.
fn strange() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec!["a", "default", "v1", "g", "Rule", "", "*", "metadata.name"])
            .prop_map(str::to_owned),
        2 => "\\PC{0,12}",
        1 => "[\\x00-\\x1f/%.?&]{1,8}",
        1 => (prop::sample::select(vec!["x", "é", "[", "a.", "a,", "\0", "\"", "!", "in ("]), 1..40_000_usize)
            .prop_map(|(text, times)| text.repeat(times)),
    ]
}

fn selection() -> impl Strategy<Value = Selection> {
    let kind = (strange(), strange(), strange());
    let lists = (
        prop::collection::vec((strange(), strange()), 0..3),
        prop::collection::vec(strange(), 0..4),
    );
    let place = (prop::option::of(strange()), prop::option::of(strange()), strange());
    (kind, place, lists).prop_map(|((group, version, kind), (namespace, name, labels), lists)| {
        let (matching, fields) = lists;
        let (kind, fields) = (Kind::home(group, version, kind).into(), fields.into());
        Selection { kind, namespace, name, labels, matching, fields }
    })
}

/// Returns the state of a call that may read Rules and Things; one object of each kind exists.
fn call() -> State {
    let description = description(all("Rule"), vec![all("Thing")]);
    let (grant, stores) = (Arc::new(Grant::new(&description).unwrap()), Stores::new());
    for (kind, scope, wanted) in grant.wanted() {
        let feed = stores.open(kind, scope, wanted).unwrap();
        feed.begin_list();
        feed.upsert(&object(&kind.kind, "a", 1));
        feed.end_list();
    }
    State::alone(View::new(stores, grant, PAGE_BYTES))
}

/// A guest's use of its imports.
#[derive(Clone, Debug)]
enum Step {
    Get(Selection),
    List(Selection, Option<String>),
    Log(String, Vec<(String, String)>),
    /// Standard output.
    Print(String),
    Random(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // Most are of declared kinds, so that they pass the first checks.
    let declared = |of: Selection| Selection { kind: all("Thing").kind, namespace: None, ..of };
    let of = prop_oneof![1 => selection(), 2 => selection().prop_map(declared)];
    let fields = prop::collection::vec((strange(), strange()), 0..50);
    prop_oneof![
        2 => of.clone().prop_map(Step::Get),
        2 => (of, prop::option::of(strange())).prop_map(|(of, from)| Step::List(of, from)),
        1 => (strange(), fields).prop_map(|(message, fields)| Step::Log(message, fields)),
        1 => strange().prop_map(Step::Print),
        1 => prop_oneof![0..=64_u64, any::<u64>()].prop_map(Step::Random),
    ]
}

/// Executes a step; returns the length of the refusal, 0 if there is none.
fn carry_out(state: &mut State, step: Step) -> usize {
    let refusal = match step {
        Step::Get(Selection { kind, namespace, name, fields, .. }) => {
            let name = name.unwrap_or_default();
            let of = ObjectRef { kind, namespace, name };
            state.get_object(&of, &fields).now_or_never().unwrap().unwrap().err()
        }
        Step::List(of, from) => {
            state.list_page(&of, 0, from.as_deref()).now_or_never().unwrap().unwrap().err()
        }
        Step::Log(message, fields) => {
            state.log.lock().write(Level::Info, message, fields);
            None
        }
        Step::Print(text) => {
            if let Ok(stream) = state.get_stdout() {
                let stream = state.table.get_mut(&stream).unwrap();
                text.into_bytes().chunks(STREAM_WRITE).for_each(|part| {
                    assert!(stream.check_write().unwrap() <= STREAM_WRITE);
                    stream.write(part.to_vec().into()).unwrap();
                });
            }
            None
        }
        Step::Random(length) => {
            let given = state.get_insecure_random_bytes(length);
            let refusal = given.as_ref().err().map_or(0, |error| format!("{error:?}").len());
            assert!(
                given.is_ok_and(|bytes| bytes.len() <= RANDOM_BYTES)
                    || length > RANDOM_BYTES as u64
            );
            return refusal;
        }
    };
    refusal.map_or(0, |error| format!("{error:?}").len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The memory kept for a call is at most a small constant times the arguments that it may pass;
    /// refused arguments are not kept.
    #[test]
    fn the_memory_kept_for_a_call_is_bounded(steps in prop::collection::vec(step(), 1..20)) {
        let mut state = call();
        let count = steps.len();
        for step in steps {
            prop_assert!(carry_out(&mut state, step) < 4 * READ_ERROR);
        }
        let passed = CALL_ARGUMENTS - state.reading.arguments_left();
        let (lines, _) = state.log.lock().finish();
        let texts = lines.iter().flat_map(|line| line.fields.iter().flat_map(|(name, value)| [name, value]).chain([&line.message]));
        prop_assert!(texts.map(String::capacity).sum::<usize>() <= Limits::default().log_bytes);
        let mut reads = state.reading.finish().unwrap().finish();
        let (denials, _) = reads.take_denials();
        let told = format!("{denials:?}").len();
        prop_assert!(denials.len() <= DENIALS && told < DENIALS * 4096);
        let kept = format!("{:?}{:?}", reads.records(), reads.dependencies());
        prop_assert!(kept.len() < 64 * passed + 4096 * count, "{} of {passed}", kept.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Accepted arguments are small and have Kubernetes' forms; the messages of refusals are short.
    #[test]
    fn accepted_selections_are_bounded_and_refusals_are_short(of in selection(), from in prop::option::of(strange())) {
        match check_list(&of, from.as_deref()) {
            Ok(()) => {
                prop_assert!(is_kind(&of.kind) && list_size(&of, from.as_deref()) <= READ_ARGUMENTS);
                prop_assert!(of.namespace.as_deref().is_none_or(is_label));
                prop_assert!(of.name.as_deref().is_none_or(is_name));
            }
            Err(message) => prop_assert!(message.len() < 1024, "{message}"),
        }
        let declared = Description { reads: vec![of], ..description(all("Rule"), vec![]) };
        if let Err(message) = check_description(&declared) {
            prop_assert!(message.len() < 1024, "{message}");
        }
    }
}
