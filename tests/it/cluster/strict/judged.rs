//! Programs that judge objects: they read one a line, and answer one line for each.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
    thread,
};

use serde_json::Value;

/// Returns the judgement of each object, in their order.
pub(super) fn judgements(mut program: Command, objects: &[Value]) -> Vec<Value> {
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines: Vec<String> = objects.iter().map(|object| format!("{object}\n")).collect();
    // It answers while it is still read to.
    let writing = thread::spawn(move || {
        for line in lines {
            input.write_all(line.as_bytes()).unwrap();
        }
    });
    let answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let answers = answers.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    writing.join().unwrap();
    assert!(child.wait().unwrap().success());
    answers
}
