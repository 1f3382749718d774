//! The approval of CRDs in the groups of Kubernetes, which an annotation tells of.

use serde_json::Value;

use crate::{
    builtin::edit::{at, text},
    field_error::go_quote,
};

pub(super) const ANNOTATION: &str = "api-approved.kubernetes.io";
const MISSING: &str = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
const INVALID: &str = "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111";

/// The approval of a CRD, as its condition shows it.
#[derive(Debug)]
pub(super) enum Approval<'a> {
    /// The annotation is absent.
    Missing,
    /// The annotation is neither a URL nor a reason.
    Invalid,
    /// The annotation gives the reason why there is no approval.
    Bypassed(&'a str),
    /// The annotation is the URL of the approval.
    Approved(&'a str),
}

// === impl Approval ===

impl<'a> Approval<'a> {
    /// Returns the approval of a CRD; `None` if its group needs none.
    pub(super) fn of(crd: &'a Value) -> Option<Self> {
        let group = text(&crd["spec"], "group");
        let is_within = |domain: &&str| {
            group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        ["k8s.io", "kubernetes.io"].iter().find(|domain| is_within(domain))?;
        Some(match text(at(crd, &["metadata", "annotations"]), ANNOTATION) {
            "" => Self::Missing,
            why if why.starts_with("unapproved") => Self::Bypassed(why),
            url if is_url(url) => Self::Approved(url),
            _ => Self::Invalid,
        })
    }

    pub(super) fn message(&self) -> String {
        match self {
            Self::Missing => MISSING.to_owned(),
            Self::Invalid => INVALID.to_owned(),
            Self::Bypassed(why) => format!("not approved: {}", go_quote(why)),
            Self::Approved(url) => format!("approved in {url}"),
        }
    }

    /// Returns status and reason of the condition.
    pub(super) fn status(&self) -> [&'static str; 2] {
        match self {
            Self::Missing => ["False", "MissingAnnotation"],
            Self::Invalid => ["False", "InvalidAnnotation"],
            Self::Bypassed(_) => ["False", "UnapprovedAnnotation"],
            Self::Approved(_) => ["True", "ApprovedAnnotation"],
        }
    }
}

/// Returns whether a text has the scheme and the host of a URL.
fn is_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
        && !host.is_empty()
        && !host.contains(' ')
        && !text.contains(char::is_control)
}
