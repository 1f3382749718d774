use std::fmt::Write as _;

use super::*;

fn footprint(component: &str) -> Result<Footprint, Error> {
    Footprint::of(&wat::parse_str(component).unwrap().into())
}

fn refused(component: &str) -> String {
    match footprint(component) {
        Err(Error::Refused(found)) => found,
        other => panic!("{other:?}"),
    }
}

/// Returns a component that instantiates a core module `times` times.
fn instances(module: &str, times: usize) -> String {
    let instances = "(core instance (instantiate $m))".repeat(times);
    format!("(component (core module $m {module}) {instances})")
}

/// Returns a component whose instance has twice as many core instances for each level.
fn doubled(levels: usize) -> String {
    let mut component = instances("", 1);
    for _ in 0..levels {
        let inner = component.replacen("(component", "(component $c", 1);
        component = format!("(component {inner} {})", "(instance (instantiate $c))".repeat(2));
    }
    component
}

fn exports(count: usize) -> String {
    (0..count).fold("(func $f)".to_owned(), |mut module, at| {
        write!(module, "(export \"{at}\" (func $f))").unwrap();
        module
    })
}

#[test]
fn the_bytes_of_an_instance_are_those_of_its_core_instances() {
    let module =
        "(func) (func) (global i32 (i32.const 0)) (table 100 funcref) (memory 1) (elem func 0 1)
        (data \"much\")";
    let one = footprint(&instances(module, 1)).unwrap();
    let own = INSTANCE + 2 * FUNCTION + 3 * IN_CONTEXT + 102 * ELEMENT;
    assert_eq!(one.instance_bytes as u64, own);
    let three = footprint(&instances(module, 3)).unwrap();
    assert_eq!(three.instance_bytes, 3 * one.instance_bytes);
    assert!((three.loaded_bytes as u64) < one.loaded_bytes as u64 + 3 * ENTRY, "it is loaded once");
    let nested = footprint(&doubled(3)).unwrap();
    assert_eq!(nested.instance_bytes as u64, 8 * INSTANCE);
}

#[test]
fn modules_are_found_by_each_of_their_names() {
    let of = [
        "(component (core module $m) (export $n \"m\" (core module $m)) (core instance (instantiate $n)))",
        "(component (core module $m)
            (component $c (alias outer 1 $m (core module $n)) (core instance (instantiate $n)))
            (instance (instantiate $c)))",
        "(component (component $c (core module $m) (core instance (instantiate $m)))
            (component $d (alias outer 1 $c (component $e)) (instance (instantiate $e)))
            (export $f \"d\" (component $d)) (instance (instantiate $f)))",
    ];
    for component in of {
        assert_eq!(footprint(component).unwrap().instance_bytes as u64, INSTANCE, "{component}");
    }
}

#[test]
fn a_component_that_takes_too_much_is_refused_with_the_reason() {
    let globals = "(global i32 (i32.const 0))".repeat(70_000);
    let elements = format!("(func) (elem func {})", "0 ".repeat(20_000));
    let data = format!("(memory 1) (data (i32.const 0) \"{}\")", "x".repeat(60 << 10));
    let big = format!("(memory 1) {}", format!("(data \"{}\")", "x".repeat(1 << 20)).repeat(3));
    let cases = [
        (instances("", 65), "65 core instances or more, at most 64"),
        (doubled(7), "core instances or more, at most 64"),
        (instances(&globals, 2), "bytes of contexts and tables in an instance or more"),
        (instances("(table 2000000 funcref)", 1), "bytes of contexts and tables in an instance"),
        (instances(&elements, 60), "bytes of contexts and tables in an instance"),
        (instances(&big, 50), "bytes of data copied into an instance or more"),
        (instances(&exports(200_000), 0), "bytes of tables of types, imports and exports or more"),
        (format!("{}{}", "(component".repeat(18), ")".repeat(18)), "nested components or more"),
        (
            "(component (component $c (import \"m\" (core module $m)) (core instance (instantiate $m))))"
                .to_owned(),
            "passes modules or components as arguments",
        ),
        (
            "(component (component $c (import \"c\" (component $d)) (instance (instantiate $d))))".to_owned(),
            "passes modules or components as arguments",
        ),
    ];
    for (component, expected) in cases {
        let found = refused(&component);
        assert!(found.contains(expected), "{found}");
    }
    // As often as instances are accepted.
    footprint(&instances(&data, 64)).unwrap();
}

#[test]
fn a_damaged_module_is_malformed() {
    let whole = wat::parse_str(instances("(func) (table 1 funcref)", 1)).unwrap();
    for cut in 9..whole.len() {
        let cut_off = Footprint::of(&whole[..cut].to_vec().into());
        assert!(
            matches!(cut_off, Ok(_) | Err(Error::Malformed(_))),
            "{cut} of {}: {cut_off:?}",
            whole.len()
        );
    }
    let instance = [2, 4, 1, 0, 0, 0];
    let at = whole.windows(instance.len()).position(|bytes| bytes == instance).unwrap();
    let mut other = whole;
    // The index of its module.
    other[at + 4] = 9;
    assert!(matches!(Footprint::of(&other.into()), Err(Error::Malformed(_))));
}

#[test]
fn many_sections_are_refused_however_small_they_are() {
    let with = |sections: usize| {
        let empty_custom = [0_u8, 0].repeat(sections);
        let component = [wat::parse_str("(component)").unwrap(), empty_custom].concat();
        Footprint::of(&component.into())
    };
    with(1_000).unwrap();
    assert!(matches!(with(LOADED_BYTES / 64 + 1), Err(Error::Refused(_))));
}
