//! What this machine lets this process use, for Python.

use paceline::hardware;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::path::PathBuf;

/// The least that affinity, control groups and Slurm allow. `root` and `environment` stand in for the system in tests.
#[pyfunction]
pub fn usable_cpus(affinity: u64, root: PathBuf, environment: HashMap<String, String>) -> u64 {
    hardware::usable_cpus_under(&root, affinity, |name| environment.get(name).cloned())
}
