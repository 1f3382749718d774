//! Pushes and pulls against a fake registry, which misbehaves.

#[expect(unreachable_pub, dead_code, reason = "the tests of the whole host include it too")]
mod fake;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use self::fake::{Answer, Fake, Request};
use super::{
    artifact::{Artifact, Descriptor, LAYER, MANIFEST},
    signature::{self, Format, PrivateKey, Signature, verify_manifest},
    *,
};
use crate::http::{Address, Policy};

const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0 and a body of some bytes";
const REPOSITORY: &str = "team/rules";

/// The bytes that a sink has received.
#[derive(Default)]
struct Taken(Vec<u8>);

impl Sink for Taken {
    async fn take(&mut self, part: Bytes) -> Result<(), Error> {
        self.0.extend_from_slice(&part);
        Ok(())
    }
}

/// A fake registry, and a client for it.
struct Place {
    fake: Fake,
    registries: Registries,
    reference: Reference,
}

impl Place {
    async fn plain() -> Self {
        Self::around(Fake::plain().await, Options::default())
    }

    async fn tls() -> Self {
        Self::around(Fake::tls().await, Options::default())
    }

    fn around(fake: Fake, options: Options) -> Self {
        let reference = format!("{}/{REPOSITORY}:1", fake.host()).parse().unwrap();
        let times = Times {
            connect: Duration::from_secs(5),
            answer: Duration::from_millis(500),
            idle: Duration::from_millis(500),
            whole: Duration::from_secs(1),
        };
        let authorities = Some(fake::AUTHORITY.to_vec());
        let registries = Registries::build(Options { authorities, times, ..options }).unwrap();
        Self { fake, registries, reference }
    }

    fn repository(&self) -> Repository {
        self.registries.repository(&self.reference, None, false)
    }

    fn as_user(&self, pushes: bool) -> Repository {
        let credentials =
            Credentials::Basic { user: "user".to_owned(), password: "secret".to_owned() };
        self.registries.repository(&self.reference, Some(credentials), pushes)
    }

    /// Stores an artifact, and returns it.
    fn put(&self) -> Artifact {
        let artifact = artifact();
        self.fake.put_blob(COMPONENT);
        self.fake.put_blob(&artifact.config);
        self.fake.put_manifest(REPOSITORY, "1", &artifact.manifest);
        artifact
    }

    /// Sends this answer to requests whose target contains a text.
    fn answer(&self, to: &'static str, answer: Answer) {
        let answers = move |request: &Request| request.target.contains(to).then(|| answer.clone());
        self.fake.set_mood(answers);
    }

    async fn pull(&self) -> Result<Vec<u8>, Error> {
        pull(&self.repository()).await
    }
}

fn artifact() -> Artifact {
    let names = (Vec::new(), Vec::new());
    Artifact::build(Descriptor::of(LAYER, COMPONENT), names, artifact::Annotations::default())
        .unwrap()
}

async fn pull(repository: &Repository) -> Result<Vec<u8>, Error> {
    let document = repository.manifest("1").await?;
    let parts = artifact::parse(&document.bytes)?;
    let mut taken = Taken::default();
    repository.blob(&parts.layer, MAX_MODULE_BYTES, &mut taken).await?;
    Ok(taken.0)
}

async fn push(repository: &Repository, artifact: &Artifact) -> Result<(), Error> {
    repository.push_blob(&artifact.layer, Blob::Bytes(COMPONENT)).await?;
    repository.push_blob(&artifact.config_descriptor, Blob::Bytes(&artifact.config)).await?;
    repository.push_manifest("1", MANIFEST, &artifact.manifest).await
}

#[tokio::test]
async fn a_pushed_artifact_is_pulled_with_and_without_tls() {
    for place in [Place::plain().await, Place::tls().await] {
        let artifact = artifact();
        let repository = place.registries.repository(&place.reference, None, true);
        push(&repository, &artifact).await.unwrap();
        assert_eq!(place.pull().await.unwrap(), COMPONENT);
        assert_eq!(place.repository().resolve("1").await.unwrap(), artifact.digest());
        let sent = place.fake.seen().len();
        push(&repository, &artifact).await.unwrap();
        let again = place.fake.seen().split_off(sent);
        let methods: Vec<&str> = again.iter().map(|request| request.method.as_str()).collect();
        assert_eq!(methods, ["HEAD", "HEAD", "PUT"], "blobs that are there are not sent");
    }
}

