//! What this machine lets this process use: CPUs, memory, GPUs.
//!
//! Owns: reading the system. Does not own: who gets what of it.
//!
//! * HW-1: CPUs are the least that affinity, every control group above us and Slurm allow, at least one; memory likewise.
//! * HW-2: what the user says counts: more CPUs than there are may be given, for slots share them; a GPU that is not
//!   there may not, and the error names those that are.
//! * HW-3: GPUs are numbered from zero in the order of the PCI bus, as CUDA does with `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
//! * HW-4: a machine without a driver costs a look at three files, and a driver that does not answer is no reason to fail
//!   unless GPUs were asked for.

mod cpus;
mod gpus;
mod memory;
mod size;

pub use cpus::{usable as usable_cpus, usable_under as usable_cpus_under};
pub use gpus::{FAKE as FAKE_GPUS, Gpu, Gpus};
pub use memory::{Memory, SETTING as MEMORY_LIMIT, usable as usable_memory};
pub use size::{NotASize, size};

use paceline_core::node::{self, MemoryBound};
use paceline_proto::{Device, Part};
use thiserror::Error;

/// What the user wants of this machine; by default, all that may be used.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Settings {
    /// Slots may be given more than there are; they share.
    pub cpus: Option<f64>,
    pub gpus: Gpus,
    /// GPUs with less free memory than this are left alone.
    pub gpu_memory: u64,
    pub memory: Memory,
}

/// What there is.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    pub cpus: f64,
    /// In bytes: what can be promised to tasks.
    pub memory: u64,
    /// What is looked at while they run.
    pub bound: MemoryBound,
    /// In the order of the bus.
    pub gpus: Vec<Gpu>,
}

impl Machine {
    /// Let a node have this, beside what else its configuration says.
    pub fn describe(&self, config: &mut node::Config) -> Result<(), Error> {
        let total =
            config.total.with(Part::Cpus(self.cpus)).ok_or(Error::Cpus { count: self.cpus.to_string() })?;
        config.total = total.and_gpus(self.gpus.len() as u64).and_memory(self.memory);
        config.memory = self.bound;
        // What others use of a GPU is not there for our tasks.
        config.facts.devices = self.gpus.iter().map(|gpu| Device { memory: gpu.free }).collect();
        config.gpu_ids = self.gpus.iter().map(|gpu| u8::try_from(gpu.id).expect("there are few")).collect();
        Ok(())
    }
}

/// The machine does not have what was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Error {
    #[error("a node cannot have {count} CPUs")]
    Cpus { count: String },
    #[error("there is no GPU {missing} here: {present}")]
    NoSuchGpu { missing: u64, present: String },
    #[error("GPU {id} is named twice")]
    SameGpu { id: u64 },
    #[error("{} more than can be used here: {present}", if *wanted == 1 { "1 GPU is".to_owned() } else { format!("{wanted} GPUs are") })]
    TooManyGpus { wanted: u64, present: String },
    #[error("{text:?} does not say which GPUs: give a number of them, their ids as in 0,2, or auto")]
    WhichGpus { text: String },
    #[error("{variable}={text} does not say how many GPUs to pretend: give 4, or 4x16GB for their memory")]
    FakeGpus { variable: &'static str, text: String },
}

/// Look at the machine. What is named in the settings is checked against it.
pub fn find(settings: &Settings) -> Result<Machine, Error> {
    let (memory, bound) = settings.memory.found();
    Ok(Machine {
        cpus: settings.cpus.unwrap_or_else(|| usable_cpus() as f64),
        memory,
        bound,
        gpus: gpus::find(&settings.gpus, settings.gpu_memory)?,
    })
}

/// A file's text; nothing if it cannot be read.
fn read(path: impl AsRef<std::path::Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
