//! The hosts of the API.

/// The host of a region, as `spec.serverURL` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    /// The host, with a port if one is named.
    host: String,
}

// === impl Server ===

impl Server {
    /// Reads `https://eu.api.konghq.com` or `eu.api.konghq.com`, perhaps with a port. The first label
    /// must be a region: two lower-case letters, or `global`.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let host = url.strip_prefix("https://").unwrap_or(url);
        let host = host.strip_suffix('/').unwrap_or(host);
        let (name, port) = host.split_once(':').unwrap_or((host, "443"));
        let is_name = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
        if !name.bytes().all(is_name) || port.parse::<u16>().is_err() {
            return Err(format!("server URL `{url}` is no host name with an optional port"));
        }
        let (region, rest) = name.split_once('.').unwrap_or((name, ""));
        let is_region = region == "global"
            || (region.len() == 2 && region.bytes().all(|byte| byte.is_ascii_lowercase()));
        if !is_region || rest.is_empty() {
            return Err(format!("failed to parse region from hostname: invalid region {region}"));
        }
        Ok(Self { host: host.to_owned() })
    }

    /// Returns the URL of the region.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.host)
    }

    /// Returns the URL of the host for what is not in a region: the organization.
    pub(crate) fn global(&self) -> String {
        let rest = self.host.split_once('.').map_or("", |(_, rest)| rest);
        format!("https://global.{rest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_region_of_a_domain() {
        let cases = [
            ("eu.api.konghq.com", "https://eu.api.konghq.com", "https://global.api.konghq.com"),
            (
                "https://us.api.konghq.tech",
                "https://us.api.konghq.tech",
                "https://global.api.konghq.tech",
            ),
            (
                "https://eu.api.test:8443/",
                "https://eu.api.test:8443",
                "https://global.api.test:8443",
            ),
            (
                "global.api.konghq.com",
                "https://global.api.konghq.com",
                "https://global.api.konghq.com",
            ),
        ];
        for (text, url, global) in cases {
            let server = Server::parse(text).unwrap();
            assert_eq!((server.url().as_str(), server.global().as_str()), (url, global), "{text}");
        }
        for text in [
            "https://region1.api.konghq.com",
            "EU.api.konghq.com",
            "http://eu.api.konghq.com",
            "https://user@eu.api.konghq.com",
            "eu.api.konghq.com/path",
            "eu.api.konghq.com:port",
            "eu.api.konghq.com\\@evil.example",
            "eu",
            "",
        ] {
            assert!(Server::parse(text).is_err(), "{text}");
        }
    }
}
