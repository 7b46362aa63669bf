//! A writer, several readers that come, fork and die, and messages that are late: whatever happens, nobody who looks at a
//! range ever sees it change.

use super::*;
use crate::random::Random;
use std::collections::VecDeque;

/// What is on its way from the writer to a reader, or back.
enum Said {
    Segment(SegmentId, u64),
    Range(Spot, u64),
    Gone(SegmentId),
}

#[derive(Default)]
struct Reader {
    borrowed: Borrowed,
    forks: u64,
    to: VecDeque<Said>,
    from: VecDeque<(Spot, bool)>,
    views: Vec<(Spot, u64)>,
}

struct World {
    arena: Arena,
    now: Tick,
    sizes: BTreeMap<SegmentId, u64>,
    /// What was last written to a range; memory that was given up stays as it was.
    memory: BTreeMap<Spot, u64>,
    written: u64,
    /// Ranges that the writer may still send, with what is in them.
    own: Vec<(Spot, u64, u64)>,
    readers: BTreeMap<LinkId, Reader>,
    /// Who looks at something and says nothing any more: children of readers, and of those that died.
    orphans: Vec<(Spot, u64)>,
    links: u64,
    seen: [u64; 4],
}

impl World {
    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Drop(id) => {
                    self.sizes.remove(&id);
                    self.seen[0] += 1;
                }
                Effect::Forget(link, id) => {
                    if let Some(reader) = self.readers.get_mut(&link) {
                        reader.to.push_back(Said::Gone(id));
                    }
                }
            }
        }
    }

    fn write(&mut self, random: &mut Random) {
        let length = (1 + random.below(40)) * PAGE / 2;
        let usage = if random.below(2) == 0 { Use::Small } else { Use::Large };
        let spot = self.arena.place(self.now, length, usage).or_else(|| {
            if self.sizes.len() > 70 {
                return None;
            }
            // Small ones, so that everything that has to do with many of them happens.
            let size = whole_pages(length).max(32 * PAGE);
            let id = self.arena.add(self.now, size, usage);
            self.sizes.insert(id, size);
            self.arena.place(self.now, length, usage)
        });
        if let Some(spot) = spot {
            self.written += 1;
            self.memory.insert(spot, self.written);
            self.own.push((spot, length, self.written));
        }
    }

    fn lend(&mut self, random: &mut Random) {
        let Some(link) = self.any_link(random) else { return };
        if self.own.is_empty() {
            return;
        }
        let (spot, length, _) = self.own[random.below(self.own.len() as u64) as usize];
        let reader = self.readers.get_mut(&link).expect("one of them");
        match self.arena.lend(spot, link) {
            None => self.seen[1] += 1,
            Some(lent) => {
                if lent == Lent::New {
                    reader.to.push_back(Said::Segment(spot.segment, self.sizes[&spot.segment]));
                }
                reader.to.push_back(Said::Range(spot, length));
            }
        }
    }

    fn any_link(&self, random: &mut Random) -> Option<LinkId> {
        let count = self.readers.len() as u64;
        (count > 0).then(|| *self.readers.keys().nth(random.below(count) as usize).expect("below the count"))
    }

    fn step(&mut self, random: &mut Random) {
        self.now = self.now + Duration::from_millis(random.below(50));
        let mut out = Vec::new();
        match random.below(100) {
            0..20 => self.write(random),
            20..45 => self.lend(random),
            45..55 if !self.own.is_empty() => {
                let at = random.below(self.own.len() as u64) as usize;
                let (spot, _, _) = self.own.swap_remove(at);
                self.arena.release(self.now, spot, &mut out);
            }
            55..85 => {
                let Some(link) = self.any_link(random) else { return };
                self.read(link, random);
            }
            85..95 => {
                let Some(link) = self.any_link(random) else { return };
                let reader = self.readers.get_mut(&link).expect("one of them");
                if let Some((spot, retired)) = reader.from.pop_front() {
                    self.seen[2] += u64::from(retired);
                    assert!(self.arena.give_back(self.now, link, spot, retired, &mut out));
                }
            }
            95..97 if self.readers.len() < 6 => {
                self.links += 1;
                self.arena.open(LinkId(self.links));
                self.readers.insert(LinkId(self.links), Reader::default());
            }
            97 => {
                // It dies, or only its link does: its views and those of its children are looked at for ever.
                let Some(link) = self.any_link(random) else { return };
                let reader = self.readers.remove(&link).expect("one of them");
                self.orphans.extend(reader.views);
                self.arena.end(self.now, link, &mut out);
            }
            _ => {
                self.arena.trim(self.now, &mut out);
            }
        }
        self.perform(out);
    }

    fn read(&mut self, link: LinkId, random: &mut Random) {
        let reader = self.readers.get_mut(&link).expect("one of them");
        match random.below(10) {
            0..6 => match reader.to.pop_front() {
                Some(Said::Segment(id, size)) => reader.borrowed.on_segment(id, size).expect("it is new"),
                Some(Said::Range(spot, length)) => {
                    reader.borrowed.on_range(spot, length, reader.forks).expect("it is sound");
                    reader.views.push((spot, self.memory[&spot]));
                }
                Some(Said::Gone(id)) => assert!(reader.borrowed.on_gone(id)),
                None => {}
            },
            6..9 if !reader.views.is_empty() => {
                let at = random.below(reader.views.len() as u64) as usize;
                let (spot, _) = reader.views.swap_remove(at);
                if let Some(retired) = reader.borrowed.give_back(spot, reader.forks) {
                    reader.from.push_back((spot, retired));
                }
            }
            9 => {
                reader.forks += 1;
                self.orphans.extend(reader.views.iter().copied());
                self.seen[3] += 1;
            }
            _ => {}
        }
    }

    fn check(&self) {
        self.arena.check().unwrap();
        let views = self.readers.values().flat_map(|reader| reader.views.iter());
        for (spot, saw) in views.chain(&self.orphans) {
            assert_eq!(self.memory[spot], *saw, "SG-2, SG-3: {spot:?} changed while somebody looked at it");
        }
        for (spot, _, wrote) in &self.own {
            assert_eq!(self.memory[spot], *wrote, "SG-2: {spot:?} was written before it was sent");
        }
    }
}

#[test]
fn nobody_sees_a_range_change() {
    let mut seen = [0; 4];
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut world = World {
            arena: Arena::default(),
            now: Tick(0),
            sizes: BTreeMap::new(),
            memory: BTreeMap::new(),
            written: 0,
            own: Vec::new(),
            readers: BTreeMap::new(),
            orphans: Vec::new(),
            links: 0,
            seen: [0; 4],
        };
        for _ in 0..3000 {
            world.step(&mut random);
            world.check();
        }
        seen.iter_mut().zip(world.seen).for_each(|(all, one)| *all += one);
    }
    assert!(seen.iter().all(|count| *count > 30), "not everything happened: {seen:?}");
}
