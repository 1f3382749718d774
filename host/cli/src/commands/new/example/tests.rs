use kube::{
    Client,
    discovery::{ApiCapabilities, Discovery, Scope, verbs},
};
use mortise_core::contract::Kind;
use mortise_embedded_api::{EmbeddedApi, Options};

use super::*;
use crate::files;

/// Returns whether objects of the kind are stored; reviews, for instance, are only answered.
fn is_stored(capabilities: &ApiCapabilities) -> bool {
    capabilities.supports_operation(verbs::CREATE) && capabilities.supports_operation(verbs::WATCH)
}

#[tokio::test]
async fn the_example_of_every_built_in_kind_is_accepted() {
    let api = EmbeddedApi::new(Options::default());
    let client = Client::new(api.router(), "default");
    let discovery = Discovery::new(client).run().await.unwrap();
    let mut refused = Vec::new();
    let mut tried = 0;
    for group in discovery.groups() {
        for (resource, capabilities) in group.resources_by_stability() {
            if !is_stored(&capabilities) || !has(&resource.kind) {
                continue;
            }
            tried += 1;
            let kind = Kind::home(resource.group, resource.version, resource.kind);
            let origin = Origin::BuiltIn { namespaced: capabilities.scope == Scope::Namespaced };
            let subject = Subject { kind, plural: resource.plural, origin };
            let text = yaml(&subject, "my-guest");
            let mut objects = files::parse("example.yaml".as_ref(), &text).unwrap();
            if let Err(failure) = api.load(objects.remove(0).value, true) {
                refused.push(format!("{}: {failure}", subject.kind.kind));
            }
        }
    }
    assert!(tried > 30, "{tried}");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
