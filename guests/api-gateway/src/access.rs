//! Whether APIRules in version v1beta1 are allowed, and Oathkeeper with them.

use mortise_sdk::{Error, Host};

use crate::{Config, config::Access};

/// Returns whether v1beta1 is allowed.
#[expect(clippy::unnecessary_wraps, reason = "a signed permission is read from the cluster")]
pub(crate) fn is_granted(config: &Config, _host: &Host) -> Result<bool, Error> {
    Ok(config.v1beta1 == Access::Allowed)
}
