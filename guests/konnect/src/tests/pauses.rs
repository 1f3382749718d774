//! 429: nothing is sent with a token until its pause is over, whatever event comes.

use std::time::Duration;

use mortise_sdk::time;
use serde_json::{Value, json};

use super::{
    fixture::{World, auth, control_plane, in_cp, merge, object, service},
    inputs::secret,
};
use crate::kind::AUTH;

const START: u64 = 1_767_225_600_000;

/// A service in the control plane of the other token.
fn of_other(name: &str) -> Value {
    let mut service = service(name);
    service["spec"]["controlPlaneRef"]["konnectNamespacedRef"]["name"] = "other".into();
    service
}

fn with_two_tokens() -> World {
    let world = World::with_period(3_600);
    let (mut auth, mut plane) = (auth(), control_plane());
    let name = json!({"metadata": {"name": "other"}});
    merge(&mut auth, name.clone());
    merge(&mut auth, json!({"spec": {"token": "kpat_other"}}));
    merge(&mut plane, name);
    merge(&mut plane, json!({"spec": {"konnect": {"authRef": {"name": "other"}}}}));
    for object in [auth, plane, service("old"), service("leaving")] {
        world.apply(&object);
        world.settle();
    }
    world
}

/// Returns the number of requests with a token since a number of the log.
fn sent(world: &World, token: &str, since: u64) -> usize {
    let fake = world.fake.lock();
    fake.log(since).filter(|entry| entry.token.as_deref() == Some(token)).count()
}

fn is_programmed(world: &World, name: &str) -> bool {
    world.condition("KongService", name, "Programmed") == "True/Programmed "
}

/// Asks for a pause by the answer to the creation of a service, and checks that it is kept.
fn check(retry_after: &Value, milliseconds: u64) {
    let world = with_two_tokens();
    let headers =
        json!({"status": 429, "headers": retry_after, "path": "/services", "token": "kpat_t"});
    world.faults(json!([headers]));
    world.apply(&service("svc"));
    world.pass();
    let (at, since) = {
        let fake = world.fake.lock();
        (fake.log(0).last().unwrap().at, fake.requests())
    };
    let end = at + milliseconds;
    let told = world.condition("KongService", "svc", "Programmed");
    let until = time::rfc3339(end.div_ceil(1_000) * 1_000);
    assert!(told.ends_with(&format!("; nothing is sent until {until}")), "{retry_after}: {told}");
    // Events: of the object itself, of others with the same token, and of what they refer to.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    world.patch("KongService", "svc", json!({"spec": {"host": "two.example"}}));
    world.patch("KongService", "old", json!({"spec": {"host": "two.example"}}));
    world.patch("KonnectGatewayControlPlane", "cp", label.clone());
    world.patch(AUTH.kind, "auth", label);
    world.apply(&service("new"));
    world.delete("KongService", "leaving");
    world.apply(&of_other("beside"));
    world.settle();
    world.stub.forget_notes();
    world.settle();
    assert!(is_programmed(&world, "beside"), "another token goes on");
    assert!(
        world
            .condition("KongService", "new", "Programmed")
            .ends_with(&format!("is sent until {until}"))
    );
    let rest = Duration::from_millis(end - 1 - world.now());
    world.stub.advance(rest);
    world.stub.settle::<crate::Konnect>(&world.config);
    assert_eq!(sent(&world, "kpat_t", since), 0, "{retry_after}");
    world.settle_for(Duration::from_secs(2));
    for name in ["svc", "old", "new"] {
        assert!(is_programmed(&world, name), "{retry_after}: {name}");
    }
    assert_eq!(world.get("KongService", "leaving"), None);
}

#[test]
fn a_pause_in_seconds_or_up_to_a_date() {
    check(&json!({"Retry-After": "7"}), 7_000);
    // The request is sent within the first 2 seconds of the day, at a time that is not whole.
    let world = with_two_tokens();
    let start = world.now() + 1 - START;
    assert!(start < 2_000, "{start}");
    check(&json!({"Retry-After": "Thu, 01 Jan 2026 00:00:09 GMT"}), 9_000 - start);
}

#[test]
fn a_pause_without_a_time_that_can_be_used() {
    for retry_after in [
        json!({}),
        json!({"Retry-After": "0"}),
        json!({"Retry-After": "-7"}),
        json!({"Retry-After": "soon"}),
    ] {
        check(&retry_after, 15_000);
    }
}

