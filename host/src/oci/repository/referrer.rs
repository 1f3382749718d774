//! Referrers of a manifest, such as its signatures: a list in one page or several.

use http::{Method, header::LINK};

use super::{Asked, MAX_DOCUMENT_BYTES, Repository, accept, nothing};
use crate::{
    http::{Address, Answer},
    oci::{
        Digest, Error,
        artifact::{Descriptor, INDEX, Index},
        error::if_found,
    },
};

/// The maximum number of pages of a list: each is a request. Registries put 100 referrers or more
/// on a page, and an artifact has a few.
const MAX_PAGES: usize = 32;

impl Repository {
    /// Returns the referrers of a manifest: from the referrers API, or, for a registry without it,
    /// from the index under the referrers tag `sha256-…`.
    ///
    /// # Errors
    ///
    /// Fails if the registry does not answer, returns no index, or puts the next page at another
    /// host; and if there are more than 32 pages, or together more bytes than one page may have.
    pub async fn referrers(&self, of: Digest) -> Result<Vec<Descriptor>, Error> {
        let asked = Asked {
            method: Method::GET,
            headers: accept(INDEX),
            body: &nothing,
            what: format!("GET referrers/{of}"),
        };
        match self.ask(&self.at(&format!("referrers/{of}"))?, &asked).await {
            Ok(first) => self.pages(first, &asked).await,
            // No referrers API.
            Err(Error::Refused { status: 400 | 404 | 405, .. }) => {
                let document = if_found(self.manifest(&tag(of)).await)?;
                let Some(document) = document else { return Ok(Vec::new()) };
                self.entries(&document.bytes, &asked.what)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the entries of all pages, given the answer with the first page.
    async fn pages(&self, first: Answer, asked: &Asked<'_>) -> Result<Vec<Descriptor>, Error> {
        let (mut answer, mut count) = (first, 1);
        let (mut entries, mut bytes) = (Vec::new(), 0);
        loop {
            let next = self.next_page(&answer, &asked.what)?;
            let page = self.document(&mut answer, &asked.what).await?;
            bytes += page.len() as u64;
            if bytes > MAX_DOCUMENT_BYTES {
                let what = format!("the answer to {}", asked.what);
                return Err(Error::TooLarge { what, found: bytes, limit: MAX_DOCUMENT_BYTES });
            }
            entries.extend(self.entries(&page, &asked.what)?);
            let Some(next) = next else { return Ok(entries) };
            if count == MAX_PAGES {
                let found = format!("its list has more than {MAX_PAGES} pages");
                return Err(self.invalid(asked.what.clone(), found));
            }
            count += 1;
            // A page that is missing does not mean that the artifact is.
            answer = if_found(self.ask(&next, asked).await)?.ok_or_else(|| {
                self.invalid(asked.what.clone(), "a page of its list is missing".to_owned())
            })?;
        }
    }

    /// Returns the URL of the next page, if an answer names one.
    fn next_page(&self, answer: &Answer, what: &str) -> Result<Option<Address>, Error> {
        let links = answer.headers.get_all(LINK).into_iter();
        let mut links = links.filter_map(|link| link.to_str().ok());
        let Some(target) = links.find_map(next_link) else { return Ok(None) };
        let Some(to) = answer.from.join(target) else {
            let found = "the next page of its list is at no address".to_owned();
            return Err(self.invalid(what.to_owned(), found));
        };
        if to.origin() == self.at("")?.origin() {
            return Ok(Some(to));
        }
        let found = format!("`{}` names it for the next page of a list", self.registry);
        Err(Error::AddressRefused { host: to.host, found })
    }

    fn entries(&self, page: &[u8], what: &str) -> Result<Vec<Descriptor>, Error> {
        match serde_json::from_slice::<Index>(page) {
            Ok(index) => Ok(index.manifests),
            Err(error) => Err(self.invalid(what.to_owned(), format!("it is no list: {error}"))),
        }
    }
}

/// Returns the referrers tag, for registries without a referrers API.
pub(super) fn tag(of: Digest) -> String {
    format!("sha256-{}", of.hex())
}

/// Parses a text as a `Link` header.
#[cfg(any(test, fuzzing))]
pub(super) fn check(text: &str) {
    assert!(next_link(text).is_none_or(|target| text.contains(target)), "{text}");
}

/// Returns the target of the first link with the relation `next` in a `Link` header (RFC 8288).
fn next_link(header: &str) -> Option<&str> {
    let mut rest = header;
    while let Some((_, link)) = rest.split_once('<') {
        let (target, after) = link.split_once('>')?;
        // Quoted texts may hold these signs too, but registries send no other parameters.
        let parameters = after.split('<').next().unwrap_or_default();
        if parameters.split([';', ',']).any(is_next) {
            return Some(target);
        }
        rest = after;
    }
    None
}

fn is_next(parameter: &str) -> bool {
    let Some((key, value)) = parameter.split_once('=') else { return false };
    let mut relations = value.trim().trim_matches('"').split_ascii_whitespace();
    key.trim().eq_ignore_ascii_case("rel")
        && relations.any(|relation| relation.eq_ignore_ascii_case("next"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_to_the_next_page_is_found_among_others() {
        let cases = [
            (r#"</a?n=1>; rel="next""#, Some("/a?n=1")),
            ("<https://a/b?c=d,e>;rel=next", Some("https://a/b?c=d,e")),
            (r#"</a>; REL = "last Next" ; title=x"#, Some("/a")),
            (r#"</a>; rel="prev", </b>; title="x"; rel="next""#, Some("/b")),
            (r#"</a>; rel="next", </b>; rel="last""#, Some("/a")),
            (r#"</a>; rel="nextcloud""#, None),
            (r#"</a>; title="next""#, None),
            ("</a>", None),
            ("</a; rel=next", None),
            ("/a; rel=next", None),
            ("", None),
        ];
        for (header, expected) in cases {
            assert_eq!(next_link(header), expected, "{header}");
        }
    }
}
