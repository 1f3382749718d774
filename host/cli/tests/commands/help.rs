use std::{collections::BTreeSet, path::Path};

use clap::CommandFactory as _;

use crate::mortise;

/// Writes what differs instead of failing.
const UPDATE: &str = "MORTISE_UPDATE_HELP";

#[test]
fn help_of_every_command_is_as_it_was_reviewed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/help");
    let program = ::mortise::args::Args::command();
    let commands = program.get_subcommands().map(clap::Command::get_name);
    let mut files = BTreeSet::new();
    for command in commands {
        let output = mortise()
            .args([command, "--help"])
            .env_remove("MORTISE_LOG")
            .env_remove("MORTISE_CACHE")
            .env_remove("DOCKER_CONFIG")
            .output()
            .unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let file = folder.join(format!("{command}.txt"));
        if std::env::var_os(UPDATE).is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, &help).unwrap();
        }
        let reviewed = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(help, reviewed, "review it, then run this test with {UPDATE}=1");
        files.insert(file);
    }
    let there = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    assert_eq!(there.collect::<BTreeSet<_>>(), files, "a file for each command");
}

#[test]
fn environment_variables_stand_beside_their_options() {
    let output = mortise().arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for part in
        ["[env: MORTISE_LOG=", "[env: MORTISE_CACHE=", "Exit codes:", "  3  a reconcile failed"]
    {
        assert!(help.contains(part), "{part} is missing in:\n{help}");
    }
}
