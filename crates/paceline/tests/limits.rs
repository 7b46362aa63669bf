//! Queues and results beyond their limits, on real processes. This program is its own slots, as that of `rust_tasks`.

#[path = "support/harness.rs"]
mod harness;

use paceline::{Cluster, Error};
use serde_bytes::ByteBuf;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);

fn main() {
    paceline::init();
    harness::run(&[
        ("submitting_waits_for_room", submitting_waits_for_room),
        ("trying_does_not_wait", trying_does_not_wait),
        ("one_task_may_be_larger_than_the_limit", one_task_may_be_larger_than_the_limit),
        ("a_waker_is_never_stopped", a_waker_is_never_stopped),
        ("closing_ends_the_wait", closing_ends_the_wait),
        ("maps_of_any_size_keep_within_the_limits", maps_of_any_size_keep_within_the_limits),
        ("results_beyond_the_budget_come_back_from_disk", results_beyond_the_budget_come_back_from_disk),
    ]);
}

#[paceline::task]
fn square(x: u64) -> u64 {
    x * x
}

#[paceline::task]
fn length(bytes: ByteBuf) -> usize {
    bytes.len()
}

#[paceline::task]
fn make(byte: u8, length: usize) -> ByteBuf {
    ByteBuf::from(vec![byte; length])
}

