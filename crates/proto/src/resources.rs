//! What tasks ask for and nodes have.
//!
//! CPUs, GPUs and custom resources are integers of 1/10,000, so that fractions add up exactly; memory is in bytes.
//!
//! * RS-1: custom resources are kept in the order of their names' hashes, without empty ones, so that equal amounts are
//!   equal values.

use crate::ids::{PlacementId, ProgramId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

pub const UNIT: u64 = 10_000;

/// So many kinds of custom resources can one task ask for, or one node have.
pub const MAX_CUSTOM: usize = 4;

/// More than this of anything is nonsense; sums of a million such amounts can be counted.
const MOST: u64 = 1 << 43;
const MOST_MEMORY: u64 = 1 << 50;

/// An amount of each resource.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct Resources {
    cpus: u64,
    gpus: u64,
    memory: u64,
    custom: [Custom; MAX_CUSTOM],
}

/// An amount of a resource that users have made up. No name, no amount: the place is free.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
struct Custom {
    name: CustomName,
    amount: u64,
}

/// The name of a custom resource, as its hash; never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct CustomName(pub u64);

impl CustomName {
    pub fn of(name: &str) -> CustomName {
        // FNV-1a: two of a cluster's few names never meet by accident.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        CustomName(hash.max(1))
    }
}

/// What custom resources are called, for messages to people.
pub type Names = BTreeMap<CustomName, String>;

/// As it travels: most ask for no custom resource.
#[derive(Serialize, Deserialize)]
struct Wire {
    cpus: u64,
    gpus: u64,
    memory: u64,
    custom: Vec<(CustomName, u64)>,
}

impl From<Resources> for Wire {
    fn from(it: Resources) -> Wire {
        Wire { cpus: it.cpus, gpus: it.gpus, memory: it.memory, custom: it.custom().collect() }
    }
}

impl TryFrom<Wire> for Resources {
    type Error = &'static str;

    fn try_from(wire: Wire) -> Result<Resources, &'static str> {
        let Wire { cpus, gpus, memory, custom } = wire;
        if cpus.max(gpus) > MOST || memory > MOST_MEMORY {
            return Err("an amount that is too large");
        }
        let start = Resources { cpus, gpus, memory, ..Resources::default() };
        let all = custom.into_iter().try_fold(start, |sum, (name, amount)| sum.put(name, amount));
        all.ok_or("custom resources that are too many or too large")
    }
}

/// A part of what is needed, as people say it; `None` from [`Resources::with`] if it makes no sense.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Part<'a> {
    Cpus(f64),
    Gpus(f64),
    Memory(u64),
    Custom(&'a str, f64),
}

impl Resources {
    /// `count` whole CPUs.
    pub fn cpus(count: u64) -> Resources {
        Resources { cpus: count * UNIT, ..Resources::default() }
    }

    /// A fraction of CPUs, rounded to 1/10,000; `None` if it is negative, not a number, or absurdly large.
    pub fn fractional_cpus(count: f64) -> Option<Resources> {
        Resources::default().with(Part::Cpus(count))
    }

    /// The same with this amount of one resource. `None` if the amount is negative, not a number or absurdly large, for
    /// more custom resources than there can be, and for GPUs that are neither whole nor less than one: a fraction is a
    /// part of one device.
    pub fn with(self, part: Part<'_>) -> Option<Resources> {
        Some(match part {
            Part::Cpus(count) => Resources { cpus: units(count)?, ..self },
            Part::Gpus(count) => {
                let gpus = units(count)?;
                (gpus < UNIT || gpus % UNIT == 0).then_some(Resources { gpus, ..self })?
            }
            Part::Memory(bytes) => (bytes <= MOST_MEMORY).then_some(Resources { memory: bytes, ..self })?,
            Part::Custom(name, count) => self.put(CustomName::of(name), units(count)?)?,
        })
    }

    /// The same with so many whole GPUs.
    pub fn and_gpus(self, count: u64) -> Resources {
        Resources { gpus: count * UNIT, ..self }
    }

    /// The same with so many bytes of memory.
    pub fn and_memory(self, bytes: u64) -> Resources {
        Resources { memory: bytes, ..self }
    }

    /// In 1/10,000.
    pub fn cpu_units(&self) -> u64 {
        self.cpus
    }

    /// In 1/10,000.
    pub fn gpu_units(&self) -> u64 {
        self.gpus
    }

    /// In bytes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// The custom resources there are, in the order of their hashes.
    pub fn custom(&self) -> impl Iterator<Item = (CustomName, u64)> {
        self.custom.into_iter().filter(|it| it.amount > 0).map(|it| (it.name, it.amount))
    }

