//! The images of Istio, from the configuration.

use std::{collections::BTreeMap, fmt};

/// The variable that asks for the images with FIPS 140; only `true` does.
pub const FIPS: &str = "KYMA_FIPS_MODE_ENABLED";
/// The variable that names the Secret with which images are pulled.
pub const PULL_SECRET: &str = "SKR_IMG_PULL_SECRET";

const PILOT: &str = "pilot";
const INSTALL_CNI: &str = "install-cni";
const PROXY: &str = "proxyv2";
const ZTUNNEL: &str = "ztunnel";

/// A reference of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// The registry with the path, up to the last slash.
    pub registry: String,
    pub name: String,
    /// The tag, with the digest if there is one.
    pub tag: String,
}

/// The images of Istio, which share a registry and a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Images {
    /// istiod.
    pub pilot: Image,
    /// The installer of the CNI plugin.
    pub install_cni: Image,
    /// The proxy, of gateways and sidecars.
    pub proxy: Image,
    /// The proxy of nodes in ambient mode.
    pub ztunnel: Option<Image>,
}

// === impl Image ===

impl Image {
    /// Reads a reference.
    ///
    /// # Errors
    ///
    /// Fails if the reference has no registry or no tag.
    pub fn parse(reference: &str) -> Result<Self, String> {
        let parts = reference.rsplit_once('/').and_then(|(registry, rest)| {
            let (name, tag) = rest.split_once(':')?;
            (!tag.is_empty()).then_some((registry, name, tag))
        });
        let (registry, name, tag) =
            parts.ok_or_else(|| format!("image {reference} does not contain a valid tag"))?;
        Ok(Self { registry: registry.to_owned(), name: name.to_owned(), tag: tag.to_owned() })
    }

    /// Returns the tag without the digest.
    pub fn tag_only(&self) -> &str {
        self.tag.split('@').next().unwrap_or_default()
    }
}

impl fmt::Display for Image {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}:{}", self.registry, self.name, self.tag)
    }
}

// === impl Images ===

impl Images {
    /// Reads the images from variables.
    ///
    /// # Errors
    ///
    /// Fails if one is missing or no reference, or if two differ in registry or tag.
    pub fn read(variables: &BTreeMap<String, String>) -> Result<Self, String> {
        let is_fips = variables.get(FIPS).is_some_and(|value| value == "true");
        let suffix = if is_fips { "-fips" } else { "" };
        let variable = |name: &str| {
            let value = variables.get(&format!("{name}{suffix}"));
            value.map(String::as_str).filter(|value| !value.is_empty())
        };
        let missing: Vec<String> = [PILOT, INSTALL_CNI, PROXY]
            .into_iter()
            .filter(|name| variable(name).is_none())
            .map(|name| format!("environment variable \"{name}{suffix}\" should not be empty"))
            .collect();
        if !missing.is_empty() {
            let mode = if is_fips { "FIPS " } else { "" };
            let missing = missing.join("; ");
            return Err(format!("missing required {mode}environment variables env: {missing}"));
        }
        let image = |name: &str| {
            Image::parse(variable(name).unwrap_or_default())
                .map_err(|error| format!("failed to parse {name} image: {error}"))
        };
        let images = Self {
            pilot: image(PILOT)?,
            install_cni: image(INSTALL_CNI)?,
            proxy: image(PROXY)?,
            ztunnel: variable(ZTUNNEL).map(|_| image(ZTUNNEL)).transpose()?,
        };
        images.check()?;
        Ok(images)
    }

    /// Returns the registry of all images.
    pub fn registry(&self) -> &str {
        &self.pilot.registry
    }

    /// Returns the tag of all images, without a digest.
    pub fn tag(&self) -> &str {
        self.pilot.tag_only()
    }

    fn check(&self) -> Result<(), String> {
        let first = &self.pilot;
        for image in [&self.install_cni, &self.proxy].into_iter().chain(&self.ztunnel) {
            if image.registry != first.registry {
                return Err(format!("image {image} is not from the same hub as {first}"));
            }
            if image.tag_only() != first.tag_only() {
                return Err(format!("image {image} does not have the same tag as {first}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaa";

    fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn ports_and_digests_are_parts_of_references() {
        let reference = format!("registry.local:5000/istio/pilot:1.30.2-distroless@{DIGEST}");
        let image = Image::parse(&reference).unwrap();
        assert_eq!(image.registry, "registry.local:5000/istio");
        assert_eq!((image.name.as_str(), image.tag_only()), ("pilot", "1.30.2-distroless"));
        assert_eq!(image.to_string(), reference);
        for reference in ["registry.local:5000/istio/pilot", "pilot:1.0", "a/pilot:", ""] {
            assert!(Image::parse(reference).is_err(), "{reference}");
        }
    }

    #[test]
    fn fips_takes_the_images_of_other_variables() {
        let mut variables = variables(&[
            (FIPS, "true"),
            ("pilot", "a/pilot:1"),
            ("pilot-fips", "b/istio-pilot-fips:2"),
            ("install-cni-fips", "b/istio-install-cni-fips:2"),
            ("proxyv2-fips", "b/istio-proxy-fips:2"),
        ]);
        let images = Images::read(&variables).unwrap();
        assert_eq!((images.registry(), images.tag()), ("b", "2"));
        assert_eq!(images.proxy.name, "istio-proxy-fips");
        variables.insert("ztunnel".to_owned(), "a/ztunnel:1".to_owned());
        assert_eq!(Images::read(&variables).unwrap().ztunnel, None);
        variables.insert("ztunnel-fips".to_owned(), "b/ztunnel-fips:3".to_owned());
        let error = Images::read(&variables).unwrap_err();
        assert_eq!(
            error,
            "image b/ztunnel-fips:3 does not have the same tag as b/istio-pilot-fips:2"
        );
    }
}
