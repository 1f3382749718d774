use serde_json::{Value, json};

use super::*;
use crate::{
    fixture::{all, description, fields, kind, labelled, list, matching, object, reference, with},
    grant::LimitsMet,
    reads::record::Digest,
    store::{Scope, Wanted},
};

/// Builds the stores that a description needs, with these objects listed.
fn stores(grant: &Grant, objects: &[(&str, Vec<Value>)]) -> Stores {
    let stores = Stores::new();
    for (of, scope, wanted) in grant.wanted() {
        stores.open(of, scope, wanted);
        let objects =
            objects.iter().find(|(kind, _)| *kind == of.kind).map(|(_, objects)| objects.clone());
        list(&stores, &of.kind, scope, &objects.unwrap_or_default());
    }
    stores
}

/// Builds a view of the things `a`, `b` and `c`; `r` reconciles rules.
fn view(reads: Vec<Selection>) -> View {
    let grant = Grant::new(&description(all("Rule"), reads)).unwrap();
    let thing = |name: &str, app: &str, host: &str| {
        let thing = with(object("Thing", name, 5), "metadata/labels", json!({"app": app}));
        with(with(thing, "spec/hosts", json!([host])), "spec/secret", json!("s"))
    };
    let things = vec![thing("a", "x", "one"), thing("b", "x", "two"), thing("c", "y", "two")];
    let rule = with(object("Rule", "r", 9), "spec/a", json!(1));
    let stores = stores(&grant, &[("Thing", things), ("Rule", vec![rule])]);
    View::new(stores, Arc::new(grant), PAGE_BYTES)
}

fn parsed(json: Option<String>) -> Value {
    json.map_or(Value::Null, |json| serde_json::from_str(&json).unwrap())
}

