//! The owner of an object that both sides share.

use crate::mark::{CONSUMER, PROVIDER};

/// The side that owns a shared object: its content goes to the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The provider.
    Provider,
    /// The consumer.
    Consumer,
}

/// An object on one side: `None` if it is not there, else the value of its owner label.
pub(crate) type Side<'a> = Option<Option<&'a str>>;

/// Returns the owner; `None` if nobody can tell. A label with another value than the two says
/// nothing, but its object is not one without an owner either.
pub(crate) fn decide(provider: Side, consumer: Side) -> Option<Owner> {
    let labelled = |side: Side| side.flatten().and_then(named);
    labelled(provider).or_else(|| labelled(consumer)).or(match (provider, consumer) {
        (Some(None), None) => Some(Owner::Provider),
        (None, Some(None)) => Some(Owner::Consumer),
        _ => None,
    })
}

fn named(label: &str) -> Option<Owner> {
    match label {
        PROVIDER => Some(Owner::Provider),
        CONSUMER => Some(Owner::Consumer),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_decides_and_without_it_the_only_object() {
        let (provider, consumer) = (Some(Owner::Provider), Some(Owner::Consumer));
        let cases = [
            (Some(Some("provider")), Some(Some("consumer")), provider),
            (Some(Some("consumer")), None, consumer),
            (Some(None), None, provider),
            (Some(None), Some(Some("consumer")), consumer),
            (None, Some(Some("provider")), provider),
            (None, Some(None), consumer),
            (Some(None), Some(None), None),
            (None, None, None),
            (Some(Some("nobody")), Some(Some("consumer")), consumer),
            (Some(Some("nobody")), None, None),
            (Some(Some("nobody")), Some(None), None),
        ];
        for (provider, consumer, expected) in cases {
            assert_eq!(decide(provider, consumer), expected, "{provider:?} {consumer:?}");
        }
    }
}