#[paceline::task]
fn hold(path: PathBuf) {
    let until = Instant::now() + LIMIT;
    while !path.exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Keeps the one slot of a cluster busy until it is dropped.
struct Busy(PathBuf);

impl Busy {
    fn new(cluster: &Cluster, name: &str) -> Busy {
        let path = std::env::temp_dir().join(format!("paceline-{name}-{}", std::process::id()));
        let running = hold::submit(cluster, path.clone());
        // Long enough for the slot to say that it runs something long, so that nothing is sent ahead.
        assert!(running.wait_timeout(Duration::from_millis(100)).unwrap().is_none());
        Busy(path)
    }

    fn release(&self) {
        std::fs::write(&self.0, "").unwrap();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn small() -> Cluster {
    Cluster::embedded().cpus(1).queue_tasks(3).queue_bytes(1_000_000).start().unwrap()
}

fn submitting_waits_for_room() {
    let cluster = small();
    let busy = Busy::new(&cluster, "waits");
    std::thread::scope(|scope| {
        let (said, says) = mpsc::channel();
        let cluster = &cluster;
        scope.spawn(move || {
            let futures: Vec<_> = (0..50).map(|x| square::submit(cluster, x)).collect();
            said.send(()).unwrap();
            let values: Vec<u64> = futures.into_iter().map(|future| future.wait().unwrap()).collect();
            assert_eq!(values, (0..50).map(|x| x * x).collect::<Vec<u64>>());
        });
        assert!(says.recv_timeout(Duration::from_millis(200)).is_err(), "there is no room for so many");
        busy.release();
        says.recv_timeout(LIMIT).expect("room comes by itself");
    });
}

fn trying_does_not_wait() {
    let cluster = small();
    let busy = Busy::new(&cluster, "tries");
    let futures: Vec<_> = (0..3).map(|x| square::try_submit(&cluster, x).unwrap()).collect();
    let error = square::options().retries(0).try_submit(&cluster, (7,)).err().expect("no room");
    assert_eq!(error.code(), "queue-full");
    assert!(error.to_string().contains("3 of 3 tasks"), "{error}");
    assert!(error.hint().is_some());
    assert!(futures[1].cancel());
    let last = square::try_submit(&cluster, 9).expect("a cancelled task makes room");
    busy.release();
    assert_eq!(last.wait().unwrap(), 81);
}

fn one_task_may_be_larger_than_the_limit() {
    let cluster = small();
    let busy = Busy::new(&cluster, "large");
    let large = length::try_submit(&cluster, ByteBuf::from(vec![0; 5_000_000])).unwrap();
    let error = square::try_submit(&cluster, 7).err().expect("no room");
    assert!(
        matches!(error, Error::QueueFull { waiting, .. } if waiting.tasks == 1 && waiting.bytes > 5_000_000)
    );
    busy.release();
    assert_eq!(large.wait().unwrap(), 5_000_000);
}

/// A waker that submits when it is told of a value, in the callback thread.
struct Submits {
    cluster: &'static Cluster,
    path: &'static Path,
    said: mpsc::SyncSender<Error>,
}

impl std::task::Wake for Submits {
    fn wake(self: std::sync::Arc<Self>) {
        for _ in 0..100 {
            let future = hold::submit(self.cluster, self.path.with_extension("never"));
            if let Err(error) = future.wait_timeout(Duration::ZERO) {
                return drop(self.said.try_send(error));
            }
        }
    }
}

fn a_waker_is_never_stopped() {
    let cluster: &'static Cluster = Box::leak(Box::new(small()));
    let busy: &'static Busy = Box::leak(Box::new(Busy::new(cluster, "waker")));
    let (said, says) = mpsc::sync_channel(1);
    let waker = std::sync::Arc::new(Submits { cluster, path: &busy.0, said }).into();
    let mut future = std::pin::pin!(square::submit(cluster, 3));
    let mut context = std::task::Context::from_waker(&waker);
    assert!(std::future::Future::poll(future.as_mut(), &mut context).is_pending());
    busy.release();
    let error = says.recv_timeout(LIMIT).expect("the callback thread goes on");
    assert_eq!(error.code(), "queue-full");
    let _ = std::fs::remove_file(&busy.0);
}

fn closing_ends_the_wait() {
    // A cluster ends with its owner, and those who submit borrow it: so what waits here is below it, in its session.
    let config = paceline::embedded::Config {
        cpus: 1,
        gpus: paceline::hardware::Gpus::Auto,
        memory: paceline::hardware::Memory::Auto,
        more: Default::default(),
        resources: Vec::new(),
        spares: 0,
        command: vec!["/bin/false".into()],
        variables: Vec::new(),
        name: "closing".into(),
        object_memory: None,
    };
    let limits = paceline::Limits { queue_tasks: 1, ..paceline::Limits::default() };
    let print: paceline::Print = std::sync::Arc::new(|_, _, _| {});
    let enter = std::sync::Arc::new(|run: &mut dyn FnMut()| run());
    let session = paceline::Session::embedded(config, Default::default(), enter, print, limits).unwrap();
    let function = session.define(paceline::Bytes::from_static(b"never run"));
    let submission = paceline::Submission {
        function,
        shape: paceline::Shape::cpus(1),
        retries: 0,
        retry_on: paceline::RetryOn::default(),
        timeout: Duration::ZERO,
        priority: 0,
        wait: Duration::ZERO,
        within: paceline::Within::Any,
    };
    let arguments = paceline::Bytes::from_static(b"arguments");
    let submit = || session.submit(&submission, arguments.clone());
    let first = submit().unwrap();
    // A slot that comes may take some before it is known to be no slot.
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        let _ = session.try_submit(&submission, arguments.clone());
    }
    std::thread::scope(|scope| {
        let waits = scope.spawn(submit);
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waits.is_finished());
        let began = Instant::now();
        scope.spawn(|| session.close());
        assert!(matches!(waits.join().unwrap(), Err(paceline::Refused::Closed)));
        assert!(began.elapsed() < Duration::from_millis(500), "RO-3: {:?}", began.elapsed());
    });
    assert_eq!(first.outcome(), Some(paceline::Outcome::Cancelled));
}

fn maps_of_any_size_keep_within_the_limits() {
    let cluster = small();
    let items = (0..300).map(|_| ByteBuf::from(vec![1; 100_000]));
    assert_eq!(length::map(&cluster, items).unwrap(), [100_000; 300]);
    assert_eq!(square::map(&cluster, 0..20_000).unwrap().len(), 20_000);
}

fn results_beyond_the_budget_come_back_from_disk() {
    let cluster = Cluster::embedded().cpus(2).result_bytes(1_000_000).start().unwrap();
    let futures: Vec<_> = (0..100).map(|byte| make::submit(&cluster, byte, 300_000)).collect();
    let until = Instant::now() + LIMIT;
    while !futures.iter().all(paceline::Future::is_done) {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(unnamed_files() > 20_000_000, "{}", unnamed_files());
    for (byte, future) in futures.into_iter().enumerate().rev() {
        assert_eq!(future.wait().unwrap(), vec![byte as u8; 300_000]);
    }
    assert_eq!(unnamed_files(), 0);
}

/// What files without a name that this process has open take on disk.
fn unnamed_files() -> u64 {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path());
    let unnamed = files.filter(|path| {
        let target = std::fs::read_link(path).unwrap_or_default();
        let target = target.to_string_lossy();
        target.ends_with(" (deleted)") && !target.starts_with("/memfd:")
    });
    let size = |path: PathBuf| {
        std::fs::metadata(path).map_or(0, |file| std::os::unix::fs::MetadataExt::blocks(&file) * 512)
    };
    unnamed.map(size).sum()
}
