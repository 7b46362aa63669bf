//! Tasks near what they need.

use super::*;

/// Two nodes of two CPUs, 1 and 2, whose slots are ready.
fn two_nodes() -> Sim {
    let mut sim = Sim::new().node("a", cpus(2)).node("b", cpus(2)).client("main");
    sim.run_for(ms(100));
    sim
}

/// Where each task began first.
fn places(sim: &mut Sim, tasks: &[usize]) -> Vec<String> {
    let news = sim.news();
    let place = |task: &usize| {
        let mut began = news.iter().filter_map(|news| match news {
            News::Began { task: other, node, .. } if other == task => Some(node.clone()),
            _ => None,
        });
        began.next().unwrap_or_default()
    };
    tasks.iter().map(place).collect()
}

#[test]
fn tasks_run_where_their_inputs_are() {
    for node in [1, 2] {
        let mut sim = two_nodes();
        let one = sim.submit(Job::new().takes(ms(5)).near(node, ms(100)));
        sim.run_until("it ends", |sim| sim.outcome(one).is_some());
        let name = ["a", "b"][node as usize - 1];
        assert_eq!(places(&mut sim, &[one]), [name], "the first lease is granted there");
        let many: Vec<usize> = (0..12)
            .map(|number| sim.submit(Job::new().takes(ms(20)).near(1 + number % 2, ms(200))))
            .collect();
        sim.finish();
        let expected: Vec<&str> = (0..12).map(|number| ["a", "b"][number % 2]).collect();
        assert_eq!(places(&mut sim, &many), expected);
    }
}

#[test]
fn a_busy_node_is_not_waited_for_for_long() {
    let mut sim = two_nodes();
    let tasks: Vec<usize> = (0..4).map(|_| sim.submit(Job::new().takes(ms(400)).near(1, ms(50)))).collect();
    sim.finish();
    assert_eq!(places(&mut sim, &tasks), ["a", "a", "b", "b"]);
}

#[test]
fn a_node_that_is_lost_is_not_waited_for_for_long() {
    let mut sim = two_nodes();
    sim.lose("b");
    sim.run_for(Duration::from_secs(10));
    let task = sim.submit(Job::new().near(2, ms(50)));
    sim.run_for(ms(200));
    assert_eq!(sim.outcome(task), Some(Value));
    sim.finish();
}
