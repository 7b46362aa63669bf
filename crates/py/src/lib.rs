//! The Rust core as a Python module: `paceline._native`.
//!
//! The only crate that knows Python. Small files: values ([`values`], [`scalar`], [`buffers`]; to other languages [`message`]), the
//! client's classes ([`session`], [`function`], [`group`], [`pool`], [`guest`], [`future`], [`map`], [`waiting`], [`room`],
//! [`watch`]), what the machine has ([`machine`]), the slot's side ([`zygote`], [`slot`], [`beside`],
//! [`loading`]), and threads that outlast the interpreter ([`ending`]).
//!
//! * PY-1: no lock of ours is held while Python code runs, and Python is never entered under one.
//! * PY-2: every wait releases the interpreter lock and lets Ctrl-C through within 100 ms.

use pyo3::prelude::*;

mod arrays;
mod beside;
mod buffers;
mod ending;
mod files;
mod function;
mod future;
mod group;
mod guest;
mod loading;
mod machine;
mod makers;
mod map;
mod message;
mod ndarray;
mod objects;
mod outcome;
mod payload;
mod pool;
mod references;
mod room;
mod scalar;
mod session;
mod slot;
mod values;
mod waiting;
mod watch;
mod wire;
mod zygote;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    paceline::on_unclaimed(objects::unpin);
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<watch::Watch>()?;
    module.add_class::<future::FutureBase>()?;
    module.add_class::<function::Function>()?;
    module.add_class::<group::Group>()?;
    module.add_class::<pool::Pool>()?;
    module.add_class::<guest::Guest>()?;
    module.add_class::<map::Results>()?;
    module.add_class::<objects::Store>()?;
    module.add_class::<objects::HeldReference>()?;
    module.add_class::<objects::Mapped>()?;
    module.add_function(wrap_pyfunction!(references::travels, module)?)?;
    module.add_class::<room::Gate>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<zygote::Zygote>()?;
    module.add_class::<zygote::Birth>()?;
    module.add_function(wrap_pyfunction!(machine::usable_cpus, module)?)?;
    module.add_function(wrap_pyfunction!(waiting::wait, module)?)?;
    module.add("Unreached", module.py().get_type::<session::Unreached>())?;
    module.add_function(wrap_pyfunction!(session::parse_address, module)?)?;
    module.add_function(wrap_pyfunction!(session::after_fork_in_child, module)?)?;
    module.add_function(wrap_pyfunction!(slot::current, module)?)?;
    module.add_function(wrap_pyfunction!(slot::slot_main, module)?)?;
    module.add_class::<beside::Beside>()?;
    module.add_class::<buffers::Collector>()?;
    module.add_class::<buffers::Memory>()?;
    module.add_class::<buffers::Apart>()?;
    module.add_function(wrap_pyfunction!(beside::allow_overlap, module)?)?;
    module.add_function(wrap_pyfunction!(beside::next_stop, module)?)?;
    module.add_function(wrap_pyfunction!(beside::stop_later, module)?)?;
    Ok(())
}
