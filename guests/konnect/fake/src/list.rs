//! Filters and pages of lists.

use serde_json::{Value, json};

use crate::{
    error::Errors,
    kind::{Entity, Family, tag_key},
    message::{Answer, Request},
    table::Table,
};

/// The entities of a page, if the request says nothing.
const SIZE: u64 = 100;
/// The most entities of a page.
const MAX_SIZE: u64 = 1_000;

/// The entities that a list asks for.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    tags: Option<Tags>,
    /// Label and value; without a value, the label only has to be there.
    labels: Vec<(String, Option<String>)>,
    fields: Vec<Field>,
}

#[derive(Debug)]
enum Tags {
    All(Vec<String>),
    Any(Vec<String>),
}

/// A condition on a field.
#[derive(Debug)]
struct Field {
    name: String,
    operator: Operator,
    value: String,
}

#[derive(Debug, Clone, Copy)]
enum Operator {
    Equal,
    NotEqual,
    /// One of a list that commas separate.
    OneOf,
    Contains,
}

/// A page of a list that goes on after a place.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    size: u64,
    after: u64,
}

// === impl Filter ===

impl Filter {
    /// Reads the filters of a query.
    pub(crate) fn read(request: &Request, errors: Errors) -> Result<Self, Answer> {
        let mut filter = Self::default();
        for (name, value) in request.query_pairs() {
            match name.as_str() {
                "tags" => filter.tags = Some(Tags::read(&value)),
                "labels" => filter.labels.extend(value.split(',').map(label)),
                _ if name.starts_with("filter") => {
                    let field = Field::read(&name, value);
                    let refused = || errors.field(&name, "the filter is not supported");
                    filter.fields.push(field.ok_or_else(refused)?);
                }
                _ => {}
            }
        }
        Ok(filter)
    }

    pub(crate) fn admits(&self, entity: &Entity) -> bool {
        self.tags.as_ref().is_none_or(|tags| tags.admit(entity))
            && self.labels.iter().all(|(name, value)| has_label(entity, name, value.as_deref()))
            && self.fields.iter().all(|field| field.admits(entity))
    }

    /// Returns an index key that all admitted entities have.
    ///
    /// Of several, it is the one that the fewest entities have.
    fn key(&self, table: &Table) -> Option<String> {
        let Some(Tags::All(tags)) = &self.tags else { return None };
        tags.iter().map(|tag| tag_key(tag)).min_by_key(|key| table.count(key))
    }
}

fn label(text: &str) -> (String, Option<String>) {
    match text.split_once(':') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (text.to_owned(), None),
    }
}

fn has_label(entity: &Entity, name: &str, value: Option<&str>) -> bool {
    let found = entity.get("labels").and_then(|labels| labels.get(name)).and_then(Value::as_str);
    found.is_some_and(|found| value.is_none_or(|value| value == found))
}

// === impl Tags ===

impl Tags {
    fn read(text: &str) -> Self {
        let split = |by| text.split(by).map(str::to_owned).collect();
        if text.contains('/') && !text.contains(',') {
            return Self::Any(split('/'));
        }
        Self::All(split(','))
    }

    fn admit(&self, entity: &Entity) -> bool {
        let tags = entity.get("tags").and_then(Value::as_array);
        let has = |wanted: &String| {
            tags.is_some_and(|tags| tags.iter().any(|tag| tag.as_str() == Some(wanted)))
        };
        match self {
            Self::All(wanted) => wanted.iter().all(has),
            Self::Any(wanted) => wanted.iter().any(has),
        }
    }
}

// === impl Field ===

impl Field {
    /// Reads `filter[<field>][<operator>]`.
    fn read(name: &str, value: String) -> Option<Self> {
        let (field, operator) =
            name.strip_prefix("filter[")?.strip_suffix(']')?.split_once("][")?;
        let operator = match operator {
            "eq" => Operator::Equal,
            "neq" => Operator::NotEqual,
            "oeq" => Operator::OneOf,
            "contains" => Operator::Contains,
            _ => return None,
        };
        Some(Self { name: field.to_owned(), operator, value })
    }

    fn admits(&self, entity: &Entity) -> bool {
        let config = entity.get("config").and_then(|config| config.get(&self.name));
        let found = entity.get(&self.name).or(config).and_then(Value::as_str).unwrap_or_default();
        match self.operator {
            Operator::Equal => found == self.value,
            Operator::NotEqual => found != self.value,
            Operator::OneOf => self.value.split(',').any(|value| found == value),
            Operator::Contains => found.contains(&self.value),
        }
    }
}

// === impl Cursor ===

