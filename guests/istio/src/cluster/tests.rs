use super::*;

fn node(capacity: (&str, &str), kubelet: &str, id: &str) -> Node {
    serde_json::from_value(json!({
        "spec": {"providerID": id},
        "status": {
            "capacity": {"cpu": capacity.0, "memory": capacity.1},
            "nodeInfo": {"kubeletVersion": kubelet, "osImage": "Ubuntu"},
        },
    }))
    .unwrap()
}

#[test]
fn sizes_are_those_of_all_nodes_together() {
    let cases = [
        (vec![], Size::Evaluation),
        (vec![("5", "10G")], Size::Production),
        (vec![("4999m", "100Gi")], Size::Evaluation),
        (vec![("100", "9999999999")], Size::Evaluation),
        (vec![("2500m", "5G"), ("2.5", "5000M")], Size::Production),
        (vec![("2", "8Gi"), ("2", "8Gi")], Size::Evaluation),
    ];
    for (capacities, expected) in cases {
        let nodes: Vec<Node> =
            capacities.iter().map(|capacity| node(*capacity, "v1.34.3", "")).collect();
        assert_eq!(Size::of(&nodes), Ok(expected), "{capacities:?}");
    }
    assert!(Size::of(&[node(("many", "1"), "", "")]).is_err());
}

#[test]
fn providers_are_told_by_versions_and_ids() {
    let cases = [
        ("v1.34.3-gke.1000", "gce://x", Provider::Gke),
        ("v1.34.3-gke.1000", "aws://x", Provider::Gke),
        ("v1.34-gke.1", "", Provider::Unknown),
        ("1.34.3-gke.1", "", Provider::Unknown),
        ("v1.34.3-gke.1-a", "", Provider::Unknown),
        ("v1.34.3-gke.", "", Provider::Unknown),
        ("v1.34.3+k3s1", "", Provider::K3d),
        ("v1.34.3+k3s1+k3s1", "", Provider::Unknown),
        ("v1.34.٣+k3s1", "", Provider::Unknown),
        ("v1.34.3", "AWS:///eu-1/i-1", Provider::Aws),
        ("v1.34.3", "OpenStack:///1", Provider::Openstack),
        ("v1.34.3", "azure:///1", Provider::Unknown),
    ];
    for (kubelet, id, expected) in cases {
        let nodes = [node(("1", "1"), "v1", ""), node(("1", "1"), kubelet, id)];
        assert_eq!(Provider::of(&nodes), expected, "{kubelet} {id}");
    }
}

#[test]
fn a_description_of_the_network_counts_only_for_the_experimental_flavour() {
    let info = |details: &str| ConfigMap {
        data: [("details".to_owned(), details.to_owned())].into(),
        ..ConfigMap::default()
    };
    let cases = [
        ("networkDetails: {dualStackIPEnabled: true}", Ok(true)),
        ("networkDetails: {dualStackIPEnabled: \"true\"}", Ok(false)),
        ("networkDetails: [1]", Ok(false)),
        ("", Ok(false)),
        ("a: [", Err(())),
        ("text", Err(())),
    ];
    for (details, expected) in cases {
        let info = info(details);
        let objects = Objects { provisioning_info: Some(&info), ..Objects::default() };
        let dual = Cluster::of(&objects, Flavour::Experimental).map(|cluster| cluster.dual_stack);
        assert_eq!(dual.map_err(drop), expected, "{details}");
        let regular = Cluster::of(&objects, Flavour::Regular).map(|cluster| cluster.dual_stack);
        assert_eq!(regular, Ok(false), "{details}");
    }
}
