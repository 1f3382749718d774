//! Cases of hooks: a question to a processor, and the answer that it should give.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use mortise_core::contract::{
    bounds,
    hooks::{Hooks, serve_converted},
};
use mortise_embedded_api::{self as api, Admitted, Refused, Webhooks};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    document::Difference,
    file::{self, CONVERT, EXPECTED, REVIEW},
};
use crate::{
    Admits, Converted, Converts,
    processor::parse_config,
    testing::{Asked, Reviewed, Stub},
};

const OBJECT: &str = "object.yaml";
const OLD: &str = "old.yaml";
/// The user of a review that names none.
const USER: &str = "jane";

/// A case of a hook, as its folder describes it.
#[derive(Debug, Clone)]
pub struct HookCase {
    /// The names of its two folders: `convert/NAME` or `review/NAME`.
    pub name: String,
    /// The path of its folder.
    pub folder: PathBuf,
    /// The configuration, as JSON.
    pub config: String,
    /// The question.
    pub question: Question,
    /// The expected answer; `None` if `expected.yaml` does not exist yet.
    pub expected: Option<HookAnswer>,
}

/// The question of a case.
#[derive(Debug, Clone)]
pub enum Question {
    /// An object in another version.
    Convert {
        /// The object.
        object: Value,
        /// The version, without the group.
        to: String,
    },
    /// A request that a hook reviews.
    Review {
        /// The name of the hook.
        hook: String,
        /// The object as it is to be stored; `None`: a deletion.
        object: Option<Value>,
        /// The object as it is stored; `None`: a creation.
        old: Option<Value>,
        /// The name of the user who asks.
        user: String,
        /// The objects that the hook can read.
        objects: Vec<Value>,
    },
}

/// The answer of a hook: the contents of `expected.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HookAnswer {
    /// The converted object, or the object as a hook changed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<Value>,
    /// The refusal of a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny: Option<Deny>,
    /// The warnings for the client of the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The error: a conversion that was refused, or a hook that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deny {
    /// The HTTP status.
    pub code: u16,
    /// The message.
    pub message: String,
}

/// A kind of hook of a processor, as native functions.
#[derive(Debug, Clone, Copy)]
pub struct Native {
    folder: &'static str,
    ask: fn(&HookCase) -> HookAnswer,
    /// The conversions, for a configuration.
    conversions: fn(&str) -> Result<Vec<Converted>, String>,
    convert: Convert,
}

/// Converts an object to a version, given a configuration.
type Convert = fn(&Value, &str, &str) -> Result<Value, String>;

/// The conversions of a processor as webhooks of the API in memory.
struct Converting {
    hooks: Hooks,
    convert: Convert,
    config: String,
}

/// The contents of `case.yaml` of a conversion.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Conversion {
    to: String,
}

/// The contents of `case.yaml` of a review.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Review {
    hook: String,
    #[serde(default = "user")]
    user: String,
}

fn user() -> String {
    USER.to_owned()
}

/// Reads the cases of hooks in a folder of cases, ordered by name. There may be none.
///
/// # Errors
///
/// A case cannot be read. The text names the file and the reason.
pub fn hooks(folder: &Path) -> Result<Vec<HookCase>, String> {
    let mut cases = Vec::new();
    for of in [CONVERT, REVIEW] {
        let folder = folder.join(of);
        if !folder.is_dir() {
            continue;
        }
        for path in file::folders(&folder)? {
            cases.push(HookCase::load(&path, of)?);
        }
    }
    Ok(cases)
}

// === impl HookCase ===

impl HookCase {
    fn load(folder: &Path, of: &str) -> Result<Self, String> {
        let known: &[&str] = match of {
            CONVERT => &[OBJECT, file::CONFIG, file::CASE, EXPECTED],
            _ => &[OBJECT, OLD, file::CONFIG, file::CASE, EXPECTED, file::OBJECTS, file::FOLDER],
        };
        file::only(folder, known)?;
        let question = match of {
            CONVERT => Question::conversion(folder)?,
            _ => Question::review(folder)?,
        };
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self {
            name: format!("{of}/{name}"),
            folder: folder.to_owned(),
            config: file::config(folder)?,
            question,
            expected: file::one(&folder.join(EXPECTED))?,
        })
    }

    /// Returns the path of `expected.yaml`.
    pub fn expected_file(&self) -> PathBuf {
        self.folder.join(EXPECTED)
    }

    /// Returns where an answer differs from the expected one.
    pub fn differences(&self, answer: &HookAnswer) -> Vec<Difference> {
        if self.expected.as_ref() == Some(answer) {
            return Vec::new();
        }
        let expected = self.expected.as_ref().map(HookAnswer::to_yaml).unwrap_or_default();
        vec![Difference { title: "the answer".to_owned(), expected, actual: answer.to_yaml() }]
    }
}

// === impl Question ===

impl Question {
    fn conversion(folder: &Path) -> Result<Self, String> {
        let Conversion { to } = needed(&folder.join(file::CASE))?;
        let object = folder.join(OBJECT);
        let object = file::value(&object)?.ok_or_else(|| missing(&object))?;
        Ok(Self::Convert { object, to })
    }

