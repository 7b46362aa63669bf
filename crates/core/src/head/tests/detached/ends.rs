//! How work ends while its journal is slow, or its node is lost.

use super::*;

fn heard() -> Effect {
    Effect::ToNode(N1, HeadToNode::Heard { lease: lease(1) })
}

impl Desk {
    /// What the head does while its disk hangs; that it has heard something is not left out.
    fn handle_unwritten(&mut self, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        self.bench.head.handle(self.bench.now, event, &mut out);
        out
    }
}

#[test]
fn end_that_is_told_again_is_not_heard_before_it_is_on_disk() {
    let ended = || NodeToHead::Ended { lease: lease(1), death: exit(3) };
    // It is started again in one case, and has ended in the other.
    for restarts in [0, 1] {
        let mut desk = Desk::running(restarts);
        let mut effects = Vec::new();
        for _ in 0..2 {
            effects.extend(desk.handle_unwritten(Event::FromNode(N1, ended())));
        }
        // The node opens another link, and tells of it there.
        desk.handle_unwritten(Event::NodeDown(N1));
        effects.extend(desk.handle_unwritten(Desk::joining(N1, 1, &[(lease(1), W)])));
        effects.extend(desk.handle_unwritten(Event::FromNode(N1, ended())));
        assert!(!effects.contains(&heard()), "DT-4: {effects:?}");
        let writes = effects.iter().filter(|effect| matches!(effect, Effect::Write { .. })).count();
        let written = || Event::Written { work: W.work().unwrap(), wrote: Ok(80) };
        let effects: Vec<Effect> = (0..writes).flat_map(|_| desk.handle_unwritten(written())).collect();
        assert!(effects.contains(&heard()), "DT-4: {effects:?}");
        let effects = desk.handle_unwritten(Event::FromNode(N1, ended()));
        assert!(effects.contains(&heard()), "the journal knows it: {effects:?}");
    }
}

#[test]
fn work_that_was_stopped_is_not_placed_again() {
    let mut desk = Desk::new();
    desk.join(N1, 1, &[]);
    let work = Work { token: 1, name: "w".into(), needs: Resources::cpus(1), ..Work::default() };
    desk.bench.handle(Event::Submit { asker: 5, work });
    // Where it is to run is on its way to the disk when it is stopped, and then the node is lost.
    desk.bench.handle(Event::Written { work: W.work().unwrap(), wrote: Ok(77) });
    desk.bench.handle(Event::StopWork { asker: 6, name: "w".into() });
    let effects = desk.bench.pass(seconds(60));
    let end = |effect: &Effect| matches!(effect, Effect::Write { write: Write::End(_), .. });
    assert!(effects.iter().any(end), "{effects:?}");
}
