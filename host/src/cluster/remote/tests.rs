//! Kubeconfigs of people who are not trusted: first without any connection, then with servers on this
//! machine.

#![expect(
    clippy::disallowed_methods,
    clippy::needless_pass_by_value,
    reason = "a server ends with its test; JSON literals read better by value"
)]

use base64::{Engine as _, engine::general_purpose::STANDARD};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::{kubeconfig::MAX_KUBECONFIG_BYTES, *};

/// Returns a kubeconfig with these fields of its cluster and its user.
fn kubeconfig(cluster: Value, user: Value) -> Value {
    let mut of_cluster = json!({"server": "https://api.provider.example:6443"});
    of_cluster.as_object_mut().unwrap().extend(cluster.as_object().unwrap().clone());
    json!({
        "apiVersion": "v1", "kind": "Config", "preferences": {}, "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "p", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "p", "cluster": of_cluster}],
        "users": [{"name": "u", "user": user}],
    })
}

fn connect(text: &str) -> Result<String, String> {
    let connected = Inline::default().connect("shop/provider/kubeconfig", text.as_bytes());
    connected.map(|of| of.server).map_err(|refused| refused.to_string())
}

fn refused(cluster: Value, user: Value) -> String {
    connect(&kubeconfig(cluster, user).to_string()).unwrap_err()
}

#[tokio::test]
async fn a_kubeconfig_with_inline_credentials_is_used() {
    let (none, token) = (json!({}), json!({"token": "secret"}));
    let cases = [
        ("token", kubeconfig(none.clone(), token.clone())),
        ("nobody", kubeconfig(none.clone(), none.clone())),
        (
            "harmless fields",
            kubeconfig(
                json!({"insecure-skip-tls-verify": false, "proxy-url": "", "disable-compression": true}),
                json!({"token": "secret", "as": "", "exec": null, "extensions": []}),
            ),
        ),
        ("another name", kubeconfig(json!({"tls-server-name": "kubernetes"}), token)),
    ];
    for (case, text) in cases {
        let server = Ok("https://api.provider.example:6443".to_owned());
        assert_eq!(connect(&text.to_string()), server, "{case}");
        let yaml = serde_saphyr::to_string(&text).unwrap();
        assert_eq!(connect(&yaml), server, "{case}, as YAML");
    }
    let loopback = kubeconfig(json!({"server": "http://127.0.0.1:8001"}), json!({}));
    assert_eq!(connect(&loopback.to_string()), Ok("http://127.0.0.1:8001".to_owned()));
}

#[tokio::test]
async fn what_starts_a_process_reads_a_file_or_leads_elsewhere_is_refused_by_its_name() {
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh"});
    let users = [
        ("exec", exec),
        ("auth-provider", json!({"name": "gcp"})),
        ("tokenFile", json!("/var/run/secrets/kubernetes.io/serviceaccount/token")),
        ("client-certificate", json!("/etc/passwd")),
        ("client-key", json!("/etc/passwd")),
        ("username", json!("admin")),
        ("password", json!("secret")),
        ("as", json!("system:admin")),
        ("as-uid", json!("1")),
        ("as-groups", json!(["system:masters"])),
        ("as-user-extra", json!({"a": ["b"]})),
        ("impersonate", json!("system:admin")),
    ];
    for (field, value) in users {
        let message = refused(json!({}), json!({ (field): value }));
        let expected = format!("`user` has `{field}`, which is not accepted; accepted are `token`");
        assert!(message.starts_with(&expected), "{message}");
    }
    let clusters = [
        ("certificate-authority", json!("/etc/ssl/ca.pem")),
        ("insecure-skip-tls-verify", json!(true)),
        ("proxy-url", json!("http://proxy.example:3128")),
        ("api-version", json!("v1")),
    ];
    for (field, value) in clusters {
        let message = refused(json!({ (field): value }), json!({}));
        let expected =
            format!("`cluster` has `{field}`, which is not accepted; accepted are `server`");
        assert!(message.starts_with(&expected), "{message}");
    }
}

