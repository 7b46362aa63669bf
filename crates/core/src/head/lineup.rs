//! Who waits for a lease, in the order in which they are served.
//!
//! Requests that ask the same of nodes form a class: if the first of a class finds no room, no other of it does. Within
//! a class the families stand in order, each with its first request; so a change of a family's share moves one entry a
//! class, however many slots of that family wait.
//!
//! * LU-1: a class lists the first request of each family that waits in it, and no other.

use paceline_proto::{ClientId, PlacementId, Resources, Shape};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What requests ask of nodes. `family`: whose they are, if what the family has already counts, too. `nested`: a task
/// waits for them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Class {
    pub needs: Resources,
    pub placement: PlacementId,
    pub family: Option<ClientId>,
    pub nested: bool,
}

/// The place of a family: the higher priority first, then the smaller share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rank {
    pub priority: Reverse<i32>,
    pub share: u64,
}

/// The place of a request within its family: the deepest task first, then the shape of which its client has least, then
/// who waited longest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Line {
    pub depth: Reverse<u32>,
    pub has: u64,
    pub order: u64,
    pub client: ClientId,
    pub shape: Shape,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Turn {
    pub rank: Rank,
    pub line: Line,
}

#[derive(Default, PartialEq, Debug)]
pub(super) struct Lineup {
    families: BTreeMap<ClientId, Members>,
    /// How many families have which priority.
    priorities: BTreeMap<Reverse<i32>, usize>,
    classes: BTreeMap<Class, BTreeSet<Turn>>,
}

#[derive(PartialEq, Debug)]
struct Members {
    rank: Rank,
    lines: BTreeMap<Class, BTreeSet<Line>>,
}

impl Lineup {
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    pub fn put(&mut self, root: ClientId, rank: Rank, class: Class, line: Line) {
        self.set_rank(root, rank);
        let priorities = &mut self.priorities;
        self.families.entry(root).or_insert_with(|| {
            *priorities.entry(rank.priority).or_default() += 1;
            Members { rank, lines: BTreeMap::new() }
        });
        self.change(root, class, |lines| {
            lines.insert(line);
        });
    }

    pub fn take(&mut self, root: ClientId, class: Class, line: &Line) {
        if self.families.contains_key(&root) {
            self.change(root, class, |lines| {
                lines.remove(line);
            });
        }
    }

    pub fn set_rank(&mut self, root: ClientId, rank: Rank) {
        let Some(members) = self.families.get_mut(&root).filter(|members| members.rank != rank) else {
            return;
        };
        let before = std::mem::replace(&mut members.rank, rank);
        if before.priority != rank.priority {
            *self.priorities.entry(rank.priority).or_default() += 1;
            one_less(&mut self.priorities, before.priority);
        }
        for (class, lines) in &members.lines {
            let line = *lines.first().expect("a class that is listed has a line");
            let turns = self.classes.get_mut(class).expect("the class of a line is listed");
            turns.remove(&Turn { rank: before, line });
            turns.insert(Turn { rank, line });
        }
    }

    fn change(&mut self, root: ClientId, class: Class, change: impl FnOnce(&mut BTreeSet<Line>)) {
        let members = self.families.get_mut(&root).expect("the family is listed");
        let rank = members.rank;
        let lines = members.lines.entry(class).or_default();
        let before = lines.first().copied();
        change(lines);
        let after = lines.first().copied();
        if lines.is_empty() {
            members.lines.remove(&class);
        }
        if members.lines.is_empty() {
            self.families.remove(&root);
            one_less(&mut self.priorities, rank.priority);
        }
        if before == after {
            return;
        }
        let turns = self.classes.entry(class).or_default();
        if let Some(line) = before {
            turns.remove(&Turn { rank, line });
        }
        turns.extend(after.map(|line| Turn { rank, line }));
        if turns.is_empty() {
            self.classes.remove(&class);
        }
    }

    /// The highest and the lowest priority of those who wait.
    pub fn highest(&self) -> Option<Reverse<i32>> {
        self.priorities.keys().next().copied()
    }

    pub fn lowest(&self) -> Option<Reverse<i32>> {
        self.priorities.keys().next_back().copied()
    }

    /// Whose turn it is, of those whose class is not left out.
    pub fn first(&self, left_out: &BTreeSet<Class>) -> Option<(Class, Turn)> {
        let classes = self.classes.iter().filter(|(class, _)| !left_out.contains(class));
        let firsts = classes.filter_map(|(class, turns)| Some((*turns.first()?, *class)));
        firsts.min().map(|(turn, class)| (class, turn))
    }

    /// The first requests of the families that wait in this class, in order.
    pub fn turns(&self, class: &Class) -> impl Iterator<Item = &Turn> {
        self.classes.get(class).into_iter().flatten()
    }

    pub fn classes(&self) -> impl Iterator<Item = &Class> {
        self.classes.keys()
    }

    pub fn has_class(&self, class: &Class) -> bool {
        self.classes.contains_key(class)
    }

    /// The families that wait, with their ranks and their first lines.
    pub fn families(&self) -> impl Iterator<Item = (ClientId, Rank, &Line)> {
        self.families.iter().filter_map(|(&root, members)| {
            let first = members.lines.values().filter_map(BTreeSet::first).min()?;
            Some((root, members.rank, first))
        })
    }
}

fn one_less(counts: &mut BTreeMap<Reverse<i32>, usize>, priority: Reverse<i32>) {
    if let Some(count) = counts.get_mut(&priority) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&priority);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(client: u64, order: u64) -> Line {
        let (client, shape) = (ClientId(client), Shape::cpus(1));
        Line { depth: Reverse(0), has: 0, order, client, shape }
    }

    fn rank(share: u64) -> Rank {
        Rank { priority: Reverse(0), share }
    }

    #[test]
    fn families_stand_by_their_share() {
        let class =
            Class { needs: Resources::cpus(1), placement: PlacementId::ANY, family: None, nested: false };
        let (a, b) = (ClientId(1), ClientId(2));
        let mut lineup = Lineup::default();
        lineup.put(a, rank(5), class, line(1, 1));
        lineup.put(a, rank(5), class, line(11, 2));
        lineup.put(b, rank(6), class, line(2, 3));
        let first = |lineup: &Lineup| lineup.first(&BTreeSet::new()).map(|(_, turn)| turn.line.client);
        assert_eq!(first(&lineup), Some(a));
        assert_eq!(lineup.turns(&class).count(), 2, "LU-1");
        lineup.set_rank(a, rank(7));
        assert_eq!(first(&lineup), Some(b));
        lineup.take(b, class, &line(2, 3));
        lineup.take(a, class, &line(1, 1));
        assert_eq!(first(&lineup), Some(ClientId(11)));
        assert_eq!(lineup.first(&BTreeSet::from([class])), None);
        lineup.take(a, class, &line(11, 2));
        assert_eq!(lineup, Lineup::default());
    }
}