    pub fn custom_units(&self, name: CustomName) -> u64 {
        self.custom.iter().find(|it| it.name == name).map_or(0, |it| it.amount)
    }

    /// The CPUs alone.
    pub fn only_cpus(&self) -> Resources {
        Resources { cpus: self.cpus, ..Resources::default() }
    }

    /// Everything but the CPUs: what a task keeps while it waits for others.
    pub fn without_cpus(&self) -> Resources {
        Resources { cpus: 0, ..*self }
    }

    /// CPUs, rounded up, at least one: how many threads a slot with these resources may use.
    pub fn threads(&self) -> u64 {
        self.cpus.div_ceil(UNIT).max(1)
    }

    /// Every resource by its name, in the units people use; CPUs always, others where there are any.
    pub fn amounts(&self, names: &Names) -> Vec<(String, f64)> {
        let units = |amount: u64| amount as f64 / UNIT as f64;
        let mut found = vec![("cpus".to_owned(), units(self.cpus))];
        if self.gpus > 0 {
            found.push(("gpus".into(), units(self.gpus)));
        }
        if self.memory > 0 {
            found.push(("memory".into(), self.memory as f64));
        }
        for (name, amount) in self.custom() {
            let known = names.get(&name).cloned();
            found.push((known.unwrap_or_else(|| format!("{:016x}", name.0)), units(amount)));
        }
        found
    }

    pub fn fits_in(&self, other: &Resources) -> bool {
        self.cpus <= other.cpus
            && self.gpus <= other.gpus
            && self.memory <= other.memory
            && (self.has_no_custom()
                || self.custom().all(|(name, amount)| amount <= other.custom_units(name)))
    }

    /// `None` if more is taken than there is.
    pub fn minus(&self, other: &Resources) -> Option<Resources> {
        other.fits_in(self).then(|| self.less(other))
    }

    /// Nothing where more is taken than there is.
    pub fn less(&self, other: &Resources) -> Resources {
        let custom = match other.has_no_custom() {
            true => self.custom,
            false => self.each_custom(|name, amount| amount.saturating_sub(other.custom_units(name))),
        };
        Resources {
            cpus: self.cpus.saturating_sub(other.cpus),
            gpus: self.gpus.saturating_sub(other.gpus),
            memory: self.memory.saturating_sub(other.memory),
            custom,
        }
    }

    /// The larger amount of each. Of custom resources beyond [`MAX_CUSTOM`] kinds the rest is left out.
    pub fn at_least(&self, other: &Resources) -> Resources {
        let larger = Resources {
            cpus: self.cpus.max(other.cpus),
            gpus: self.gpus.max(other.gpus),
            memory: self.memory.max(other.memory),
            custom: self.custom,
        };
        other.custom().fold(larger, |sum, (name, amount)| {
            sum.put(name, amount.max(sum.custom_units(name))).unwrap_or(sum)
        })
    }

    /// Of custom resources beyond [`MAX_CUSTOM`] kinds the rest is left out; what one node has is never more.
    pub fn plus(&self, other: &Resources) -> Resources {
        let sum = Resources {
            cpus: self.cpus + other.cpus,
            gpus: self.gpus + other.gpus,
            memory: self.memory + other.memory,
            custom: self.custom,
        };
        if other.has_no_custom() {
            return sum;
        }
        other
            .custom()
            .fold(sum, |sum, (name, amount)| sum.put(name, sum.custom_units(name) + amount).unwrap_or(sum))
    }

    /// How often this fits into `whole`; without any need, as often as there are CPUs.
    pub fn times_in(&self, whole: &Resources) -> u64 {
        let custom = self.custom().map(|(name, amount)| whole.custom_units(name) / amount);
        let others = [(self.cpus, whole.cpus), (self.gpus, whole.gpus), (self.memory, whole.memory)];
        let others = others.into_iter().filter_map(|(need, has)| has.checked_div(need));
        others.chain(custom).min().unwrap_or_else(|| whole.threads())
    }

    fn has_no_custom(&self) -> bool {
        self.custom[0].amount == 0
    }

    fn each_custom(&self, change: impl Fn(CustomName, u64) -> u64) -> [Custom; MAX_CUSTOM] {
        let mut changed = [Custom::default(); MAX_CUSTOM];
        let kept = self.custom().map(|(name, amount)| (name, change(name, amount)));
        let kept = kept.filter(|(_, amount)| *amount > 0);
        changed.iter_mut().zip(kept).for_each(|(place, (name, amount))| *place = Custom { name, amount });
        changed
    }

