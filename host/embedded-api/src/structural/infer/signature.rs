//! The signatures of operators and functions.

use std::{collections::HashMap, sync::LazyLock};

use super::kind::{Kind, join};

/// The overloads, those with the same types on one line: the names, the target with a dot if it is a method, the
/// arguments, the result. `A` and `B` are any types.
const SIGNATURES: &str = include_str!("signatures.txt");

#[derive(Clone, Debug)]
struct Signature {
    target: Option<Kind<'static>>,
    arguments: Vec<Kind<'static>>,
    result: Kind<'static>,
    /// True if the last argument may be repeated any number of times.
    repeats: bool,
}

static TABLE: LazyLock<HashMap<&'static str, Vec<Signature>>> = LazyLock::new(|| {
    let mut table: HashMap<&'static str, Vec<Signature>> = HashMap::new();
    for line in SIGNATURES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (names, signature) = parse(line).expect("the table is written here, and tested");
        for name in names.split(',') {
            table.entry(name).or_default().push(signature.clone());
        }
    }
    table
});

fn parse(line: &'static str) -> Option<(&'static str, Signature)> {
    let (names, rest) = line.split_once(' ')?;
    let (taken, result) = rest.rsplit_once(" -> ")?;
    let (target, arguments) = match taken.split_once(".(") {
        Some((target, arguments)) => (Some(kind(target)?), arguments),
        None => (None, taken.strip_prefix('(')?),
    };
    let arguments = arguments.strip_suffix(')')?;
    let repeats = arguments.ends_with("...");
    let arguments = split(arguments.trim_end_matches("..."))
        .into_iter()
        .map(kind)
        .collect::<Option<Vec<_>>>()?;
    Some((names, Signature { target, arguments, result: kind(result)?, repeats }))
}

/// Splits at the commas that are not inside of parentheses.
fn split(list: &'static str) -> Vec<&'static str> {
    let mut parts = Vec::new();
    let (mut depth, mut begin) = (0, 0);
    for (at, character) in list.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.extend(list.get(begin..at));
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(list.get(begin..).filter(|rest| !rest.is_empty()));
    parts.into_iter().map(str::trim).collect()
}

fn kind(text: &'static str) -> Option<Kind<'static>> {
    if let Some((outer, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let mut inner = split(inner).into_iter().map(kind);
        let first = Box::new(inner.next()??);
        return Some(match outer {
            "list" => Kind::List(first),
            "map" => Kind::Map(first, Box::new(inner.next()??)),
            "optional" => Kind::Optional(first),
            _ => return None,
        });
    }
    Some(match text {
        "dyn" => Kind::Dyn,
        "A" => Kind::Any('A'),
        "B" => Kind::Any('B'),
        name => Kind::Named(name),
    })
}

/// Returns whether a function of the name exists.
pub(super) fn is_known(name: &str) -> bool {
    TABLE.contains_key(name)
}

/// Returns the type of a call's result; `None` if no overload accepts these types.
pub(super) fn resolve<'a>(
    name: &str,
    target: Option<&Kind<'a>>,
    arguments: &[Kind<'a>],
) -> Option<Kind<'a>> {
    let mut results =
        TABLE.get(name)?.iter().filter_map(|signature| signature.apply(target, arguments));
    let first = results.next()?;
    // Several overloads can fit if a type is open: then the result is open, too, unless all have
    // the same one.
    Some(if results.all(|other| other == first) { first } else { Kind::Dyn })
}

impl Signature {
    fn apply<'a>(&self, target: Option<&Kind<'a>>, arguments: &[Kind<'a>]) -> Option<Kind<'a>> {
        let mut bound = HashMap::new();
        match (&self.target, target) {
            (None, None) => {}
            (Some(wanted), Some(target)) => fits(wanted, target, &mut bound).then_some(())?,
            _ => return None,
        }
        let count_fits = if self.repeats {
            arguments.len() >= self.arguments.len()
        } else {
            arguments.len() == self.arguments.len()
        };
        let wanted = self.arguments.iter().chain(self.arguments.last().into_iter().cycle());
        let all_fit = count_fits
            && wanted.zip(arguments).all(|(wanted, argument)| fits(wanted, argument, &mut bound));
        all_fit.then(|| filled(&self.result, &bound))
    }
}

fn fits<'a>(wanted: &Kind<'static>, kind: &Kind<'a>, bound: &mut HashMap<char, Kind<'a>>) -> bool {
    match (wanted, kind) {
        (Kind::Any(letter), kind) => match bound.get(letter) {
            None => {
                bound.insert(*letter, kind.clone());
                true
            }
            Some(known) => match join(known, kind) {
                Some(both) => {
                    bound.insert(*letter, both);
                    true
                }
                None => false,
            },
        },
        (Kind::Dyn, _) | (_, Kind::Dyn | Kind::Faulty) => true,
        (Kind::List(wanted), Kind::List(kind)) | (Kind::Optional(wanted), Kind::Optional(kind)) => {
            fits(wanted, kind, bound)
        }
        (Kind::Map(wanted_key, wanted_value), Kind::Map(key, value)) => {
            fits(wanted_key, key, bound) && fits(wanted_value, value, bound)
        }
        (wanted, kind) => wanted == kind,
    }
}

fn filled<'a>(kind: &Kind<'static>, bound: &HashMap<char, Kind<'a>>) -> Kind<'a> {
    match kind {
        Kind::Any(letter) => bound.get(letter).cloned().unwrap_or(Kind::Dyn),
        Kind::List(inner) => Kind::List(Box::new(filled(inner, bound))),
        Kind::Optional(inner) => Kind::Optional(Box::new(filled(inner, bound))),
        Kind::Map(key, value) => {
            Kind::Map(Box::new(filled(key, bound)), Box::new(filled(value, bound)))
        }
        other => other.clone(),
    }
}
