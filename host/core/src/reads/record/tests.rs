use serde_json::json;

use super::*;
use crate::{
    contract::{Description, Failure, Methods, OutboundRule, ReadError, Retry},
    fixture::{
        all, description, fields, key, labelled, list, matching, object, reference, v1, whole, with,
    },
    grant::Grant,
    reads::{PAGE_BYTES, Reads, View},
    store::{Scope, Stores},
};

const HIDDEN: &str = "c3dvcmRmaXNo";

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn secrets() -> Selection {
    whole(v1("", "Secret"))
}

/// Builds the stores of two things, a Secret and the rule that is reconciled, as a description
/// wants them.
fn grant() -> (Stores, Arc<Grant>) {
    let reads = vec![fields(all("Thing"), &["spec"]), secrets()];
    let grant = Grant::new(&description(all("Rule"), reads)).unwrap();
    let stores = Stores::new();
    for (of, scope, wanted) in grant.wanted() {
        stores.open(of, scope, wanted);
    }
    let thing = |name: &str| with(object("Thing", name, 5), "spec/a", json!(1));
    list(&stores, "Thing", &Scope::default(), &[thing("a"), thing("b")]);
    list(&stores, "Rule", &Scope::default(), &[object("Rule", "r", 9)]);
    let feed = stores.feed(&secrets().kind, &Scope::default()).unwrap();
    feed.begin_list();
    let secret = with(object("Secret", "s", 7), "data/password", json!(HIDDEN));
    feed.list_item(&secret);
    feed.end_list();
    (stores, Arc::new(grant))
}

/// Records a run that reads all of these objects.
fn recorded(stores: &Stores, grant: &Arc<Grant>) -> Record {
    let mut view = View::new(stores.clone(), Arc::clone(grant), PAGE_BYTES);
    view.reconciled_by_first(&reference("Rule", "r"));
    view.get(&reference("Thing", "a"), &texts(&["spec.a"])).unwrap();
    view.get(&reference("Thing", "none"), &texts(&["spec.a"])).unwrap();
    view.list(&fields(all("Thing"), &["spec.a"]), 0, None).unwrap();
    let secret = ObjectRef { kind: secrets().kind, ..reference("Secret", "s") };
    view.get(&secret, &[]).unwrap();
    assert!(matches!(view.get(&reference("Other", "a"), &[]), Err(ReadError::Denied(_))));
    let mut reads = view.finish();
    let own = Pair { fields: 1, values: 2 };
    reads.wrote(&reference("Thing", "made"), "mortise/p", Some(own));
    reads.wrote(&secret, "mortise/p", Some(own));
    let mut record = Record::new(&key("r"), 0);
    reads.hand_over(&mut record);
    record
}

#[test]
fn a_record_holds_each_question_and_the_size_of_its_answer() {
    let (stores, grant) = grant();
    let record = recorded(&stores, &grant);
    let counts: Vec<usize> = record.reads.iter().map(|read| read.objects).collect();
    assert_eq!(counts, [1, 0, 2, 1, 0]);
    let thing = record.reads[0].bytes;
    assert_eq!(record.reads[2].bytes, 2 * thing);
    assert_eq!(record.reads[1].bytes, 0);
    assert_eq!(record.read_bytes(), 3 * thing + record.reads[3].bytes);
    let stood: Vec<Option<u64>> =
        record.reads.iter().map(|read| read.stood.map(|stood| stood.revision)).collect();
    assert_eq!(
        stood,
        [Some(5), Some(5), Some(5), Some(7), None],
        "the denied one was not answered"
    );
    let Question::List { of, limit: 0, from: None } = &record.reads[2].question else { panic!() };
    assert_eq!((&*of.kind, &of.fields[..]), (&*all("Thing").kind, &texts(&["spec.a"])[..]));
}

