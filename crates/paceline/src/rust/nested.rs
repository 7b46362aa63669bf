//! The session of a slot, for tasks that submit tasks and objects that call others.
//!
//! * NT-1: there is one in a process, opened when somebody first asks, and it ends with the process.

use super::client::surroundings;
use super::runner::Functions;
use super::{Error, Result, current, slot_main};
use crate::{ProgramId, Session};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

pub(crate) struct Nested {
    pub session: Session,
    /// What its tasks are functions of: this program, as the cluster knows it.
    pub program: ProgramId,
    pub functions: Arc<Functions>,
}

static NESTED: OnceLock<Nested> = OnceLock::new();

/// The session, if anybody has asked for it.
pub(crate) fn opened() -> Option<&'static Session> {
    NESTED.get().map(|nested| &nested.session)
}

pub(crate) fn open() -> Result<&'static Nested> {
    static OPENING: Mutex<()> = Mutex::new(());
    if let Some(nested) = NESTED.get() {
        return Ok(nested);
    }
    let runtime = current::runtime().ok_or(Error::NotInSlot)?;
    let _alone = OPENING.lock();
    if let Some(nested) = NESTED.get() {
        return Ok(nested);
    }
    // What it submits finds itself where it is itself.
    let around = match current::environment() {
        Some(environment) => environment,
        None => surroundings()?,
    };
    let session = Session::nested(runtime.clone(), around, None, Arc::new(|run| run()))
        .map_err(|error| Error::Start(Arc::new(error)))?;
    // A client that is another program knows this one by its path; so do its nodes.
    let program = if runtime.is_own() { ProgramId::OWN } else { session.program(slot_main::start()) };
    Ok(NESTED.get_or_init(|| Nested { session, program, functions: Arc::default() }))
}
