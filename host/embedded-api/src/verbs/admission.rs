//! The question to webhooks about a write or a deletion.

use serde_json::Value;

use crate::{
    Failure,
    access::User,
    kind::Resource,
    webhooks::{Admitted, Review},
};

/// The user of whoever impersonates nobody.
const ADMIN: &str = "admin";
const ADMIN_GROUPS: [&str; 2] = ["system:masters", "system:authenticated"];

/// A request that webhooks may look at.
pub(super) struct Question<'a> {
    pub(super) resource: &'a Resource,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// The user that is impersonated, if any.
    pub(super) user: Option<&'a User>,
    pub(super) dry_run: bool,
}

impl Question<'_> {
    /// Asks the webhooks of the cluster, if there are any.
    ///
    /// # Errors
    /// Fails if the request is refused.
    pub(super) fn ask(
        &self,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Admitted, Failure> {
        let Self { resource, namespace, name, user, dry_run } = *self;
        let Some(webhooks) = resource.webhooks.get() else { return Ok(Admitted::default()) };
        let admin;
        let user = if let Some(user) = user {
            user
        } else {
            let groups = ADMIN_GROUPS.map(str::to_owned).into();
            admin = User { name: ADMIN.to_owned(), groups };
            &admin
        };
        let review = Review {
            group: &resource.group,
            version: &resource.version,
            kind: &resource.kind,
            namespace,
            name,
            object,
            old,
            user: &user.name,
            groups: &user.groups,
            dry_run,
        };
        Ok(webhooks.admit(&review)?)
    }
}