#[test]
fn digests_change_exactly_with_the_fields_that_were_read() {
    let (stores, grant) = grant();
    let answers = |record: &Record| -> Vec<Digest> {
        record.reads.iter().map(|read| read.answer).chain(record.object).collect()
    };
    let before = answers(&recorded(&stores, &grant));
    let set = |of: serde_json::Value, kind: &Kind| {
        stores.feed(kind, &Scope::default()).unwrap().upsert(&of);
    };
    // Changes fields that were not requested or do not count.
    set(
        with(with(object("Thing", "a", 20), "spec/a", json!(1)), "spec/b", json!(2)),
        &all("Thing").kind,
    );
    assert_eq!(answers(&recorded(&stores, &grant)), before);
    set(with(object("Thing", "a", 21), "spec/a", json!(3)), &all("Thing").kind);
    set(with(object("Secret", "s", 22), "data/password", json!("b3RoZXI=")), &secrets().kind);
    set(with(object("Rule", "r", 23), "spec/a", json!(1)), &all("Rule").kind);
    let after = answers(&recorded(&stores, &grant));
    let differ: Vec<bool> = before.iter().zip(&after).map(|(old, new)| old != new).collect();
    assert_eq!(differ, [true, false, true, true, false, true]);
}

#[test]
fn objects_with_declared_credentials_are_digested_with_a_key_outside_the_record() {
    let of = |at: &str| fields(all("Thing"), &[at]);
    let outbound = OutboundRule {
        origin: "https://api.example.com".to_owned(),
        methods: Methods::GET,
        credentials: vec![of("spec.token")],
        pause: 5,
    };
    let description = Description { outbound: vec![outbound], ..description(of("spec.a"), vec![]) };
    let (stores, grant) = (Stores::new(), Arc::new(Grant::new(&description).unwrap()));
    for (of, scope, wanted) in grant.wanted() {
        stores.open(of, scope, wanted);
    }
    let thing = with(object("Thing", "a", 5), "spec/token", json!(HIDDEN));
    list(&stores, "Thing", &Scope::default(), &[thing]);
    let mut view = View::new(stores, grant, PAGE_BYTES);
    view.reconciled_by_first(&reference("Thing", "a"));
    view.get(&reference("Thing", "a"), &texts(&["spec.a"])).unwrap();
    view.list(&of("spec.a"), 0, None).unwrap();
    let mut record = Record::new(&key("a"), 0);
    view.finish().hand_over(&mut record);
    let kept = record.reads.iter().filter_map(|read| read.kept);
    let digests: Vec<Digest> =
        kept.chain(record.reads.iter().map(|read| read.answer)).chain(record.object).collect();
    assert!(digests.len() == 5 && digests.iter().all(Digest::is_keyed), "{digests:?}");
}

#[test]
fn values_from_secrets_are_digested_with_a_key_outside_the_record() {
    let (stores, grant) = grant();
    let record = recorded(&stores, &grant);
    let keyed: Vec<bool> = record.reads.iter().map(|read| read.answer.is_keyed()).collect();
    assert_eq!(keyed, [false, false, false, true, false]);
    let own: Vec<Own> = record.wrote.iter().filter_map(|wrote| wrote.own).collect();
    assert_eq!(own.iter().map(|own| own.values.is_keyed()).collect::<Vec<_>>(), [true, true]);
    // A guessed value cannot be verified with the record.
    let entry = stores.snapshots(&secrets().kind, |_| true);
    let kept = entry.stores[0].2.get("default", "s").unwrap().rendered();
    let guessed = Digest::of(false, [kept.counted(crate::path::Extent::Counted).as_bytes()]);
    assert_ne!(record.reads[3].answer.to_string()[5..], guessed.to_string()[5..]);
    let text = serde_json::to_string(&record).unwrap();
    assert!(!text.contains(HIDDEN), "{text}");
    assert!(Own::of(Pair { fields: 1, values: 2 }, true) == own[1]);
}

