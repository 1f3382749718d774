//! Calls of hooks to systems outside of the cluster.

use std::{io::ErrorKind, net::TcpListener};

use mortise::egress::{Grant, grant};

use super::*;

/// A write waits for a hook: it calls nothing, whatever the Processor grants.
#[tokio::test]
async fn a_hook_calls_nothing_outside() {
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    outside.set_nonblocking(true).unwrap();
    let mut loaded = hooks_with(r#"{"do": "call"}"#).await;
    let origin = loaded.description.outbound[0].origin.clone();
    let connect = Some(outside.local_addr().unwrap().to_string());
    grant(&mut loaded, [Grant { origin, connect, private: true, ..Grant::default() }]).unwrap();
    let port = Port::open_for(loaded).await;
    let rule = rule("a", "v1", &json!({"do": "call"}));
    let admission = admission("CREATE", &rule, &Value::Null).to_string();
    let conversion = conversion("example.com/v2", &[rule]);
    for (path, review) in [("/admit/default/hooks/check", admission), (CONVERT, conversion)] {
        let answer = port.post(path, &review).await;
        let refusal = "only `reconcile` may call systems outside of the cluster";
        assert!(answer.1.contains(refusal), "{path}: {answer:?}");
    }
    assert_eq!(outside.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}
