use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    process::Stdio,
};

use super::*;

#[test]
fn an_abandoned_process_is_not_started() {
    let process = Process::default();
    process.give_up();
    assert!(process.start(&mut Command::new("/nowhere")).unwrap().is_none());
}

#[test]
fn abandoning_a_process_ends_its_children_too() {
    let process = Process::default();
    let mut command = Command::new("sh");
    // The inner `sleep` keeps the output open.
    command.args(["-c", "sleep 1000 & echo started; wait"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let (stdout, _stderr) = process.start(&mut command).unwrap().unwrap();
    let mut lines = BufReader::new(stdout).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "started");
    process.give_up();
    assert!(lines.next().is_none());
    assert!(!process.wait().unwrap().unwrap().success());
}

#[test]
fn processes_that_are_left_behind_are_ended() {
    let process = Process::default();
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 1000 &"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let (stdout, _stderr) = process.start(&mut command).unwrap().unwrap();
    assert!(process.wait_and_clear().unwrap().unwrap().success());
    // The output ends with the last of them.
    assert!(BufReader::new(stdout).lines().next().is_none());
}
