//! The check that a request was not sent by a web page.
//!
//! A page can make a browser send requests to any address that the browser reaches, loopback too.
//! The browser writes the origin of the page into writes and upgrades of connections, and into
//! `Host` the name by which the page addressed the server: if that is a name of the page's own
//! which resolves to the address (DNS rebinding), the page can also read the answers.

use std::net::IpAddr;

use http::{
    header::{HOST, ORIGIN},
    request::Parts,
};
use mortise_core::contract::bounds::text::quoted;

/// Fails for a request that a web page may have sent: with an `Origin`, or to a host that is
/// neither an IP address, nor `localhost`, nor one of `names`. The error is a text for its sender.
pub fn check(request: &Parts, names: &[String]) -> Result<(), String> {
    if request.headers.contains_key(ORIGIN) {
        let message = "requests of web pages are not answered: a request without `Origin` is";
        return Err(message.to_owned());
    }
    let hosts = request.headers.get_all(HOST).iter();
    let hosts = hosts.map(|host| host.to_str().unwrap_or_default());
    let of_target = request.uri.authority().map(http::uri::Authority::as_str);
    match hosts.chain(of_target).find(|host| !is_accepted(host, names)) {
        Some(host) => Err(format!(
            "nothing is answered at the host {}: an IP address{} is accepted, with any port",
            quoted(host),
            names.iter().fold(", `localhost`".to_owned(), |all, name| all + ", `" + name + "`")
        )),
        None => Ok(()),
    }
}

fn is_accepted(host: &str, names: &[String]) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let (name, _) = host.rsplit_once(':').filter(|(_, port)| is_port(port)).unwrap_or((host, ""));
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let mut accepted = names.iter().map(String::as_str).chain(["localhost"]);
    inner.unwrap_or(name).parse::<IpAddr>().is_ok()
        || accepted.any(|accepted| name.eq_ignore_ascii_case(accepted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(target: &str, headers: &[(&str, &str)]) -> Result<(), String> {
        let request = headers.iter().fold(http::Request::get(target), |request, (name, value)| {
            request.header(*name, *value)
        });
        check(&request.body(()).unwrap().into_parts().0, &["admin.mortise".to_owned()])
    }

    #[test]
    fn only_hosts_that_no_page_can_have_are_answered() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:6443",
            "10.1.2.3:8081",
            "[::1]",
            "[::1]:80",
            "localhost",
            "LocalHost:80",
            "admin.mortise:8081",
            "Admin.Mortise",
        ] {
            assert_eq!(checked("/", &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:6443",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
            "x.localhost",
            "localhost.",
            "admin.mortise.evil.example",
            "2130706433",
            "0x7f.1",
            "[::1].evil.example",
            "[::1",
            "",
            ":80",
            "\u{e9}",
        ] {
            let refused = checked("/", &[("host", host)]).unwrap_err();
            assert!(refused.contains("an IP address, `localhost`, `admin.mortise`"), "{refused}");
        }
        assert_eq!(checked("/", &[]), Ok(()), "no browser sends none");
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert!(checked("/", &two).is_err(), "each of them counts");
        assert!(checked("http://evil.example/", &two[..1]).is_err(), "so does that of the target");
        assert_eq!(checked("http://127.0.0.1:80/", &two[..1]), Ok(()));
    }

    #[test]
    fn a_request_with_an_origin_is_not_answered() {
        for origin in ["http://evil.example", "http://localhost", "null", ""] {
            let headers = [("host", "localhost"), ("origin", origin), ("upgrade", "websocket")];
            let refused = checked("/", &headers).unwrap_err();
            assert!(refused.contains("without `Origin`"), "{origin}: {refused}");
        }
    }
}
