use super::*;

#[test]
fn a_kind_that_goes_or_comes_is_told_once() {
    let mut missing = Missing::default();
    let mut changed = |processor: &str, kinds: &[&str]| -> Vec<String> {
        let kinds = kinds.iter().map(ToString::to_string).collect();
        let lines = missing.changed(processor, kinds);
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    };
    assert!(changed("a", &[]).is_empty(), "all is there");
    let gone = "a: X is missing: what reconciles it waits for its CRD";
    assert_eq!(changed("a", &["X"]), [gone]);
    assert!(changed("a", &["X"]).is_empty(), "it was told");
    assert_eq!(changed("b", &["X"]).len(), 1, "each processor is told of");
    assert_eq!(changed("a", &["Y"]), [&gone.replace('X', "Y"), "a: X is there"]);
}

#[test]
fn a_reconcile_is_of_a_named_processor_where_there_are_several() {
    let line = |guests: &[&str]| {
        let guests: Vec<String> = guests.iter().map(ToString::to_string).collect();
        let line = of_several(&guests, "default/a", "Thing x/y  1ms".to_owned());
        anstream::adapter::strip_str(&line).to_string()
    };
    assert_eq!(line(&["a"]), "Thing x/y  1ms");
    assert_eq!(line(&["a", "b"]), "a  Thing x/y  1ms");
}
