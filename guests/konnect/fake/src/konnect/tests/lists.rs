//! Filters and pages.

use super::*;

#[test]
fn tags_are_joined_by_and_or_or() {
    let mut caller = Caller::new();
    let path = "/core-entities/services";
    let [ab, a, b] = [json!(["a", "b"]), json!(["a"]), json!(["b", "k8s-uid:1"])]
        .map(|tags| caller.create(path, &json!({"host": "h", "tags": tags})));
    caller.create(path, &json!({"host": "h"}));
    let cases = [
        ("tags=a", vec![&ab, &a]),
        ("tags=a,b", vec![&ab]),
        ("tags=a%2Cb", vec![&ab]),
        ("tags=a/k8s-uid%3A1", vec![&ab, &a, &b]),
        ("tags=k8s-uid:1", vec![&b]),
        ("tags=k8s-uid:2", vec![]),
        ("tags=a&size=1", vec![&ab]),
    ];
    for (query, expected) in cases {
        assert_eq!(
            caller.ids(&format!("{path}?{query}")).iter().collect::<Vec<_>>(),
            expected,
            "{query}"
        );
    }
}

#[test]
fn tags_follow_a_put() {
    let mut caller = Caller::new();
    let id = caller.create("/core-entities/services", &json!({"host": "h", "tags": ["old"]}));
    caller.put(&format!("/core-entities/services/{id}"), &json!({"host": "h", "tags": ["new"]}));
    assert!(caller.ids("/core-entities/services?tags=old").is_empty());
    assert_eq!(caller.ids("/core-entities/services?tags=new"), [id]);
}

#[test]
fn control_planes_are_found_by_labels_and_fields() {
    let mut caller = Caller::new();
    let first = caller.plane.clone();
    let labels = json!({"k8s-uid": "1", "team": "x"});
    let path = "/v2/control-planes";
    let second = caller.create(path, &json!({"name": "second", "labels": labels}));
    let cases = [
        ("labels=k8s-uid:1".to_owned(), vec![&second]),
        ("labels=k8s-uid:1,team:y".to_owned(), vec![]),
        ("labels=team".to_owned(), vec![&second]),
        (format!("filter%5Bid%5D%5Beq%5D={first}"), vec![&first]),
        ("filter[id][eq]=nothing".to_owned(), vec![]),
        ("filter[name][eq]=cp".to_owned(), vec![&first]),
        ("filter[name][neq]=cp".to_owned(), vec![&second]),
        ("filter[name][contains]=eco".to_owned(), vec![&second]),
        ("filter[name][oeq]=cp,second".to_owned(), vec![&first, &second]),
        ("filter[cluster_type][eq]=CLUSTER_TYPE_CONTROL_PLANE".to_owned(), vec![&first, &second]),
    ];
    for (query, expected) in cases {
        let ids = caller.ids(&format!("{path}?{query}"));
        assert_eq!(ids.iter().collect::<Vec<_>>(), expected, "{query}");
    }
    assert_eq!(caller.get(&format!("{path}?filter[name][like]=x")).0, 400);
    let (_, body) = caller.get(&format!("{path}?page%5Bsize%5D=1&page%5Bnumber%5D=2"));
    assert_eq!(body["meta"], json!({"page": {"number": 2, "size": 1, "total": 2}}));
    assert_eq!(body["data"][0]["id"], json!(second));
}

#[test]
fn pages_of_entities_follow_each_other() {
    let mut caller = Caller::new();
    let created: Vec<String> = (0..250)
        .map(|_| caller.create("/core-entities/services", &json!({"host": "h", "tags": ["t"]})))
        .collect();
    for (query, sizes) in [("", vec![100, 100, 50]), ("?size=125&tags=t", vec![125, 125])] {
        let mut path = format!("/core-entities/services{query}");
        let (mut ids, mut got) = (Vec::new(), Vec::new());
        loop {
            let (_, body) = caller.get(&path);
            let page = body["data"].as_array().unwrap();
            got.push(page.len());
            ids.extend(page.iter().map(|entity| entity["id"].as_str().unwrap().to_owned()));
            let Some(next) = body["next"].as_str() else { break };
            assert!(next.contains(&format!("offset={}", body["offset"].as_str().unwrap())));
            next.clone_into(&mut path);
        }
        assert_eq!((got, &ids), (sizes, &created), "{query}");
    }
    for query in ["size=0", "size=1001", "size=x", "offset=x"] {
        assert_eq!(caller.get(&format!("/core-entities/services?{query}")).0, 400, "{query}");
    }
}
