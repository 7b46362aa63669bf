//! Rust tasks on real processes. This program is its own slots, so it needs its own `main`, and with it a small harness.

#[path = "support/harness.rs"]
mod harness;

use paceline::{Cluster, DeathCause, Error, Task};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);
/// Makes this program play another part than the tests.
const ROLE: &str = "PACELINE_TEST_ROLE";

fn main() {
    if std::env::var_os(ROLE).is_some_and(|role| role == "uninitialised") {
        let error = Cluster::connect().err().expect("a cluster without init()");
        println!("{}: {error}", error.code());
        return;
    }
    paceline::init();
    match std::env::var(ROLE).as_deref() {
        Ok("child") => println!("not a zygote"),
        Ok("talker") => drop(talk::call(&one(), "hello\nworld".into())),
        Ok("victim") => victim(),
        Ok(other) => panic!("no such role: {other}"),
        Err(_) => harness::run(TESTS),
    }
}

const TESTS: &[(&str, fn())] = &[
    ("calls", calls),
    ("a_function_stays_a_function", a_function_stays_a_function),
    ("errors_arrive_with_text_and_type", errors_arrive_with_text_and_type),
    ("panics_arrive_and_the_slot_lives_on", panics_arrive_and_the_slot_lives_on),
    ("maps_in_order", maps_in_order),
    ("a_map_ends_with_its_first_failure", a_map_ends_with_its_first_failure),
    ("a_task_whose_slot_died_runs_again", a_task_whose_slot_died_runs_again),
    ("a_task_that_always_kills_is_poison", a_task_that_always_kills_is_poison),
    ("without_retries_a_death_is_told", without_retries_a_death_is_told),
    ("running_tasks_are_cancelled", running_tasks_are_cancelled),
    ("queued_tasks_are_cancelled", queued_tasks_are_cancelled),
    ("a_task_sees_that_it_is_cancelled", a_task_sees_that_it_is_cancelled),
    ("a_task_that_does_not_look_is_ended", a_task_that_does_not_look_is_ended),
    ("tasks_run_out_of_time", tasks_run_out_of_time),
    ("waiting_has_an_end", waiting_has_an_end),
    ("futures_can_be_awaited", futures_can_be_awaited),
    ("threads_share_a_cluster", threads_share_a_cluster),
    ("unknown_tasks_are_refused", unknown_tasks_are_refused),
    ("what_cannot_travel_is_told", what_cannot_travel_is_told),
    ("what_never_fits_is_told", what_never_fits_is_told),
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

fn one() -> Cluster {
    Cluster::embedded().cpus(1).start().unwrap()
}

fn two() -> Cluster {
    Cluster::embedded().cpus(2).start().unwrap()
}

#[paceline::task]
fn square(x: u64) -> u64 {
    x * x
}

#[paceline::task]
fn pid() -> u32 {
    std::process::id()
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Order {
    item: String,
    count: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    note: Option<String>,
    prices: BTreeMap<u8, f64>,
}

#[paceline::task(name = "orders/double", retries = 1, cpus = 1, priority = 2)]
fn double(mut order: Order, times: u32, (a, b): (i64, i64)) -> (Order, i64) {
    order.count *= times;
    (order, a - b)
}

/// Parameters may have any name.
#[paceline::task]
fn odd_names(cluster: u8, items: u8, arguments: u8, run: u8) -> u8 {
    cluster + items + arguments + run
}

fn calls() {
    let cluster = two();
    assert_eq!(square::call(&cluster, 7).unwrap(), 49);
    assert_eq!(square::submit(&cluster, 8).wait().unwrap(), 64);
    assert_eq!(cluster.call::<square>((9,)).unwrap(), 81);
    assert_eq!(square::options().retries(0).priority(3).call(&cluster, (10,)).unwrap(), 100);
    assert_ne!(pid::call(&cluster).unwrap(), std::process::id());
    assert_eq!(odd_names::call(&cluster, 1, 2, 3, 4).unwrap(), 10);
    let order = Order { item: "nut".into(), count: 3, note: None, prices: BTreeMap::from([(1, 0.5)]) };
    let (doubled, difference) = double::call(&cluster, order.clone(), 2, (i64::MIN, -1)).unwrap();
    assert_eq!((doubled, difference), (Order { count: 6, ..order }, i64::MIN + 1));
    assert_eq!(double::NAME, "orders/double");
    let long = "x".repeat(3 << 20);
    assert_eq!(shout::call(&cluster, long.clone()).unwrap(), long.to_uppercase());
}

#[paceline::task]
fn shout(text: String) -> String {
    text.to_uppercase()
}

fn a_function_stays_a_function() {
    assert_eq!(square(7), 49);
    let square = square(3);
    assert_eq!(square, 9);
    assert_eq!((1..4).map(crate::square).sum::<u64>(), 14);
}

#[derive(Debug, thiserror::Error)]
#[error("there is no {what}")]
struct Missing {
    what: String,
}

#[paceline::task]
fn find(what: String) -> Result<usize, Missing> {
    if what == "needle" { Ok(7) } else { Err(Missing { what }) }
}

#[paceline::task]
fn read(path: PathBuf) -> std::io::Result<String> {
    std::fs::read_to_string(path)
}

fn errors_arrive_with_text_and_type() {
    let cluster = one();
    assert_eq!(find::call(&cluster, "needle".into()).unwrap(), 7);
    let error = find::call(&cluster, "hay".into()).unwrap_err();
    assert_eq!((error.code(), error.hint()), ("task-failed", None));
    assert_eq!(error.to_string(), "rust_tasks::find failed: there is no hay");
    let Error::Failed { kind, .. } = error else { panic!("{error:?}") };
    assert_eq!(kind, "rust_tasks::Missing");
    let error = read::call(&cluster, "/nonexistent".into()).unwrap_err();
    assert!(matches!(&error, Error::Failed { kind, .. } if kind == "std::io::error::Error"), "{error:?}");
    assert!(error.to_string().contains("No such file"), "{error}");
}

#[paceline::task]
fn divide(a: u64, b: u64) -> u64 {
    a / b
}

#[paceline::task]
fn panic_with_anything() {
    std::panic::panic_any(7);
}

fn panics_arrive_and_the_slot_lives_on() {
    let cluster = one();
    let before = pid::call(&cluster).unwrap();
    for _ in 0..3 {
        let error = divide::call(&cluster, 1, 0).unwrap_err();
        let Error::Panicked { message, location, .. } = &error else { panic!("{error:?}") };
        assert_eq!((message.as_str(), error.code()), ("attempt to divide by zero", "task-panicked"));
        assert!(location.contains("rust_tasks.rs:"), "{location}");
    }
    let error = panic_with_anything::call(&cluster).unwrap_err();
    assert!(matches!(error, Error::Panicked { .. }), "{error:?}");
    assert_eq!(divide::call(&cluster, 6, 3).unwrap(), 2);
    assert_eq!(pid::call(&cluster).unwrap(), before, "RS-2");
}

fn maps_in_order() {
    let cluster = two();
    let expected: Vec<u64> = (0..10_000).map(|x| x * x).collect();
    assert_eq!(square::map(&cluster, 0..10_000).unwrap(), expected);
    assert_eq!(divide::map(&cluster, [(6, 3), (9, 3)]).unwrap(), [2, 3]);
    assert_eq!(square::map(&cluster, []).unwrap(), [0; 0]);
    assert_eq!(square::options().map(&cluster, (0..1024).map(|x| (x,))).unwrap().len(), 1024);
}

fn a_map_ends_with_its_first_failure() {
    let cluster = two();
    let items = (0..5_000).map(|x| (100, if x == 1_500 { 0 } else { 1 }));
    let error = divide::map(&cluster, items).unwrap_err();
    assert!(matches!(error, Error::Panicked { .. }), "{error:?}");
    assert_eq!(square::call(&cluster, 7).unwrap(), 49);
}

/// A file that does not exist yet, and goes with this.
struct Mark(PathBuf);

impl Mark {
    fn new(name: &str) -> Mark {
        let path = std::env::temp_dir().join(format!("paceline-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Mark(path)
    }

    fn wait(&self, what: &str) {
        let until = Instant::now() + LIMIT;
        while !self.0.exists() {
            assert!(Instant::now() < until, "waited for {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[paceline::task]
fn abort_once(mark: PathBuf) -> u32 {
    if !mark.exists() {
        std::fs::write(mark, "").unwrap();
        std::process::abort();
    }
    7
}

#[paceline::task]
fn abort(log: PathBuf) {
    use std::io::Write;
    let mut log = std::fs::File::options().create(true).append(true).open(log).unwrap();
    log.write_all(b"x").unwrap();
    std::process::abort();
}

#[paceline::task(retries = 0)]
fn leave(code: i32) {
    std::process::exit(code);
}

fn a_task_whose_slot_died_runs_again() {
    let cluster = two();
    let mark = Mark::new("once");
    assert_eq!(abort_once::call(&cluster, mark.0.clone()).unwrap(), 7);
}

fn a_task_that_always_kills_is_poison() {
    let cluster = one();
    let log = Mark::new("poison");
    let killer = abort::options().retries(100).submit(&cluster, (log.0.clone(),));
    let neighbours: Vec<_> = (0..20).map(|x| square::submit(&cluster, x)).collect();
    let error = killer.wait().unwrap_err();
    let Error::Poison { death, deaths, .. } = &error else { panic!("{error:?}") };
    assert_eq!((death.cause, *deaths, error.code()), (DeathCause::Signal(6), 3, "poison-task"));
    assert_eq!(std::fs::read(&log.0).unwrap(), b"xxx", "it ran three times");
    for (x, neighbour) in (0..).zip(neighbours) {
        assert_eq!(neighbour.wait().unwrap(), x * x);
    }
}

fn without_retries_a_death_is_told() {
    let cluster = one();
    let log = Mark::new("death");
    let error = abort::options().retries(0).call(&cluster, (log.0.clone(),)).unwrap_err();
    let Error::SlotDied { death, attempts, .. } = &error else { panic!("{error:?}") };
    assert_eq!((death.cause, *attempts), (DeathCause::Signal(6), 1));
    let error = leave::call(&cluster, 3).unwrap_err();
    assert!(
        matches!(&error, Error::SlotDied { death, .. } if death.cause == DeathCause::Exit(3)),
        "{error:?}"
    );
    assert_eq!(square::call(&cluster, 7).unwrap(), 49);
}

/// Goes on until it is cancelled, or for ever if it does not look.
#[paceline::task]
fn dawdle(begun: PathBuf, looks: bool, ended: PathBuf) {
    std::fs::write(begun, std::process::id().to_string()).unwrap();
    while !(looks && paceline::is_cancelled()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::write(ended, "").unwrap();
}

/// A task that runs, and the marks of its beginning and its end.
fn dawdling(cluster: &Cluster, looks: bool) -> (paceline::Future<()>, Mark, Mark) {
    let (begun, ended) = (Mark::new("begun"), Mark::new("ended"));
    let future = dawdle::submit(cluster, begun.0.clone(), looks, ended.0.clone());
    begun.wait("the task to begin");
    (future, begun, ended)
}

fn assert_cancelled(future: paceline::Future<()>) {
    let began = Instant::now();
    assert!(future.cancel());
    assert!(future.is_done());
    assert!(!future.cancel(), "it has ended already");
    let error = future.wait().unwrap_err();
    assert!(matches!(error, Error::Cancelled { .. }), "{error:?}");
    assert!(began.elapsed() < Duration::from_millis(200), "it took {:?}", began.elapsed());
}

fn running_tasks_are_cancelled() {
    let cluster = two();
    let (future, ..) = dawdling(&cluster, true);
    assert_cancelled(future);
    assert_eq!(square::call(&cluster, 7).unwrap(), 49);
}

fn queued_tasks_are_cancelled() {
    let cluster = one();
    let (first, ..) = dawdling(&cluster, true);
    let ended = Mark::new("queued");
    let queued = dawdle::submit(&cluster, ended.0.clone(), true, ended.0.clone());
    assert!(!queued.is_done());
    assert_cancelled(queued);
    assert_cancelled(first);
    assert_eq!(square::call(&cluster, 7).unwrap(), 49);
    assert!(!ended.0.exists(), "it never ran");
}

fn a_task_sees_that_it_is_cancelled() {
    let cluster = one();
    let before = pid::call(&cluster).unwrap();
    let (future, _, ended) = dawdling(&cluster, true);
    assert_cancelled(future);
    ended.wait("the task to see that it is cancelled");
    assert_eq!(pid::call(&cluster).unwrap(), before, "the slot lives on");
    assert!(!paceline::is_cancelled());
}

fn a_task_that_does_not_look_is_ended() {
    let cluster = one();
    let (future, begun, ended) = dawdling(&cluster, false);
    let slot: u32 = std::fs::read_to_string(&begun.0).unwrap().parse().unwrap();
    assert_cancelled(future);
    assert_eq!(square::call(&cluster, 7).unwrap(), 49);
    assert!(is_gone(slot));
    assert!(!ended.0.exists());
}

#[paceline::task(retries = 0, timeout = Duration::from_millis(50))]
fn hurry(time: Duration) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if paceline::is_cancelled() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

fn tasks_run_out_of_time() {
    let cluster = one();
    assert!(hurry::call(&cluster, Duration::ZERO).unwrap());
    let error = hurry::call(&cluster, LIMIT).unwrap_err();
    assert!(matches!(error, Error::TimedOut { attempts: 1, .. }), "{error:?}");
    assert!(hurry::call(&cluster, Duration::ZERO).unwrap());
}

fn waiting_has_an_end() {
    let cluster = one();
    let future = nap::submit(&cluster, Duration::from_millis(300));
    assert_eq!(future.wait_timeout(Duration::from_millis(20)).unwrap(), None);
    assert!(!future.is_done());
    assert_eq!(future.wait_timeout(LIMIT).unwrap(), Some(7));
    assert!(future.is_done());
    assert_eq!(future.wait_timeout(Duration::MAX).unwrap(), Some(7), "and again");
    assert_eq!(future.wait().unwrap(), 7);
}

#[paceline::task]
fn nap(time: Duration) -> u8 {
    std::thread::sleep(time);
    7
}

fn futures_can_be_awaited() {
    let cluster = two();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        assert_eq!(square::submit(&cluster, 7).await.unwrap(), 49);
        let futures: Vec<_> = (0..500).map(|x| tokio::spawn(square::submit(&cluster, x))).collect();
        for (x, future) in (0..).zip(futures) {
            assert_eq!(future.await.unwrap().unwrap(), x * x);
        }
        let slow = nap::submit(&cluster, Duration::from_secs(60));
        assert!(tokio::time::timeout(Duration::from_millis(20), slow).await.is_err(), "the loop goes on");
        let error = divide::submit(&cluster, 1, 0).await.unwrap_err();
        assert!(matches!(error, Error::Panicked { .. }), "{error:?}");
    });
}

fn threads_share_a_cluster() {
    let cluster = two();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cluster = &cluster;
            scope.spawn(move || {
                for x in 0..300 {
                    assert_eq!(square::call(cluster, thread * x).unwrap(), (thread * x).pow(2));
                }
            });
        }
    });
}

/// Made by hand and registered nowhere.
struct Unknown;

impl Task for Unknown {
    const NAME: &'static str = "unknown";
    type Arguments = ();
    type Output = ();
}

/// Has the name of another task, and other types.
struct Impostor;

impl Task for Impostor {
    const NAME: &'static str = square::NAME;
    type Arguments = (String,);
    type Output = u64;
}

fn unknown_tasks_are_refused() {
    let cluster = one();
    let error = cluster.call::<Unknown>(()).unwrap_err();
    let Error::NoSuchTask { task: "unknown", known } = &error else { panic!("{error:?}") };
    assert!(known.contains(&"orders/double".to_owned()), "{known:?}");
    assert!(error.hint().is_some());
    let error = cluster.call::<Impostor>(("x".into(),)).unwrap_err();
    assert!(matches!(error, Error::Decode { what: "the arguments", .. }), "{error:?}");
}

/// Cannot be encoded if it is odd, or decoded if it is four.
struct Picky(u8);

impl Serialize for Picky {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(2) {
            self.0.serialize(serializer)
        } else {
            Err(serde::ser::Error::custom("it is odd"))
        }
    }
}

impl<'a> Deserialize<'a> for Picky {
    fn deserialize<D: serde::Deserializer<'a>>(deserializer: D) -> Result<Picky, D::Error> {
        match u8::deserialize(deserializer)? {
            4 => Err(serde::de::Error::custom("it is four")),
            number => Ok(Picky(number)),
        }
    }
}

#[paceline::task]
fn add(picky: Picky, number: u8) -> Picky {
    Picky(picky.0 + number)
}

fn what_cannot_travel_is_told() {
    let cluster = one();
    for (picky, number, code, text) in [
        (1, 0, "not-serializable", "an argument of rust_tasks::add cannot be encoded: it is odd"),
        (4, 0, "not-deserializable", "the arguments of rust_tasks::add cannot be decoded: picky: it is four"),
        (2, 1, "not-serializable", "the value of rust_tasks::add cannot be encoded: it is odd"),
        (2, 2, "not-deserializable", "the value of rust_tasks::add cannot be decoded: it is four"),
    ] {
        let error = add::call(&cluster, Picky(picky), number).err().unwrap();
        assert_eq!((error.code(), error.to_string().as_str()), (code, text));
        let later = add::submit(&cluster, Picky(picky), number).wait().err().unwrap();
        assert_eq!(later.to_string(), text);
    }
    assert_eq!(add::call(&cluster, Picky(2), 4).unwrap().0, 6);
}

fn what_never_fits_is_told() {
    let cluster = one();
    let error = square::options().cpus(2.0).call(&cluster, (7,)).unwrap_err();
    assert_eq!(error.code(), "no-resources");
    let error = square::options().cpus(-1.0).call(&cluster, (7,)).unwrap_err();
    assert_eq!(error.to_string(), "not a number of CPUs: -1");
    assert_eq!(Cluster::embedded().cpus(0).start().err().unwrap().code(), "bad-cpus");
}

#[paceline::task]
fn nest() -> Result<(), Error> {
    Cluster::connect().map(drop)
}

fn tasks_start_no_clusters() {
    let error = nest::call(&one()).unwrap_err();
    assert_eq!(error.to_string(), "rust_tasks::nest failed: a task cannot start a cluster");
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
fn talk(text: String) {
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
    let zygotes = children();
    assert_eq!(zygotes.len(), 1, "the zygote: {zygotes:?}");
    pids.extend(zygotes);
    let began = Instant::now();
    drop(cluster);
    assert!(began.elapsed() < Duration::from_secs(3), "it took {:?}", began.elapsed());
    pids.iter().for_each(|&pid| assert!(is_gone(pid), "{pid} is still there"));
}

/// A program that is killed while its cluster runs and a forked child of it lives.
fn victim() {
    let cluster = two();
    let (_future, ..) = dawdling(&cluster, false);
    let mut pids: Vec<u32> = cluster.status().slots.iter().filter_map(|slot| slot.pid).collect();
    pids.extend(children());
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

fn is_gone(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    stat.rsplit(')').next().unwrap().trim_start().starts_with('Z')
}

fn children() -> Vec<u32> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}
