//! The granted rules of a description, compared with what the account holds.
//!
//! The account itself is asked for its rules, in one request. If the API server marks its answer as
//! incomplete, or does not let the account ask, each right that the answer lacks is asked for with
//! a `SubjectAccessReview`.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use mortise_core::{
    api::{Method, Outgoing},
    contract::GrantedRule,
    grant::granted::{Held, rules_review},
};
use serde_json::Value;

use super::rights::{MAX_IN_FLIGHT, Rights};

const RULES_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

/// The API server did not say whether the account holds a rule.
struct Unanswered;

impl Rights {
    /// Returns the granted rules of the description that the account does not hold, as far as the
    /// API server has said so.
    pub fn not_held(&self) -> Vec<GrantedRule> {
        self.not_held.lock().clone()
    }

    /// Compares the granted rules of the description with the rules that the account holds. If the
    /// API server does not answer, the previous result stays. Returns whether the result has
    /// changed, and whether an answer is missing.
    pub(super) async fn compare_granted(&self) -> (bool, bool) {
        let rules = &self.description.grants;
        if rules.is_empty() {
            return (false, false);
        }
        let Ok(found) = self.find_not_held(rules).await else { return (false, true) };
        let mut known = self.not_held.lock();
        let is_changed = *known != found;
        *known = found;
        (is_changed, false)
    }

    async fn find_not_held(&self, rules: &[GrantedRule]) -> Result<Vec<GrantedRule>, Unanswered> {
        let held = self.held_rules().await?;
        let mut missing = Vec::new();
        for rule in rules.iter().filter(|rule| !held.covers(rule)) {
            if !held.is_incomplete || !self.has_each(rule, &held).await? {
                missing.push(rule.clone());
            }
        }
        Ok(missing)
    }

    async fn held_rules(&self) -> Result<Held, Unanswered> {
        // The semaphore is never closed.
        let _permit = self.asking.acquire().await;
        let review = Outgoing::new(Method::Post, RULES_REVIEWS.to_owned(), Some(rules_review()));
        match self.cluster().send(&review).await {
            Ok(answer) => Ok(Held::of_review(&answer.body)),
            // The account may not ask; its rules are unknown.
            Err(refusal) if refusal.code == 403 => {
                Ok(Held { is_incomplete: true, ..Held::default() })
            }
            Err(refusal) => {
                tracing::warn!(account = %self.account, %refusal, "could not ask which rules an account holds");
                Err(Unanswered)
            }
        }
    }

    /// Asks for each right of a rule that the listed rules lack.
    async fn has_each(&self, rule: &GrantedRule, held: &Held) -> Result<bool, Unanswered> {
        let open = rule.rights().filter(|right| !held.has(right));
        let open: Vec<Value> = open.map(|right| right.review(&self.account)).collect();
        let answers = open.into_iter().map(async |review| self.allows(review).await);
        let mut answers = stream::iter(answers).buffer_unordered(MAX_IN_FLIGHT);
        let mut is_answered = true;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(Unanswered) => is_answered = false,
            }
        }
        if is_answered { Ok(true) } else { Err(Unanswered) }
    }

    async fn allows(&self, review: Value) -> Result<bool, Unanswered> {
        match self.review(review, &Arc::default()).await {
            Ok(answer) => Ok(answer),
            Err(refusal) => {
                tracing::warn!(account = %self.account, %refusal, "could not ask what an account may do");
                Err(Unanswered)
            }
        }
    }
}
