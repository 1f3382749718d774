//! Schedules of cron jobs, as the `ParseStandard` of robfig/cron 3 reads them.

/// A field of a schedule: its smallest and largest number, and the names of numbers.
struct Field {
    least: u64,
    most: u64,
    names: &'static [&'static str],
}

const MONTHS: [&str; 13] =
    ["", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Field; 5] = [
    Field { least: 0, most: 59, names: &[] },
    Field { least: 0, most: 23, names: &[] },
    Field { least: 1, most: 31, names: &[] },
    Field { least: 1, most: 12, names: &MONTHS },
    Field { least: 0, most: 6, names: &DAYS },
];
const NAMED: [&str; 7] =
    ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// Validates a schedule: five fields, or a known name.
///
/// # Errors
/// Fails with the message of the parser. Durations after `@every` and time zones are not parsed.
pub(super) fn parse(schedule: &str) -> Result<(), String> {
    let zoned = ["TZ=", "CRON_TZ="].iter().any(|prefix| schedule.starts_with(prefix));
    let schedule = match schedule.split_once(' ') {
        Some((_, rest)) if zoned => rest.trim(),
        _ => schedule,
    };
    if NAMED.contains(&schedule) || schedule.starts_with("@every ") {
        return Ok(());
    }
    if schedule.starts_with('@') {
        return Err(format!("unrecognized descriptor: {schedule}"));
    }
    let fields: Vec<_> = schedule.split_whitespace().collect();
    let count = fields.len();
    if count != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {count}: [{}]", fields.join(" ")));
    }
    for (text, field) in fields.iter().zip(&FIELDS) {
        text.split(',')
            .filter(|range| !range.is_empty())
            .try_for_each(|text| range(text, field))?;
    }
    Ok(())
}

/// Validates a range with a step: `*`, `1`, `1-5` or `1-5/2`.
fn range(text: &str, field: &Field) -> Result<(), String> {
    let steps: Vec<_> = text.split('/').collect();
    let ends: Vec<_> = steps.first().unwrap_or(&"").split('-').collect();
    let (start, mut end) = match *ends.as_slice() {
        ["*" | "?", ..] => (field.least, field.most),
        [one] => {
            let one = field.number(one)?;
            (one, one)
        }
        [first, last] => (field.number(first)?, field.number(last)?),
        _ => {
            ends.first().map_or(Ok(0), |first| field.number(first))?;
            return Err(format!("too many hyphens: {text}"));
        }
    };
    let step = match *steps.as_slice() {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                end = field.most;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    let Field { least, most, .. } = field;
    if start < *least {
        return Err(format!("beginning of range ({start}) below minimum ({least}): {text}"));
    }
    if end > *most {
        return Err(format!("end of range ({end}) above maximum ({most}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn number(text: &str) -> Result<u64, String> {
    let number: i64 = text.parse().map_err(|_| {
        let quoted = crate::field_error::go_quote(text);
        format!("failed to parse int from {text}: strconv.Atoi: parsing {quoted}: invalid syntax")
    })?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

// === impl Field ===

impl Field {
    fn number(&self, text: &str) -> Result<u64, String> {
        let name = text.to_lowercase();
        let known = self.names.iter().position(|known| *known == name && !name.is_empty());
        known.map_or_else(|| number(text), |number| Ok(u64::try_from(number).unwrap_or(0)))
    }
}
