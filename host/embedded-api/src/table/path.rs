//! The JSON paths of printer columns: fields, items, `[*]`, and filters of the form
//! `[?(@.type=="Ready")]`.

use serde_json::Value;

/// A step of a path.
#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    /// The item at an index, from the end if negative.
    Item(i64),
    /// The items from one index to before another.
    Range(Option<i64>, Option<i64>),
    All,
    /// The items whose value at the fields equals the wanted one, or does not.
    Filter {
        fields: Vec<String>,
        equal: bool,
        wanted: Value,
    },
}

/// Returns the first value at a path; `None` if there is none, or the path is not supported.
pub(super) fn first<'a>(path: &str, value: &'a Value) -> Option<&'a Value> {
    let steps = parse(path)?;
    walk(&steps, value)
}

fn walk<'a>(steps: &[Step], value: &'a Value) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(value) };
    let children: Vec<&Value> = match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Item(index) => item(value, *index).into_iter().collect(),
        Step::Range(from, to) => range(value, *from, *to),
        Step::All => match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(members) => members.values().collect(),
            _ => Vec::new(),
        },
        Step::Filter { fields, equal, wanted } => {
            let items = value.as_array().into_iter().flatten();
            let matches = |item: &&Value| {
                let found = fields.iter().try_fold(*item, |value, field| value.get(field));
                found.is_some_and(|found| same(found, wanted) == *equal)
            };
            items.filter(matches).collect()
        }
    };
    children.into_iter().find_map(|child| walk(rest, child))
}

fn same(found: &Value, wanted: &Value) -> bool {
    found == wanted
        || matches!((found, wanted), (Value::Bool(found), Value::String(wanted)) if found.to_string() == *wanted)
}

fn item(value: &Value, index: i64) -> Option<&Value> {
    let items = value.as_array()?;
    items.get(position(index, items.len())?)
}

fn range(value: &Value, from: Option<i64>, to: Option<i64>) -> Vec<&Value> {
    let Some(items) = value.as_array() else { return Vec::new() };
    let from = from.map_or(Some(0), |from| position(from, items.len()));
    let to = to.map_or(Some(items.len()), |to| position(to, items.len()));
    let (Some(from), Some(to)) = (from, to) else { return Vec::new() };
    items.get(from..to.min(items.len())).unwrap_or(&[]).iter().collect()
}

fn position(index: i64, length: usize) -> Option<usize> {
    if index < 0 {
        length.checked_sub(usize::try_from(-index).ok()?)
    } else {
        usize::try_from(index).ok()
    }
}

fn parse(path: &str) -> Option<Vec<Step>> {
    let path = path.trim();
    let path = path.strip_prefix('{').and_then(|path| path.strip_suffix('}')).unwrap_or(path);
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, after) = match rest.strip_prefix('[') {
            Some(inside) => bracket(inside)?,
            None => field(rest.strip_prefix('.').unwrap_or(rest)),
        };
        match step {
            Step::Field(name) if name.is_empty() => {}
            Step::Field(name) if name == "*" => steps.push(Step::All),
            step => steps.push(step),
        }
        rest = after;
    }
    Some(steps)
}

/// Reads a field up to the next dot or bracket; a backslash keeps a dot in the name.
fn field(text: &str) -> (Step, &str) {
    let mut name = String::new();
    let mut letters = text.char_indices();
    while let Some((index, letter)) = letters.next() {
        match letter {
            '\\' => name.extend(letters.next().map(|(_, letter)| letter)),
            '.' | '[' => return (Step::Field(name), text.get(index..).unwrap_or("")),
            _ => name.push(letter),
        }
    }
    (Step::Field(name), "")
}

/// Reads the step between brackets; `text` begins after the first bracket.
fn bracket(text: &str) -> Option<(Step, &str)> {
    if let Some(filter) = text.strip_prefix("?(") {
        let (inside, rest) = filter.split_once(")]")?;
        return Some((filter_step(inside)?, rest));
    }
    if let Some(quote) = text.chars().next().filter(|letter| matches!(letter, '\'' | '"')) {
        let (name, rest) = text.get(1..)?.split_once(quote)?;
        return Some((Step::Field(name.to_owned()), rest.strip_prefix(']')?));
    }
    let (inside, rest) = text.split_once(']')?;
    if inside == "*" {
        return Some((Step::All, rest));
    }
    if let Some((from, to)) = inside.split_once(':') {
        let bound =
            |text: &str| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
        return Some((Step::Range(bound(from)?, bound(to)?), rest));
    }
    Some((Step::Item(inside.trim().parse().ok()?), rest))
}

fn filter_step(text: &str) -> Option<Step> {
    let (left, right, equal) = match text.split_once("==") {
        Some((left, right)) => (left, right, true),
        None => text.split_once("!=").map(|(left, right)| (left, right, false))?,
    };
    let fields = left.trim().strip_prefix('@')?.split('.').filter(|field| !field.is_empty());
    let right = right.trim();
    let quoted = right
        .strip_prefix(['"', '\''])
        .and_then(|right| right.strip_suffix(['"', '\'']))
        .map(Value::from);
    let wanted = quoted.or_else(|| serde_json::from_str(right).ok())?;
    Some(Step::Filter { fields: fields.map(str::to_owned).collect(), equal, wanted })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn paths_lead_to_the_first_value() {
        let object = json!({
            "metadata": {"annotations": {"a.b/c": "x"}},
            "spec": {"l": [{"name": "one"}, {"name": "two"}], "n": 5},
            "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        let cases = [
            (".spec.n", Some(json!(5))),
            (".spec.l[0].name", Some(json!("one"))),
            (".spec.l[-1].name", Some(json!("two"))),
            (".spec.l[-1:].name", Some(json!("two"))),
            (".spec.l[*].name", Some(json!("one"))),
            (".spec.l[?(@.name=='two')].name", Some(json!("two"))),
            (".spec.l[?(@.name!=\"one\")].name", Some(json!("two"))),
            (".status.conditions[?(@.type==\"Ready\")].status", Some(json!("True"))),
            (".metadata.annotations.a\\.b/c", Some(json!("x"))),
            (".metadata.annotations['a.b/c']", Some(json!("x"))),
            ("{.spec.n}", Some(json!(5))),
            (".spec.none", None),
            (".spec.l[7].name", None),
        ];
        for (path, expected) in cases {
            assert_eq!(super::first(path, &object).cloned(), expected, "{path}");
        }
    }
}
