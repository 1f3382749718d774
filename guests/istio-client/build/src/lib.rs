//! Builds Istio's own renderer, a Go module, as a component that imports nothing.
//!
//! Go compiles the module as it is published, but for the files that `overlay.json` of a version
//! replaces or removes, and for the modules in `stand-in`. Go replaces no file in its module cache,
//! so the module is linked through a symbolic link in `.build`, and its requirements
//! (`.build/…/wasm.mod`) are those of the version plus the replacements. The bindings are generated
//! from `wit`, and `adapter.wat` answers what Go asks of WASI.

mod bindings;
mod component;
mod digest;
mod go;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

/// The module whose packages are the renderer.
const ISTIO: &str = "istio.io/istio";
/// Modules that are replaced by folders: what a renderer does not run, but its code names.
const STAND_INS: [(&str, &str); 2] = [
    ("k8s.io/client-go", "./stand-in/client-go"),
    ("k8s.io/apiextensions-apiserver", "./stand-in/apiextensions-apiserver"),
];
/// The folder for generated files, which git ignores.
const GENERATED: &str = ".build";

/// A version of Istio: a folder with `go.mod`, `go.sum`, `overlay.json` and `release`.
#[derive(Debug)]
pub struct Version {
    folder: PathBuf,
    name: String,
    release: String,
}

/// A version with its modules and generated files in place.
#[derive(Debug)]
pub struct Prepared {
    version: Version,
    /// The generated files by the paths that Go reads instead, both relative to [`root`].
    overlay: BTreeMap<String, String>,
    /// True if the module `istio.io/istio` is a folder and not a published version.
    is_folder: bool,
    /// Keeps other builds waiting: they write the same files.
    _lock: fs::File,
}

/// Returns the root of the Go module, `guests/istio-client`.
pub fn root() -> PathBuf {
    let build = Path::new(env!("CARGO_MANIFEST_DIR"));
    build.parent().unwrap_or(build).to_owned()
}

/// Returns the folder of built components in cargo's target directory, and creates it.
///
/// # Errors
///
/// Fails if the running program is in no target directory.
pub fn target() -> Result<PathBuf> {
    let program = std::env::current_exe().context("this program has no path")?;
    // Tests are in `deps` of the profile's folder.
    let profile = program.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
    let target =
        profile.and_then(Path::parent).context("this program is in no target directory")?;
    let target = target.join("istio-client");
    fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
    Ok(target)
}

// === impl Version ===

impl Version {
    /// Returns the versions in `guests/istio-client`, sorted by name.
    ///
    /// # Errors
    ///
    /// Fails if a folder cannot be read, or if there is none.
    pub fn all() -> Result<Vec<Self>> {
        let root = root();
        let mut folders = Vec::new();
        for entry in
            fs::read_dir(&root).with_context(|| format!("cannot read {}", root.display()))?
        {
            let folder = entry?.path();
            if folder.join("release").is_file() {
                folders.push(folder);
            }
        }
        ensure!(!folders.is_empty(), "no folder of {} holds a file `release`", root.display());
        folders.sort();
        folders.iter().map(|folder| Self::open(folder)).collect()
    }

    /// Opens the version in a folder.
    ///
    /// # Errors
    ///
    /// Fails if the folder or its release cannot be read.
    pub fn open(folder: &Path) -> Result<Self> {
        let folder = folder
            .canonicalize()
            .with_context(|| format!("cannot open the version in {}", folder.display()))?;
        let file = folder.join("release");
        let release = fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?
            .trim()
            .to_owned();
        let is_release = release.starts_with(|c: char| c.is_ascii_digit())
            && release.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c));
        ensure!(is_release, "`{release}` in {} is no release", file.display());
        let name = folder.file_name().and_then(|name| name.to_str());
        let name = name.context("the folder of a version has no name in UTF-8")?.to_owned();
        Ok(Self { folder, name, release })
    }

    /// Returns the folder of the version.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the folder of the module `istio.io/istio`, and gets the module if it is not there.
    ///
    /// # Errors
    ///
    /// Fails if Go is not on the PATH or cannot get the module.
    pub fn module(&self) -> Result<PathBuf> {
        Ok(go::module(&self.folder.join("go.mod"), ISTIO)?.folder)
    }

    /// Returns the release, such as `1.31.0`.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// Writes generated files into `.build`, and has Go get the modules that are missing.
    ///
    /// # Errors
    ///
    /// Fails if Go is not on the PATH or cannot get a module, or if the version does not fit its
    /// overlay.
    pub fn prepare(self) -> Result<Prepared> {
        let lock = lock()?;
        let generated = root().join(GENERATED).join(&self.name);
        fs::create_dir_all(&generated)
            .with_context(|| format!("cannot create {}", generated.display()))?;
        let module = go::module(&self.folder.join("go.mod"), ISTIO)?;
        link(&module.folder, &generated.join("istio"))?;
        let mut overlay = self.overlay(&module.folder)?;
        for (path, content) in bindings::generate(&root().join("wit"))? {
            write(&generated.join(&path), &content)?;
            let file = self.generated(Path::new(&path))?;
            overlay.insert(path, file);
        }
        let replace = serde_json::json!({ "Replace": overlay });
        write(&generated.join("overlay.json"), &serde_json::to_vec_pretty(&replace)?)?;
        self.write_requirements(&generated)?;
        let is_folder = module.is_folder;
        let prepared = Prepared { version: self, overlay, is_folder, _lock: lock };
        go::list(&prepared.arguments())?;
        Ok(prepared)
    }

    /// Builds the native program of the renderer and of Istio's modules as they are: without
    /// overlay and replacements. For comparisons.
    ///
    /// # Errors
    ///
    /// Fails if Go is not on the PATH, cannot get a module, or does not compile.
    pub fn native(&self) -> Result<PathBuf> {
        let program = target()?.join(format!("{}-native", self.release));
        go::build_native(&self.folder.join("go.mod"), &self.release, &program)?;
        Ok(program)
    }

    /// Returns the version's own replacements, by paths below the symbolic link.
    fn overlay(&self, module: &Path) -> Result<BTreeMap<String, String>> {
        let file = self.folder.join("overlay.json");
        let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let files: BTreeMap<String, String> = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no map of paths", file.display()))?;
        let mut overlay = BTreeMap::new();
        for (path, replacement) in files {
            let exists = module.join(&path).is_file();
            ensure!(exists, "{} names `{path}`, which {ISTIO} does not have", file.display());
            overlay.insert(self.generated(&Path::new("istio").join(path))?, replacement);
        }
        Ok(overlay)
    }

    /// Writes the requirements of the component: those of the version, and the replacements.
    fn write_requirements(&self, generated: &Path) -> Result<()> {
        let istio = format!("./{}", self.generated(Path::new("istio"))?);
        let replacements = [(ISTIO, istio.as_str())].into_iter().chain(STAND_INS);
        let requirements = go::replaced(&self.folder.join("go.mod"), replacements)?;
        write(&generated.join("wasm.mod"), requirements.as_bytes())?;
        let sums = self.folder.join("go.sum");
        let sums = fs::read(&sums).with_context(|| format!("cannot read {}", sums.display()))?;
        write(&generated.join("wasm.sum"), &sums)
    }

    /// Returns the path of a generated file, relative to the root of the Go module: so that the
    /// component is the same wherever it is built.
    fn generated(&self, file: &Path) -> Result<String> {
        let path = Path::new(GENERATED).join(&self.name).join(file);
        Ok(path.to_str().context("the path of a generated file is no UTF-8")?.to_owned())
    }
}

