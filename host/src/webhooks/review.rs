//! The envelope of reviews, which is the same for conversions and admissions.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Refused, short};

/// A kind of review, and the versions of it that are answered.
pub(super) struct Form {
    pub(super) kind: &'static str,
    /// The versions; the fields that are used here are the same in both.
    pub(super) versions: [&'static str; 2],
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<&'a RawValue>,
}

// === impl Form ===

impl Form {
    /// Returns the version of a review, which its answer must have, and its request.
    pub(super) fn parse<'a, R: Deserialize<'a>>(
        &self,
        body: &'a [u8],
    ) -> Result<(&'static str, R), Refused> {
        let Self { kind: wanted, versions } = self;
        let no_review = |error| Refused::bad(format!("this is no {wanted}: {error}"));
        let review: Review<'a> = serde_json::from_slice(body).map_err(no_review)?;
        let Review { api_version, kind, request } = review;
        let known = versions.iter().find(|known| **known == api_version);
        let Some(known) = known.filter(|_| kind == *wanted) else {
            return Err(Refused::bad(format!(
                "{}: a review of kind {wanted} {} is expected",
                short(&format!("{kind} {api_version}")),
                versions.join(" or ")
            )));
        };
        let request = request.ok_or_else(|| Refused::bad(format!("the {wanted} has no request")));
        Ok((*known, serde_json::from_str(request?.get()).map_err(no_review)?))
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    const REVIEW: Form = Form { kind: "TeaReview", versions: ["tea.example/v1", "tea.example/v2"] };

    #[derive(Deserialize)]
    struct Request {
        leaves: u8,
    }

    #[test]
    fn a_review_is_answered_in_its_own_version() {
        for of in REVIEW.versions {
            let body = format!(
                r#"{{"apiVersion": "{of}", "kind": "TeaReview", "request": {{"leaves": 3}}}}"#
            );
            let (version, request): (_, Request) = REVIEW.parse(body.as_bytes()).unwrap();
            assert_eq!((version, request.leaves), (of, 3));
        }
    }

    #[test]
    fn invalid_reviews_are_refused_with_the_reason() {
        let expected = "a review of kind TeaReview tea.example/v1 or tea.example/v2 is expected";
        let cases = [
            ("", "this is no TeaReview"),
            ("{}", expected),
            (r#"{"apiVersion": "tea.example/v3", "kind": "TeaReview"}"#, expected),
            (r#"{"apiVersion": "tea.example/v1", "kind": "Tea"}"#, expected),
            (r#"{"apiVersion": "tea.example/v1", "kind": "TeaReview"}"#, "has no request"),
            (
                r#"{"apiVersion": "tea.example/v1", "kind": "TeaReview", "request": {"leaves": -1}}"#,
                "this is no TeaReview",
            ),
        ];
        for (body, expected) in cases {
            let Err(refused) = REVIEW.parse::<Request>(body.as_bytes()) else { panic!("{body}") };
            assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{body}");
            assert!(refused.message.contains(expected), "{body}: {}", refused.message);
        }
    }
}
