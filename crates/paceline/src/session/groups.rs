//! Groups of slots that are there together or not at all.

use super::Session;
use paceline_proto::{ProgramId, Resources, Rule, Shape, SlotId};

/// Where a member of a group is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupPlace {
    /// What the node is called.
    pub node: String,
    pub slot: SlotId,
    /// A name or address by which other machines reach the node, if it takes connections from them.
    pub host: Option<String>,
}

impl Session {
    /// Ask for so many slots of this, on nodes that the rule allows, together or not at all. Tasks name the group by the
    /// shape, and one member of it.
    pub fn open_group(&self, size: u32, needs: Resources, program: ProgramId, rule: Rule) -> Shape {
        let mut state = self.shared.state.lock();
        // Before it wants something: a slot says first for which task it works.
        self.shared.announce(&mut state);
        state.inner.act(|core, effects| core.open_group(size, needs, program, rule, effects))
    }

    /// Give a group back: what waits for it is cancelled, and its slots end.
    pub fn close_group(&self, shape: &Shape) {
        if !self.shared.closed() {
            let mut state = self.shared.state.lock();
            state.inner.act(|core, effects| core.close_group(shape, effects));
            self.shared.wake_leader(&state);
        }
    }

    /// Where the members of a group are, if they are all there.
    pub fn group_places(&self, shape: &Shape) -> Option<Vec<GroupPlace>> {
        let state = self.shared.state.lock();
        let places = state.inner.core.group_places(shape)?.into_iter();
        let place = |(node, slot)| GroupPlace {
            node: state.inner.names.get(&node).cloned().unwrap_or_else(|| self.shared.name.clone()),
            slot,
            host: state.inner.hosts.get(&node).cloned(),
        };
        Some(places.map(place).collect())
    }
}
