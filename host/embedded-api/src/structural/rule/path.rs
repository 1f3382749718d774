//! The paths below a value in rules: `fieldPath`.

/// A step of `fieldPath`.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) enum PathStep {
    /// `.name`
    Name(String),
    /// `['key']`
    Key(String),
}

/// Parses `.a['b.c'].d`; the error is the message of the API server.
pub(in super::super) fn path_steps(path: &str) -> Result<Vec<PathStep>, String> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            if name.is_empty() && after.is_empty() {
                return Err("unexpected end of JSON path".to_owned());
            }
            steps.push(PathStep::Name(name.to_owned()));
            rest = after;
        } else if let Some(after) = rest.strip_prefix('[') {
            let (key, after) = quoted_key(after)?;
            steps.push(PathStep::Key(key));
            rest = after;
        } else {
            let end = rest
                .get(1..)
                .and_then(|rest| rest.find(['.', '[', ']']))
                .map_or(rest.len(), |end| end + 1);
            return Err(format!(
                "expected [ or . but got: {}",
                rest.get(..end).unwrap_or_default()
            ));
        }
    }
    Ok(steps)
}

fn quoted_key(text: &str) -> Result<(String, &str), String> {
    let inside = text.strip_prefix('\'').and_then(|inside| {
        let mut escaped = false;
        let end = inside.char_indices().find_map(|(at, character)| {
            let end = character == '\'' && !escaped;
            escaped = character == '\\' && !escaped;
            end.then_some(at)
        })?;
        Some((inside.get(..end)?, inside.get(end + 1..)?))
    });
    let Some((key, after)) = inside else {
        let token = text.split(['.', '[', ']']).next().unwrap_or_default();
        return Err(if token.is_empty() {
            "unexpected end of JSON path".to_owned()
        } else {
            format!("expected single quoted string but got {token}")
        });
    };
    let after = after.strip_prefix(']').ok_or_else(|| "unexpected end of JSON path".to_owned())?;
    Ok((key.replace("\\'", "'").replace("\\\\", "\\"), after))
}

/// Returns the path of a rule as errors show it. Keys of maps and fields are not distinguished
/// here: the validation of the schema has checked that they exist.
pub(super) fn shown_path(path: &str) -> Result<String, String> {
    let mut shown = String::new();
    for step in path_steps(path)? {
        match step {
            PathStep::Name(name) if shown.is_empty() => shown = name,
            PathStep::Name(name) => shown = format!("{shown}.{name}"),
            PathStep::Key(key) => shown = format!("{shown}[{key}]"),
        }
    }
    Ok(shown)
}
