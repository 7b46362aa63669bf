//! The zygote's end of its link to the node, as its Python loop uses it.

use paceline_proto::SlotId;
use paceline_slot::zygote::{self, Wanted};
use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn os_error(error: io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(code) => PyOSError::new_err((code, error.to_string())),
        None => PyOSError::new_err(error.to_string()),
    }
}

#[pyclass(frozen, module = "paceline._native")]
pub struct Zygote {
    inner: Mutex<Option<zygote::Zygote>>,
    ended: AtomicBool,
}

#[pymethods]
impl Zygote {
    #[new]
    fn new(descriptor: RawFd) -> PyResult<Zygote> {
        // SAFETY: the node made this descriptor for us alone; nobody else in this process knows it.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let inner = zygote::Zygote::new(socket).map_err(os_error)?;
        Ok(Zygote { inner: Mutex::new(Some(inner)), ended: AtomicBool::new(false) })
    }

    /// The next slot to fork; none if there was nothing to do for so many seconds, or it has ended.
    #[pyo3(signature = (patience=None))]
    fn next(&self, py: Python<'_>, patience: Option<f64>) -> PyResult<Option<Birth>> {
        let patience = patience.map(Duration::from_secs_f64);
        let next = crate::ending::detach(py, || match &mut *self.inner.lock() {
            Some(zygote) => zygote.next(patience),
            None => Ok(Wanted::End),
        });
        match next.map_err(os_error)? {
            Wanted::Fork(birth) => Ok(Some(Birth { slot: birth.slot, inner: Mutex::new(Some(birth)) })),
            Wanted::Idle => Ok(None),
            Wanted::End => {
                self.ended.store(true, Ordering::Relaxed);
                Ok(None)
            }
        }
    }

    /// Whether the node is gone, and all slots.
    #[getter]
    fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn forked(&self, birth: &Bound<'_, Birth>, pid: u32) -> PyResult<()> {
        let taken = birth.get().inner.lock().take();
        let (Some(birth), Some(zygote)) = (taken, &mut *self.inner.lock()) else { return Ok(()) };
        zygote.forked(birth, pid).map_err(os_error)
    }

    fn not_forked(&self, birth: &Bound<'_, Birth>, errno: i32) {
        let taken = birth.get().inner.lock().take();
        if let (Some(birth), Some(zygote)) = (taken, &mut *self.inner.lock()) {
            zygote.not_forked(birth, errno);
        }
    }
}

#[pyclass(frozen, module = "paceline._native")]
pub struct Birth {
    slot: SlotId,
    inner: Mutex<Option<zygote::Birth>>,
}

#[pymethods]
impl Birth {
    #[getter]
    fn slot(&self) -> u64 {
        self.slot.0
    }

    fn close(&self) {
        self.inner.lock().take();
    }
}

impl Birth {
    /// In the forked child: leave the zygote behind. Gives the slot's id, its control socket and its page.
    pub fn become_slot(&self, zygote: &Zygote) -> PyResult<(SlotId, OwnedFd, OwnedFd)> {
        let birth = self.inner.lock().take();
        let birth = birth.ok_or_else(|| PyRuntimeError::new_err("this slot was born already"))?;
        let zygote = zygote.inner.lock().take();
        let zygote = zygote.ok_or_else(|| PyRuntimeError::new_err("not in a zygote's child"))?;
        birth.become_slot(zygote).map_err(os_error)
    }
}