impl Cursor {
    fn read(request: &Request, errors: Errors) -> Result<Self, Answer> {
        let size = number(request, &["size", "page[size]"], errors)?.unwrap_or(SIZE);
        if size == 0 || size > MAX_SIZE {
            return Err(errors.field("size", "must be from 1 to 1000"));
        }
        let after = number(request, &["offset", "page[after]"], errors)?.unwrap_or(0);
        Ok(Self { size, after })
    }
}

fn number(request: &Request, names: &[&str], errors: Errors) -> Result<Option<u64>, Answer> {
    let Some((name, value)) =
        names.iter().find_map(|name| Some((name, request.query_value(name)?)))
    else {
        return Ok(None);
    };
    let refused = || errors.field(name, "must be a number that the API gave");
    value.parse().map(Some).map_err(|_| refused())
}

/// Answers with a page of a table, of entities with an index key if one is given.
pub(crate) fn entities(
    request: &Request,
    errors: Errors,
    table: &Table,
    key: Option<&str>,
) -> Result<Answer, Answer> {
    let filter = Filter::read(request, errors)?;
    let cursor = Cursor::read(request, errors)?;
    let own_key = filter.key(table);
    let found: Box<dyn Iterator<Item = (u64, &Entity)>> = match key.or(own_key.as_deref()) {
        Some(key) => Box::new(table.with_key(key)),
        None => Box::new(table.after(cursor.after)),
    };
    let found = found.filter(|(place, entity)| *place > cursor.after && filter.admits(entity));
    Ok(page(request, table.kind.family, cursor, found))
}

/// Answers with a page of those entities of a table that are wanted.
pub(crate) fn wanted(
    request: &Request,
    table: Option<&Table>,
    is_wanted: impl Fn(&Entity) -> bool,
) -> Result<Answer, Answer> {
    let cursor = Cursor::read(request, Errors::Entity)?;
    let found = table.into_iter().flat_map(|table| table.after(cursor.after));
    Ok(page(request, Family::Core, cursor, found.filter(|(_, entity)| is_wanted(entity))))
}

fn page<'a>(
    request: &Request,
    family: Family,
    cursor: Cursor,
    mut found: impl Iterator<Item = (u64, &'a Entity)>,
) -> Answer {
    if family == Family::DataPlane {
        let items: Vec<&Entity> = found.map(|(_, entity)| entity).collect();
        let page = json!({"total_count": items.len()});
        return Answer::json(200, &json!({"items": items, "page": page}));
    }
    let size = usize::try_from(cursor.size).unwrap_or(usize::MAX);
    let data: Vec<(u64, &Entity)> = found.by_ref().take(size).collect();
    let last = data.last().map(|(place, _)| *place).filter(|_| found.next().is_some());
    let data: Vec<&Entity> = data.into_iter().map(|(_, entity)| entity).collect();
    Answer::json(
        200,
        &match family {
            Family::Config => {
                let next = last.map(|place| next(request, "page[after]", place));
                json!({"data": data, "meta": {"page": {"size": cursor.size, "next": next}}})
            }
            _ => core_page(request, &data, last),
        },
    )
}

fn core_page(request: &Request, data: &[&Entity], last: Option<u64>) -> Value {
    match last {
        Some(place) => {
            let next = next(request, "offset", place);
            json!({"data": data, "next": next, "offset": place.to_string()})
        }
        None => json!({"data": data, "next": null}),
    }
}

/// Returns path and query of the next page.
fn next(request: &Request, name: &str, place: u64) -> String {
    let is_other = |part: &&str| {
        !part.is_empty()
            && !part.starts_with(&format!("{name}="))
            && !part.starts_with("page%5Bafter")
    };
    let mut query: Vec<String> =
        request.query.split('&').filter(is_other).map(str::to_owned).collect();
    query.push(format!("{name}={place}"));
    format!("{}?{}", request.path, query.join("&"))
}

/// Answers with a numbered page of control planes.
pub(crate) fn planes<'a>(
    request: &Request,
    all: impl Iterator<Item = &'a Entity>,
) -> Result<Answer, Answer> {
    let errors = Errors::Problem;
    let filter = Filter::read(request, errors)?;
    let size = Cursor::read(request, errors)?.size;
    let number = number(request, &["page[number]"], errors)?.unwrap_or(1).max(1);
    let found: Vec<&Entity> = all.filter(|entity| filter.admits(entity)).collect();
    let index = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let before = index((number - 1).saturating_mul(size));
    let data: Vec<&Entity> = found.iter().skip(before).take(index(size)).copied().collect();
    let page = json!({"number": number, "size": size, "total": found.len()});
    Ok(Answer::json(200, &json!({"meta": {"page": page}, "data": data})))
}
