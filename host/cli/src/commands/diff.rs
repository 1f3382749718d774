//! `mortise diff`: shows the requests of one module that another does not make.

use std::{collections::BTreeSet, fmt::Write as _, io::Write as _, path::Path, process::ExitCode};

use anyhow::Context as _;
use mortise_core::{
    contract::{Description, Kind, bounds::text::escaped, display_kind},
    grant::{granted, role::Roles},
};
use serde::Serialize;

use super::inspect::{self, Inspection, OutboundEntry, page};
use crate::{
    args::DiffArgs,
    files,
    local::{self, Parts},
    print::{self, BOLD, DIM, GREEN, RED},
    registry::Subject,
};

/// The exit code if the second module requests more.
const ASKS_FOR_MORE_EXIT_CODE: u8 = 5;

/// A module, and its requests.
struct Side {
    shown: String,
    inspection: Inspection,
    description: Description,
    roles: Roles,
    /// The roles in other clusters.
    elsewhere: Roles,
}

/// The difference of two modules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The modules, with their versions, contracts and sizes.
    pub modules: [ModuleEntry; 2],
    /// True if the second requests more.
    pub asks_for_more: bool,
    /// The requests of the second only.
    pub more: Asked,
    /// The requests of the first only.
    pub less: Asked,
}

/// A compared module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModuleEntry {
    /// The file or reference.
    pub module: String,
    /// The version that it declares.
    pub version: String,
    /// The WIT package that it was built for.
    pub contract: String,
    /// The size in bytes.
    pub size: u64,
}

/// The requests of one module that the other does not make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// Rules of its account's roles, one per line, after comments that name the role.
    pub rules: Vec<String>,
    /// Rules that it grants in roles, one per line.
    pub grants: Vec<String>,
    /// Calls to systems outside of the cluster: origins with methods, and with credentials.
    pub calls: Vec<String>,
    /// Kinds that it reconciles.
    pub reconciles: Vec<String>,
    /// Interfaces that it imports.
    pub imports: Vec<String>,
}

/// Runs the command.
///
/// # Errors
///
/// Fails for a module that cannot be built, pulled or loaded.
pub async fn run(args: &DiffArgs, cache: Option<&Path>) -> anyhow::Result<ExitCode> {
    let before = Side::open(&args.before, args, cache).await?;
    let after = Side::open(&args.after, args, cache).await?;
    let difference = Difference::of(&before, &after);
    let text = match args.output {
        Some(_) => print::json(&difference)?,
        None => difference.for_people(),
    };
    anstream::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    let more = difference.asks_for_more;
    Ok(if more { ExitCode::from(ASKS_FOR_MORE_EXIT_CODE) } else { ExitCode::SUCCESS })
}

// === impl Side ===

impl Side {
    async fn open(what: &Path, args: &DiffArgs, cache: Option<&Path>) -> anyhow::Result<Self> {
        let subject = Subject::open(what, &args.client).await?;
        let parts = Parts::of(&subject.source, subject.file.clone(), &args.with)?;
        let loaded = local::load(parts, local::config(args.config.as_deref())?, cache).await?;
        let description = Description::clone(&loaded.description);
        let crds = files::load_all(&[subject.source.crds(), &args.crds].concat())?;
        let (home, others) = (description.at_home(), description.elsewhere());
        let known = inspect::known(crds, &[home.kinds(), others.kinds()].concat()).await?;
        let served = |kind: &Kind| local::served(&known, kind);
        let (roles, elsewhere) = (Roles::of(&home, served), Roles::of(&others, served));
        let inspection = Inspection::of(&loaded, &subject.file)?;
        Ok(Self { shown: subject.shown(), inspection, description, roles, elsewhere })
    }

    fn entry(&self) -> ModuleEntry {
        ModuleEntry {
            module: self.shown.clone(),
            version: self.inspection.version.clone(),
            contract: self.inspection.contract.clone(),
            size: self.inspection.size,
        }
    }

