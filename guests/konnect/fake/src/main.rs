//! The program `konnect-fake`: parses its arguments, starts the server, prints its requests.

mod args;

use std::{
    io::{self, Write as _},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context as _, Result};
use clap::Parser as _;
use konnect_fake::{Config, Konnect, Request, Server, Tokens, id, server::Options};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::args::Args;

/// The most lines that wait for standard output; further ones are left out.
const MAX_LINES: usize = 1_024;

#[tokio::main]
async fn main() -> ExitCode {
    let ended = run(Args::parse()).await;
    let Err(error) = ended else { return ExitCode::SUCCESS };
    let _ = writeln!(io::stderr(), "konnect-fake: {error:#}");
    ExitCode::FAILURE
}

async fn run(args: Args) -> Result<()> {
    let (lines, mut received) = mpsc::channel(MAX_LINES);
    let observer = move |request: &Request, status: Option<u16>| {
        let status = status.map_or_else(|| "closed".to_owned(), |status| status.to_string());
        // A reader that is too slow misses lines; the log has them all.
        let _ = lines.try_send(format!("{} {} {status}", request.method, request.path));
    };
    let options = Options {
        address: ([127, 0, 0, 1], args.port).into(),
        observer: Some(Arc::new(observer)),
        ..Options::default()
    };
    let ids = id::seeded(&uuid::Uuid::new_v4().to_string());
    let konnect = Konnect::new(Config { tokens: tokens(&args.tokens), ids, ..Config::default() });
    let server = Server::start(konnect, options).await?;
    print(&egress(&server).to_string())?;
    while let Some(line) = received.recv().await {
        print(&line)?;
    }
    Ok(())
}

fn tokens(given: &[String]) -> Tokens {
    if given.is_empty() {
        return Tokens::Any;
    }
    let known = given.iter().map(|token| match token.split_once('=') {
        Some((token, organization)) => (token.to_owned(), organization.to_owned()),
        None => (token.clone(), token.clone()),
    });
    Tokens::Known(known.collect())
}

/// Returns the grant that a Processor needs.
fn egress(server: &Server) -> Value {
    json!({"egress": [{
        "origin": "https://*.api.konghq.com",
        "connect": server.address().to_string(),
        "caBundle": server.authority(),
        "private": true,
        "credentials": [
            {"kind": "Secret", "labels": "konghq.com/credential=konnect"},
            {"group": "konnect.konghq.com", "kind": "KonnectAPIAuthConfiguration"},
        ],
    }]})
}

/// Prints a line. Whoever has started the program may have gone: then it ends.
fn print(line: &str) -> Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).context("cannot print")
}