#[tokio::test]
async fn a_file_is_sent_part_by_part() {
    let place = Place::plain().await;
    let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, &bytes).unwrap();
    let descriptor = Descriptor::of(LAYER, &bytes);
    let repository = place.registries.repository(&place.reference, None, true);
    repository.push_blob(&descriptor, Blob::File(&Arc::new(file))).await.unwrap();
    let mut taken = Taken::default();
    repository.blob(&descriptor, MAX_MODULE_BYTES, &mut taken).await.unwrap();
    assert_eq!(taken.0, bytes);
}

#[tokio::test]
async fn the_error_of_a_refused_request_names_the_registry_answer() {
    let place = Place::plain().await;
    place.put();
    let cases = [
        (401, "UNAUTHORIZED", "answers 401 to a request about `team/rules`: it does not say how"),
        (403, "DENIED", "answers 403 to GET manifests/1 (DENIED: in words)"),
        (404, "MANIFEST_UNKNOWN", "answers 404 to GET manifests/1 (MANIFEST_UNKNOWN: in words)"),
        (429, "TOOMANYREQUESTS", "answers 429 to GET manifests/1 (TOOMANYREQUESTS: in words)"),
        (500, "UNKNOWN", "answers 500 to GET manifests/1 (UNKNOWN: in words)"),
    ];
    for (status, code, expected) in cases {
        let answer = Answer::error(status, code, "in words").header("retry-after", "7");
        place.answer("/manifests/", answer);
        let error = place.pull().await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.is_registry_away(), matches!(status, 429 | 500), "{error}");
        let after = error.retry_after();
        assert_eq!(after, (status != 401).then_some(Duration::from_secs(7)), "{error}");
    }
    let html = Answer::of(502).body(b"<html>\0</html>").header("retry-after", "999999");
    place.answer("/manifests/", html);
    let error = place.pull().await.unwrap_err();
    assert!(error.to_string().ends_with("answers 502 to GET manifests/1"), "{error}");
    assert_eq!(error.retry_after(), Some(Duration::from_hours(1)));
}

#[tokio::test]
async fn a_registry_that_is_away_is_named() {
    let mut place = Place::plain().await;
    place.put();
    place.fake.stop().await;
    let error = place.pull().await.unwrap_err();
    assert!(error.is_registry_away(), "{error}");
    assert!(error.to_string().contains("`127.0.0.1` does not answer: "), "{error}");
    place.fake.resume().await;
    place.pull().await.unwrap();
}

#[tokio::test]
async fn a_registry_that_hangs_is_not_waited_for() {
    let place = Place::plain().await;
    place.put();
    let late = |answer: Answer| Answer { pace: Some((1, Duration::from_mins(1))), ..answer };
    place.answer("/blobs/", late(Answer::of(200).body(COMPONENT)));
    let error = place.pull().await.unwrap_err();
    assert!(matches!(error, Error::Truncated { came: 1, .. }), "{error}");
    assert!(error.to_string().contains("broke off after 1 of 33 bytes"), "{error}");
    assert!(error.to_string().contains("silent for 0 s"), "{error}");
}

#[tokio::test]
async fn a_registry_that_is_slow_is_not_waited_for_longer_than_a_blob_may_take() {
    let place = Place::plain().await;
    place.put();
    let slowly = Some((1, Duration::from_millis(100)));
    place.answer("/blobs/", Answer { pace: slowly, ..Answer::of(200).body(COMPONENT) });
    let error = place.pull().await.unwrap_err();
    assert!(matches!(error, Error::TooSlow { .. }), "{error}");
    assert!(error.to_string().contains("`127.0.0.1` is too slow: "), "{error}");
}

/// Sends its bytes so slowly that all of them take a minute, and no two of them half a second.
fn slow(answer: Answer) -> Answer {
    let body = vec![b' '; 600];
    Answer { pace: Some((1, Duration::from_millis(100))), body, ..answer }
}

#[tokio::test]
async fn slow_tokens_and_errors_are_not_waited_for_to_their_end() {
    /// Only a client without a deadline reaches it.
    const LONG: Duration = Duration::from_secs(30);
    let place = Place::plain().await;
    place.put();
    place.answer("/manifests/", slow(Answer::of(500)));
    let pulled = tokio::time::timeout(LONG, place.pull()).await;
    let error = pulled.expect("the error has an end").unwrap_err();
    assert!(matches!(error, Error::Refused { status: 500, .. }), "{error}");

    let asks = format!("Bearer realm=\"http://{}/token\"", place.fake.host());
    place.fake.set_mood(move |request: &Request| {
        let is_token = request.target.starts_with("/token");
        let asks = || Answer::of(401).header("www-authenticate", &asks);
        Some(if is_token { slow(Answer::of(200)) } else { asks() })
    });
    let pulled = tokio::time::timeout(LONG, place.pull()).await;
    let error = pulled.expect("the token has an end").unwrap_err();
    assert!(error.to_string().contains("there is no token in it"), "{error}");
}