    /// Returns the requests that another does not make.
    fn beyond(&self, other: &Self) -> Asked {
        let lines = |text: String| text.lines().map(ToOwned::to_owned).collect::<Vec<_>>();
        let more = granted::beyond(&self.description.grants, &other.description.grants);
        let kinds = |side: &Self| -> BTreeSet<String> {
            // The roles compare reads and writes.
            let (reconcilers, _reads, _writes) = side.description.declared();
            reconcilers.iter().map(|of| display_kind(&of.of.kind)).collect()
        };
        let imports =
            |side: &Self| -> BTreeSet<String> { side.inspection.imports.iter().cloned().collect() };
        let calls = |side: &Self| -> BTreeSet<String> {
            side.inspection.outbound.iter().flat_map(OutboundEntry::lines).collect()
        };
        let only = |of: &dyn Fn(&Self) -> BTreeSet<String>| {
            of(self).difference(&of(other)).cloned().collect()
        };
        let mut rules = lines(self.roles.beyond(&other.roles).lines());
        let elsewhere = self.elsewhere.beyond(&other.elsewhere);
        if !elsewhere.is_empty() {
            rules.push("# in other clusters".to_owned());
            rules.extend(lines(elsewhere.lines()));
        }
        Asked {
            rules,
            grants: lines(granted::lines(&more)),
            calls: only(&calls),
            reconciles: only(&kinds),
            imports: only(&imports),
        }
    }
}

// === impl Difference ===

impl Difference {
    fn of(before: &Side, after: &Side) -> Self {
        let (more, less) = (after.beyond(before), before.beyond(after));
        let asks_for_more = more != Asked::default();
        Self { modules: [before.entry(), after.entry()], asks_for_more, more, less }
    }

