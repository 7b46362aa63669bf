//! What tasks ask for and nodes have, in integers of 1/10,000 so that fractions add up exactly.

use crate::ids::ProgramId;
use serde::{Deserialize, Serialize};
use std::fmt;

const UNIT: u64 = 10_000;

/// An amount of each resource.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Resources {
    cpus: u64,
}

impl Resources {
    /// `count` whole CPUs.
    pub fn cpus(count: u64) -> Resources {
        Resources { cpus: count * UNIT }
    }

    /// A fraction of CPUs, rounded to 1/10,000; `None` if it is negative, not a number, or absurdly large.
    pub fn fractional_cpus(count: f64) -> Option<Resources> {
        let units = (count * UNIT as f64).round();
        (0.0..1e15).contains(&units).then_some(Resources { cpus: units as u64 })
    }

    /// CPUs, rounded up, at least one: how many threads a slot with these resources may use.
    pub fn threads(&self) -> u64 {
        self.cpus.div_ceil(UNIT).max(1)
    }

    /// Every resource by its name, in the units people use.
    pub fn amounts(&self) -> Vec<(String, f64)> {
        vec![("cpus".into(), self.cpus as f64 / UNIT as f64)]
    }

    pub fn fits_in(&self, other: &Resources) -> bool {
        self.cpus <= other.cpus
    }

    /// `None` if more is taken than there is.
    pub fn minus(&self, other: &Resources) -> Option<Resources> {
        Some(Resources { cpus: self.cpus.checked_sub(other.cpus)? })
    }

    /// Nothing where more is taken than there is.
    pub fn less(&self, other: &Resources) -> Resources {
        Resources { cpus: self.cpus.saturating_sub(other.cpus) }
    }

    /// The larger amount of each.
    pub fn at_least(&self, other: &Resources) -> Resources {
        Resources { cpus: self.cpus.max(other.cpus) }
    }

    pub fn plus(&self, other: &Resources) -> Resources {
        Resources { cpus: self.cpus + other.cpus }
    }

    /// How often this fits into `whole`; without any need, as often as there are CPUs.
    pub fn times_in(&self, whole: &Resources) -> u64 {
        whole.cpus.checked_div(self.cpus).unwrap_or_else(|| whole.threads())
    }

    /// The largest share of `whole` that any resource takes, in 1/1,000,000.
    pub fn dominant_share(&self, whole: &Resources) -> u64 {
        self.cpus.saturating_mul(1_000_000).checked_div(whole.cpus).unwrap_or(0)
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus = self.cpus as f64 / UNIT as f64;
        write!(f, "{cpus} CPU{}", if cpus == 1.0 { "" } else { "s" })
    }
}

/// What a slot must be for a task to run in it. Tasks of one shape share leases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Shape {
    pub needs: Resources,
    /// What runs there.
    pub program: ProgramId,
}

impl Shape {
    pub fn cpus(count: u64) -> Shape {
        Shape::of(Resources::cpus(count))
    }

    /// Slots of the client's own program that have this.
    pub fn of(needs: Resources) -> Shape {
        Shape { needs, program: ProgramId::OWN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