    /// The same with this much of one custom resource. `None` if there is no place for it.
    fn put(self, name: CustomName, amount: u64) -> Option<Resources> {
        if amount > MOST || name == CustomName(0) {
            return None;
        }
        let mut all: BTreeMap<CustomName, u64> = self.custom().collect();
        all.insert(name, amount);
        all.retain(|_, amount| *amount > 0);
        if all.len() > MAX_CUSTOM {
            return None;
        }
        let mut custom = [Custom::default(); MAX_CUSTOM];
        for (place, (name, amount)) in custom.iter_mut().zip(all) {
            *place = Custom { name, amount };
        }
        Some(Resources { custom, ..self })
    }

    /// For people, with the names of custom resources that are known.
    pub fn named(&self, names: &Names) -> String {
        let mut parts = Vec::new();
        let nothing_else = self.gpus == 0 && self.memory == 0 && self.has_no_custom();
        if self.cpus > 0 || nothing_else {
            parts.push(counted(self.cpus, "CPU"));
        }
        if self.gpus > 0 {
            parts.push(counted(self.gpus, "GPU"));
        }
        if self.memory > 0 {
            parts.push(format!("{} of memory", bytes(self.memory)));
        }
        for (name, amount) in self.custom() {
            let name = names.get(&name).cloned().unwrap_or_else(|| format!("resource-{:x}", name.0));
            parts.push(format!("{} {name}", amount as f64 / UNIT as f64));
        }
        match parts.pop() {
            Some(last) if !parts.is_empty() => format!("{} and {last}", parts.join(", ")),
            last => last.unwrap_or_default(),
        }
    }
}

fn units(count: f64) -> Option<u64> {
    let units = (count * UNIT as f64).round();
    (0.0..=MOST as f64).contains(&units).then_some(units as u64)
}

fn counted(units: u64, what: &str) -> String {
    let count = units as f64 / UNIT as f64;
    format!("{count} {what}{}", if count == 1.0 { "" } else { "s" })
}

/// A number of bytes, as people say it.
pub fn bytes(count: u64) -> String {
    const STEPS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match STEPS.iter().find(|(step, _)| count >= *step) {
        Some((step, unit)) => {
            let tenths = (count as f64 / *step as f64 * 10.0).round() / 10.0;
            format!("{tenths} {unit}")
        }
        None => format!("{count} bytes"),
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named(&Names::new()))
    }
}

/// What many nodes have, or many leases need: as [`Resources`], of any number of kinds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Sum {
    rest: Resources,
    custom: BTreeMap<CustomName, u64>,
}

impl Sum {
    pub fn add(&mut self, part: &Resources) {
        let rest = Resources { custom: Default::default(), ..*part };
        self.rest = self.rest.plus(&rest);
        for (name, amount) in part.custom() {
            *self.custom.entry(name).or_default() += amount;
        }
    }

    /// What is taken out was put in.
    pub fn remove(&mut self, part: &Resources) {
        let rest = Resources { custom: Default::default(), ..*part };
        debug_assert!(rest.fits_in(&self.rest), "more is taken out than was put in");
        self.rest = self.rest.less(&rest);
        for (name, amount) in part.custom() {
            let sum = self.custom.entry(name).or_default();
            *sum = sum.saturating_sub(amount);
            if *sum == 0 {
                self.custom.remove(&name);
            }
        }
    }

    /// The largest share of `whole` that any resource takes, in 1/1,000,000,000. None of a resource is no share of it.
    pub fn dominant_share(&self, whole: &Sum) -> u64 {
        let (mine, all) = (&self.rest, &whole.rest);
        let custom = self.custom.iter().map(|(name, amount)| (*amount, whole.custom.get(name).copied()));
        [(mine.cpus, all.cpus), (mine.gpus, all.gpus), (mine.memory, all.memory)]
            .into_iter()
            .chain(custom.map(|(amount, all)| (amount, all.unwrap_or(0))))
            .map(|(amount, all)| share(amount, all))
            .max()
            .unwrap_or(0)
    }

    pub fn plus(&self, part: &Resources) -> Sum {
        let mut sum = self.clone();
        sum.add(part);
        sum
    }
}

fn share(amount: u64, all: u64) -> u64 {
    match u128::from(all) {
        0 => 0,
        all => u64::try_from(u128::from(amount) * 1_000_000_000 / all).unwrap_or(u64::MAX),
    }
}

/// Devices of one node, by their numbers in its list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Devices(pub u64);

impl Devices {
    /// A node has at most so many.
    pub const MOST: usize = 64;

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn contains(self, number: usize) -> bool {
        number < Devices::MOST && self.0 & (1 << number) != 0
    }

    /// Their numbers, rising.
    pub fn numbers(self) -> impl Iterator<Item = usize> {
        (0..Devices::MOST).filter(move |number| self.contains(*number))
    }
}

impl FromIterator<usize> for Devices {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Devices {
        Devices(numbers.into_iter().fold(0, |set, number| set | 1 << number))
    }
}

