//! Error chains: an error and its causes, on one line.

use std::error::Error;

use anyhow::Chain;

/// Joins an error and its causes with `: `. For our own errors, whose messages do not repeat their
/// causes.
pub fn whole(error: &(dyn Error + 'static)) -> String {
    let texts: Vec<String> = Chain::new(error).map(ToString::to_string).collect();
    texts.join(": ")
}

/// Joins an error and its causes, without those that are named already. For the errors of
/// libraries, some of which name their causes themselves.
pub fn without_repeats(error: &(dyn Error + 'static)) -> String {
    let add = |text: String, cause: String| {
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    };
    Chain::new(error).map(ToString::to_string).reduce(add).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Told {
        text: &'static str,
        source: Option<Box<Told>>,
    }

    #[test]
    fn a_cause_stands_behind_its_effect_and_where_wanted_once() {
        let inner = Told { text: "no such file", source: None };
        let middle = Told { text: "cannot read: no such file", source: Some(Box::new(inner)) };
        let outer = Told { text: "cannot start", source: Some(Box::new(middle)) };
        assert_eq!(whole(&outer), "cannot start: cannot read: no such file: no such file");
        assert_eq!(without_repeats(&outer), "cannot start: cannot read: no such file");
    }
}
