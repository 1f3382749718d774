//! Attacks of servers and names on the client, over connections in memory and with given time.

#![expect(clippy::disallowed_methods, reason = "a server ends with its test")]

mod certificate;
mod network;

use std::sync::atomic::Ordering;

use futures::future::join_all;
use mortise_core::{
    fixture::reference,
    outbound::{Authorization, Credential, Egress, Method, Rate, Scheme, Target},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use self::{
    certificate::Authority,
    network::{Names, Stream, head},
};
use super::*;

/// An address of the internet, at which nothing is asked in truth.
const PUBLIC: &str = "93.184.216.34";
const HOST: &str = "api.example.com";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn client(names: &Arc<Names>) -> Client {
    let now: Clock = Arc::new(|| "2026-03-01T12:00:00Z".parse().unwrap());
    let home = Home::parse("https://10.96.0.1:443");
    Client::over(Arc::clone(names) as Arc<dyn Network>, home, now, Metrics::new())
}

fn granted() -> Egress {
    Egress {
        origin: "http://*.example.com".to_owned(),
        credentials: Vec::new(),
        rate: None,
        ca_bundle: None,
        private: false,
        connect: None,
    }
}

/// Returns a call without TLS to a host.
fn call(host: &str, egress: &Egress) -> Allowed {
    Allowed {
        method: Method::Get,
        target: Target {
            tls: false,
            host: host.to_owned(),
            port: 80,
            path_and_query: "/v1/items?size=10".to_owned(),
        },
        headers: Vec::new(),
        body: None,
        authorization: None,
        egress: Arc::new(egress.clone()),
        pause: Duration::from_secs(15),
        timeout: Duration::from_secs(10),
        processor: "team/outside".into(),
    }
}

fn plain() -> Allowed {
    call(HOST, &granted())
}

/// Returns a call over TLS to [`HOST`] that trusts an authority.
fn secured(authority: &Authority) -> Allowed {
    let egress = Egress { ca_bundle: Some(authority.pem().into()), ..granted() };
    let mut call = call(HOST, &egress);
    call.target = Target { tls: true, port: 443, ..call.target };
    call
}

fn with_token(mut call: Allowed, secret: &str) -> Allowed {
    call.authorization = Some(Authorization {
        credential: Credential {
            of: reference("Secret", secret),
            at: "data.token".to_owned(),
            scheme: Scheme::Bearer,
        },
        header: "authorization".to_owned(),
        value: format!("Bearer token-of-{secret}").into(),
    });
    call
}

/// Returns a server that reads a request and answers with this text, on every connection.
fn answering(answer: impl Into<String>) -> Arc<Names> {
    let answer: String = answer.into();
    let names = Arc::new(Names::default());
    let requests = Arc::clone(&names.requests);
    names.serve(HOST, &[PUBLIC], move |mut stream| {
        let (answer, requests) = (answer.clone(), Arc::clone(&requests));
        async move {
            while head(&mut stream).await.is_some() {
                requests.fetch_add(1, Ordering::Relaxed);
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    });
    names
}

async fn answer_to(answer: impl Into<String>) -> Result<Answer, CallError> {
    client(&answering(answer)).send(plain()).await
}

// === answers ===

#[tokio::test(start_paused = true)]
async fn a_call_is_sent_as_it_is_and_its_connection_is_kept() {
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let requests = Arc::clone(&seen);
    let names = Names::serving(HOST, &[PUBLIC], move |mut stream| {
        let requests = Arc::clone(&requests);
        async move {
            while let Some(head) = head(&mut stream).await {
                let mut body = vec![0; if head.starts_with("POST") { 2 } else { 0 }];
                stream.read_exact(&mut body).await.unwrap();
                requests.lock().push((head, String::from_utf8(body).unwrap()));
                stream.write_all(OK.as_bytes()).await.unwrap();
            }
        }
    });
    let client = client(&names);
    let mut post = with_token(plain(), "one");
    post.method = Method::Post;
    post.headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    post.body = Some(b"{}".to_vec());
    let answer = client.send(post).await.unwrap();
    assert_eq!((answer.status, &*answer.body), (200, &b"ok"[..]));
    assert_eq!(answer.headers, [("content-length".to_owned(), "2".to_owned())]);
    let mut put = plain();
    put.method = Method::Put;
    client.send(put).await.unwrap();
    assert_eq!(names.opened(), 1, "the connection is kept");
    let seen = seen.lock();
    let agent = concat!("mortise/", env!("CARGO_PKG_VERSION"));
    let expected = format!(
        "POST /v1/items?size=10 HTTP/1.1\r\nhost: {HOST}\r\nuser-agent: {agent}\r\ncontent-type: application/json\r\nauthorization: Bearer token-of-one\r\ncontent-length: 2\r\n\r\n"
    );
    assert_eq!(*seen.first().unwrap(), (expected, "{}".to_owned()));
    let expected = format!(
        "PUT /v1/items?size=10 HTTP/1.1\r\nhost: {HOST}\r\nuser-agent: {agent}\r\ncontent-length: 0\r\n\r\n"
    );
    assert_eq!(*seen.last().unwrap(), (expected, String::new()));
}

#[tokio::test(start_paused = true)]
async fn a_path_is_sent_as_the_rules_have_seen_it() {
    let heads = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let names = Names::serving(HOST, &[PUBLIC], move |mut stream| {
        let seen = Arc::clone(&seen);
        async move {
            while let Some(head) = head(&mut stream).await {
                seen.lock().push(head);
                stream.write_all(OK.as_bytes()).await.unwrap();
            }
        }
    });
    let client = client(&names);
    let paths = [
        "//evil.example/",
        "/a/../b",
        "/%2e%2e/a%2Fb%0d%0aHost:%20evil.example",
        "/http://evil.example/",
        "/@evil.example:443/;a?b@c",
        "/?https://evil.example//",
    ];
    for path in paths {
        let mut call = plain();
        call.target = Target::parse(&format!("http://{HOST}{path}")).unwrap();
        client.send(call).await.unwrap();
        let head = heads.lock().pop().unwrap();
        let expected = format!("GET {path} HTTP/1.1\r\nhost: {HOST}\r\nuser-agent: ");
        assert!(head.starts_with(&expected) && head.matches("\r\n").count() == 4, "{head}");
    }
    assert_eq!(names.asked(), [HOST], "one connection");
}

#[tokio::test(start_paused = true)]
async fn redirects_are_answered_and_not_followed() {
    redirects().await;
}

async fn redirects() {
    for status in [301, 302, 303, 307, 308] {
        for location in ["https://evil.example/", "//evil.example/", "/elsewhere"] {
            let names = answering(format!(
                "HTTP/1.1 {status} Moved\r\nlocation: {location}\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n"
            ));
            let answer = client(&names).send(with_token(plain(), "one")).await.unwrap();
            assert_eq!(answer.status, status);
            assert!(answer.headers.contains(&("location".to_owned(), location.to_owned())));
            assert_eq!((names.opened(), names.asked()), (1, vec![HOST.to_owned()]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_compressed_answer_stays_compressed() {
    compressed().await;
}

async fn compressed() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x08xy";
    assert_eq!(answer_to(answer).await.unwrap().body, b"\x1f\x08xy");
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_clear_end_is_none() {
    ambiguous().await;
}

async fn ambiguous() {
    let both = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let cases = [
        ("both lengths", both),
        ("two lengths", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok!"),
        ("a bad length", "HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nok"),
        (
            "a bad chunk",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n",
        ),
        (
            "another encoding",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "two encodings",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "another protocol",
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        ),
        ("no HTTP", "SSH-2.0-OpenSSH_9.6\r\n\r\n"),
        ("HTTP/0.9", "ok\r\n\r\n"),
        ("a bare header", "HTTP/1.1 200 OK\r\nbad header\x01: x\r\n\r\n"),
    ];
    for (case, answer) in cases {
        let error = answer_to(answer).await.unwrap_err();
        assert!(matches!(error, CallError::NoAnswer(_)), "{case}: {error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_large_is_dropped_while_it_is_read() {
    large().await;
}

async fn large() {
    let many = "a: b\r\n".repeat(10_000);
    let long = "x".repeat(exchange::MAX_HEAD_BYTES);
    let cases = [
        ("10,000 headers", format!("HTTP/1.1 200 OK\r\n{many}\r\n")),
        ("101 headers", format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101))),
        ("64 KiB in a header", format!("HTTP/1.1 200 OK\r\na: {long}\r\n\r\n")),
        ("a head without end", format!("HTTP/1.1 200 OK\r\na: {}", long.repeat(64))),
        ("a length of 1 GB", "HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n".to_owned()),
        (
            "one byte more than 4 MiB",
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", exchange::MAX_BODY_BYTES + 1),
        ),
    ];
    for (case, answer) in cases {
        let names = answering(answer);
        let client = client(&names);
        assert_eq!(client.send(plain()).await.unwrap_err(), CallError::TooLarge, "{case}");
        assert_eq!(client.0.pool.count(), 0, "{case}: the connection is closed");
    }
    let hundred = format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{}\r\n", "a: b\r\n".repeat(99));
    assert_eq!(answer_to(hundred).await.unwrap().headers.len(), 100);
}

/// Serves a text, and then a part of it for ever.
fn endless(first: &'static str, part: String) -> Arc<Names> {
    Names::serving(HOST, &[PUBLIC], move |mut stream| {
        let part = part.clone();
        async move {
            head(&mut stream).await;
            let _ = stream.write_all(first.as_bytes()).await;
            while stream.write_all(part.as_bytes()).await.is_ok() {}
        }
    })
}

/// Returns servers whose answers do not end.
fn endless_servers() -> [(&'static str, Arc<Names>); 5] {
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let hint = "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n";
    [
        ("small chunks", endless(chunked, "1\r\nx\r\n".repeat(100))),
        ("chunks", endless(chunked, chunk)),
        ("until the end", endless("HTTP/1.1 200 OK\r\n\r\n", "x".repeat(1000))),
        ("interim answers", endless("", "HTTP/1.1 100 Continue\r\n\r\n".to_owned())),
        ("interim answers with headers", endless("", hint.to_owned())),
    ]
}

async fn too_large(servers: &[(&str, Arc<Names>)]) {
    for (case, names) in servers {
        let error = client(names).send(plain()).await.unwrap_err();
        assert_eq!(error, CallError::TooLarge, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_and_interim_answers_without_end_are_dropped() {
    too_large(&endless_servers()).await;
    let few = format!("{}{OK}", "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".repeat(3));
    assert_eq!(answer_to(few).await.unwrap().status, 200);
}

// === time ===

#[tokio::test(start_paused = true)]
async fn a_call_ends_in_its_time_wherever_the_server_hangs() {
    let hung = |before: &'static str| {
        Names::serving(HOST, &[PUBLIC], move |mut stream| async move {
            head(&mut stream).await;
            let _ = stream.write_all(before.as_bytes()).await;
            std::future::pending::<()>().await;
        })
    };
    let slow = Names::serving(HOST, &[PUBLIC], |mut stream| async move {
        head(&mut stream).await;
        for byte in OK.bytes().cycle() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if stream.write_all(&[byte]).await.is_err() {
                return;
            }
        }
    });
    let silent = Names::serving(HOST, &[PUBLIC], |stream| async move {
        let _open = stream;
        std::future::pending::<()>().await;
    });
    let authority = Authority::new();
    let cases = [
        ("name", Names::hanging(HOST), plain(), false),
        ("connect", Names::serving_none(HOST, &[PUBLIC]), plain(), false),
        ("TLS handshake", silent, secured(&authority), false),
        ("head", hung(""), plain(), true),
        ("part of a head", hung("HTTP/1.1 200 OK\r\na"), plain(), true),
        ("body", hung("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no"), plain(), true),
        ("one byte a second", slow, plain(), true),
    ];
    for (case, names, call, is_sent) in cases {
        let start = Instant::now();
        let error = client(&names).send(call).await.unwrap_err();
        assert_eq!(start.elapsed(), Duration::from_secs(10), "{case}");
        match error {
            CallError::NotSent(_) if !is_sent => {}
            CallError::NoAnswer(_) if is_sent => {}
            error => panic!("{case}: {error:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_on_a_hung_origin_leave_others_going() {
    let names = Names::serving("hung.example.com", &[PUBLIC], |mut stream| async move {
        head(&mut stream).await;
        std::future::pending::<()>().await;
    });
    names.serve(HOST, &[PUBLIC], |mut stream| async move {
        while head(&mut stream).await.is_some() {
            stream.write_all(OK.as_bytes()).await.unwrap();
        }
    });
    let client = client(&names);
    let hung = join_all((0..1000).map(|_| client.send(call("hung.example.com", &granted()))));
    let mut hung = std::pin::pin!(hung);
    assert!(futures::poll!(&mut hung).is_pending());
    for _ in 0..100 {
        tokio::select! {
            biased;
            answer = client.send(plain()) => assert_eq!(answer.unwrap().status, 200),
            _ = &mut hung => panic!("the other calls wait for their time"),
        }
    }
    assert_eq!(names.opened_to("hung.example.com"), 8, "half of the places of an origin");
    assert_eq!(names.opened_to(HOST), 1);
    let ended = hung.await;
    let count = ended.iter().filter(|of| matches!(of, Err(CallError::NoAnswer(_)))).count();
    assert_eq!(count, 8);
    let waited = ended.iter().filter(|of| matches!(of, Err(CallError::NotSent(_)))).count();
    assert_eq!(waited, 992);
}

// === kept connections ===

#[tokio::test(start_paused = true)]
async fn a_call_is_repeated_only_if_nothing_was_sent() {
    /// How a server ends a connection that was kept after a first answer.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum End {
        /// Before anything else was sent.
        AtOnce,
        /// After the first byte of the second request.
        OneByte,
        /// After the whole second request.
        All,
        /// With an answer to nothing.
        Unasked,
    }
    for (end, expected) in
        [(End::AtOnce, Ok(2)), (End::OneByte, Err(())), (End::All, Err(())), (End::Unasked, Ok(2))]
    {
        let bytes = Arc::new(parking_lot::Mutex::new(0));
        let requests = Arc::clone(&bytes);
        let names = Names::serving(HOST, &[PUBLIC], move |mut stream| {
            let requests = Arc::clone(&requests);
            async move {
                head(&mut stream).await.unwrap();
                *requests.lock() += 1;
                stream.write_all(OK.as_bytes()).await.unwrap();
                match end {
                    End::AtOnce => {}
                    End::OneByte => drop(stream.read_u8().await),
                    End::All => {
                        *requests.lock() += usize::from(head(&mut stream).await.is_some());
                    }
                    End::Unasked => {
                        stream.write_all(OK.as_bytes()).await.unwrap();
                        std::future::pending::<()>().await;
                    }
                }
            }
        });
        let client = client(&names);
        client.send(plain()).await.unwrap();
        tokio::task::yield_now().await;
        let mut post = plain();
        post.method = Method::Post;
        post.body = Some(b"{}".to_vec());
        let second = client.send(post).await;
        if let Ok(opened) = expected {
            assert_eq!(second.map(|answer| answer.status), Ok(200), "{end:?}");
            assert_eq!(names.opened(), opened, "{end:?}");
        } else {
            assert!(matches!(second, Err(CallError::NoAnswer(_))), "{end:?}: {second:?}");
            assert_eq!(names.opened(), 1, "{end:?}");
        }
        assert!(*bytes.lock() <= 2, "{end:?}: the request came twice");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_that_closes_is_no_answer_once_something_was_sent() {
    let closed = Names::serving(HOST, &[PUBLIC], |stream| async move { drop(stream) });
    let after = Names::serving(HOST, &[PUBLIC], |mut stream| async move {
        head(&mut stream).await;
    });
    let part = Names::serving(HOST, &[PUBLIC], |mut stream| async move {
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok").await.unwrap();
    });
    for (case, names) in [("after all bytes", after), ("in the body", part)] {
        let error = client(&names).send(plain()).await.unwrap_err();
        assert!(matches!(error, CallError::NoAnswer(_)), "{case}: {error:?}");
        assert_eq!(names.opened(), 1, "{case}");
    }
    // Nothing could be written: the other end is gone.
    tokio::task::yield_now().await;
    let error = client(&closed).send(plain()).await.unwrap_err();
    assert!(matches!(error, CallError::NotSent(_) | CallError::NoAnswer(_)), "{error:?}");
    assert_eq!(closed.opened(), 1);
}

#[tokio::test(start_paused = true)]
async fn kept_connections_are_bounded_closed_when_idle_and_of_one_grant() {
    let names = answering(OK);
    let client = client(&names);
    let mut idle = std::pin::pin!(client.clone().close_idle());
    client.send(plain()).await.unwrap();
    let other = Egress { private: true, ..granted() };
    client.send(call(HOST, &other)).await.unwrap();
    assert_eq!((names.opened(), client.0.pool.count()), (2, 2), "the checks differ");
    let neighbour = || Allowed { processor: "other/outside".into(), ..plain() };
    client.send(neighbour()).await.unwrap();
    client.send(neighbour()).await.unwrap();
    assert_eq!((names.opened(), client.0.pool.count()), (3, 3), "the namespaces differ");
    tokio::select! {
        () = &mut idle => {}
        () = tokio::time::sleep(Duration::from_secs(89)) => {}
    }
    assert_eq!(client.0.pool.count(), 3);
    tokio::select! {
        () = &mut idle => {}
        () = tokio::time::sleep(Duration::from_secs(16)) => {}
    }
    assert_eq!(client.0.pool.count(), 0);
}

// === addresses ===

#[tokio::test(start_paused = true)]
async fn a_name_with_an_address_that_is_not_public_is_not_connected_to() {
    not_public().await;
}

async fn not_public() {
    let refused = [
        vec!["127.0.0.1"],
        vec!["10.0.0.1"],
        vec!["100.64.0.1"],
        vec!["169.254.169.254"],
        vec!["100.100.100.200"],
        vec!["224.0.0.1"],
        vec!["::1"],
        vec!["fe80::1"],
        vec!["fd00::1"],
        vec!["::ffff:10.0.0.1"],
        vec!["64:ff9b::a00:1"],
        vec!["2002:a00:1::1"],
        vec![PUBLIC, "10.0.0.1"],
        vec!["10.0.0.1", PUBLIC],
        vec![],
    ];
    for addresses in refused {
        let names = Names::serving(HOST, &addresses, |_| async {});
        let error = client(&names).send(plain()).await.unwrap_err();
        assert!(matches!(error, CallError::NotSent(_)), "{addresses:?}: {error:?}");
        assert_eq!(names.opened(), 0, "{addresses:?}");
    }
    for host in ["127.0.0.1", "10.0.0.7", "::1", "169.254.169.254"] {
        let names = Names::serving(HOST, &[PUBLIC], |_| async {});
        client(&names).send(call(host, &granted())).await.unwrap_err();
        assert_eq!(names.opened(), 0, "{host}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_of_private_addresses_holds_neither_metadata_nor_the_api_server() {
    let private = Egress { private: true, ..granted() };
    let cases = [
        ("10.0.0.1", 80, true),
        ("127.0.0.1", 80, true),
        ("fd00::1", 80, true),
        ("10.96.0.1", 80, true),
        ("10.96.0.1", 443, false),
        ("169.254.169.254", 80, false),
        ("100.100.100.200", 80, false),
        ("fe80::1", 80, false),
        ("224.0.0.1", 80, false),
    ];
    for (address, port, is_asked) in cases {
        let names = Names::serving(HOST, &[address], |mut stream| async move {
            head(&mut stream).await;
            let _ = stream.write_all(OK.as_bytes()).await;
        });
        let mut call = call(HOST, &private);
        call.target.port = port;
        let answer = client(&names).send(call).await;
        assert_eq!(answer.is_ok(), is_asked, "{address} {port}: {answer:?}");
        assert_eq!(names.opened(), usize::from(is_asked), "{address} {port}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_checked_address_is_the_connected_one() {
    rebinding().await;
}

async fn rebinding() {
    // The server closes after its answer, and at the second look the name leads elsewhere.
    let names = Names::serving(HOST, &[PUBLIC], |mut stream| async move {
        head(&mut stream).await.unwrap();
        let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    names.then(HOST, &["127.0.0.1"]);
    let client = client(&names);
    assert_eq!(client.send(plain()).await.unwrap().status, 200);
    assert_eq!(names.asked(), [HOST], "one look");
    let error = client.send(plain()).await.unwrap_err();
    assert!(matches!(error, CallError::NotSent(_)), "{error:?}");
    assert_eq!(names.asked(), [HOST, HOST]);
    assert_eq!(names.connected(), [format!("{PUBLIC}:80")], "the second one is not opened");
}

#[tokio::test(start_paused = true)]
async fn what_a_grant_connects_to_is_checked_too_and_has_the_certificate_of_the_url() {
    let authority = Authority::new();
    let names = Names::serving("proxy.example.com", &[PUBLIC], authority.serving(HOST, 2049));
    let client = client(&names);
    let through = |to: &str| {
        let mut call = secured(&authority);
        let connect = Some(to.into());
        call.egress = Arc::new(Egress { connect, ..(*call.egress).clone() });
        call
    };
    assert_eq!(client.send(through("proxy.example.com:8443")).await.unwrap().status, 200);
    assert_eq!(names.connected(), [format!("{PUBLIC}:8443")]);
    for to in ["127.0.0.1:8443", "10.0.0.1:443", "[::1]:8443", "169.254.169.254:80"] {
        let error = client.send(through(to)).await.unwrap_err();
        assert!(matches!(error, CallError::NotSent(_)), "{to}: {error:?}");
    }
    assert_eq!(names.opened(), 1);
}

// === TLS ===

#[tokio::test(start_paused = true)]
async fn a_server_without_the_right_certificate_is_sent_nothing() {
    certificates().await;
}

async fn certificates() {
    let (authority, other) = (Authority::new(), Authority::new());
    let cases = [
        ("right", &authority, HOST, 2049, true),
        ("another name", &authority, "other.example.com", 2049, false),
        ("expired", &authority, HOST, 2001, false),
        ("another authority", &other, HOST, 2049, false),
    ];
    for (case, of, host, year, is_right) in cases {
        let names = Names::serving(HOST, &[PUBLIC], of.serving(host, year));
        let sent = client(&names).send(with_token(secured(&authority), "one")).await;
        match sent {
            Ok(answer) => assert!(is_right && answer.status == 200, "{case}"),
            Err(CallError::NotSent(why)) => assert!(!is_right, "{case}: {why}"),
            Err(error) => panic!("{case}: {error:?}"),
        }
    }
    let names = Names::serving(HOST, &[PUBLIC], authority.serving(HOST, 2049));
    let mut compiled_in = secured(&authority);
    compiled_in.egress = Arc::new(granted());
    let error = client(&names).send(compiled_in).await.unwrap_err();
    assert!(matches!(error, CallError::NotSent(_)), "the bundle is of one grant: {error:?}");
    let plain = Names::serving(HOST, &[PUBLIC], |mut stream| async move {
        stream.write_all(OK.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    let error = client(&plain).send(secured(&authority)).await.unwrap_err();
    assert!(
        matches!(&error, CallError::NotSent(why) if why.contains("speaks no TLS")),
        "{error:?}"
    );
}

/// A real connection differs in its buffers, and in how it ends.
#[tokio::test]
async fn the_attacks_of_servers_and_names_fail_over_sockets_too() {
    network::use_sockets();
    redirects().await;
    compressed().await;
    ambiguous().await;
    large().await;
    // Small chunks may take more time than a call has.
    too_large(&endless_servers()[1..]).await;
    not_public().await;
    rebinding().await;
    certificates().await;
    let reset = Names::serving(HOST, &[PUBLIC], |mut stream| async move {
        // The rest of the request is not read, so that the system resets the connection.
        let _ = stream.read_u8().await;
    });
    let error = client(&reset).send(plain()).await.unwrap_err();
    assert!(matches!(error, CallError::NoAnswer(_)), "{error:?}");
    assert_eq!(reset.opened(), 1, "it is not sent again");
}

#[tokio::test]
async fn nothing_is_sent_where_nothing_listens() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let clock: Clock = Arc::new(|| "2026-03-01T12:00:00Z".parse().unwrap());
    let client = Client::new(None, clock, Metrics::new());
    for (private, why) in [(true, "refused"), (false, "is not a public address")] {
        let mut call = call("127.0.0.1", &Egress { private, ..granted() });
        call.target.port = port;
        let error = client.send(call).await.unwrap_err();
        let CallError::NotSent(text) = &error else { panic!("{error:?}") };
        assert!(text.contains(why), "{text}");
    }
}

// === pauses and rates ===

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_during_a_pause_but_with_other_credentials() {
    let second = Duration::from_secs(1);
    let cases = [
        ("retry-after: 7\r\n", 7),
        ("retry-after: Sun, 01 Mar 2026 12:00:07 GMT\r\n", 7),
        ("retry-after: 86400\r\n", 600),
        ("", 15),
        ("retry-after: 0\r\n", 15),
        ("retry-after: -1\r\n", 15),
        ("retry-after: soon\r\n", 15),
    ];
    for status in [429, 503] {
        for (header, seconds) in cases.into_iter().filter(|of| status == 429 || of.1 != 15) {
            let names =
                answering(format!("HTTP/1.1 {status} Busy\r\n{header}content-length: 0\r\n\r\n"));
            let client = client(&names);
            let send = |secret: &'static str| client.send(with_token(plain(), secret));
            assert_eq!(send("one").await.unwrap().status, status, "the answer is given");
            let millis = seconds * 1000;
            for _ in 0..3 {
                assert_eq!(send("one").await, Err(CallError::Paused(millis)), "{header}");
            }
            assert_eq!(names.requests.load(Ordering::Relaxed), 1);
            assert_eq!(send("two").await.unwrap().status, status, "another credential");
            assert_eq!(client.send(plain()).await.unwrap().status, status, "none");
            tokio::time::advance(second * u32::try_from(seconds).unwrap()).await;
            assert_eq!(send("one").await.unwrap().status, status, "the pause is over");
        }
    }
    let without_pause = [
        (429, Duration::ZERO, "a pause of none"),
        (503, Duration::from_secs(15), "no time is named"),
    ];
    for (status, pause, case) in without_pause {
        let names = answering(format!("HTTP/1.1 {status} Busy\r\ncontent-length: 0\r\n\r\n"));
        let client = client(&names);
        for _ in 0..2 {
            let never = Allowed { pause, ..plain() };
            assert_eq!(client.send(never).await.unwrap().status, status, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_place_is_not_sent_into_a_pause() {
    let answer = "HTTP/1.1 429 Busy\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n";
    let names = answering(answer);
    let client = client(&names);
    let ended = join_all((0..100).map(|_| client.send(plain()))).await;
    let sent = ended.iter().filter(|of| of.is_ok()).count();
    assert_eq!(sent, 8, "the calls that were under way");
    assert!(ended.iter().all(|of| matches!(of, Ok(_) | Err(CallError::Paused(_)))));
}

/// The lines of a log.
struct Lines(Arc<parking_lot::Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_pauses_calls_and_all_is_counted_and_logged_without_a_secret() {
    let log = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let to = Arc::clone(&log);
    let lines = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::TRACE);
    let lines = lines.with_writer(move || Lines(Arc::clone(&to)));
    let _listening = mortise_core::fixture::listen(lines.finish());
    let names = answering(OK);
    let client = client(&names);
    let rate = Some(Rate { per_second: 1, burst: 2 });
    let limited = Egress { rate, ..granted() };
    let send = || client.send(with_token(call(HOST, &limited), "one"));
    for _ in 0..2 {
        send().await.unwrap();
    }
    assert_eq!(send().await, Err(CallError::Paused(1000)));
    let authority = Authority::new();
    let secure = Names::serving(HOST, &[PUBLIC], authority.serving(HOST, 2049));
    self::client(&secure).send(with_token(secured(&authority), "one")).await.unwrap();
    let quoting = answering("HTTP/1.1 200 OK\r\nx: token-of-one\x01\r\n\r\ntoken-of-one items");
    let error = self::client(&quoting).send(with_token(plain(), "one")).await.unwrap_err();
    let text = client.0.metrics.text(&crate::metrics::Sample::default()).unwrap();
    let of = r#"processor="team/outside",origin="http://*.example.com""#;
    for line in [
        format!("mortise_outbound_calls_total{{{of},method=\"get\",code=\"200\"}} 2"),
        format!("mortise_outbound_calls_total{{{of},method=\"get\",code=\"paused\"}} 1"),
        format!("mortise_outbound_paused_total{{{of},reason=\"rate\"}} 1"),
    ] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    let log = String::from_utf8(log.lock().clone()).unwrap();
    assert!(log.contains("origin=http://*.example.com method=\"get\" code=200"), "{log}");
    for text in [text, log, format!("{error:?}")] {
        assert!(!text.contains("token-of") && !text.contains("items"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_be_a_request_is_invalid() {
    let names = answering(OK);
    let client = client(&names);
    let with = |name: &str, value: &str| {
        let mut call = plain();
        call.headers = vec![(name.to_owned(), value.to_owned())];
        call
    };
    for (name, value) in [("a b", "c"), ("a", "b\r\nc: d"), ("a", "\0"), ("", "b")] {
        let error = client.send(with(name, value)).await.unwrap_err();
        assert!(matches!(error, CallError::Invalid(_)), "{name:?} {value:?}: {error:?}");
    }
    assert_eq!(names.opened(), 0);
}

#[test]
fn statuses_have_few_labels() {
    let labels: std::collections::BTreeSet<String> =
        (100..=999).map(|status| code::Code::Status(status).label()).collect();
    assert_eq!(labels.len(), 30 + 9);
}
