//! Updates of a pool: in order with its jobs, in every slot, also in those that come later.

use crate::support::*;
use paceline::Error;

pub const TESTS: &[(&str, fn())] = &[
    ("updates_and_jobs_have_one_order", updates_and_jobs_have_one_order),
    ("an_update_can_be_waited_for", an_update_can_be_waited_for),
    ("killed_slots_get_all_updates", killed_slots_get_all_updates),
    ("history_has_an_end", history_has_an_end),
    ("one_update_replaces_another", one_update_replaces_another),
    ("the_state_of_one_slot_stands_for_all_updates", the_state_of_one_slot_stands_for_all_updates),
    ("an_update_that_fails_breaks_the_pool", an_update_that_fails_breaks_the_pool),
];

/// Remembers all it is told.
struct Listener {
    heard: Vec<u32>,
}

#[paceline::worker]
impl Listener {
    fn new() -> Listener {
        Listener { heard: Vec::new() }
    }

    fn run(&mut self, job: u32) -> (u32, u32, Vec<u32>) {
        (job, std::process::id(), self.heard.clone())
    }

    fn update(&mut self, number: u32, _filling: Vec<u8>) -> Result<(), String> {
        if number == u32::MAX {
            return Err("this is too much".into());
        }
        self.heard.push(number);
        Ok(())
    }
}

/// The same with a state to be had.
struct Keeper {
    heard: Vec<u32>,
    restored: usize,
}

#[paceline::worker]
impl Keeper {
    fn new() -> Keeper {
        Keeper { heard: Vec::new(), restored: 0 }
    }

    fn run(&mut self) -> (u32, Vec<u32>, usize) {
        (std::process::id(), self.heard.clone(), self.restored)
    }

    fn update(&mut self, number: u32, _filling: String) {
        self.heard.push(number);
    }

    #[checkpoint]
    fn state(&self) -> Vec<u32> {
        self.heard.clone()
    }

    #[restore]
    fn set_state(&mut self, heard: Vec<u32>) {
        self.restored = heard.len();
        self.heard = heard;
    }
}

fn updates_and_jobs_have_one_order() {
    let cluster = two();
    let pool = Listener::options().slots(3).spawn(&cluster, ()).unwrap();
    let mut jobs = Vec::new();
    for n in 0..200 {
        jobs.push((n, pool.submit(n)));
        pool.update((n, Vec::new())).unwrap();
    }
    for (n, job) in jobs {
        let (_, _, heard) = job.wait().unwrap();
        assert_eq!(heard, (0..n).collect::<Vec<_>>(), "all before it, and none after");
    }
    // Also between the jobs of a lazy map, as they are taken.
    for (told, value) in (200..).zip(pool.imap(0..20).lookahead(1)) {
        assert_eq!(value.unwrap().2.len(), told as usize);
        pool.update((told, Vec::new())).unwrap();
    }
    pool.close().unwrap();
}

fn an_update_can_be_waited_for() {
    let cluster = two();
    let pool = Listener::options().slots(2).spawn(&cluster, ()).unwrap();
    assert!(pool.ready(2, LIMIT).unwrap());
    pool.update((1, Vec::new())).unwrap().wait().unwrap();
    assert!(pool.update((2, Vec::new())).unwrap().wait_timeout(LIMIT).unwrap());
    assert_eq!(pool.workers(), 2);
    let _whole = pool.map(0..2).unwrap();
    drop(cluster);
    assert!(matches!(pool.update((3, Vec::new())), Err(Error::Closed)));
}

/// Slots are killed all the time, and still every job finds what was told before it, in order, and is answered once.
fn killed_slots_get_all_updates() {
    let cluster = two();
    let pool = Listener::options().slots(4).retries(1000).spawn(&cluster, ()).unwrap();
    assert!(pool.ready(4, LIMIT).unwrap());
    let (mut jobs, mut updates) = (Vec::new(), 0);
    for n in 0..600 {
        jobs.push((n, updates, pool.submit(n)));
        if n % 6 == 0 {
            pool.update((updates, Vec::new())).unwrap();
            updates += 1;
        }
        if n % 60 == 59 {
            // Whichever is there.
            let (_, pid, _) = pool.submit(u32::MAX).wait().unwrap();
            kill(pid);
        }
    }
    let mut pids = std::collections::BTreeSet::new();
    for (n, before, job) in jobs {
        let (told, pid, heard) = job.wait().unwrap();
        assert_eq!(told, n);
        assert!(heard.len() >= before as usize, "job {n} knows {} of {before} updates", heard.len());
        assert_eq!(heard, (0..heard.len() as u32).collect::<Vec<_>>(), "each once and in order");
        pids.insert(pid);
    }
    assert!(pids.len() > 4, "others took the places of those that died: {pids:?}");
    let last = pool.submit(0).wait().unwrap().2;
    assert_eq!(last.len(), updates as usize);
}

fn history_has_an_end() {
    let cluster = two();
    let pool = Listener::options().slots(1).history(10_000).spawn(&cluster, ()).unwrap();
    let filling = || vec![7; 1000];
    let accepted = (0..100).take_while(|n| pool.update((*n, filling())).is_ok()).count();
    assert!((5..10).contains(&accepted), "{accepted}");
    let error = pool.update((99, filling())).err().unwrap();
    let Error::HistoryFull { bytes, most: 10_000, .. } = error else { panic!("{error:?}") };
    assert!(bytes > 5_000);
    assert_eq!(pool.submit(0).wait().unwrap().2.len(), accepted);
}

fn one_update_replaces_another() {
    let cluster = two();
    let pool = Listener::options().slots(1).history(10_000).spawn(&cluster, ()).unwrap();
    assert!(pool.ready(1, LIMIT).unwrap());
    for n in 0..100 {
        pool.update_replacing("weights", (n, vec![7; 1000])).unwrap();
    }
    let (_, pid, heard) = pool.submit(0).wait().unwrap();
    assert_eq!(heard, (0..100).collect::<Vec<_>>(), "who is there hears them all");
    kill(pid);
    until("another slot", || pool.submit(0).wait().unwrap().1 != pid);
    assert_eq!(pool.submit(0).wait().unwrap().2, [99], "who comes later the last one");
}

fn the_state_of_one_slot_stands_for_all_updates() {
    let cluster = two();
    let pool = Keeper::options().slots(1).history(10_000).spawn(&cluster, ()).unwrap();
    for n in 0..50 {
        pool.update((n, "x".repeat(1000))).unwrap();
    }
    let (pid, heard, restored) = pool.submit(()).wait().unwrap();
    assert_eq!((heard, restored), ((0..50).collect(), 0));
    kill(pid);
    until("another slot", || pool.submit(()).wait().unwrap().0 != pid);
    let (_, heard, restored) = pool.submit(()).wait().unwrap();
    assert_eq!(heard, (0..50).collect::<Vec<_>>());
    assert!(restored > 0, "it begins with the state of the one before it");
}

fn an_update_that_fails_breaks_the_pool() {
    let cluster = two();
    let pool = Listener::options().slots(2).spawn(&cluster, ()).unwrap();
    pool.map(0..4).unwrap();
    let update = pool.update((u32::MAX, Vec::new())).unwrap();
    let error = pool.submit(0).wait().unwrap_err();
    let Error::PoolBroken { cause, tries: 3, .. } = &error else { panic!("{error:?}") };
    assert_eq!(cause.to_string(), "rust_objects::updates::Listener::update failed: this is too much");
    assert_eq!(update.wait().unwrap_err().code(), "pool-broken");
}
