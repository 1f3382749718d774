//! The `mortise.toml` of a guest that Cargo does not build: in Python, TypeScript or another
//! language. Its keys are those of `package.metadata.mortise`, and the component's build command.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Build, DESK, Error, Guest, Made, desk, library};

/// The name of the file.
pub(crate) const NAME: &str = "mortise.toml";

/// The keys of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    component: PathBuf,
    #[serde(default)]
    build: Vec<String>,
    #[serde(default)]
    watch: Vec<PathBuf>,
    #[serde(default)]
    crds: Vec<PathBuf>,
    examples: Option<PathBuf>,
    cases: Option<PathBuf>,
    #[serde(default)]
    limits: library::Given,
    #[serde(default)]
    libraries: Vec<library::Entry>,
    #[serde(default)]
    dev: desk::Desk,
}

/// Reads the file in a guest's folder.
pub(super) fn open(folder: &Path) -> Result<Guest, Error> {
    let wrong = |message: String| Error::File { path: folder.join(NAME), message };
    let unreadable = |cause: std::io::Error| wrong(cause.to_string());
    let folder = std::path::absolute(folder).map_err(unreadable)?;
    let text = std::fs::read_to_string(folder.join(NAME)).map_err(unreadable)?;
    guest(folder, &text).map_err(wrong)
}

fn guest(folder: PathBuf, text: &str) -> Result<Guest, String> {
    let keys: Keys = toml_edit::de::from_str(text).map_err(|error| {
        let line = error.span().map(|span| text.get(..span.start).unwrap_or_default());
        // A missing key has no line of its own.
        let line = line.filter(|_| !error.message().starts_with("missing field"));
        let line = line.map(|before| format!("line {}: ", before.matches('\n').count() + 1));
        format!("{}{}", line.unwrap_or_default(), error.message().replace('\n', "; "))
    })?;
    let below = |paths: Vec<PathBuf>| paths.into_iter().map(|path| folder.join(path)).collect();
    let mut component =
        Made { path: folder.join(keys.component), build: keys.build, watch: below(keys.watch) };
    if !component.watch.is_empty() {
        component.watch.push(folder.join(NAME));
    }
    let libraries = keys.libraries.into_iter().map(|entry| entry.library(&folder));
    let (clusters, companion) =
        keys.dev.open(&folder).ok_or_else(|| format!("dev must be {DESK}"))?;
    let name = folder.file_name().unwrap_or(folder.as_os_str());
    Ok(Guest {
        description: None,
        package: name.to_string_lossy().into_owned(),
        crds: below(keys.crds),
        examples: keys.examples.map(|path| folder.join(path)),
        cases: folder.join(keys.cases.unwrap_or_else(|| "cases".into())),
        limits: keys.limits.limits("limits")?,
        libraries: libraries.collect::<Result<_, _>>()?,
        clusters,
        companion,
        build: Build::Command(component),
        folder,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Guest, String> {
        guest("/guests/greeter".into(), text)
    }

    #[test]
    fn the_keys_of_the_file_are_read() {
        let guest = read(
            "component = '.build/a.wasm'\nbuild = ['make']\nwatch = ['src']\ncrds = ['crds']\n\
             examples = 'examples'\n[limits]\ndeadline = '30s'\n\
             [dev]\ncompanion = { run = ['./fake', '--port', '0'] }\n\
             [[libraries]]\ninterface = 'a:b/c'\npath = 'c.wasm'\n",
        )
        .unwrap();
        let Build::Command(component) = &guest.build else { panic!("a command") };
        assert_eq!(guest.package, "greeter");
        assert_eq!(component.path, Path::new("/guests/greeter/.build/a.wasm"));
        assert_eq!((component.build.len(), component.watch.len()), (1, 2), "and the file itself");
        assert_eq!(guest.crds, [Path::new("/guests/greeter/crds")]);
        assert_eq!(guest.cases, Path::new("/guests/greeter/cases"));
        assert_eq!(guest.limits.deadline, std::time::Duration::from_secs(30));
        assert_eq!(guest.companion, ["./fake", "--port", "0"]);
        assert_eq!(guest.libraries[0].component.path, Path::new("/guests/greeter/c.wasm"));
    }

    #[test]
    fn an_invalid_guest_file_is_refused_in_one_line_with_the_reason() {
        let cases = [
            ("", "missing field `component`"),
            ("component = 'a'\nbiuld = ['make']", "line 2: unknown field `biuld`, expected one of"),
            ("component = 'a'\nbuild = 'make'", "line 2: invalid type: string \"make\""),
            ("component = 'a'\nbuild = [", "line 2: "),
            ("component = 'a'\n[limits]\nmemory = 'a'", "limits.memory is `a`; 1Mi to 4Gi"),
            ("component = 'a'\n[limits]\ntime = 'a'", "line 3: unknown field `time`"),
        ];
        for (text, expected) in cases {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