#[test]
fn a_pause_holds_for_all_hosts_of_the_api() {
    let world = with_two_tokens();
    world.faults(json!([{"path": "organizations/me", "token": "kpat_t", "status": 429, "headers": {"Retry-After": "7"}}]));
    world.patch(AUTH.kind, "auth", json!({"metadata": {"labels": {"a": "b"}}}));
    world.pass();
    let since = world.fake.lock().requests();
    assert_eq!(world.fake.lock().log(0).last().unwrap().host, "global.api.konghq.com");
    world.patch("KongService", "old", json!({"spec": {"host": "two.example"}}));
    world.apply(&of_other("beside"));
    world.settle();
    assert!(is_programmed(&world, "beside"), "another token goes on");
    world.settle_for(Duration::from_secs(5));
    assert_eq!(sent(&world, "kpat_t", since), 0);
    world.settle_for(Duration::from_secs(2));
    assert!(is_programmed(&world, "old"));
}

#[test]
fn a_change_of_a_plugin_or_a_secret_waits_for_the_end_of_a_pause_and_says_so() {
    let world = World::with_control_plane();
    let labels = json!({"konghq.com/secret": "true"});
    let reference = json!({"type": "secretRef", "secretRef": {"name": "tls"}});
    let of_plugin = json!({"pluginRef": {"name": "plug"}, "scope": "GlobalInControlPlane"});
    let config = |minute: u32| json!({"plugin": "rate-limiting", "config": {"minute": minute}});
    for object in [
        object("KongPlugin", "plug", config(5)),
        secret("tls", &labels, &json!({"tls.crt": "one", "tls.key": "key"})),
        in_cp("KongPluginBinding", "o", of_plugin),
        in_cp("KongCertificate", "o", reference),
        service("old"),
    ] {
        world.apply(&object);
        world.settle();
    }
    world.faults(json!([{"path": "/services", "status": 429, "headers": {"Retry-After": "7"}}]));
    world.apply(&service("svc"));
    world.pass();
    let at = world.fake.lock().log(0).last().unwrap().at;
    let since = world.fake.lock().requests();
    world.patch("KongPlugin", "plug", config(9));
    world.patch("Secret", "tls", json!({"stringData": {"tls.crt": "two"}}));
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    world.patch("KongService", "old", label);
    world.settle();
    let until = time::rfc3339((at + 7_000).div_ceil(1_000) * 1_000);
    let waits =
        format!("False/FailedToUpdate Konnect asks for a pause: nothing is sent until {until}");
    let told = |kind: &str| world.condition(kind, "o", "Programmed");
    for kind in ["KongPluginBinding", "KongCertificate"] {
        assert_eq!(told(kind), waits, "{kind}");
    }
    assert!(is_programmed(&world, "old"), "nothing of it waits");
    world.settle_for(Duration::from_secs(8));
    for kind in ["KongPluginBinding", "KongCertificate"] {
        assert_eq!(told(kind), "True/Programmed ", "{kind}");
    }
    let fake = world.fake.lock();
    assert_eq!(fake.entities("plugins")[0]["config"]["minute"], 9);
    assert_eq!(fake.entities("certificates")[0]["cert"], "two");
    let puts = fake.log(since).filter(|entry| entry.method == "PUT").count();
    assert_eq!(puts, 2);
}

#[test]
fn a_change_of_a_plugin_is_not_lost_in_a_pause_of_the_rate() {
    let world = World::with_control_plane();
    let config = |minute: u32| json!({"plugin": "rate-limiting", "config": {"minute": minute}});
    let of_plugin = json!({"pluginRef": {"name": "plug"}, "scope": "GlobalInControlPlane"});
    for object in
        [object("KongPlugin", "plug", config(5)), in_cp("KongPluginBinding", "o", of_plugin)]
    {
        world.apply(&object);
        world.settle();
    }
    world.faults(json!([{"path": "/services", "status": 429, "headers": {"Retry-After": "1"}}]));
    world.apply(&service("svc"));
    world.pass();
    world.patch("KongPlugin", "plug", config(9));
    world.settle_for(Duration::from_secs(5));
    assert_eq!(world.fake.lock().entities("plugins")[0]["config"]["minute"], 9);
}