fn names(page: &Page) -> Vec<String> {
    let name = |json: &String| {
        serde_json::from_str::<Value>(json).unwrap()["metadata"]["name"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    page.objects.iter().map(name).collect()
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn an_object_is_given_with_the_fields_that_were_asked_for() {
    let mut view = view(vec![fields(all("Thing"), &["spec.hosts", "metadata.labels"])]);
    let given = parsed(view.get(&reference("Thing", "a"), &texts(&["spec.hosts[]"])).unwrap());
    let mut expected = with(object("Thing", "a", 5), "spec/hosts", json!(["one"]));
    assert_eq!(given, expected);
    expected = with(expected, "metadata/labels", json!({"app": "x"}));
    assert_eq!(parsed(view.get(&reference("Thing", "a"), &[]).unwrap()), expected);
    assert_eq!(view.get(&reference("Thing", "none"), &[]), Ok(None));
}

#[test]
fn a_list_is_not_answered_as_the_one_before_it_that_differed_in_one_thing() {
    let things = || fields(all("Thing"), &["spec.hosts"]);
    let mut view = view(vec![things()]);
    let in_namespace =
        |namespace: &str| Selection { namespace: Some(namespace.to_owned()), ..things() };
    let lists = [
        (things(), &["a", "b", "c"][..]),
        (in_namespace("other"), &[]),
        (in_namespace("default"), &["a", "b", "c"]),
        (Selection { name: Some("b".to_owned()), ..in_namespace("default") }, &["b"]),
        (Selection { name: Some("c".to_owned()), ..in_namespace("default") }, &["c"]),
        (labelled(things(), "app=x"), &["a", "b"]),
        (labelled(things(), "app=y"), &["c"]),
        (matching(things(), "spec.hosts[]", "one"), &["a"]),
        (matching(things(), "spec.hosts[]", "two"), &["b", "c"]),
    ];
    for (of, expected) in &lists {
        assert_eq!(names(&view.list(of, 0, None).unwrap()), *expected, "{of:?}");
        // The second read reuses the parsed query and the fields.
        assert_eq!(names(&view.list(of, 0, None).unwrap()), *expected, "{of:?}");
    }
}

#[test]
fn undeclared_reads_are_denied_with_the_declared_ones_named() {
    let mut view = view(vec![fields(labelled(all("Thing"), "app=x"), &["spec.hosts"])]);
    let denied = |error: ReadError| match error {
        ReadError::Denied(message) => message,
        other => panic!("{other:?}"),
    };
    let other = denied(view.get(&reference("Other", "a"), &[]).unwrap_err());
    assert_eq!(other, "Other g/v1 `default/a` is not declared; no reads of that kind are declared");
    let field = denied(view.get(&reference("Thing", "a"), &texts(&["spec.secret"])).unwrap_err());
    assert_eq!(
        field,
        "`spec.secret` of Thing g/v1 `default/a` is not declared; declared of it: `spec.hosts`"
    );
    let wide = denied(view.list(&all("Thing"), 0, None).unwrap_err());
    assert!(wide.starts_with("Thing g/v1 is not declared; ") && wide.contains("app=x"), "{wide}");
    let of = matching(labelled(all("Thing"), "app=x"), "spec.secret", "s");
    let path = denied(view.list(&of, 0, None).unwrap_err());
    assert!(path.starts_with("`spec.secret` of "), "{path}");
    assert!(view.list(&labelled(all("Thing"), "app=x,!z"), 0, None).is_ok());
    // The run reports the denials, too.
    let denials = view.finish().take_denials().0;
    let told: Vec<_> =
        denials.iter().map(|denial| (denial.lack.verb(), denial.in_words())).collect();
    assert_eq!(told, [("get", other), ("get", field), ("list", wide), ("list", path)]);
}

#[test]
fn an_object_outside_of_the_declared_labels_is_not_seen() {
    let mut view = view(vec![fields(labelled(all("Thing"), "app=x"), &["spec.hosts"])]);
    assert!(view.get(&reference("Thing", "a"), &[]).unwrap().is_some());
    // In a real host the store of this scope would not contain `c`; here it does.
    assert_eq!(view.get(&reference("Thing", "c"), &[]), Ok(None));
}

#[test]
fn malformed_read_arguments_and_foreign_tokens_are_invalid() {
    let mut view = view(vec![all("Thing")]);
    let token = view.list(&all("Thing"), 1, None).unwrap().next.unwrap();
    let invalid = [
        view.get(&reference("Thing", "a"), &texts(&["spec..a"])).unwrap_err(),
        view.list(&labelled(all("Thing"), "a b"), 0, None).unwrap_err(),
        view.list(&matching(all("Thing"), "spec[", "a"), 0, None).unwrap_err(),
        view.list(&all("Thing"), 0, Some("nonsense")).unwrap_err(),
        view.list(&labelled(all("Thing"), "app=x"), 0, Some(&token)).unwrap_err(),
    ];
    assert!(invalid.iter().all(|error| matches!(error, ReadError::Invalid(_))), "{invalid:?}");
}

#[test]
fn a_list_comes_in_pages_that_show_one_state() {
    let mut view = view(vec![all("Thing")]);
    let first = view.list(&all("Thing"), 2, None).unwrap();
    assert_eq!(names(&first), ["a", "b"]);
    view.stores.feed(&kind("Thing"), &Scope::default()).unwrap().delete(&object("Thing", "c", 50));
    let second = view.list(&all("Thing"), 2, first.next.as_deref()).unwrap();
    assert_eq!((names(&second), &second.next), (texts(&["c"]), &None));
    view.page_bytes = 1;
    let page = view.list(&all("Thing"), 0, None).unwrap();
    assert_eq!((names(&page), page.next.is_some()), (texts(&["a"]), true));
    // In a later call the token goes on after the same name.
    let mut later = View::new(view.stores.clone(), Arc::clone(&view.grant), PAGE_BYTES);
    assert_eq!(names(&later.list(&all("Thing"), 0, page.next.as_deref()).unwrap()), ["b"]);
}

#[test]
fn a_list_is_selected_by_labels_and_values() {
    let mut view = view(vec![fields(all("Thing"), &["spec.hosts"])]);
    let cases = [
        (labelled(all("Thing"), "app=x"), vec!["a", "b"]),
        (matching(all("Thing"), "spec.hosts[]", "two"), vec!["b", "c"]),
        (matching(labelled(all("Thing"), "app=x"), "spec.hosts[]", "two"), vec!["b"]),
        (matching(all("Thing"), "spec.hosts[]", "none"), vec![]),
    ];
    for (of, expected) in &cases {
        assert_eq!(names(&view.list(of, 0, None).unwrap()), *expected, "{of:?}");
    }
}

/// A pace that ends reads after a number of pauses.
struct Counted(usize);

impl Pace for Counted {
    type Stop = usize;

    async fn pause(&mut self, pauses: usize) -> Result<(), usize> {
        if pauses > self.0 { Err(pauses) } else { Ok(()) }
    }
}

/// A view of things with a text of this many bytes; their store keeps `spec` and indexes nothing.
fn view_of_large(things: usize, bytes: usize) -> View {
    let of = fields(all("Thing"), &["spec"]);
    let grant = Grant::new(&description(all("Rule"), vec![of])).unwrap();
    let thing = |at: usize| {
        let spec = json!({"name": at.to_string(), "text": "x".repeat(bytes)});
        with(object("Thing", &format!("t{at:06}"), 5), "spec", spec)
    };
    let stores = stores(&grant, &[("Thing", (0..things).map(thing).collect())]);
    View::new(stores, Arc::new(grant), PAGE_BYTES)
}

#[test]
fn objects_that_do_not_match_fill_a_page_and_count_as_work() {
    let mut view = view_of_large(40, 1 << 20);
    let of = |name: &str| matching(fields(all("Thing"), &["spec.name"]), "spec.name", name);
    let (mut from, mut pages, mut found) = (None, 0, Vec::new());
    loop {
        let page = view.list(&of("39"), 0, from.as_deref()).unwrap();
        pages += 1;
        found.extend(names(&page));
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    // A page ends after 16 MiB of objects, and there is a pause after 256 KiB at most.
    assert_eq!((pages, found), (3, texts(&["t000039"])));
    assert!(view.pauses >= 39, "{}", view.pauses);
    let page = view.list_paced(&of("1"), 0, None, &mut Counted(view.pauses + 5)).now_or_never();
    assert!(matches!(page, Some(Err(_))), "the call has ended");
}

#[test]
fn small_objects_count_as_work_too() {
    let mut view = view_of_large(5_000, 1);
    let none = labelled(fields(all("Thing"), &["spec"]), "app in (a,b)");
    assert!(names(&view.list(&none, 0, None).unwrap()).is_empty());
    assert!((2..8).contains(&view.pauses), "{}", view.pauses);
    let before = view.pauses;
    assert_eq!(
        view.list(&fields(all("Thing"), &["spec.name"]), 0, None).unwrap().objects.len(),
        5_000
    );
    assert!(view.pauses > before + 4, "each is parsed: {}", view.pauses);
}

#[test]
fn a_list_by_labels_completes_their_index() {
    let mut first = view_of_large(5_000, 1);
    let mut next = View::new(first.stores.clone(), Arc::clone(&first.grant), PAGE_BYTES);
    let of = labelled(fields(all("Thing"), &["spec"]), "app=none");
    assert!(names(&first.list(&of, 0, None).unwrap()).is_empty());
    assert!(first.pauses >= 5_000 / 512, "it is work of this list: {}", first.pauses);
    assert!(names(&next.list(&of, 0, None).unwrap()).is_empty());
    assert_eq!((next.pauses, next.examined), (0, 0), "nothing was compared");
}

#[test]
fn gets_of_large_objects_count_as_work() {
    let mut view = view_of_large(1, 1 << 20);
    for _ in 0..3 {
        assert!(view.pause_if_due(&mut Counted(8)).now_or_never().unwrap().is_ok());
        view.get(&reference("Thing", "t000000"), &texts(&["spec.name"])).unwrap();
    }
    assert_eq!(view.pause_if_due(&mut Counted(8)).now_or_never(), Some(Err(12)));
}

#[test]
fn a_get_that_finds_nothing_counts_as_work_of_each_declared_part() {
    let part = |at: usize| {
        let of = Selection { name: None, ..fields(all("Thing"), &["spec.x"]) };
        matching(of, &format!("spec.list[].k{at}"), "v")
    };
    let parts: Vec<_> = (0..200).map(part).collect();
    let grant = Arc::new(Grant::new(&description(all("Rule"), parts)).unwrap());
    let thing = with(object("Thing", "a", 5), "spec", json!({"list": vec![json!({}); 10_000]}));
    let of = reference("Thing", "a");
    let asked = texts(&["spec.x"]);
    let granted = grant.may_get(&of, &asked).unwrap();
    assert_eq!(granted.len(), 200);
    assert!(granted.iter().all(|(_, of)| Arc::ptr_eq(of, &granted[0].1)), "parsed once");
    let slices = |thing: Option<&Value>| {
        let stores = stores(&grant, &[("Thing", thing.into_iter().cloned().collect())]);
        let mut view = View::new(stores, Arc::clone(&grant), PAGE_BYTES);
        assert_eq!(view.get(&of, &asked), Ok(None));
        view.examined
    };
    let (none, large) = (slices(None), slices(Some(&thing)));
    assert!((200 * EXAMINED_BYTES..100_000).contains(&none), "{none}");
    assert!(large > 2 * none, "{large} {none}");
}

#[test]
fn comparing_elements_of_lists_with_many_pairs_counts_as_work() {
    let mut view = view_of_large(1, 1 << 20);
    let path = |at: usize| format!("spec.list[a{at}=1,b=2,c=3]");
    let pairs = texts(
        &(0..21).map(path).collect::<Vec<_>>().iter().map(|path| &**path).collect::<Vec<_>>(),
    );
    view.get(&reference("Thing", "t000000"), &pairs).unwrap();
    assert!(view.pause_if_due(&mut Counted(usize::MAX)).now_or_never().unwrap().is_ok());
    assert!((4 * 64..5 * 64).contains(&view.pauses), "1 MiB for 63 pairs: {}", view.pauses);
    let before = view.pauses;
    view.list(&fields(all("Thing"), &["spec.list[a=1,b=2,c=3]"]), 0, None).unwrap();
    let by_pairs = matching(fields(all("Thing"), &["spec.name"]), "spec.list[a=1,b=2,c=3].d", "4");
    view.list(&by_pairs, 0, None).unwrap();
    assert!(view.pause_if_due(&mut Counted(usize::MAX)).now_or_never().unwrap().is_ok());
    assert!((4 * 8..5 * 8).contains(&(view.pauses - before)), "{}", view.pauses - before);
}

#[test]
fn only_stores_that_may_answer_are_asked_for_snapshots_and_each_once() {
    let stores = Stores::new();
    let grant = Grant::new(&description(all("Rule"), vec![all("Thing")])).unwrap();
    let of = |namespace: Option<&str>| Scope {
        namespace: namespace.map(str::to_owned),
        ..Scope::default()
    };
    let (_, _, wanted) = grant.wanted().iter().find(|(of, ..)| of.kind == "Thing").unwrap();
    let scopes = [of(None), of(Some("a")), of(Some("b"))];
    for scope in &scopes {
        stores.open(&kind("Thing"), scope, wanted).unwrap();
    }
    let mut view = View::new(stores, Arc::new(grant), PAGE_BYTES);
    let mut asked = |namespace| view.snapshots_for(&kind("Thing"), namespace).stores.len();
    assert_eq!([asked(None), asked(Some("a")), asked(Some("a")), asked(Some("c"))], [1, 2, 2, 2]);
    assert_eq!([asked(Some("b")), asked(None)], [3, 3]);
}

#[test]
fn a_kind_that_cannot_be_read_is_unknown_or_unavailable() {
    let grant = Arc::new(Grant::new(&description(all("Rule"), vec![all("Thing")])).unwrap());
    let stores = Stores::new();
    let read = |stores: &Stores| {
        let mut view = View::new(stores.clone(), Arc::clone(&grant), PAGE_BYTES);
        let answer = view.get(&reference("Thing", "a"), &[]);
        (answer, view.finish().waits().len())
    };
    let unavailable = |why: &str| (Err(ReadError::Unavailable(format!("Thing g/v1: {why}"))), 1);
    assert_eq!(read(&stores), unavailable("it is not watched there"));
    let wanted = Wanted {
        fields: Fields::parse(&["spec.a"]).unwrap(),
        matching: std::collections::BTreeSet::default(),
        written: false,
    };
    stores.open(&kind("Thing"), &Scope::default(), &wanted);
    assert_eq!(read(&stores), unavailable("its first list has not arrived"));
    stores.set_unavailable(&kind("Thing"), "no connection");
    assert_eq!(read(&stores), unavailable("no connection"));
    list(&stores, "Thing", &Scope::default(), &[]);
    assert_eq!(read(&stores), unavailable("it is being listed again with more fields"));
    stores.set_unknown(&kind("Thing"), &Scope::default());
    assert_eq!(read(&stores), (Err(ReadError::UnknownKind), 1));
}

#[test]
fn the_reconciled_object_is_read_by_its_reconciler() {
    let of = fields(labelled(all("Rule"), "app=x"), &["spec.a"]);
    let grant = Grant::new(&description(of, vec![])).unwrap();
    let rule = with(
        with(object("Rule", "r", 9), "spec/a", json!(1)),
        "metadata/finalizers",
        json!(["f/g"]),
    );
    let stores = stores(&grant, &[("Rule", vec![rule])]);
    let mut view = View::new(stores, Arc::new(grant), PAGE_BYTES);
    let reconciled = view.reconciled_by_first(&reference("Rule", "r"));
    assert_eq!(parsed(reconciled.json), with(object("Rule", "r", 9), "spec/a", json!(1)));
    assert_eq!(reconciled.entry.unwrap().value()["metadata"]["finalizers"], json!(["f/g"]));
    assert!(!reconciled.selected, "it lacks the label");
    assert!(view.reconciled_by_first(&reference("Rule", "none")).json.is_none());
    assert_eq!(view.finish().uid_of(&reference("Rule", "r")), Some("Rule-r"));
}

#[test]
fn records_tell_by_digests_whether_anything_that_counts_has_changed() {
    let grant = Arc::new(
        Grant::new(&description(all("Rule"), vec![fields(all("Thing"), &["spec.a"])])).unwrap(),
    );
    let digests = |thing: Option<Value>| {
        let stores = stores(&grant, &[("Thing", thing.into_iter().collect())]);
        let mut view = View::new(stores, Arc::clone(&grant), PAGE_BYTES);
        view.get(&reference("Thing", "a"), &[]).unwrap();
        view.list(&all("Thing"), 0, None).unwrap();
        let records = view.finish().records().to_vec();
        records.into_iter().map(|record| record.answer).collect::<Vec<_>>()
    };
    let thing = |revision, a: u64| {
        with(with(object("Thing", "a", revision), "spec/a", json!(a)), "spec/b", json!(revision))
    };
    let before = digests(Some(thing(1, 1)));
    assert_eq!(before, digests(Some(thing(2, 1))));
    let differing =
        |after: Vec<Digest>| before.iter().zip(&after).map(|(a, b)| a != b).collect::<Vec<_>>();
    assert_eq!(differing(digests(Some(thing(3, 2)))), [true, true]);
    assert_eq!(differing(digests(None)), [true, true]);
}

#[test]
fn demand_for_an_unwatched_kind_follows_declaration_and_query() {
    let view = view(vec![all("*"), fields(all("Other"), &["spec.a"])]);
    let scopes = |kind: &str, of: &Query| {
        let demand = view.grant.demand(&self::kind(kind), of)?;
        let shown = |scope: &Scope| format!("{:?}/{:?}", scope.namespace, scope.name);
        Some(demand.scopes.iter().map(shown).collect::<Vec<_>>())
    };
    let object = Query::object(Some("default"), "x");
    let wide_to_narrow = ["None/None", "Some(\"default\")/None", "Some(\"default\")/Some(\"x\")"];
    assert_eq!(scopes("Thing", &object).unwrap(), wide_to_narrow, "of a kind that is one of any");
    assert_eq!(scopes("Thing", &Query::within(None, None)).unwrap(), ["None/None"]);
    let elsewhere = Kind { group: "elsewhere".into(), ..self::kind("Thing") };
    assert!(view.grant.demand(&elsewhere, &object).is_none(), "nobody declared it");
    let wanted = view.grant.demand(&self::kind("Other"), &object).unwrap().wanted;
    assert!(wanted.fields.is_whole(), "as `*` asks for it too");
}

#[test]
fn a_selection_that_is_asked_for_again_is_kept_once_for_all_kinds() {
    let mut view = view(vec![all("Thing"), all("Rule")]);
    for (kind, labels) in [("Thing", "app=x"), ("Rule", "app=x"), ("Thing", "app=y")] {
        view.list(&labelled(all(kind), labels), 0, None).unwrap();
    }
    let mut reads = view.finish();
    reads.pruned(&labelled(all("Thing"), "app=x"), "manager");
    let queries: Vec<_> =
        reads.dependencies().iter().map(|dependency| dependency.depends_on.query()).collect();
    let [first, same, other, pruned] = queries.as_slice() else { panic!("{queries:?}") };
    assert!(Arc::ptr_eq(first, same) && Arc::ptr_eq(first, pruned));
    assert_ne!(first, other);
}

#[test]
fn a_kind_past_a_limit_is_unavailable_even_if_its_store_is_open() {
    let grant = Grant::new(&description(all("Rule"), vec![all("Thing")])).unwrap();
    let stores = stores(&grant, &[("Thing", vec![object("Thing", "a", 5)])]);
    let grant = Arc::new(grant);
    let read = || {
        let mut view = View::new(stores.clone(), Arc::clone(&grant), PAGE_BYTES);
        view.get(&reference("Thing", "a"), &[])
    };
    assert!(read().unwrap().is_some());
    let too_large = vec![(kind("Thing"), Scope::default())];
    let (watches, why) = (Some("too many".into()), "too large".into());
    grant.limited().set(LimitsMet { watches: None, stores: too_large, stores_why: why });
    let Err(ReadError::Unavailable(message)) = read() else { panic!("it is refused") };
    assert!(message.ends_with(": too large"), "{message}");
    // A watched kind is readable even if the limit of watches is reached.
    grant.limited().set(LimitsMet { watches, ..LimitsMet::default() });
    assert!(read().unwrap().is_some());
    stores.close(&kind("Thing"), &Scope::default());
    let Err(ReadError::Unavailable(message)) = read() else { panic!("it is not watched") };
    assert!(message.ends_with(": too many"), "{message}");
}

/// A live read of `d/scale` would be answered with the Scale of `d`.
#[tokio::test]
async fn a_subresource_is_not_read_live() {
    for of in [reference("Thing", "d/scale"), reference("Thing", ".."), reference("Thing", "")] {
        let refused = View::default().live(&of).await;
        assert!(matches!(refused, Err(ReadError::Invalid(_))), "{refused:?}");
    }
}

/// 9,000 undeclared kinds are neither recorded nor added to the stores, and a few are reported.
#[test]
fn undeclared_reads_are_counted_and_only_a_few_are_recorded() {
    let mut view = view(vec![all("Thing")]);
    let before = format!("{:?}", view.stores).len();
    for number in 0..9000 {
        let kind = format!("Kind{number}{}", "x".repeat(50));
        let refused = view.get(&reference(&kind, &"n".repeat(200)), &[]);
        assert!(matches!(refused, Err(ReadError::Denied(_))), "{refused:?}");
    }
    assert_eq!(format!("{:?}", view.stores).len(), before);
    let mut reads = view.finish();
    let kept = (reads.records().len(), reads.dependencies().len(), reads.waits().len());
    assert_eq!(kept, (bounds::DENIALS, 0, 0));
    let (denials, more) = reads.take_denials();
    assert_eq!((denials.len(), more), (bounds::DENIALS, 9000 - bounds::DENIALS));
    let words = denials.iter().map(|denial| denial.in_words().len());
    assert!(words.max() <= Some(bounds::DENIAL + 3));
}

#[test]
fn lists_of_fields_are_remembered_within_bounds() {
    let grant = Grant::new(&description(all("Rule"), vec![all("Thing")])).unwrap();
    let deep = |number: usize| vec![format!("k{number}{}", ".a".repeat(60))];
    for number in 0..2000 {
        grant.may_get(&reference("Thing", "a"), &deep(number)).unwrap();
        grant.shared(&vec![format!("{number}{}", "x".repeat(1000)); 20]);
    }
    assert!(format!("{grant:?}").len() < 8 << 20);
}

/// A linear search of 60,000 answers for each of 1,000 owner references took 13 s.
#[test]
fn uids_are_found_however_much_was_read() {
    let mut view = view(vec![all("Thing")]);
    view.list(&all("Thing"), 0, None).unwrap();
    let answered: Vec<_> = view.reads.answered_of("Thing");
    for (kind, entry) in answered.iter().cycle().take(60_000) {
        view.reads.answered(kind, entry);
    }
    let reads = view.finish();
    let uids = reads.uids();
    let begun = std::time::Instant::now();
    for _ in 0..20_000 {
        assert_eq!(uids.of(&reference("Thing", "none")), None);
        assert_eq!(uids.of(&reference("Thing", "c")), Some("Thing-c"));
    }
    // A linear search makes more than a billion comparisons.
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_run_that_keeps_too_much_drops_all_but_its_object() {
    let mut view = view(vec![all("Thing")]);
    view.reconciled_by_first(&reference("Rule", "r"));
    view.get(&reference("Thing", "a"), &[]).unwrap();
    view.asked_with(1000);
    let mut reads = view.finish();
    assert!(reads.kept_bytes() >= 1000 && reads.dependencies().len() == 2);
    reads.drop_all_but_object();
    let left: Vec<_> = reads.dependencies().iter().map(|of| of.kind.kind.clone()).collect();
    assert_eq!(left, ["Rule"]);
    assert!(reads.records().is_empty());
}

#[test]
fn the_selections_of_prunes_are_counted() {
    let mut reads = view(vec![all("Thing")]).finish();
    let long = "x".repeat(10_000);
    let of = crate::fixture::matching(labelled(all("Thing"), "app=x"), "spec.a", &long);
    reads.pruned(&of, "manager");
    assert!(reads.kept_bytes() > 10_000);
}
