//! How the program becomes a zygote, and what is left of it when it ends.

use crate::support::*;
use paceline::{Cluster, Error};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const TESTS: &[(&str, fn())] = &[
    ("tasks_start_no_clusters", tasks_start_no_clusters),
    ("what_a_task_starts_is_no_zygote", what_a_task_starts_is_no_zygote),
    ("output_is_shown", output_is_shown),
    ("without_init_nothing_starts", without_init_nothing_starts),
    ("dropping_ends_what_is_pending", dropping_ends_what_is_pending),
    ("dropping_leaves_no_process", dropping_leaves_no_process),
    ("nothing_outlives_a_killed_program", nothing_outlives_a_killed_program),
    ("a_forked_child_has_no_part_in_the_cluster", a_forked_child_has_no_part_in_the_cluster),
    ("a_task_that_forks_answers_once", a_task_that_forks_answers_once),
];

#[paceline::task]
fn nest() -> Result<(), Error> {
    Cluster::connect().map(drop)
}

fn tasks_start_no_clusters() {
    let error = nest::call(&one()).unwrap_err();
    assert_eq!(error.to_string(), "rust_tasks::life::nest failed: a task cannot start a cluster");
}

#[paceline::task]
fn start_again() -> String {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).env(ROLE, "child").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn what_a_task_starts_is_no_zygote() {
    assert_eq!(start_again::call(&one()).unwrap(), "not a zygote\n");
}

#[paceline::task]
pub fn talk(text: String) {
    // Without a line's end.
    print!("{text}");
}

/// What this program prints in this role.
fn play(role: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap()).env(ROLE, role).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn output_is_shown() {
    let printed = play("talker");
    let lines: Vec<_> = printed.lines().map(|line| line.split_once("] ").unwrap()).collect();
    assert!(lines.iter().all(|(slot, _)| slot.starts_with("[slot ")), "{printed}");
    assert_eq!(lines.iter().map(|(_, text)| *text).collect::<Vec<_>>(), ["hello", "world"]);
}

fn without_init_nothing_starts() {
    assert_eq!(play("uninitialised"), "not-initialised: paceline::init() was not called\n");
}

fn dropping_ends_what_is_pending() {
    let cluster = one();
    let (running, ..) = dawdling(&cluster, false);
    let queued = square::submit(&cluster, 7);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| running.wait());
        drop(cluster);
        let error = waits.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Closed), "{error:?}");
    });
    assert!(matches!(queued.wait(), Err(Error::Closed)));
}

fn dropping_leaves_no_process() {
    let cluster = two();
    assert_eq!(square::map(&cluster, 0..100).unwrap().len(), 100);
    let (_future, ..) = dawdling(&cluster, false);
    let mut pids: Vec<u32> = cluster.status().slots.iter().filter_map(|slot| slot.pid).collect();
    assert!(pids.len() >= 2, "{pids:?}");
    let zygotes = zygotes(&pids);
    assert_eq!(zygotes.len(), 1, "the zygote: {zygotes:?}");
    pids.extend(zygotes);
    let began = Instant::now();
    drop(cluster);
    assert!(began.elapsed() < Duration::from_secs(3), "it took {:?}", began.elapsed());
    pids.iter().for_each(|&pid| assert!(is_gone(pid), "{pid} is still there"));
}

/// A program that is killed while its cluster runs and a forked child of it lives.
pub fn victim() {
    let cluster = two();
    let (_future, ..) = dawdling(&cluster, false);
    let mut pids: Vec<u32> = cluster.status().slots.iter().filter_map(|slot| slot.pid).collect();
    pids.extend(zygotes(&pids));
    // SAFETY: the child only waits for its end.
    let child = unsafe { libc::fork() };
    if child == 0 {
        std::thread::sleep(LIMIT);
        std::process::exit(0);
    }
    println!("{child} {}", pids.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
    std::thread::sleep(LIMIT * 2);
}

fn nothing_outlives_a_killed_program() {
    let mut program = Command::new(std::env::current_exe().unwrap());
    let mut victim = program.env(ROLE, "victim").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(victim.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pids: Vec<u32> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    victim.kill().unwrap();
    victim.wait().unwrap();
    let (child, others) = pids.split_first().unwrap();
    assert!(others.len() >= 3, "two slots and a zygote: {others:?}");
    let until = Instant::now() + LIMIT / 2;
    while let Some(pid) = others.iter().find(|pid| !is_gone(**pid)) {
        assert!(Instant::now() < until, "{pid} is still there");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(!is_gone(*child), "the forked child has nothing to do with it");
    // SAFETY: that process is the one made above.
    unsafe { libc::kill(*child as i32, libc::SIGKILL) };
}

fn a_forked_child_has_no_part_in_the_cluster() {
    let cluster = one();
    assert_eq!(square::call(&cluster, 7).unwrap(), 49);
    // SAFETY: the child asks for an answer that needs no other thread, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let closed = matches!(square::call(&cluster, 7), Err(Error::Closed));
        drop(cluster);
        std::process::exit(if closed { 0 } else { 1 });
    }
    let mut status = -1;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(square::call(&cluster, 8).unwrap(), 64, "EM-4");
}

#[paceline::task]
fn fork() -> u32 {
    // SAFETY: both sides only return.
    unsafe { libc::fork() };
    std::process::id()
}

fn a_task_that_forks_answers_once() {
    let cluster = one();
    let slot = pid::call(&cluster).unwrap();
    for _ in 0..10 {
        assert_eq!(fork::call(&cluster).unwrap(), slot);
    }
    assert_eq!(square::map(&cluster, 0..100).unwrap().len(), 100);
}
