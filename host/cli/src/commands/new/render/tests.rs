use std::collections::BTreeSet;

use super::*;

#[test]
fn a_kind_that_is_called_like_a_type_of_the_templates_gets_another_rust_name() {
    let used: BTreeSet<&str> = USED.iter().copied().collect();
    for text in [
        include_str!("../template/own/lib.rs"),
        include_str!("../template/own/tests.rs"),
        include_str!("../template/built-in/lib.rs"),
        include_str!("../template/built-in/tests.rs"),
    ] {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            let plain: String = line.split('"').step_by(2).collect::<Vec<_>>().join(" ");
            let words = plain.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            let types = words.filter(|word| {
                word.starts_with(|first: char| first.is_ascii_uppercase())
                    && word.contains(|letter: char| letter.is_ascii_lowercase())
            });
            for word in types {
                assert!(used.contains(word), "`{word}` is not in USED: {line}");
            }
        }
    }
    assert_eq!(type_name("ConfigMap"), "ConfigMapObject");
    assert_eq!(type_name("Greeting"), "Greeting");
}