#[tokio::test]
async fn truncated_or_altered_content_of_a_registry_is_refused() {
    let place = Place::plain().await;
    let artifact = place.put();
    let other = [COMPONENT.to_vec(), b"more".to_vec()].concat();
    let mut flipped = COMPONENT.to_vec();
    flipped[9] ^= 1;
    let chunked = Answer { length: Some(COMPONENT.len() as u64), ..Answer::of(200).body(&other) };
    let cases = [
        (
            "/blobs/",
            Answer { cut: Some(9), ..Answer::of(200).body(COMPONENT) },
            "broke off after 9 of 33 bytes",
        ),
        ("/blobs/", Answer::of(200).body(&other), "of 37 bytes; 33 are expected"),
        ("/blobs/", Answer::of(200).body(&COMPONENT[1..]), "of 32 bytes; 33 are expected"),
        ("/blobs/", Answer::of(200).body(&flipped), "with the digest sha256:"),
        // The connection is closed before the body.
        (
            "/blobs/",
            Answer { cut: Some(0), ..Answer::of(200).body(COMPONENT) },
            "broke off after 0 of 33 bytes",
        ),
        ("/manifests/", Answer::of(200).body(b"{}"), "it is no Wasm artifact: "),
        (
            "/manifests/",
            Answer::of(200)
                .body(&artifact.manifest)
                .header("docker-content-digest", &Digest::of(b"").to_string()),
            "sent GET manifests/1 with the digest sha256:",
        ),
    ];
    for (to, answer, expected) in cases {
        place.answer(to, answer);
        let error = place.pull().await.unwrap_err();
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        assert!(!error.is_registry_away(), "{error}");
    }
    place.answer("/blobs/", chunked);
    assert_eq!(place.pull().await.unwrap(), COMPONENT, "bytes after the end are nobody's");
    place.fake.behave();
    let name = Digest::of(b"another").to_string();
    place.fake.set_mood(move |request| {
        let is_it = request.target.contains("/manifests/");
        is_it.then(|| Answer::of(200).body(b"something"))
    });
    let error = place.repository().manifest(&name).await.unwrap_err();
    assert!(error.to_string().contains(&format!("{name} is expected")), "{error}");
}

#[tokio::test]
async fn oversized_manifests_and_blobs_are_not_read() {
    let place = Place::plain().await;
    place.put();
    let endless = Answer { length: Some(1 << 40), ..Answer::of(200).body(&vec![b' '; 5 << 20]) };
    place.answer("/manifests/", endless);
    let error = place.pull().await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let large = Descriptor { size: MAX_MODULE_BYTES + 1, ..Descriptor::of(LAYER, b"") };
    place.fake.forget();
    let mut taken = Taken::default();
    let error = place.repository().blob(&large, MAX_MODULE_BYTES, &mut taken).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    assert!(place.fake.seen().is_empty(), "nothing is asked for");
}

#[tokio::test]
async fn redirects_are_followed_where_they_may_lead() {
    let place = Place::tls().await;
    place.put();
    let port = place.fake.host().rsplit(':').next().unwrap().to_owned();
    let digest = Digest::of(COMPONENT);
    let elsewhere = format!("https://localhost:{port}/elsewhere");
    let to = elsewhere.clone();
    place.fake.set_mood(move |request| {
        if request.target.contains("/blobs/") {
            return Some(Answer::redirect(&to));
        }
        (request.target == "/elsewhere").then(|| Answer::of(200).body(COMPONENT))
    });
    assert_eq!(place.pull().await.unwrap(), COMPONENT);
    let cases = [
        ("https://169.254.169.254/latest", "169.254.169.254 is a link-local address"),
        ("https://[fd00:ec2::254]/latest", "is the address of a metadata service"),
        ("https://[::ffff:169.254.169.254]/", "is a link-local address"),
        ("http://127.0.0.1:1/", "a redirect leads to it without TLS"),
        ("http://example.com/", "a redirect leads to it without TLS"),
        ("https://user:password@example.com/", "it redirects to no address"),
        ("ftp://example.com/", "it redirects to no address"),
    ];
    for (to, expected) in cases {
        place.answer("/blobs/", Answer::redirect(to));
        let error = place.pull().await.unwrap_err();
        assert!(error.to_string().contains(expected), "{to}: {error}");
    }
    place.answer("/blobs/", Answer::redirect(&format!("/v2/{REPOSITORY}/blobs/{digest}")));
    let error = place.pull().await.unwrap_err();
    assert!(error.to_string().contains("it redirects again and again"), "{error}");
}