    /// Formats the difference for a terminal.
    fn for_people(&self) -> String {
        let [before, after] = &self.modules;
        let mut text = String::new();
        for (sign, style, of) in [("-", RED, before), ("+", GREEN, after)] {
            let _ = writeln!(text, "{style}{sign} {} {}{style:#}", of.module, of.version);
        }
        let parts: [(&str, &[String], &[String]); 5] = [
            ("permissions", &self.less.rules, &self.more.rules),
            ("grants", &self.less.grants, &self.more.grants),
            ("calls", &self.less.calls, &self.more.calls),
            ("reconciles", &self.less.reconciles, &self.more.reconciles),
            ("imports", &self.less.imports, &self.more.imports),
        ];
        for (name, less, more) in parts {
            let _ = writeln!(text, "{BOLD}{name}{BOLD:#}");
            if less.is_empty() && more.is_empty() {
                let _ = writeln!(text, "{DIM}  as before{DIM:#}");
            }
            for (sign, style, lines) in [("-", RED, less), ("+", GREEN, more)] {
                for line in lines {
                    let _ = writeln!(text, "{style}{sign} {}{style:#}", escaped(line));
                }
            }
        }
        let contract = if before.contract == after.contract {
            format!("{} as before", after.contract)
        } else {
            format!("{} → {}", before.contract, after.contract)
        };
        let _ = writeln!(text, "{BOLD}contract{BOLD:#}\n  {contract}");
        let size = |of: &ModuleEntry| page::size(of.size);
        let _ = writeln!(text, "{BOLD}size{BOLD:#}\n  {} → {}", size(before), size(after));
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mortise_core::contract::GrantedRule;

    use super::*;

    const CLOCK: &str = "mortise:host/clock@0.1.0";
    const LOG: &str = "mortise:host/log@0.1.0";
    const SHOUT: &str = "example:shouting/shout@1.0.0";

    /// Returns a module that grants these verbs on Pods in roles.
    fn side(shown: &str, verbs: &[&str], imports: &[&str], size: u64) -> Side {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        let grant = GrantedRule {
            api_groups: texts(&[""]),
            resources: texts(&["pods"]),
            resource_names: Vec::new(),
            verbs: texts(verbs),
            non_resource_urls: Vec::new(),
        };
        let description = Description {
            name: "a".to_owned(),
            version: "1.0.0".to_owned(),
            reconcilers: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            grants: vec![grant],
            outbound: Vec::new(),
            config_schema: None,
        };
        let inspection = Inspection {
            name: description.name.clone(),
            version: description.version.clone(),
            file: None,
            image: None,
            digest: "sha256:00".to_owned(),
            size,
            contract: "mortise:host@0.1.0".to_owned(),
            imports: texts(imports),
            libraries: Vec::new(),
            reconcilers: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            grants: Vec::new(),
            outbound: Vec::new(),
            egress: Vec::new(),
            warnings: Vec::new(),
            config_schema: None,
        };
        let (roles, elsewhere) = <(Roles, Roles)>::default();
        Side { shown: shown.to_owned(), inspection, description, roles, elsewhere }
    }

    /// The same module with a call to a system outside of the cluster.
    fn calling(mut side: Side, method: &'static str) -> Side {
        side.inspection.outbound = vec![OutboundEntry {
            origin: "https://a.example.com".to_owned(),
            methods: vec![method],
            credentials: Vec::new(),
            pause: Duration::ZERO,
        }];
        side
    }

    const PAGE: &str = "\
- a.wasm 1.0.0
+ b.wasm 1.0.0
permissions
  as before
grants
- - {\"apiGroups\":[\"\"],\"resources\":[\"pods\"],\"verbs\":[\"get\"]}
+ - {\"apiGroups\":[\"\"],\"resources\":[\"pods\"],\"verbs\":[\"list\"]}
calls
- GET https://a.example.com
+ POST https://a.example.com
reconciles
  as before
imports
- mortise:host/clock@0.1.0
+ example:shouting/shout@1.0.0
contract
  mortise:host@0.1.0 as before
size
  2 KiB (2048 bytes) → 5 KiB (4097 bytes)
";

    #[test]
    fn grants_imports_and_sizes_that_differ_are_shown() {
        let before = calling(side("a.wasm", &["get", "watch"], &[CLOCK, LOG], 2048), "GET");
        let after = calling(side("b.wasm", &["list", "watch"], &[LOG, SHOUT], 4097), "POST");
        let page = Difference::of(&before, &after).for_people();
        let page = anstream::adapter::strip_str(&page).to_string();
        assert_eq!(page, PAGE, "\n{page}");
    }

    #[test]
    fn a_module_of_another_contract_shows_both_and_does_not_ask_for_more() {
        let before = side("a.wasm", &["get"], &[LOG], 1);
        let mut after = side("b.wasm", &["get"], &[LOG], 1);
        after.inspection.contract = "mortise:host@0.2.0".to_owned();
        let difference = Difference::of(&before, &after);
        let page = anstream::adapter::strip_str(&difference.for_people()).to_string();
        let expected = "\ncontract\n  mortise:host@0.1.0 → mortise:host@0.2.0\nsize\n";
        assert!(page.contains(expected), "{page}");
        let json = serde_json::to_value(&difference).unwrap();
        assert_eq!(json["modules"][0]["contract"], "mortise:host@0.1.0");
        assert_eq!(json["modules"][1]["contract"], "mortise:host@0.2.0");
        assert!(!difference.asks_for_more, "it declares the same");
    }

    #[test]
    fn a_grant_or_an_import_more_asks_for_more_and_a_larger_module_does_not() {
        let before = side("a.wasm", &["get"], &[LOG], 1);
        let cases = [
            ("the same", side("b.wasm", &["get"], &[LOG], 1), false),
            ("larger", side("b.wasm", &["get"], &[LOG], 2), false),
            ("another grant", side("b.wasm", &["get", "list"], &[LOG], 1), true),
            ("another import", side("b.wasm", &["get"], &[LOG, CLOCK], 1), true),
            ("a call", calling(side("b.wasm", &["get"], &[LOG], 1), "GET"), true),
            ("fewer of both", side("b.wasm", &[], &[], 1), false),
        ];
        for (case, after, expected) in cases {
            assert_eq!(Difference::of(&before, &after).asks_for_more, expected, "{case}");
        }
    }
}
