//! One function as it is run: which, where, how. Tasks of this program and functions of others come together here.

use super::future::{FOR_EVER, block, resolve};
use super::task;
use super::{Error, Future, Result};
use crate::{Bytes, Session, Submission, Waiter};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) struct Target {
    pub session: Session,
    pub submission: Submission,
    pub name: &'static str,
    /// Items of a map that travel together; zero for as many as keep all slots busy.
    pub chunk: usize,
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
            Ok(payload) => {
                let cell = self.session.submit(&self.submission, payload);
                Future::new(self.session, cell, self.name)
            }
            Err(error) => Future::failed(error),
        }
    }

    fn payload(&self, arguments: &impl Serialize) -> Result<Bytes> {
        task::encode_call(arguments).map_err(|message| self.unsendable(message))
    }

    pub fn unsendable(&self, message: String) -> Error {
        Error::Encode { task: self.name, what: "an argument", message }
    }
}
