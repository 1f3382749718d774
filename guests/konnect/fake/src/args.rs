//! The command line.

use clap::Parser;

/// A fake of the Konnect API on this machine, for tests and demonstrations.
///
/// Everything is kept in memory. Each token is a tenant of its own; one that ends in `.bad` is
/// unknown. The first line on standard output is JSON: the grant that a Processor needs to call
/// it, with the authority of its certificate. Each request adds a line: method, path, status.
#[derive(Debug, Parser)]
#[command(name = "konnect-fake", version, after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The port on 127.0.0.1; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
    /// A token that is known, in place of all tokens; may be given several times. Text after `=`
    /// names its organization, which is otherwise one of its own.
    #[arg(long = "token", value_name = "TOKEN[=ORGANIZATION]")]
    pub(crate) tokens: Vec<String>,
}

const EXAMPLES: &str = "\
Examples, with the port of the first line:
  The requests so far:
    curl -k https://127.0.0.1:PORT/_log
  One answer 429 to the next creation of a service:
    curl -k https://127.0.0.1:PORT/_faults -d '[{\"method\": \"POST\", \"path\": \"/services$\", \
\"status\": 429, \"headers\": {\"Retry-After\": \"7\"}}]'
  An edit behind the caller's back:
    curl -k https://127.0.0.1:PORT/_data -d '{\"edit\": \"services\", \"name\": \"svc\", \"set\": \
{\"host\": \"edited.example\"}}'";
