//! Tasks that are cancelled or take too long.

use crate::support::*;
use paceline::Error;
use std::time::{Duration, Instant};

pub const TESTS: &[(&str, fn())] = &[
    ("running_tasks_are_cancelled", running_tasks_are_cancelled),
    ("queued_tasks_are_cancelled", queued_tasks_are_cancelled),
    ("a_task_sees_that_it_is_cancelled", a_task_sees_that_it_is_cancelled),
    ("a_task_that_does_not_look_is_ended", a_task_that_does_not_look_is_ended),
    ("tasks_run_out_of_time", tasks_run_out_of_time),
];

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
