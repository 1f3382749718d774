//! Paths of rules: `{*}` stands for one segment, `{**}` for any number of segments, and `/*` for
//! every path.

use std::collections::BTreeMap;

use crate::istio::StringMatch;

/// The path of a rule that covers every path.
pub(crate) const EVERY: &str = "/*";
/// The path by which an `AuthorizationPolicy` covers every path.
pub(crate) const EVERY_OPERATOR: &str = "/{**}";
/// The operator for one segment.
pub(crate) const ONE: &str = "{*}";
/// The operator for any number of segments.
pub(crate) const MANY: &str = "{**}";

const ONE_REGEX: &str = "([A-Za-z0-9-._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})+";
const MANY_REGEX: &str = "([A-Za-z0-9-._~!$&'()*+,;=:@/]|%[0-9a-fA-F]{2})*";

/// Returns whether the schema accepts a path: segments, of which some may be operators, or `/*`.
pub(crate) fn is_valid(path: &str) -> bool {
    let Some(segments) = path.strip_prefix('/') else { return false };
    path == EVERY || segments.split('/').all(|segment| is_operator(segment) || is_segment(segment))
}

fn is_operator(segment: &str) -> bool {
    segment == ONE || segment == MANY
}

fn is_segment(segment: &str) -> bool {
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        let is_allowed = match byte {
            b'%' => (0..2).all(|_| bytes.next().is_some_and(|digit| digit.is_ascii_hexdigit())),
            byte => byte.is_ascii_alphanumeric() || b"-._~!$&'()+,;=:@".contains(&byte),
        };
        if !is_allowed {
            return false;
        }
    }
    true
}

/// Returns the path in the notation of an `AuthorizationPolicy`.
pub(crate) fn operator(path: &str) -> &str {
    if path == EVERY { EVERY_OPERATOR } else { path }
}

/// Returns the match of a `VirtualService` for the path. Characters that are special in regular
/// expressions are escaped.
pub(crate) fn uri_match(path: &str) -> StringMatch {
    if path == EVERY {
        return StringMatch::Prefix("/".to_owned());
    }
    let mut regex = "^".to_owned();
    let mut rest = path;
    while let Some(character) = rest.chars().next() {
        let length = if rest.starts_with(MANY) {
            regex.push_str(MANY_REGEX);
            MANY.len()
        } else if rest.starts_with(ONE) {
            regex.push_str(ONE_REGEX);
            ONE.len()
        } else {
            if r"\.+*?()|[]{}^$".contains(character) {
                regex.push('\\');
            }
            regex.push(character);
            character.len_utf8()
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    regex.push('$');
    StringMatch::Regex(regex)
}

/// The paths that were added so far, as a tree of segments.
#[derive(Default)]
pub(crate) struct Trie<'a> {
    root: Node<'a>,
}

#[derive(Default)]
struct Node<'a> {
    /// True if a path ended here when the node was created. As in the original, an inner node does
    /// not become an end later.
    end: bool,
    children: BTreeMap<&'a str, Node<'a>>,
    /// The segments that may follow after `{**}`.
    suffixes: Vec<Vec<&'a str>>,
}

impl<'a> Trie<'a> {
    /// Adds a path and returns true, unless a path in the tree covers it already.
    pub(crate) fn insert(&mut self, path: &'a str) -> bool {
        let segments: Vec<&str> = operator(path).trim_start_matches('/').split('/').collect();
        if self.root.covers(&segments) {
            return false;
        }
        self.root.insert(&segments);
        true
    }
}