#[tokio::test]
async fn a_registry_elsewhere_leads_nobody_to_this_machine() {
    // Only the address is checked: names are resolved first.
    let to = Address::parse("https://localhost/").unwrap();
    let connector = Connector::build(Options::default()).unwrap();
    let request = (http::Method::GET, http::HeaderMap::new(), repository::nothing());
    let policy = Policy::default();
    let sent = connector.send(&to, policy, request, Duration::from_secs(5)).await;
    let error = Error::from(sent.err().unwrap()).to_string();
    assert!(error.contains("is this machine, and a registry elsewhere named it"), "{error}");
}

/// Requires the password `secret` of `user`.
fn wants_password(request: &Request) -> Option<Answer> {
    let given = request.headers.get("authorization").map(String::as_str);
    (given != Some("Basic dXNlcjpzZWNyZXQ=")).then(|| {
        Answer::error(401, "UNAUTHORIZED", "who are you")
            .header("www-authenticate", "Basic realm=\"x\"")
    })
}

#[tokio::test]
async fn a_password_is_sent_over_tls_and_to_the_registry_only() {
    let place = Place::tls().await;
    let artifact = artifact();
    place.fake.set_mood(wants_password);
    push(&place.as_user(true), &artifact).await.unwrap();
    assert_eq!(pull(&place.as_user(false)).await.unwrap(), COMPONENT);
    let error = place.pull().await.unwrap_err().to_string();
    assert!(error.contains("it asks for credentials, and there are none for it"), "{error}");

    let port = place.fake.host().rsplit(':').next().unwrap().to_owned();
    let elsewhere = format!("https://localhost:{port}/elsewhere");
    place.fake.set_mood(move |request| {
        if request.target == "/elsewhere" {
            return Some(Answer::of(200).body(COMPONENT));
        }
        let redirect = || Some(Answer::redirect(&elsewhere));
        wants_password(request)
            .or_else(|| if request.target.contains("/blobs/") { redirect() } else { None })
    });
    place.fake.forget();
    assert_eq!(pull(&place.as_user(false)).await.unwrap(), COMPONENT);
    let seen = place.fake.seen();
    let elsewhere = seen.iter().find(|request| request.target == "/elsewhere").unwrap();
    assert_eq!(elsewhere.headers.get("authorization"), None, "not to another host");

    let plain = Place::plain().await;
    plain.put();
    plain.fake.set_mood(wants_password);
    let error = pull(&plain.as_user(false)).await.unwrap_err().to_string();
    assert!(error.contains("which are sent over TLS only"), "{error}");
    let told = plain.fake.seen().iter().any(|seen| seen.headers.contains_key("authorization"));
    assert!(!told);
}

#[tokio::test]
async fn credentials_used_over_tls_are_never_sent_without_tls() {
    let mut place = Place::tls().await;
    place.put();
    place.fake.set_mood(wants_password);
    let repository = place.as_user(false);
    repository.resolve("1").await.unwrap();
    let told = |seen: &[Request]| seen.iter().any(|of| of.headers.contains_key("authorization"));
    assert!(told(&place.fake.seen()), "over TLS");

    place.fake.stop().await;
    place.fake.forget();
    place.fake.resume_plain().await;
    let error = repository.resolve("1").await.unwrap_err().to_string();
    assert!(error.contains("which are sent over TLS only"), "{error}");
    let seen = place.fake.seen();
    assert!(!seen.is_empty() && !told(&seen), "{seen:?}");
}

