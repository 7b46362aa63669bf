//! Which task goes first (CL-5), and what a slot is told before it (CL-6).

use super::*;

#[test]
fn priorities_first_then_first_come() {
    let mut bench = Bench::new();
    for priority in [0, 5, 0, -5, 5] {
        bench.submit_as(|spec| Spec { priority, ..spec });
    }
    bench.granted(1);
    bench.up(A);
    bench.said(A);
    let mut order = Vec::new();
    let in_flight = |bench: &Bench| {
        let calls = bench.client.leases[A.0].in_flight();
        calls.map(|call| (call.seq.0, bench.client.tasks[call.task.0].id.0)).collect::<Vec<_>>()
    };
    while let Some(&(seq, task)) = in_flight(&bench).first() {
        order.push(task);
        bench.values(A, us(500), &[seq]);
    }
    assert_eq!(order, [2, 5, 1, 3, 4]);
}

#[test]
fn a_task_that_comes_back_takes_its_old_place() {
    let mut bench = Bench::with_leases(1);
    bench.teach(A, us(300));
    bench.submit_many(8);
    assert_eq!(bench.said(A), ["run 2=2 3=3 4=4"]);
    assert_eq!(bench.died(1, Some(2), 1), [close(A)]);
    bench.granted(2);
    bench.up(A);
    assert_eq!(bench.said(A), ["hello 0", "define f", "run 1=2/2 2=3"]);
    bench.values(A, us(300), &[1]);
    assert_eq!(bench.said(A), ["run 3=4 4=5"], "before all that were never sent");
}

#[test]
fn withdrawn_tasks_keep_their_order() {
    let mut bench = Bench::with_leases(2);
    bench.teach(B, us(200));
    bench.submit_many(8);
    assert_eq!(bench.said(A), ["define f", "run 1=3 2=5 3=7 4=9"]);
    assert_eq!(bench.said(B), ["run 2=2 3=4 4=6 5=8"]);
    bench.values(B, us(200), &[2, 3, 4, 5]);
    assert_eq!(bench.said(A), ["withdraw 3 4"]);
    bench.withdrawn(A, &[3, 4]);
    assert_eq!(bench.said(B), ["run 6=7 7=9"]);
}

#[test]
fn functions_and_environment_go_once_to_each_slot() {
    let mut bench = Bench::with_leases(2);
    let directory = "/home".to_owned();
    bench.client.set_environment(Environment { directory, ..Environment::default() });
    let (f, g) = (bench.functions[0], bench.functions[1]);
    bench.submit();
    assert_eq!(bench.said(B), ["environment /home", "define f", "run 1=1"]);
    bench.submit();
    assert_eq!(bench.said(A), ["environment /home", "define f", "run 1=2"], "another slot");
    bench.values(B, us(5), &[1]);
    bench.submit_as(|spec| Spec { function: g, ..spec });
    bench.submit_as(|spec| Spec { function: f, ..spec });
    assert_eq!(bench.said(B), ["define g", "run 2=3 3=4"], "before the first call that names it");
    let directory = "/tmp".to_owned();
    bench.client.set_environment(Environment { directory, ..Environment::default() });
    bench.values(B, us(5), &[2, 3]);
    bench.submit();
    assert_eq!(bench.said(B), ["environment /tmp", "run 4=5"]);
}

#[test]
fn a_slot_is_remembered_across_leases_until_it_dies() {
    let mut bench = Bench::with_leases(1);
    bench.teach(A, us(5));
    bench.pass(ms(200)).tick();
    bench.granted_at(2, 1, 1);
    bench.up(A);
    bench.submit();
    assert_eq!(bench.said(A), ["hello 0", "run 1=2"], "the same slot, warm");
    bench.values(A, us(5), &[1]);
    bench.pass(ms(200)).tick();
    bench.granted_at(3, 2, 1);
    bench.up(A);
    bench.submit();
    assert_eq!(bench.said(A), ["hello 0", "define f", "run 1=3"], "a slot of that number on another node");
    bench.died(3, None, 0);
    bench.granted_at(4, 2, 1);
    bench.up(A);
    assert_eq!(bench.said(A), ["hello 0", "define f", "run 1=3"]);
}

#[test]
fn exceptions_and_timeouts_repeat_a_task_if_asked() {
    let mut bench = Bench::with_leases(1);
    let retry_on = RetryOn { timeout: true, raised: true, ..RetryOn::default() };
    bench.submit_as(|spec| Spec { retries: 2, retry_on, timeout: ms(5), ..spec });
    assert_eq!(bench.said(A), ["define f", "run 1=1"]);
    assert_eq!(bench.replies(A, Status::Raised, us(5), &[1]), [send_now(A)]);
    assert_eq!(bench.said(A), ["run 2=1/2"]);
    assert_eq!(bench.replies(A, Status::TimedOut, ms(5), &[2]), [send_now(A)]);
    assert_eq!(bench.said(A), ["run 3=1/3"]);
    let raised = Outcome::Raised(Bytes::from("v"));
    assert_eq!(bench.replies(A, Status::Raised, us(5), &[3]), [finished(1, raised)]);
}