#[tokio::test]
async fn a_server_is_an_address_without_user_information_and_with_tls() {
    let servers = [
        "",
        "api.provider.example:6443",
        "http://api.provider.example",
        "http://localhost:8001",
        "http://2130706433:8001",
        "http://0x7f000001:8001",
        "http://127.1:8001",
        "http://10.0.0.7:6443",
        "http://169.254.169.254",
        "https://user:secret@api.provider.example",
        "https://api.provider.example@evil.example",
        "https://api.provider.example/?a=b",
        "https:///api",
        "ftp://api.provider.example",
        "unix:///var/run/docker.sock",
    ];
    for server in servers {
        let message = refused(json!({ "server": server }), json!({}));
        assert!(message.contains("is accepted"), "{server}: {message}");
        assert!(!message.contains("secret"), "{message}");
    }
}

#[tokio::test]
async fn a_kubeconfig_that_is_none_is_refused_with_the_part_that_is_missing() {
    let with = |key: &str, value: Value| {
        let mut of = kubeconfig(json!({}), json!({}));
        of[key] = value;
        of.to_string()
    };
    let other = json!([{"name": "other", "user": {}}]);
    let cases = [
        ("no text", "\u{0}".to_owned(), "it is no kubeconfig"),
        ("nothing", "{}".to_owned(), "the current-context is ``, which `contexts` lacks"),
        ("no context", with("current-context", json!("x")), "the current-context is `x`"),
        ("no cluster", with("clusters", json!([])), "the cluster of the context is `p`"),
        ("no user", with("users", other), "the user of the context is `u`, which `users` lacks"),
        ("a list", "[]".to_owned(), "it is no kubeconfig"),
    ];
    for (case, text, expected) in cases {
        let message = connect(&text).unwrap_err();
        assert!(message.starts_with(expected), "{case}: {message}");
    }
    let parts = [
        (
            json!({"client-key-data": "aaaa"}),
            "`client-certificate-data` and `client-key-data` stand",
        ),
        (json!({"client-certificate-data": "!", "client-key-data": "aaaa"}), "is PEM in Base64"),
        (json!({"client-certificate-data": "aaaa", "client-key-data": "aaaa"}), "its client "),
        (json!({"token": "a\nb"}), "`token` of `user` is no token"),
        (json!({"token": 1}), "`token` of `user` is a text"),
    ];
    for (user, expected) in parts {
        let message = refused(json!({}), user.clone());
        assert!(message.contains(expected), "{user}: {message}");
    }
    let authorities = json!({"certificate-authority-data": "aaaa"});
    assert!(refused(authorities, json!({})).starts_with("its CA: it holds no certificate"));
}

#[tokio::test]
async fn a_kubeconfig_that_is_too_large_or_expands_is_refused_at_once() {
    let large = json!({"certificate-authority-data": "a".repeat(10 << 20)});
    let message = refused(large, json!({}));
    assert!(message.ends_with("at most 256 KiB are accepted"), "{message}");
    let anchors: String = (1..24)
        .map(|at| format!("a{at}: &a{at} [*a{0}, *a{0}, *a{0}, *a{0}]\n", at - 1))
        .collect::<Vec<_>>()
        .concat();
    let bombs = [
        format!("a0: &a0 [x]\n{anchors}current-context: c\n"),
        "current-context: &c c\ncontexts: [{name: *c, context: {cluster: p}}]\n".to_owned(),
        format!("contexts: {}\n", "[".repeat(10_000)),
        format!("contexts: [{}]\n", "{},".repeat(50_000)),
        "---\n".repeat(10_000),
    ];
    for bomb in bombs {
        assert!(bomb.len() <= MAX_KUBECONFIG_BYTES);
        let message = connect(&bomb).unwrap_err();
        assert!(message.starts_with("it is no kubeconfig"), "{message}");
    }
}

#[tokio::test]
async fn messages_about_a_kubeconfig_hold_none_of_its_secrets() {
    // A key whose line breaks are lost is one line with its label.
    let line = STANDARD.encode("-----BEGIN PRIVATE KEY-----s3cret");
    let identity =
        |chain: &str, key: &str| json!({"client-certificate-data": chain, "client-key-data": key});
    let texts = [
        kubeconfig(json!({}), identity("aaaa", &line)).to_string(),
        kubeconfig(json!({}), identity(&line, "aaaa")).to_string(),
        kubeconfig(json!({"certificate-authority-data": line}), json!({})).to_string(),
        kubeconfig(json!({"server": "https://a/?token=s3cret"}), json!({})).to_string(),
        kubeconfig(json!({"server": "u:s3cret@a"}), json!({})).to_string(),
        "users: [{name: u, user: {token: s3cret}}]\n: : :".to_owned(),
        kubeconfig(json!({}), json!({"token": "s3cret\n"})).to_string(),
        kubeconfig(json!({"server": "https://u:s3cret@a"}), json!({})).to_string(),
        kubeconfig(json!({}), json!({"client-key-data": "s3cret"})).to_string(),
    ];
    for text in texts {
        let message = connect(&text).err().unwrap_or_default();
        let bytes = format!("{:?}", "s3cret".as_bytes());
        let bytes = bytes.trim_matches(['[', ']']);
        assert!(!message.contains("s3cret") && !message.contains(bytes), "{message}");
    }
}

