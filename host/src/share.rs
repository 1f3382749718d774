//! The rule by which tenants share a bounded resource that each of them could use up.

mod held;

pub(crate) use held::{Held, MAX_UNCOUNTED, Part, Sum};

/// Returns whether a tenant may use `own` of a resource of which all use `of_all`, its own part
/// included: no more than what all leave. A single tenant gets half, two get a third each, and some
/// is always left for one more.
pub(crate) fn is_within(own: u64, of_all: u64, limit: u64) -> bool {
    own <= limit.saturating_sub(of_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tenant_takes_the_last_of_a_resource() {
        let limit = 1000;
        let mut of_all = 0;
        for expected in [500, 250, 125, 62] {
            let most = (0..=limit).rev().find(|own| is_within(*own, of_all + own, limit));
            assert_eq!(most, Some(expected));
            of_all += expected;
        }
        assert!(!is_within(1, 2000, limit));
    }
}
