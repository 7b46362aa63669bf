//! The store's invariants.

use super::object::Place;
use super::store::Store;
use paceline_proto::ObjectId;
use std::collections::BTreeMap;

impl Store {
    /// The first broken invariant, if any.
    pub fn check(&self) -> Result<(), String> {
        let mut used: u64 = self.room.leaving.values().map(|(size, _)| size).sum();
        let mut spilling = 0;
        let mut pins: BTreeMap<ObjectId, u32> = BTreeMap::new();
        for (object, _) in self.pins.values() {
            *pins.entry(*object).or_default() += 1;
        }
        for object in self.objects.values() {
            for inner in &object.inside {
                *pins.entry(inner.object).or_default() += 1;
            }
        }
        for object in self.makers.kept() {
            *pins.entry(object).or_default() += 1;
        }
        self.makers.check()?;
        for (id, object) in &self.objects {
            used += if matches!(object.place, Place::Disk | Place::Away) { 0 } else { object.size };
            spilling += if object.place == Place::Spilling { object.size } else { 0 };
            if object.pins != pins.remove(id).unwrap_or_default() {
                return Err(format!("OB-1: {id:?} has {} pins, which are not all there", object.pins));
            }
            if !object.is_kept(self.far) {
                return Err(format!("OB-2: nothing keeps {id:?}"));
            }
            if object.place == Place::Away && !object.wanted.is_empty() && !object.asked {
                return Err(format!("OB-5: {id:?} is wanted, and nobody was asked for it"));
            }
            let known = |link| self.links.contains_key(link);
            let linked = [&object.holders, &object.having, &object.copies];
            if !linked.into_iter().flatten().all(known) {
                return Err(format!("OB-2: {id:?} is held by a process that is gone"));
            }
            if object.place == Place::Spilling && !object.having.is_empty() {
                return Err(format!("OB-3: {id:?} goes to disk while a process has its memory"));
            }
        }
        if let Some((id, _)) = pins.into_iter().next() {
            return Err(format!("OB-1: {id:?} is pinned and gone"));
        }
        if used != self.room.used || spilling != self.room.spilling {
            return Err(format!("OB-3: {} bytes are counted, and {used} are used", self.room.used));
        }
        if self.room.used > self.room.limit {
            return Err(format!("OB-3: {} bytes are used, of {}", self.room.used, self.room.limit));
        }
        if let Some(wish) = self.room.waiting.iter().find(|wish| !self.links.contains_key(&wish.link)) {
            return Err(format!("OB-4: {:?} waits for a process that is gone", wish.object));
        }
        Ok(())
    }
}