// === impl Prepared ===

impl Prepared {
    /// Returns the component in the target directory, and builds it if an input has changed.
    ///
    /// # Errors
    ///
    /// Fails if Go does not compile, or if its module does not become a component.
    pub fn component(&self) -> Result<PathBuf> {
        let target = target()?;
        let component = target.join(format!("{}.wasm", self.version.release));
        let built_from = component.with_extension("wasm.inputs");
        let inputs = self.inputs()?;
        let is_current = component.is_file()
            && fs::read_to_string(&built_from).is_ok_and(|digest| digest == inputs);
        // Go knows which files of a folder have changed.
        if is_current && !self.is_folder {
            return Ok(component);
        }
        // An interrupted build leaves no digest.
        if built_from.exists() {
            fs::remove_file(&built_from)?;
        }
        let module = component.with_extension("module");
        go::build(&self.arguments(), &self.version.release, &module)?;
        let root = root();
        let bytes = component::encode(&module, &root.join("wit"), &root.join("adapter.wat"))?;
        write(&component, &bytes)?;
        fs::remove_file(&module)?;
        write(&built_from, inputs.as_bytes())?;
        Ok(component)
    }

    /// Returns the arguments of Go that select requirements and overlay.
    fn arguments(&self) -> [String; 4] {
        let generated = format!("{GENERATED}/{}", self.version.name);
        [
            "-mod=readonly".to_owned(),
            format!("-modfile={generated}/wasm.mod"),
            "-overlay".to_owned(),
            format!("{generated}/overlay.json"),
        ]
    }

    /// Returns a digest of everything that the component is built from.
    fn inputs(&self) -> Result<String> {
        let root = root();
        let mut inputs = digest::Inputs::default();
        inputs.text("go", &go::version()?);
        inputs.text("wit-component", component::ENCODER);
        for folder in ["abi", "component", "renderer", "stand-in", "wit"] {
            inputs.folder(&root.join(folder))?;
        }
        inputs.file(&root.join("adapter.wat"))?;
        inputs.folder(&self.version.folder)?;
        for generated in self.overlay.values().filter(|path| path.starts_with(GENERATED)) {
            inputs.file(&root.join(generated))?;
        }
        Ok(inputs.digest())
    }
}

/// Waits for other builds, of this process and of others.
fn lock() -> Result<fs::File> {
    let file = target()?.join("lock");
    let lock =
        fs::File::create(&file).with_context(|| format!("cannot create {}", file.display()))?;
    lock.lock().context("cannot wait for another build")?;
    Ok(lock)
}

/// Makes a symbolic link point to a folder.
fn link(folder: &Path, link: &Path) -> Result<()> {
    if fs::read_link(link).is_ok_and(|present| present == folder) {
        return Ok(());
    }
    if link.is_symlink() {
        fs::remove_file(link).with_context(|| format!("cannot remove {}", link.display()))?;
    }
    std::os::unix::fs::symlink(folder, link)
        .with_context(|| format!("cannot link {} to {}", link.display(), folder.display()))
}

/// Writes a file, unless it has this content: Go looks at the time of a change.
fn write(file: &Path, content: &[u8]) -> Result<()> {
    if fs::read(file).is_ok_and(|present| present == content) {
        return Ok(());
    }
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    fs::write(file, content).with_context(|| format!("cannot write {}", file.display()))
}
