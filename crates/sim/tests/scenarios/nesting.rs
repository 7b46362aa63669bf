//! Tasks that return without waiting for the tasks that they have submitted.

use super::*;

#[test]
fn child_that_calls_back_into_the_slot_of_its_parent_ends() {
    let mut sim = one_node(2).client("other");
    // So that the child begins late, and that its parent's slot is given back as soon as that has returned.
    let other = sim.submit_as("other", Job::new().takes(ms(15)));
    sim.run_until_begun(other);
    let parent = sim.submit(Job::new().takes(ms(20)).nests(1, 3).leaves_children());
    sim.run_until_begun(parent);
    let large = sim.submit(Job::new().cpus(2));
    sim.run_until("there is room for the child", |sim| sim.outcome(other).is_some());
    sim.end("other", false);
    // The parent returns in the middle of its child, which takes no notice of its interrupt. What the child submits runs in
    // the slot that the parent has left, and submits something in turn: that slot works for one that works for it.
    sim.run_until("the parent has returned", |sim| sim.outcome(parent).is_some());
    let before = sim.runs_of_inner();
    sim.run_until("its child calls back into that slot", |sim| sim.runs_of_inner() > before);
    sim.finish();
    assert_eq!((sim.outcome(parent), sim.outcome(large)), (Some(Value), Some(Value)));
}