#[tokio::test]
async fn a_token_is_asked_for_where_the_registry_says() {
    let place = Place::tls().await;
    place.put();
    let host = place.fake.host();
    let with_realm = |place: &Place, realm: String| {
        place.fake.set_mood(move |request| {
            if request.target.starts_with("/token") {
                return Some(Answer::of(200).body(br#"{"token": "given"}"#));
            }
            let given = request.headers.get("authorization").map(String::as_str);
            let challenge = format!("Bearer realm=\"{realm}\",service=\"s\"");
            (given != Some("Bearer given"))
                .then(|| Answer::of(401).header("www-authenticate", &challenge))
        });
    };
    with_realm(&place, format!("https://{host}/token"));
    assert_eq!(place.pull().await.unwrap(), COMPONENT, "nobody may read, too");
    place.fake.forget();
    assert_eq!(pull(&place.as_user(false)).await.unwrap(), COMPONENT);
    let seen = place.fake.seen();
    let tokens: Vec<&Request> =
        seen.iter().filter(|request| request.target.starts_with("/token")).collect();
    assert_eq!(tokens.len(), 1, "one token is enough");
    assert_eq!(tokens[0].target, "/token?scope=repository%3Ateam%2Frules%3Apull&service=s");
    assert_eq!(tokens[0].headers["authorization"], "Basic dXNlcjpzZWNyZXQ=");

    let identity = Some(Credentials::IdentityToken("identity".to_owned()));
    place.fake.forget();
    let repository = place.registries.repository(&place.reference, identity, true);
    repository.resolve("1").await.unwrap();
    let form = place.fake.seen().into_iter().find(|seen| seen.method == "POST").unwrap();
    let expected = "scope=repository%3Ateam%2Frules%3Apull%2Cpush&service=s&grant_type=refresh_token&refresh_token=identity&client_id=mortise";
    assert_eq!(String::from_utf8(form.body).unwrap(), expected);

    let cases = [
        (format!("http://{host}/token"), "it is to give a token without TLS"),
        ("https://169.254.169.254/token".to_owned(), "is a link-local address"),
        ("/token".to_owned(), "is no address"),
        (format!("https://user@{host}/token"), "is no address"),
    ];
    for (realm, expected) in cases {
        with_realm(&place, realm.clone());
        place.fake.forget();
        let error = pull(&place.as_user(false)).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{realm}: {error}");
        let told = place.fake.seen().iter().any(|seen| seen.headers.contains_key("authorization"));
        assert!(!told, "{realm}");
    }
}

#[tokio::test]
async fn a_registry_without_tls_has_no_credentials_sent_to_a_token_service() {
    let (place, service) = (Place::plain().await, Place::tls().await);
    let challenge = format!("Bearer realm=\"https://{}/token\",service=\"s\"", service.fake.host());
    place.fake.set_mood(move |_| Some(Answer::of(401).header("www-authenticate", &challenge)));
    let error = pull(&place.as_user(false)).await.unwrap_err().to_string();
    assert!(error.contains("which are sent over TLS only"), "{error}");
    assert!(service.fake.seen().is_empty());
}

#[tokio::test]
async fn a_certificate_of_nobody_known_is_refused() {
    let place = Place::tls().await;
    place.put();
    let strangers = Registries::build(Options::default()).unwrap();
    let error = strangers.repository(&place.reference, None, false).resolve("1").await.unwrap_err();
    assert!(error.is_registry_away(), "{error}");
    assert!(error.to_string().contains("invalid peer certificate: UnknownIssuer"), "{error}");
    assert!(place.fake.seen().is_empty(), "and it is not asked without TLS");
    let error =
        Registries::build(Options { authorities: Some(b"x".to_vec()), ..Options::default() });
    assert!(error.err().unwrap().to_string().contains("it holds no certificate"));
}

#[tokio::test]
async fn hosts_not_known_as_loopback_need_an_option_to_be_asked_without_tls() {
    let place = Place::plain().await;
    let port = place.fake.host().rsplit(':').next().unwrap().to_owned();
    // A name that is not recognized as this machine.
    let host = format!("ip6-localhost.invalid:{port}");
    let reference: Reference = format!("{host}/a:1").parse().unwrap();
    let plain = |plain: Vec<String>| {
        let registries = Registries::build(Options::default()).unwrap().with_plain(plain);
        registries.repository(&reference, None, false)
    };
    let at = |repository: &Repository| repository.origin().unwrap();
    assert_eq!(at(&plain(Vec::new())), format!("https://{host}"));
    assert_eq!(at(&plain(vec![host.clone()])), format!("http://{host}"));

    place.put();
    let reference: Reference = format!("{}/{REPOSITORY}:1", place.fake.alias()).parse().unwrap();
    let plain = |plain: Vec<String>| {
        let registries = Registries::build(Options::default()).unwrap().with_plain(plain);
        registries.repository(&reference, None, false)
    };
    let error = pull(&plain(Vec::new())).await.unwrap_err();
    assert!(matches!(error, Error::NoTls { .. }), "{error}");
    let seen = place.fake.seen();
    assert!(seen.is_empty(), "{seen:?}");
    assert_eq!(pull(&plain(vec![place.fake.alias()])).await.unwrap(), COMPONENT);
}

#[tokio::test]
async fn requests_with_tls_go_by_the_proxy_that_is_named() {
    let place = Place::tls().await;
    place.put();
    let proxy = fake::Proxy::start(place.fake.host()).await;
    let options = |proxy: &str, no_proxy: &[&str]| Options {
        proxy: Some(proxy.to_owned()),
        no_proxy: no_proxy.iter().map(ToString::to_string).collect(),
        authorities: Some(fake::AUTHORITY.to_vec()),
        ..Options::default()
    };
    // The certificate is that of this machine, which is otherwise asked without a proxy: only the
    // proxy can resolve the name.
    let reference: Reference = "127.0.0.2:5000/team/rules:1".parse().unwrap();
    let of =
        |options: Options| Registries::build(options).unwrap().repository(&reference, None, false);
    let by = format!("http://user:pa%40ss@{}", proxy.host());
    let error = of(options(&by, &[])).resolve("1").await.unwrap_err().to_string();
    assert_eq!(proxy.asked(), Vec::<String>::new(), "this machine needs none: {error}");

    let reference: Reference = "registry.example.com/team/rules:1".parse().unwrap();
    let of =
        |options: Options| Registries::build(options).unwrap().repository(&reference, None, false);
    let error = of(options(&by, &[])).resolve("1").await.unwrap_err().to_string();
    assert!(error.contains("certificate not valid for name"), "{error}");
    assert_eq!(proxy.asked(), ["CONNECT registry.example.com:443 Basic dXNlcjpwYUBzcw=="]);
    let link: Reference = "169.254.169.254/a:1".parse().unwrap();
    let registries = Registries::build(options(&by, &[])).unwrap();
    let error = registries.repository(&link, None, false).resolve("1").await.unwrap_err();
    assert!(matches!(error, Error::AddressRefused { .. }), "{error}");
    for wrong in ["socks5://a:1", "http://", "http://a%zz@b:1"] {
        assert!(Registries::build(options(wrong, &[])).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn a_module_comes_by_the_proxy_unless_its_registry_is_excepted() {
    let place = Place::tls().await;
    place.put();
    let proxy = fake::Proxy::start(place.fake.host()).await;
    let reference: Reference = format!("{}/{REPOSITORY}:1", place.fake.alias()).parse().unwrap();
    let connect = format!("CONNECT {} ", place.fake.alias());
    // Nothing is asked of the proxy before the second case.
    for (excepted, is_by_proxy) in [(fake::ALIAS, false), ("example.com", true)] {
        let options = Options {
            proxy: Some(proxy.host()),
            no_proxy: vec![excepted.to_owned()],
            authorities: Some(fake::AUTHORITY.to_vec()),
            ..Options::default()
        };
        let registries = Registries::build(options).unwrap();
        let pulled = pull(&registries.repository(&reference, None, false)).await;
        assert_eq!(pulled.unwrap(), COMPONENT, "{excepted}");
        let asked = proxy.asked();
        assert_eq!(!asked.is_empty(), is_by_proxy, "{excepted}: {asked:?}");
        assert!(asked.iter().all(|asked| *asked == connect), "{asked:?}");
    }
}

fn generated() -> PrivateKey {
    let pkcs8 = ring::signature::EcdsaKeyPair::generate_pkcs8(
        &ring::signature::ECDSA_P256_SHA256_ASN1_SIGNING,
        &ring::rand::SystemRandom::new(),
    );
    PrivateKey::from_pkcs8(pkcs8.unwrap().as_ref()).unwrap()
}

#[tokio::test]
async fn signatures_are_found_in_both_places() {
    let place = Place::plain().await;
    let artifact = place.put();
    let repository = place.registries.repository(&place.reference, None, true);
    assert_eq!(signature::fetch(&repository, artifact.digest()).await.unwrap(), []);
    let key = generated();
    let of = Descriptor::of(MANIFEST, &artifact.manifest);
    let mut expected = Vec::new();
    for format in [Format::Bundle, Format::Tag, Format::Bundle, Format::Tag] {
        let signature = Signature::of_manifest(of.digest, &place.reference, format, &key).unwrap();
        signature::push(&repository, &of, &signature).await.unwrap();
        expected.push(signature);
    }
    let found = signature::fetch(&repository, of.digest).await.unwrap();
    assert_eq!(found.len(), 4);
    assert!(expected.iter().all(|signature| found.contains(signature)), "{found:?}");
    let verified = verify_manifest(of.digest, &found, &[&key.public()]);
    assert_eq!(verified.by, [key.public().id()].into());
}

#[tokio::test]
async fn a_signature_that_is_listed_and_gone_hides_no_other() {
    let place = Place::plain().await;
    let artifact = place.put();
    let repository = place.registries.repository(&place.reference, None, true);
    let key = generated();
    let of = Descriptor::of(MANIFEST, &artifact.manifest);
    for format in [Format::Bundle, Format::Tag] {
        let signature = Signature::of_manifest(of.digest, &place.reference, format, &key).unwrap();
        signature::push(&repository, &of, &signature).await.unwrap();
    }
    let gone = Digest::of(b"removed");
    let entry = serde_json::json!({"mediaType": MANIFEST, "digest": gone, "size": 1});
    let list = serde_json::json!({"schemaVersion": 2, "manifests": [entry]});
    place.answer("/referrers/", Answer::of(200).body(list.to_string().as_bytes()));
    let found = signature::fetch(&place.repository(), of.digest).await.unwrap();
    assert!(matches!(found[..], [Signature::Simple { .. }]), "{found:?}");
}

#[tokio::test]
async fn a_damaged_signature_hides_no_other() {
    let place = Place::plain().await;
    let artifact = place.put();
    let repository = place.registries.repository(&place.reference, None, true);
    let key = generated();
    let of = Descriptor::of(MANIFEST, &artifact.manifest);
    let mut blobs = Vec::new();
    for format in [Format::Bundle, Format::Tag] {
        let signature = Signature::of_manifest(of.digest, &place.reference, format, &key).unwrap();
        signature::push(&repository, &of, &signature).await.unwrap();
        let (Signature::Bundle(text) | Signature::Simple { payload: text, .. }) = signature;
        blobs.push(Digest::of(text.as_bytes()));
    }
    let [bundle, simple] = blobs[..] else { panic!("{blobs:?}") };
    let flip = |bytes: &mut Vec<u8>| bytes[0] ^= 1;
    place.fake.tamper(bundle, flip);
    let found = signature::fetch(&repository, of.digest).await.unwrap();
    assert!(matches!(found[..], [Signature::Simple { .. }]), "{found:?}");
    place.fake.tamper(simple, |bytes| bytes.truncate(1));
    let error = signature::fetch(&repository, of.digest).await.unwrap_err();
    assert!(error.to_string().contains(&bundle.to_string()), "{error}");
    place.fake.tamper(bundle, flip);
    let found = signature::fetch(&repository, of.digest).await.unwrap();
    assert!(matches!(found[..], [Signature::Bundle(_)]), "{found:?}");
}

#[tokio::test]
async fn a_list_of_referrers_is_bounded_and_read_by_type() {
    let place = Place::plain().await;
    let artifact = place.put();
    let (digest, other) = (artifact.digest(), "application/vnd.example.sbom");
    let entry = |kind: &str| {
        serde_json::json!({
            "mediaType": MANIFEST, "digest": Digest::of(kind.as_bytes()), "size": 1, "artifactType": kind,
        })
    };
    let list = serde_json::json!({
        "schemaVersion": 2, "manifests": vec![entry(other); 1000],
    });
    place.answer("/referrers/", Answer::of(200).body(list.to_string().as_bytes()));
    let found = signature::fetch(&place.repository(), digest).await.unwrap();
    assert_eq!(found, []);
    place.answer("/referrers/", Answer::of(200).body(b"<html>"));
    let error = signature::fetch(&place.repository(), digest).await.unwrap_err();
    assert!(error.to_string().contains("it is no list"), "{error}");
    place.answer("/referrers/", Answer::of(503));
    let error = signature::fetch(&place.repository(), digest).await.unwrap_err();
    assert!(error.is_registry_away(), "an error is not the same as no signature: {error}");
}

#[tokio::test]
async fn signatures_are_bounded_in_number_and_together_in_size() {
    const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
    let place = Place::plain().await;
    let of = place.put().digest();
    for (bytes, expected) in [(1, 32), (100 << 10, 10), (257 << 10, 0)] {
        let blob = vec![b' '; bytes];
        let layer = Descriptor::of(BUNDLE, &blob);
        let manifest = serde_json::json!({
            "schemaVersion": 2, "config": Descriptor::of("a/b", b"{}"), "layers": vec![layer; 20],
        });
        let manifest = manifest.to_string().into_bytes();
        let page = page(&vec![Descriptor::of(MANIFEST, &manifest); 3], None);
        place.fake.set_mood(move |request| {
            let asks_for = |part: &str| request.target.contains(part);
            if asks_for("/referrers/") {
                Some(page.clone())
            } else if asks_for(".sig") {
                None
            } else if asks_for("/manifests/") {
                Some(Answer::of(200).body(&manifest))
            } else {
                asks_for("/blobs/").then(|| Answer::of(200).body(&blob))
            }
        });
        place.fake.forget();
        let found = signature::fetch(&place.repository(), of).await.unwrap();
        let seen = place.fake.seen();
        let blobs = seen.iter().filter(|seen| seen.target.contains("/blobs/")).count();
        assert_eq!((found.len(), blobs), (expected, expected), "{bytes}");
    }
}

/// Returns a page of a list of referrers. `next`: the URL of the next page.
fn page(entries: &[Descriptor], next: Option<&str>) -> Answer {
    let list = serde_json::json!({"schemaVersion": 2, "manifests": entries});
    let page = Answer::of(200).body(list.to_string().as_bytes());
    match next {
        Some(next) => page.header("link", &format!("<{next}>; rel=\"next\"")),
        None => page,
    }
}

#[tokio::test]
async fn a_signature_on_a_later_page_of_the_referrers_is_found() {
    let place = Place::plain().await;
    let artifact = place.put();
    let repository = place.registries.repository(&place.reference, None, true);
    let of = Descriptor::of(MANIFEST, &artifact.manifest);
    let key = generated();
    let signature =
        Signature::of_manifest(of.digest, &place.reference, Format::Bundle, &key).unwrap();
    signature::push(&repository, &of, &signature).await.unwrap();
    let signatures = repository.referrers(of.digest).await.unwrap();
    assert_eq!(signatures.len(), 1);

    // The second page is named by its path, the third by its whole URL.
    let path = format!("/v2/{REPOSITORY}/referrers/{}", of.digest);
    let (second, third) =
        (format!("{path}?page=2"), format!("http://{}{path}?page=3", place.fake.host()));
    let artifact_type = Some("application/vnd.example.sbom".to_owned());
    let other = Descriptor { artifact_type, ..Descriptor::of(MANIFEST, b"another") };
    let others = [other];
    place.fake.set_mood(move |request| {
        let of_list = request.target.strip_prefix(&path)?;
        Some(match of_list {
            "?page=3" => page(&signatures, None),
            "?page=2" => page(&others, Some(&third)),
            _ => page(&others, Some(&second)),
        })
    });
    let found = signature::fetch(&place.repository(), of.digest).await.unwrap();
    assert_eq!(found, [signature]);
}

#[tokio::test]
async fn a_list_of_referrers_is_not_followed_to_another_host() {
    let (place, elsewhere) = (Place::plain().await, Fake::plain().await);
    let digest = place.put().digest();
    let path = format!("/v2/{REPOSITORY}/referrers/{digest}?page=2");
    let refused = |host: &str| format!("`{host}` is not asked: ");
    let cases = [
        (format!("http://{}{path}", elsewhere.host()), refused("127.0.0.1")),
        (format!("//{}{path}", elsewhere.host()), refused("127.0.0.1")),
        // The same registry by another name, and with TLS.
        (format!("http://{}{path}", place.fake.alias()), refused(fake::ALIAS)),
        (format!("https://{}{path}", place.fake.host()), refused("127.0.0.1")),
        ("http://169.254.169.254/latest".to_owned(), refused("169.254.169.254")),
        (
            format!("http://user@{}{path}", place.fake.host()),
            "the next page of its list is at no address".to_owned(),
        ),
    ];
    for (next, expected) in cases {
        place.answer("/referrers/", page(&[], Some(&next)));
        place.fake.forget();
        let error = signature::fetch(&place.repository(), digest).await.unwrap_err();
        assert!(error.to_string().contains(&expected), "{next}: {error}");
        let seen = place.fake.seen();
        assert_eq!(seen.len(), 1, "the first page only: {seen:?}");
    }
    let seen = elsewhere.seen();
    assert!(seen.is_empty(), "{seen:?}");
}

#[tokio::test]
async fn a_list_of_referrers_has_an_end() {
    let place = Place::plain().await;
    let digest = place.put().digest();
    let next = format!("/v2/{REPOSITORY}/referrers/{digest}?page=2");
    let fetch = async || signature::fetch(&place.repository(), digest).await.unwrap_err();

    place.answer("/referrers/", page(&[], Some(&next)));
    let error = fetch().await;
    assert!(error.to_string().contains("its list has more than 32 pages"), "{error}");
    assert!(error.is_registry_away(), "an error is not the same as no signature: {error}");
    assert_eq!(place.fake.seen().len(), 32);

    // Each page may have as many bytes, and all together may not.
    let mut large = page(&[], Some(&next));
    large.body.resize(3 << 20, b' ');
    place.answer("/referrers/", large);
    place.fake.forget();
    let error = fetch().await;
    assert!(matches!(error, Error::TooLarge { found, .. } if found == 6 << 20), "{error}");
    assert_eq!(place.fake.seen().len(), 2);

    place.fake.set_mood(move |request| {
        let is_later = request.target.ends_with("?page=2");
        let gone = || Answer::error(404, "NOT_FOUND", "no such page");
        let is_page = request.target.contains("/referrers/");
        is_page.then(|| if is_later { gone() } else { page(&[], Some(&next)) })
    });
    let error = fetch().await;
    assert!(error.to_string().contains("a page of its list is missing"), "{error}");
}
