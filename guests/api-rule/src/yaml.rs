//! Parses YAML inside of `ConfigMap`s into JSON values. Scalars stay text, because every value that
//! is read is text.

use std::collections::BTreeMap;

use granit_parser::{Event, Options, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// The largest number of nodes of a document. No configuration has so many; aliases of aliases can
/// grow without end.
const MAX_NODES: usize = 100_000;

/// Returns the first document of a text; null if there is none.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let mut options = Options::default();
    options.emit_comments = false;
    let parser = Parser::new_from_str_with_options(text, options);
    let mut reader = Reader { parser, anchors: BTreeMap::new(), nodes: 0 };
    loop {
        match reader.next()? {
            Event::StreamStart | Event::DocumentStart(..) => {}
            Event::StreamEnd | Event::DocumentEnd => return Ok(Value::Null),
            event => {
                let value = reader.node(event)?;
                // The rest of the text may still be invalid YAML.
                while !matches!(reader.next()?, Event::StreamEnd | Event::DocumentStart(..)) {}
                return Ok(value);
            }
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, granit_parser::StrInput<'a>>,
    anchors: BTreeMap<usize, Value>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Event<'a>, String> {
        match self.parser.next_event() {
            Some(Ok((event, _))) => Ok(event),
            Some(Err(error)) => Err(error.to_string()),
            None => Ok(Event::StreamEnd),
        }
    }

    fn node(&mut self, event: Event<'a>) -> Result<Value, String> {
        self.count(1)?;
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => (scalar(&text, style), anchor),
            Event::SequenceStart(_, anchor, _) => (self.sequence()?, anchor),
            Event::MappingStart(_, anchor, _) => (self.mapping()?, anchor),
            Event::Alias(anchor) => {
                let value =
                    self.anchors.get(&anchor).cloned().ok_or("an alias without an anchor")?;
                self.count(size(&value))?;
                (value, 0)
            }
            _ => return Err("a value is missing".to_owned()),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn sequence(&mut self) -> Result<Value, String> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(Value::Array(list)),
                event => list.push(self.node(event)?),
            }
        }
    }

    fn mapping(&mut self) -> Result<Value, String> {
        let mut map = Map::new();
        loop {
            let key = match self.next()? {
                Event::MappingEnd => return Ok(Value::Object(map)),
                event => self.node(event)?,
            };
            let event = self.next()?;
            let value = self.node(event)?;
            let key = match key {
                Value::String(key) => key,
                Value::Null => String::new(),
                _ => return Err("a key is not a scalar".to_owned()),
            };
            if map.insert(key, value).is_some() {
                return Err("a key is there twice".to_owned());
            }
        }
    }

    fn count(&mut self, nodes: usize) -> Result<(), String> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES { Err("too many values".to_owned()) } else { Ok(()) }
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    let plain = style == ScalarStyle::Plain;
    if plain && matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        Value::Null
    } else {
        text.into()
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(size).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_as_people_write_it() {
        let cases = [
            ("", json!(null)),
            ("# nothing\n", json!(null)),
            ("a: istio", json!({"a": "istio"})),
            ("a: \"is\\u0074io\"", json!({"a": "istio"})),
            ("{a: [b, 'c'], d: ~}", json!({"a": ["b", "c"], "d": null})),
            ("a: &x {b: 1}\nc: *x", json!({"a": {"b": "1"}, "c": {"b": "1"}})),
            (
                "a:\n- b: |\n    one\n    two\n  c: 'null'\n- null\n",
                json!({"a": [{"b": "one\ntwo\n", "c": "null"}, null]}),
            ),
            ("a\n---\nb", json!("a")),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn what_is_not_yaml_is_an_error() {
        for text in ["{{nope", "a: b: c", "a: *x", "- a\nb: c", "a: 1\na: 2"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        let mut bomb = vec!["a0: &a0 [x, x, x, x, x, x, x, x, x, x]".to_owned()];
        for level in 1..9 {
            let alias = format!("*a{}", level - 1);
            bomb.push(format!("a{level}: &a{level} [{}]", [alias.as_str(); 10].join(", ")));
        }
        assert_eq!(parse(&bomb.join("\n")).unwrap_err(), "too many values");
    }
}