/// Serves one answer to each request on this machine. Returns the port, and the heads of the requests.
async fn serve(answer: String) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&heads);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = String::new();
            let mut bytes = [0; 1024];
            while !head.ends_with("\r\n\r\n") {
                let read = stream.read(&mut bytes).await.unwrap_or_default();
                if read == 0 {
                    break;
                }
                head.push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
            seen.lock().push(head);
            // The client may have gone.
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (port, heads)
}

fn client(kubeconfig: &Value, home: Option<Home>) -> Client {
    let connected = Inline { home }.connect("shop/p/k", kubeconfig.to_string().as_bytes());
    connected.unwrap().client
}

fn of_server(server: &str) -> Value {
    kubeconfig(json!({ "server": server }), json!({"token": "secret"}))
}

async fn get(client: &Client) -> Result<u16, String> {
    let request = Request::get("/api/v1/pods?limit=1").body(Body::empty()).unwrap();
    let answer = client.send(request).await;
    answer.map(|answer| answer.status().as_u16()).map_err(|error| error_chain::whole(&error))
}

#[tokio::test]
async fn requests_carry_the_token_to_the_named_server_and_follow_no_redirect() {
    let (other, elsewhere) = serve("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned()).await;
    let redirect = format!(
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:{other}/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    let (port, heads) = serve(redirect).await;
    let client = client(&of_server(&format!("http://127.0.0.1:{port}/k8s/c/")), None);
    assert_eq!(get(&client).await, Ok(302));
    let head = heads.lock().join("");
    assert!(head.starts_with("GET /k8s/c/api/v1/pods?limit=1 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("authorization: Bearer secret\r\n"), "{head}");
    assert!(elsewhere.lock().is_empty(), "no credential is sent to a server that was not granted");
}

#[tokio::test]
async fn no_connection_is_opened_to_this_machine_by_a_name_or_to_the_home_api_server() {
    let (port, heads) = serve(String::new()).await;
    let home = |url: String| Home::parse(&url);
    let cases = [
        (format!("https://localhost:{port}"), None, "is this machine"),
        (format!("https://2130706433:{port}"), None, "is this machine"),
        (format!("https://127.1:{port}"), None, "is this machine"),
        (
            format!("http://127.0.0.1:{port}"),
            home(format!("https://127.0.0.1:{port}")),
            "127.0.0.1 is the home API server",
        ),
        (
            format!("http://127.0.0.1:{port}"),
            home(format!("https://localhost:{port}")),
            "127.0.0.1 is the home API server",
        ),
    ];
    for (server, home, expected) in cases {
        let error = get(&client(&of_server(&server), home)).await.unwrap_err();
        assert!(error.contains(expected), "{server}: {error}");
    }
    let other = home(format!("https://127.0.0.1:{}", port.wrapping_add(1)));
    let allowed = client(&of_server(&format!("http://127.0.0.1:{port}")), other);
    get(&allowed).await.unwrap_err();
    assert_eq!(heads.lock().len(), 1, "only the last one was connected");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_trickles_ends_in_its_time() {
    let trickle = stream::unfold((), async |()| {
        tokio::time::sleep(BODY_TIMEOUT / 7).await;
        Some((Ok::<_, BoxError>("x"), ()))
    });
    let begun = Instant::now();
    let mut chunks = in_time(Answered::from_stream(trickle)).into_data_stream();
    let mut count = 0;
    let error = loop {
        match chunks.next().await.unwrap() {
            Ok(_) => count += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("not ended within 310 s"), "{error}");
    assert_eq!((count, begun.elapsed()), (6, BODY_TIMEOUT));
    assert!(chunks.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_given_up_after_its_time_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let shop = crate::cluster::bounded::incoming().part_of("shop");
    let (client, _) = gated(&client(&of_server(&format!("http://127.0.0.1:{port}")), None), shop);
    let error = get(&client).await.unwrap_err();
    assert!(error.contains("no answer within 10 s"), "{error}");
}
