use clap::CommandFactory as _;

use super::*;

#[test]
fn every_command_has_examples_and_says_its_exit_codes() {
    let mortise = Args::command();
    for command in mortise.get_subcommands().chain([&mortise]) {
        let name = command.get_name();
        let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        assert!(
            help.contains(&format!(
                "Examples:\n  mortise {}",
                if name == "mortise" { "" } else { name }
            )),
            "{name}"
        );
        assert!(help.contains("Exit codes:\n  0  "), "{name}");
        for example in help.lines().filter_map(|line| line.strip_prefix("  mortise ")) {
            let example = example.split(['#', '|', '<', '>']).next().unwrap_or_default();
            let words = ["mortise"].into_iter().chain(example.split_whitespace());
            Args::try_parse_from(words)
                .unwrap_or_else(|error| panic!("{name}: {example}: {error}"));
        }
        assert!(command.get_about().is_some(), "{name}");
        for argument in command.get_arguments() {
            let id = argument.get_id();
            assert!(
                id == "help" || id == "version" || argument.get_help().is_some(),
                "{name}: {id}"
            );
        }
    }
}

#[test]
fn the_command_line_has_no_contradictions() {
    Args::command().debug_assert();
}

#[test]
fn an_option_names_an_origin_an_address_and_authorities() {
    let cases = [
        ("https://a.example", Some((None, None))),
        ("https://a.example=b:1", Some((Some("b:1"), None))),
        ("https://a.example=b:1,ca.pem", Some((Some("b:1"), Some("ca.pem")))),
        ("https://a.example=b:1,a,b=c.pem", Some((Some("b:1"), Some("a,b=c.pem")))),
        ("", None),
        ("=b:1", None),
        ("https://a.example=", None),
        ("https://a.example=b:1,", None),
        ("https://a.example=,ca.pem", None),
    ];
    for (text, expected) in cases {
        let parsed: Option<EgressOption> = text.parse().ok();
        let expected = expected.map(|(connect, authorities)| EgressOption {
            origin: "https://a.example".to_owned(),
            connect: connect.map(str::to_owned),
            authorities: authorities.map(PathBuf::from),
        });
        assert_eq!(parsed, expected, "{text}");
    }
}