    fn review(folder: &Path) -> Result<Self, String> {
        let Review { hook, user } = needed(&folder.join(file::CASE))?;
        let (object, old) = (file::value(&folder.join(OBJECT))?, file::value(&folder.join(OLD))?);
        if object.is_none() && old.is_none() {
            let folder = folder.display();
            return Err(format!(
                "`{folder}` holds neither {OBJECT} nor {OLD}: a creation has the first, a deletion the second, an update both"
            ));
        }
        Ok(Self::Review { hook, object, old, user, objects: file::objects_of(folder)? })
    }
}

fn needed<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, String> {
    file::one(path)?.ok_or_else(|| missing(path))
}

fn missing(path: &Path) -> String {
    format!("`{}` is missing", path.display())
}

// === impl HookAnswer ===

impl HookAnswer {
    /// Returns the answer to a conversion.
    pub fn converted(converted: Result<Value, String>) -> Self {
        match converted {
            Ok(object) => Self { object: Some(object), ..Self::default() },
            Err(error) => Self::failed(error),
        }
    }

    /// Returns the answer of a hook; `object` is the object of the request.
    pub fn reviewed(reviewed: Result<Reviewed, String>, object: Option<&Value>) -> Self {
        match reviewed {
            Ok(Reviewed { denial, object: stored, warnings }) => Self {
                object: stored.filter(|stored| Some(stored) != object),
                deny: denial.map(|denial| Deny { code: denial.code, message: denial.message }),
                warnings,
                error: None,
            },
            Err(error) => Self::failed(error),
        }
    }

    fn failed(mut error: String) -> Self {
        bounds::text::cut(&mut error, bounds::FAILURE);
        Self { error: Some(error), ..Self::default() }
    }

    /// Returns the text of `expected.yaml`.
    pub fn to_yaml(&self) -> String {
        if *self == Self::default() {
            return "{}\n".to_owned();
        }
        serde_saphyr::to_string(self).unwrap_or_else(|error| format!("# no YAML: {error}\n"))
    }
}

// === impl Native ===

impl Native {
    /// Returns the conversions of a processor.
    pub fn conversion<P: Converts>() -> Self {
        Self {
            folder: CONVERT,
            ask: converted::<P>,
            conversions: |config| Ok(P::conversions(&parse_config(config)?)),
            convert: |object, to, config| Stub::new().convert::<P>(object, to, config),
        }
    }

    /// Returns the admission hooks of a processor.
    pub fn admission<P: Admits>() -> Self {
        Self {
            folder: REVIEW,
            ask: reviewed::<P>,
            conversions: |_| Ok(Vec::new()),
            convert: |_, _, _| Err("hooks convert nothing".to_owned()),
        }
    }

    /// Calls the native functions that serve a case.
    ///
    /// # Errors
    ///
    /// No native function serves the case.
    pub fn answer(natives: &[Self], case: &HookCase) -> Result<HookAnswer, String> {
        let is_meant = |native: &&Self| case.name.starts_with(native.folder);
        let native = natives.iter().find(is_meant).ok_or_else(|| {
            "the test does not ask hooks: name what the processor exports, as in \
             `cases!(TYPE, \"cases\", conversion, admission)`"
                .to_owned()
        })?;
        Ok((native.ask)(case))
    }
}

/// Returns the conversions of a processor as webhooks, if it has some. Serves the versions that it
/// converts.
pub(super) fn webhooks(
    natives: &[Native],
    config: &str,
    definitions: &mut [Value],
) -> Result<Option<Arc<dyn Webhooks>>, String> {
    for native in natives {
        let conversions: Vec<_> =
            (native.conversions)(config)?.into_iter().map(Into::into).collect();
        if conversions.is_empty() {
            continue;
        }
        let hooks = Hooks { conversions, admission: Vec::new() };
        for definition in definitions {
            serve_converted(definition, &hooks);
        }
        let (convert, config) = (native.convert, config.to_owned());
        return Ok(Some(Arc::new(Converting { hooks, convert, config })));
    }
    Ok(None)
}

impl Webhooks for Converting {
    fn converts(&self, group: &str, kind: &str) -> bool {
        self.hooks.converted(group, kind).is_some()
    }

    fn convert(&self, _kind: &str, to: &str, objects: Vec<Value>) -> Result<Vec<Value>, String> {
        let version = to.rsplit_once('/').map_or(to, |(_, version)| version);
        objects.iter().map(|object| (self.convert)(object, version, &self.config)).collect()
    }

    /// Allows every request: hooks would read the cluster, which is locked.
    fn admit(&self, _review: &api::Review<'_>) -> Result<Admitted, Refused> {
        Ok(Admitted::default())
    }
}

fn converted<P: Converts>(case: &HookCase) -> HookAnswer {
    match &case.question {
        Question::Convert { object, to } => {
            HookAnswer::converted(Stub::new().convert::<P>(object, to, &case.config))
        }
        Question::Review { .. } => HookAnswer::failed("a review is no conversion".to_owned()),
    }
}

fn reviewed<P: Admits>(case: &HookCase) -> HookAnswer {
    match &case.question {
        Question::Review { hook, object, old, user, objects } => {
            let stub = Stub::new().objects(objects.clone());
            let (object, old) = (object.as_ref(), old.as_ref());
            let asked = Asked { hook, object, old, user };
            HookAnswer::reviewed(stub.review::<P>(&asked, &case.config), object)
        }
        Question::Convert { .. } => HookAnswer::failed("a conversion is no review".to_owned()),
    }
}