#[test]
fn a_write_is_digested_with_the_key_only_if_it_may_hold_a_secret() {
    let (stores, grant) = grant();
    let wrote = |reads_secret: bool| {
        let new_view = || View::new(stores.clone(), Arc::clone(&grant), PAGE_BYTES);
        let (mut reads, mut later) = (new_view().finish(), new_view());
        let own = Some(Pair { fields: 1, values: 2 });
        let secret = ObjectRef { kind: secrets().kind, ..reference("Secret", "s") };
        reads.wrote(&reference("Thing", "first"), "mortise/p", own);
        reads.wrote(&secret, "mortise/p", own);
        // The second call of the run.
        if reads_secret {
            later.get(&secret, &[]).unwrap();
        }
        reads.merge(later.finish());
        reads.wrote(&reference("Thing", "second"), "mortise/p", own);
        let mut record = Record::new(&key("r"), 0);
        reads.hand_over(&mut record);
        let own = record.wrote.iter().filter_map(|wrote| wrote.own);
        own.map(|own| (own.fields.is_keyed(), own.values.is_keyed())).collect::<Vec<_>>()
    };
    let (plain, keyed) = ((false, false), (true, true));
    assert_eq!(wrote(false), [plain, keyed, plain]);
    assert_eq!(wrote(true), [plain, keyed, keyed]);
}

#[test]
fn selector_values_for_secrets_are_recorded_as_keyed_digests() {
    let asked = |of: Selection| {
        let of = matching(labelled(of, "token=c3dvcmRmaXNo"), "data.password", HIDDEN);
        let secret = is_secret(&of.kind);
        super::recorded(of, secret)
    };
    let of_things = asked(all("Thing"));
    assert_eq!(&*of_things.labels, "token=c3dvcmRmaXNo");
    assert_eq!(&*of_things.matching, [("data.password".to_owned(), HIDDEN.to_owned())]);
    let of_secrets = asked(secrets());
    let text = serde_json::to_string(&of_secrets).unwrap();
    assert!(!text.contains(HIDDEN), "{text}");
    assert!(of_secrets.labels.parse::<Digest>().unwrap().is_keyed());
    let [(path, value)] = &*of_secrets.matching else { panic!() };
    assert_eq!(path, "data.password");
    assert!(value.parse::<Digest>().unwrap().is_keyed());
    // Equal questions have equal digests, and an empty selector stays empty.
    assert_eq!(asked(secrets()), of_secrets);
    assert!(can_be_asked(&of_things) && !can_be_asked(&of_secrets));
    let all = super::recorded(secrets(), true);
    assert_eq!(&*all.labels, "");
}

#[test]
fn later_questions_of_a_run_do_not_record_values_of_a_read_secret() {
    let (stores, grant) = grant();
    let new_view = || View::new(stores.clone(), Arc::clone(&grant), PAGE_BYTES);
    let secret = ObjectRef { kind: secrets().kind, ..reference("Secret", "s") };
    let by_value = matching(labelled(all("Thing"), "token=c3dvcmRmaXNo"), "spec.a", HIDDEN);
    let recorded = |mut view: View, reads_secret: bool| {
        if reads_secret {
            view.get(&secret, &[]).unwrap();
        }
        view.list(&by_value, 1, None).unwrap();
        view.finish()
    };
    let text = |reads: &Reads| serde_json::to_string(reads.records()).unwrap();
    assert!(text(&recorded(new_view(), false)).contains(HIDDEN), "it came from elsewhere");
    let first = recorded(new_view(), true);
    assert!(!text(&first).contains(HIDDEN), "{}", text(&first));
    // The request of the second call names refused writes, which may contain the Secret's value.
    let second = recorded(new_view().after(&first), false);
    assert!(!text(&second).contains(HIDDEN), "{}", text(&second));
}

#[test]
fn a_returned_value_is_digested_with_the_key_if_it_may_hold_a_secret() {
    let failure = |message: &str| {
        Err(Failure {
            message: message.into(),
            status: None,
            events: Vec::new(),
            retry: Retry::BackOff,
            note: None,
        })
    };
    let of = |message: &str, secret| of_returned(&failure(message), secret);
    assert_eq!(of("a", false), of("a", false));
    assert_ne!(of("a", false), of("b", false));
    assert!(of("a", true).is_keyed() && !of("a", false).is_keyed());
}

