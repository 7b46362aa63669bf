//! Slots of several programs.

use super::*;

#[test]
fn slots_of_two_programs_share_the_cpus() {
    let mut sim = one_node(2);
    let own: Vec<usize> = (0..20).map(|_| sim.submit(Job::new().takes(ms(5)))).collect();
    let other: Vec<usize> = (0..20).map(|_| sim.submit(Job::new().takes(ms(5)).program(0))).collect();
    sim.finish();
    for task in own.into_iter().chain(other) {
        assert_eq!((sim.outcome(task), sim.runs(task)), (Some(Value), 1));
    }
    // The check after every step has seen to it that no more ran at once than there are CPUs.
    assert!(sim.has_program("a", 0) && !sim.has_program("a", 1));
}

#[test]
fn idle_leases_give_way_to_another_program_at_once() {
    let mut sim = one_node(1);
    for round in 0..6 {
        let job = Job::new().takes(us(50));
        let task = sim.submit(if round % 2 == 0 { job } else { job.program(0) });
        let began = sim.elapsed();
        sim.run_until("the task ends", |sim| sim.outcome(task).is_some());
        // The first of each program waits for its slot to be forked.
        let limit = if round < 2 { ms(50) } else { ms(20) };
        assert!(sim.elapsed() - began < limit, "round {round} took {:?}", sim.elapsed() - began);
    }
    sim.finish();
}

#[test]
fn the_death_of_a_programs_zygote_ends_its_slots_and_no_other() {
    let mut sim = one_node(2);
    let own = sim.submit(Job::new().takes(ms(50)));
    let other = sim.submit(Job::new().takes(ms(50)).program(0));
    sim.run_until_begun(own);
    sim.run_until_begun(other);
    sim.kill_program("a", 0);
    sim.finish();
    assert_eq!((sim.outcome(own), sim.runs(own)), (Some(Value), 1), "ND-7");
    assert_eq!(
        (sim.outcome(other), sim.runs(other)),
        (Some(Value), 2),
        "it is started again for the second run"
    );
    let other = sim.submit(Job::new().takes(ms(50)).program(0));
    sim.run_until_begun(other);
    sim.kill_zygote("a");
    sim.finish();
    assert_eq!((sim.outcome(other), sim.runs(other)), (Some(Value), 1), "ND-7");
}

#[test]
fn a_program_that_cannot_start_is_told_and_may_be_tried_again() {
    let mut sim = one_node(1);
    sim.break_programs(true);
    let tasks: Vec<usize> = (0..5).map(|_| sim.submit(Job::new().program(1))).collect();
    let own = sim.submit(Job::new());
    sim.run_until("all are told", |sim| tasks.iter().all(|task| sim.outcome(*task).is_some()));
    for task in tasks {
        assert_eq!((sim.outcome(task), sim.runs(task)), (Some(NotStarted), 0), "PR-1");
    }
    sim.break_programs(false);
    let again = sim.submit(Job::new().program(1));
    sim.finish();
    assert_eq!((sim.outcome(own), sim.outcome(again)), (Some(Value), Some(Value)));
    sim.run_for(Duration::from_secs(80));
    assert!(!sim.has_program("a", 1), "nobody has asked for it for a while");
}

#[test]
fn a_program_whose_slots_die_at_once_is_given_up() {
    let mut sim = one_node(1);
    let task = sim.submit(Job::new().takes(ms(5)).program(0));
    for _ in 0..3 {
        sim.run_until("there is a slot", |sim| sim.slots_of_program("a", 0) == 1);
        sim.kill_slots_of_program("a", 0);
    }
    sim.finish();
    assert_eq!((sim.outcome(task), sim.runs(task)), (Some(NotStarted), 0), "PR-2");
}
