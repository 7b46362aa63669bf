//! One function as it is run: which, where, how. Tasks of this program and functions of others come together here.

use super::future::{FOR_EVER, block, resolve};
use super::task;
use super::{Error, Future, Result};
use crate::{Bytes, Full, Refused, Session, Submission, Waiter};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Public only because [`Runner`](super::Runner) hands it out; nobody else can name it.
pub struct Target {
    pub session: Session,
    pub submission: Submission,
    pub name: &'static str,
    /// Items of a map that travel together; zero for as many as keep all slots busy.
    pub chunk: usize,
    /// How many slots there may be for it.
    pub slots: usize,
}

impl Target {
    pub fn call<O: DeserializeOwned>(&self, arguments: &impl Serialize) -> Result<O> {
        let payload = self.payload(arguments)?;
        let waiter = Waiter::new(1);
        let cell = self.session.submit_for(&self.submission, payload, &waiter);
        while !block(&self.session, &waiter, Some(&cell), FOR_EVER)? {}
        let outcome = cell.outcome().expect("it is done, and nobody makes it forget");
        resolve(&self.session, self.name, outcome)
    }

    pub fn submit<O: DeserializeOwned>(self, arguments: &impl Serialize) -> Future<O> {
        match self.payload(arguments) {
            Ok(payload) => match self.session.submit(&self.submission, payload) {
                Ok(cell) => Future::new(self.session, cell, self.name),
                Err(Refused::Full(full)) => Future::failed(self.queue_full(&full)),
                Err(Refused::Closed) => Future::failed(Error::Closed),
            },
            Err(error) => Future::failed(error),
        }
    }

    /// As `submit`, but never waits for room.
    pub fn try_submit<O: DeserializeOwned>(self, arguments: &impl Serialize) -> Result<Future<O>> {
        let payload = self.payload(arguments)?;
        let cell =
            self.session.try_submit(&self.submission, payload).map_err(|full| self.queue_full(&full))?;
        Ok(Future::new(self.session, cell, self.name))
    }

    fn queue_full(&self, full: &Full) -> Error {
        Error::QueueFull { task: self.name, waiting: full.waiting, most: full.most }
    }

    fn payload(&self, arguments: &impl Serialize) -> Result<Bytes> {
        task::encode_call(arguments).map_err(|message| self.unsendable(message))
    }

    pub fn unsendable(&self, message: String) -> Error {
        Error::Encode { task: self.name, what: "an argument", message }
    }
}
