//! Classes of characters and escapes.

/// The names of classes in `[[:name:]]`.
const ASCII: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// The general categories of Unicode.
const CATEGORIES: &str = "\
    Any C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm \
    So Z Zl Zp Zs";

/// The scripts of Unicode 15.
const SCRIPTS: &str = "\
    Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak \
    Bengali Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian \
    Caucasian_Albanian Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform Cypriot \
    Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs \
    Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi \
    Gurmukhi Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic \
    Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi \
    Kayah_Li Kharoshthi Khitan_Small_Script Khmer Khojki Khudawadi Lao Latin Lepcha Limbu \
    Linear_A Linear_B Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean Marchen \
    Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs \
    Miao Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa \
    Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian \
    Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage \
    Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic \
    Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng \
    Soyombo Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil \
    Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Toto Ugaritic Vai Vithkuqi Wancho \
    Warang_Citi Yezidi Yi Zanabazar_Square";

/// A class in brackets.
pub(super) struct Class;

impl Class {
    /// Returns the text after the class at the beginning of a text.
    pub(super) fn skip(whole: &str) -> Result<&str, String> {
        let missing = || format!("missing closing ]: `{whole}`");
        let rest = whole.strip_prefix('[').unwrap_or(whole);
        let mut rest = rest.strip_prefix('^').unwrap_or(rest);
        let mut is_first = true;
        loop {
            match rest.chars().next() {
                None => return Err(missing()),
                Some(']') if !is_first => return Ok(rest.strip_prefix(']').unwrap_or(rest)),
                Some(_) => {}
            }
            is_first = false;
            rest = match skip_named(rest)? {
                Some(after) => after,
                None => skip_range(rest).map_err(|error| error.unwrap_or_else(missing))?,
            };
        }
    }
}

/// Returns the text after `[:name:]` or the escape of a class, if the text begins with one.
fn skip_named(text: &str) -> Result<Option<&str>, String> {
    if let Some(inner) = text.strip_prefix("[:")
        && let Some((name, after)) = inner.split_once(":]")
    {
        let bare = name.strip_prefix('^').unwrap_or(name);
        if !ASCII.contains(&bare) {
            return Err(format!("invalid character class range: `[:{name}:]`"));
        }
        return Ok(Some(after));
    }
    let is_class = text
        .strip_prefix('\\')
        .is_some_and(|rest| rest.starts_with(['d', 'D', 's', 'S', 'w', 'W', 'p', 'P']));
    if is_class { skip_escape(text, true).map(Some) } else { Ok(None) }
}

/// Returns the text after a character or a range of them; the error is `None` at the end.
fn skip_range(text: &str) -> Result<&str, Option<String>> {
    let (low, after) = one(text)?;
    let Some(high) = after.strip_prefix('-').filter(|rest| !rest.starts_with(']')) else {
        return Ok(after);
    };
    if high.is_empty() {
        return Ok(after);
    }
    let (high, rest) = one(high)?;
    if high < low {
        let range = prefix(text, text.len() - rest.len());
        return Err(Some(format!("invalid character class range: `{range}`")));
    }
    Ok(rest)
}

fn one(text: &str) -> Result<(u32, &str), Option<String>> {
    let c = text.chars().next().ok_or(None)?;
    if c == '\\' {
        return character(text).map_err(Some);
    }
    Ok((u32::from(c), text.get(c.len_utf8()..).unwrap_or_default()))
}

/// Returns the text after an escape, of a character or of a class.
pub(super) fn skip_escape(text: &str, is_class: bool) -> Result<&str, String> {
    let after = text.strip_prefix('\\').unwrap_or(text);
    match after.chars().next() {
        Some('d' | 'D' | 's' | 'S' | 'w' | 'W') => Ok(after.get(1..).unwrap_or_default()),
        Some('p' | 'P') => skip_unicode(text),
        _ if is_class => Ok(after),
        _ => character(text).map(|(_, rest)| rest),
    }
}

/// Returns the text after `\pN` or `\p{Name}`.
fn skip_unicode(text: &str) -> Result<&str, String> {
    let after = text.get(2..).unwrap_or_default();
    let invalid = |text: &str| Err(format!("invalid character class range: `{text}`"));
    let (name, rest) = match after.strip_prefix('{') {
        Some(inner) => match inner.split_once('}') {
            Some(parts) => parts,
            None => return invalid(text),
        },
        None => after.split_at(after.chars().next().map_or(0, char::len_utf8)),
    };
    let bare = name.strip_prefix('^').unwrap_or(name);
    if CATEGORIES.split(' ').chain(SCRIPTS.split(' ')).any(|known| known == bare) {
        Ok(rest)
    } else {
        invalid(prefix(text, text.len() - rest.len()))
    }
}

/// Returns the character of an escape, and the text after it.
fn character(text: &str) -> Result<(u32, &str), String> {
    let after = text.strip_prefix('\\').unwrap_or(text);
    let Some(c) = after.chars().next() else {
        return Err("trailing backslash at end of expression: ``".to_owned());
    };
    let rest = after.get(c.len_utf8()..).unwrap_or_default();
    let invalid = |rest: &str| {
        let escape = prefix(text, text.len() - rest.len());
        Err(format!("invalid escape sequence: `{escape}`"))
    };
    match c {
        '1'..='7' if !rest.starts_with(|c| matches!(c, '0'..='7')) => invalid(rest),
        '0'..='7' => {
            let digits =
                rest.bytes().take(2).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            let (more, rest) = rest.split_at(digits);
            Ok((u32::from_str_radix(&format!("{c}{more}"), 8).unwrap_or_default(), rest))
        }
        'x' => match hexadecimal(rest) {
            Ok((number, rest)) => Ok((number, rest)),
            Err(rest) => invalid(rest),
        },
        'a' => Ok((7, rest)),
        'f' => Ok((12, rest)),
        'n' => Ok((10, rest)),
        'r' => Ok((13, rest)),
        't' => Ok((9, rest)),
        'v' => Ok((11, rest)),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => Ok((u32::from(c), rest)),
        _ => invalid(rest),
    }
}

/// Returns the number after `\x`, two digits or any in braces; the error is the text after the
/// place where it ends.
fn hexadecimal(text: &str) -> Result<(u32, &str), &str> {
    let (in_braces, inner) = match text.strip_prefix('{') {
        Some(inner) => (true, inner),
        None => (false, text),
    };
    let mut number = 0;
    for (count, (place, c)) in inner.char_indices().enumerate() {
        let after = inner.get(place + c.len_utf8()..).unwrap_or_default();
        match c.to_digit(16) {
            None if in_braces && c == '}' && count > 0 => return Ok((number, after)),
            None => return Err(after),
            Some(digit) => number = number * 16 + digit,
        }
        if number > 0x0010_ffff {
            return Err(after);
        }
        if !in_braces && count == 1 {
            return Ok((number, after));
        }
    }
    Err("")
}

fn prefix(text: &str, bytes: usize) -> &str {
    text.get(..bytes).unwrap_or(text)
}