impl<'a> Node<'a> {
    fn insert(&mut self, segments: &[&'a str]) {
        let Some((segment, rest)) = segments.split_first() else { return };
        if *segment == MANY {
            self.children.entry(segment).or_default().suffixes.push(rest.to_vec());
            return;
        }
        let child = self
            .children
            .entry(segment)
            .or_insert_with(|| Node { end: rest.is_empty(), ..Node::default() });
        child.insert(rest);
    }

    fn covers(&self, segments: &[&str]) -> bool {
        let Some((segment, rest)) = segments.split_first() else { return self.end };
        let child = |name: &str| self.children.get(name);
        let ends = |suffix: &Vec<&str>| segments.ends_with(suffix);
        child(segment).is_some_and(|child| child.covers(rest))
            || child(ONE).is_some_and(|child| child.covers(rest))
            || child(MANY).is_some_and(|child| child.suffixes.iter().any(ends))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_matched_as_it_is_written() {
        let one = "([A-Za-z0-9-._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})+";
        let many = "([A-Za-z0-9-._~!$&'()*+,;=:@/]|%[0-9a-fA-F]{2})*";
        let cases = [
            ("/", "^/$".to_owned()),
            ("/a/b", "^/a/b$".to_owned()),
            ("/a/{*}/b", format!("^/a/{one}/b$")),
            ("/{**}/b", format!("^/{many}/b$")),
            ("/a.b/$x(y)+z;=:@%20'", r"^/a\.b/\$x\(y\)\+z;=:@%20'$".to_owned()),
        ];
        for (path, regex) in cases {
            assert_eq!(uri_match(path), StringMatch::Regex(regex), "{path}");
        }
        assert_eq!(uri_match("/*"), StringMatch::Prefix("/".to_owned()));
    }

    #[test]
    fn a_path_is_accepted_as_by_the_schema() {
        let cases = [
            ("/", true),
            ("/*", true),
            ("/a/b-c._~!$&'()+,;=:@", true),
            ("/a/%2F/", true),
            ("/{*}/a/{**}", true),
            ("//", true),
            ("", false),
            ("a", false),
            ("/.*", false),
            ("/a/*", false),
            ("/a{*}", false),
            ("/{***}", false),
            ("/%2", false),
            ("/%zz", false),
            ("/a?b", false),
            ("/a b", false),
            ("/ä", false),
        ];
        for (path, expected) in cases {
            assert_eq!(is_valid(path), expected, "{path}");
        }
    }

    #[test]
    fn a_path_that_an_earlier_one_covers_is_found() {
        let cases: [(&[&str], &str, bool); 27] = [
            (&["/a"], "/a", true),
            (&["/"], "/", true),
            (&["/a/b"], "/a/b", true),
            (&["/a/{*}"], "/a/b", true),
            (&["/a/{*}"], "/a/{*}", true),
            (&["/a/{*}"], "/a/{**}", true),
            (&["/{*}/{*}"], "/a/b", true),
            (&["/a/{*}/c"], "/a/b/c", true),
            (&["/{**}"], "/a", true),
            (&["/{**}"], "/a/{*}/b", true),
            (&["/{**}"], "/{**}", true),
            (&["/*"], "/a", true),
            (&["/*"], "/{**}", true),
            (&["/{**}"], "/*", true),
            (&["/{**}/x"], "/a/b/x", true),
            (&["/{**}/x"], "/x", true),
            (&["/a/{**}"], "/a/", true),
            (&["/a/b"], "/a/{*}", false),
            (&["/a/{*}/b"], "/a/{**}", false),
            (&["/a"], "/{**}", false),
            (&["/a"], "/a/", false),
            (&["/{**}/x"], "/{**}/y", false),
            (&["/a/{**}"], "/a", false),
            (&["/a/{*}"], "/a/b/c", false),
            (&["/a/{*}/c"], "/a/b/d", false),
            (&["/a/b"], "/a", false),
            (&["/a/b", "/a"], "/a", false),
        ];
        for (before, path, covered) in cases {
            let mut trie = Trie::default();
            assert!(before.iter().all(|path| trie.insert(path)), "{before:?}");
            assert_eq!(trie.insert(path), !covered, "{path} after {before:?}");
        }
    }
}