#[test]
fn a_text_that_is_no_digest_is_refused_by_name() {
    for bad in [
        "xxh3",
        "xxh3:12",
        "md5:00000000000000000000000000000000",
        "hmac:+0000000000000000000000000000000",
    ] {
        assert!(bad.parse::<Digest>().unwrap_err().to_string().contains(bad));
    }
}

#[test]
fn records_share_equal_kinds_fields_and_managers() {
    let (stores, grant) = grant();
    let (one, other) = (recorded(&stores, &grant), recorded(&stores, &grant));
    let (Question::Get { of: a, fields: x }, Question::Get { of: b, fields: y }) =
        (&one.reads[0].question, &other.reads[0].question)
    else {
        panic!()
    };
    assert!(Arc::ptr_eq(&a.kind, &b.kind) && Arc::ptr_eq(x, y));
    assert!(Arc::ptr_eq(&one.wrote[0].manager, &one.wrote[1].manager));
}

fn basis() -> Basis {
    let digest = Digest::of(false, []);
    let (config, grant, settings) = (digest, digest, digest);
    Basis { module: "m".into(), config, grant, settings, now_ms: 0, seed: 0 }
}

#[test]
fn runs_of_another_version_are_told_apart() {
    let other = Digest::of(false, [&b"other"[..]]);
    let cases = [
        ("time and seed", Basis { now_ms: 1, seed: 1, ..basis() }, true),
        ("module", Basis { module: "other".into(), ..basis() }, false),
        ("configuration", Basis { config: other, ..basis() }, false),
        ("grant", Basis { grant: other, ..basis() }, false),
        ("settings", Basis { settings: other, ..basis() }, false),
    ];
    for (case, changed, expected) in cases {
        assert_eq!(changed.is_same_version(&basis()), expected, "{case}");
    }
}

#[test]
fn only_a_run_that_would_be_the_same_again_is_skippable() {
    let basis = basis();
    let ran = || Record { ran_on: Some(basis.clone()), ..Record::new(&key("a"), 0) };
    assert_eq!(ran().skippable(), Ok(()));
    let asked = |asked: Asked| Record { asked, ..ran() };
    let nothing = Asked::default();
    let cases = [
        (NotSkippable::NotCalled, Record { ran_on: None, ..ran() }),
        (NotSkippable::Failed, Record { ending: Ending::Failure, ..ran() }),
        (NotSkippable::AfterFailure, Record { attempt: 1, ..ran() }),
        (NotSkippable::Refused, Record { refused: 1, ..ran() }),
        (NotSkippable::Requeue, Record { requeue: true, ..ran() }),
        (NotSkippable::Clock, asked(Asked { clock: true, ..nothing })),
        (NotSkippable::Random, asked(Asked { random: true, ..nothing })),
        (NotSkippable::Network, asked(Asked { network: true, ..nothing })),
    ];
    for (reason, record) in cases {
        assert_eq!(record.skippable(), Err(reason), "{reason}");
    }
}

#[test]
fn the_newest_record_of_each_key_is_kept_until_it_is_forgotten() {
    let records = Records::default();
    let of = |name: &str, attempt| Arc::new(Record::new(&key(name), attempt));
    records.keep(&of("a", 0));
    records.keep(&of("a", 1));
    records.keep(&of("b", 0));
    assert_eq!(records.get(&key("a")).unwrap().attempt, 1);
    records.forget(&key("a"));
    assert_eq!(records.get(&key("a")), None);
    records.forget_processor("other");
    records.forget_reconciler("p", &"other".into());
    records.forget_reconciler("other", &"r".into());
    assert!(records.get(&key("b")).is_some());
    records.forget_reconciler("p", &"r".into());
    assert_eq!(records.get(&key("b")), None);
    records.keep(&of("b", 0));
    records.forget_processor("p");
    assert_eq!(records.get(&key("b")), None);
}