/// What a slot must be for a task to run in it. Tasks of one shape share leases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Shape {
    pub needs: Resources,
    /// What runs there.
    pub program: ProgramId,
    /// On which nodes.
    pub placement: PlacementId,
}

impl Shape {
    pub fn cpus(count: u64) -> Shape {
        Shape::of(Resources::cpus(count))
    }

    /// Slots of the client's own program that have this, on any node.
    pub fn of(needs: Resources) -> Shape {
        Shape { needs, program: ProgramId::OWN, placement: PlacementId::ANY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[Part<'_>]) -> Resources {
        parts.iter().fold(Resources::default(), |sum, part| sum.with(*part).unwrap())
    }

    #[test]
    fn fractions_add_up() {
        let tenth = Resources::fractional_cpus(0.1).unwrap();
        let sum = (0..10).fold(Resources::default(), |sum, _| sum.plus(&tenth));
        assert_eq!(sum, Resources::cpus(1));
        assert_eq!(tenth.times_in(&Resources::cpus(2)), 20);
        assert_eq!(tenth.threads(), 1);
        assert_eq!(Resources::fractional_cpus(f64::NAN), None);
        assert_eq!(Resources::fractional_cpus(-1.0), None);
    }

    #[test]
    fn reads_well() {
        assert_eq!(Resources::cpus(1).to_string(), "1 CPU");
        assert_eq!(Resources::fractional_cpus(0.5).unwrap().to_string(), "0.5 CPUs");
        let all = of(&[Part::Cpus(2.0), Part::Gpus(0.5), Part::Memory(3 << 29), Part::Custom("tpu", 4.0)]);
        let names = Names::from([(CustomName::of("tpu"), "tpu".to_owned())]);
        assert_eq!(all.named(&names), "2 CPUs, 0.5 GPUs, 1.5 GiB of memory and 4 tpu");
        assert_eq!(Resources::default().to_string(), "0 CPUs");
        assert_eq!(of(&[Part::Gpus(1.0)]).to_string(), "1 GPU");
    }

    #[test]
    fn a_fraction_of_a_gpu_is_part_of_one() {
        let with = |count| Resources::default().with(Part::Gpus(count));
        assert!(with(0.5).is_some() && with(3.0).is_some() && with(0.0).is_some());
        assert_eq!(with(1.5), None);
    }

    #[test]
    fn custom_resources_are_equal_in_any_order() {
        let one = of(&[Part::Custom("a", 1.0), Part::Custom("b", 2.0)]);
        let other = of(&[Part::Custom("b", 2.0), Part::Custom("c", 1.0), Part::Custom("a", 1.0)]);
        assert_eq!(other.less(&of(&[Part::Custom("c", 5.0)])), one, "RS-1");
        assert_eq!(one.plus(&one).minus(&one), Some(one));
        assert_eq!(one.minus(&other), None);
        assert!(one.fits_in(&other) && !other.fits_in(&one));
        assert_eq!(of(&[Part::Custom("a", 1.0)]).times_in(&one.plus(&other)), 2);
        let mut five = ["a", "b", "c", "d", "e"].iter().map(|name| Part::Custom(name, 1.0));

        let all = five.try_fold(Resources::default(), |sum, part| sum.with(part));
        assert_eq!(all, None, "too many kinds");
    }

    #[test]
    fn travels_as_it_is() {
        let all = of(&[Part::Cpus(0.5), Part::Gpus(2.0), Part::Memory(1 << 33), Part::Custom("x", 1.0)]);
        let bytes = postcard::to_allocvec(&all).unwrap();
        assert_eq!(postcard::from_bytes::<Resources>(&bytes), Ok(all));
        let absurd = postcard::to_allocvec(&(u64::MAX, 0u64, 0u64, Vec::<(u64, u64)>::new())).unwrap();
        assert!(postcard::from_bytes::<Resources>(&absurd).is_err());
    }

    #[test]
    fn the_dominant_share_is_of_the_scarcest() {
        let mut whole = Sum::default();
        for name in ["a", "b", "c", "d", "e", "f"] {
            whole.add(&of(&[Part::Cpus(1.0), Part::Gpus(1.0), Part::Custom(name, 1.0)]));
        }
        let mut used = Sum::default();
        used.add(&of(&[Part::Cpus(3.0)]));
        assert_eq!(used.dominant_share(&whole), 500_000_000);
        used.add(&of(&[Part::Custom("f", 1.0)]));
        assert_eq!(used.dominant_share(&whole), 1_000_000_000);
        used.remove(&of(&[Part::Custom("f", 1.0)]));
        used.remove(&of(&[Part::Cpus(3.0)]));
        assert_eq!(used, Sum::default());
    }
}
