//! Which GPUs of its node a lease gets.
//!
//! The head keeps a book for each device and names the devices in the grant. Were the node to choose, the two could
//! disagree about whether a whole device is still free; so one of them decides, and it has to be the one that must know
//! before it grants whether a request fits. The node reports the devices of its leases, so a head that starts anew reads
//! its books from the nodes.
//!
//! * DV-1: no more of a device is granted than it is.
//! * DV-2: a part of a device is of one device, and fills the fullest that has room; whole ones go to untouched devices.

use paceline_proto::resources::UNIT;
use paceline_proto::{Device, Devices, Facts, Resources};

/// The devices of one node, and what is used of each, in 1/10,000.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Books(Vec<(Device, u64)>);

impl Books {
    pub(super) fn new(total: &Resources, facts: &Facts) -> Books {
        let unknown = Device { memory: u64::MAX };
        let count = ((total.gpu_units() / UNIT) as usize).min(Devices::MOST);
        let known = facts.devices.iter().take(count).cloned();
        Books(known.chain(std::iter::repeat(unknown)).take(count).map(|device| (device, 0)).collect())
    }

    /// The devices a lease that needs this would get; none if there are not enough that have so much memory.
    pub(super) fn find(&self, needs: &Resources, memory: u64) -> Option<Devices> {
        let units = needs.gpu_units();
        if units == 0 {
            return Some(Devices::default());
        }
        let fit = self.0.iter().enumerate().filter(|(_, (device, _))| device.memory >= memory);
        if units < UNIT {
            let room = fit.filter(|(_, (_, used))| used + units <= UNIT);
            let fullest = room.max_by_key(|&(number, (_, used))| (*used, std::cmp::Reverse(number)))?;
            return Some(Devices::from_iter([fullest.0]));
        }
        let wanted = (units / UNIT) as usize;
        let mut untouched: Vec<_> = fit.filter(|(_, (_, used))| *used == 0).collect();
        // The smallest that will do, so that the larger ones are there for who needs them.
        untouched.sort_by_key(|&(number, (device, _))| (device.memory, number));
        (untouched.len() >= wanted).then(|| untouched.iter().take(wanted).map(|it| it.0).collect())
    }

    /// The same devices with nothing used.
    pub(super) fn untouched(&self) -> Books {
        Books(self.0.iter().map(|(device, _)| (device.clone(), 0)).collect())
    }

    /// Whether a lease that needs this would fit if nothing else were here.
    pub(super) fn could_hold(&self, needs: &Resources, memory: u64) -> bool {
        let fit = self.0.iter().filter(|(device, _)| device.memory >= memory).count() as u64;
        needs.gpu_units().div_ceil(UNIT) <= fit
    }

    pub(super) fn take(&mut self, needs: &Resources, devices: Devices) {
        let part = needs.gpu_units().min(UNIT);
        devices
            .numbers()
            .filter(|number| *number < self.0.len())
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|number| self.0[number].1 += part);
    }

    pub(super) fn give_back(&mut self, needs: &Resources, devices: Devices) {
        let part = needs.gpu_units().min(UNIT);
        for number in devices.numbers() {
            if let Some((_, used)) = self.0.get_mut(number) {
                *used = used.checked_sub(part).expect("DV-1: what is given back was taken");
            }
        }
    }

    /// The first broken invariant, if any, given what leases use.
    pub(super) fn check(&self, leases: &[(Resources, Devices)]) -> Result<(), String> {
        let mut fresh = self.untouched();
        leases.iter().for_each(|(needs, devices)| fresh.take(needs, *devices));
        if fresh != *self {
            return Err(format!("DV-1: the devices are used as {fresh:?}, not {self:?}"));
        }
        match self.0.iter().position(|(_, used)| *used > UNIT) {
            Some(number) => Err(format!("DV-1: more of device {number} is granted than it is")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_proto::Part;

    fn gpus(count: f64) -> Resources {
        Resources::default().with(Part::Gpus(count)).unwrap()
    }

    fn books(memories: &[u64]) -> Books {
        let devices = memories.iter().map(|&memory| Device { memory }).collect();
        let facts = Facts { devices, ..Facts::default() };
        Books::new(&Resources::default().and_gpus(memories.len() as u64), &facts)
    }

    fn take(books: &mut Books, count: f64) -> Option<Vec<usize>> {
        let devices = books.find(&gpus(count), 0)?;
        books.take(&gpus(count), devices);
        Some(devices.numbers().collect())
    }

    #[test]
    fn parts_fill_one_device_before_the_next() {
        let mut books = books(&[8, 8]);
        assert_eq!(take(&mut books, 0.5), Some(vec![0]));
        assert_eq!(take(&mut books, 0.6), Some(vec![1]), "DV-2: not half here and a tenth there");
        assert_eq!(take(&mut books, 0.3), Some(vec![1]), "the fullest that has room");
        assert_eq!(take(&mut books, 0.5), Some(vec![0]));
        assert_eq!(take(&mut books, 0.2), None, "a tenth is left on one of them");
        assert_eq!(take(&mut books, 0.1), Some(vec![1]));
    }

    #[test]
    fn whole_devices_are_untouched_ones() {
        let mut books = books(&[8, 8, 4]);
        assert_eq!(take(&mut books, 0.1), Some(vec![0]));
        assert_eq!(take(&mut books, 3.0), None);
        assert_eq!(take(&mut books, 1.0), Some(vec![2]), "the smallest that will do");
        assert_eq!(take(&mut books, 1.0), Some(vec![1]));
        books.give_back(&gpus(0.1), Devices::from_iter([0]));
        assert_eq!(take(&mut books, 1.0), Some(vec![0]));
    }

    #[test]
    fn small_devices_are_skipped() {
        let books = books(&[4, 8]);
        assert_eq!(books.find(&gpus(1.0), 6), Some(Devices::from_iter([1])));
        assert_eq!(books.find(&gpus(2.0), 6), None);
        assert!(!books.could_hold(&gpus(2.0), 6) && books.could_hold(&gpus(2.0), 4));
    }
}
