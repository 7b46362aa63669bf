//! Values one by one, pulling jobs only as they are taken.
//!
//! * IM-1: at most `lookahead` jobs are taken beyond the values that were read.
//! * IM-2: what nobody asks for any more is cancelled.

use super::future::{FOR_EVER, block, resolve};
use super::target::Target;
use super::{Error, Result, Worker, task};
use crate::{Batch, Ticket};
use std::marker::PhantomData;
use std::sync::Arc;

/// The values of the jobs of a [`WorkerPool`](super::WorkerPool), as they come: `imap` and `imap_unordered`. A job that fails
/// gives an error in its place, and the others go on. Dropping it cancels what is under way.
#[must_use = "jobs are taken as their values are asked for"]
pub struct Results<W, I> {
    /// Or why there is nothing.
    target: Option<Target>,
    failed: Option<Error>,
    batch: Arc<Batch>,
    /// None once there are no more.
    jobs: Option<I>,
    lookahead: usize,
    fed: usize,
    taken: usize,
    /// It is the thread that has made it which is woken, so it stays there: a pointer keeps it from being sent.
    kind: PhantomData<*const W>,
}

impl<W: Worker, I: Iterator<Item = W::Job>> Results<W, I> {
    pub(crate) fn new(target: Result<Target>, jobs: I, ordered: bool, lookahead: usize) -> Self {
        let (target, failed) = match target {
            Ok(target) => (Some(target), None),
            Err(error) => (None, Some(error)),
        };
        let jobs = target.is_some().then_some(jobs);
        let batch = Batch::new(ordered);
        Results { target, failed, batch, jobs, lookahead, fed: 0, taken: 0, kind: PhantomData }
    }

    /// How many jobs are taken beyond the values that were read, at least one; by default twice as many as there are slots.
    pub fn lookahead(mut self, jobs: usize) -> Self {
        self.lookahead = jobs.max(1);
        self
    }

    /// Take jobs, as many as there is use for (IM-1).
    fn feed(&mut self, target: &Target) {
        while let Some(jobs) = &mut self.jobs
            && self.fed - self.taken < self.lookahead
            && (self.fed == self.taken || target.session.has_room())
        {
            let Some(job) = jobs.next() else {
                self.jobs = None;
                return;
            };
            match task::encode_call(&W::job(job)) {
                Ok(payload) => {
                    let ticket = Ticket::Batch(self.batch.clone(), self.fed as u32);
                    target.session.submit_many(&target.submission, std::iter::once((ticket, payload)));
                    self.fed += 1;
                }
                Err(message) => {
                    // Told after the values of what came before.
                    self.failed = Some(target.unsendable(message));
                    self.jobs = None;
                }
            }
        }
    }

    fn advance(&mut self, target: &Target) -> Option<Result<W::Output>> {
        loop {
            if target.session.is_closed() {
                (self.jobs, self.fed, self.taken) = (None, 0, 0);
                return Some(Err(Error::Closed));
            }
            self.feed(target);
            // Read before looking: what comes in between ends the wait at once.
            let done = self.batch.done();
            if let Some(stored) = self.batch.take_next() {
                self.taken += 1;
                return Some(resolve(&target.session, target.name, stored.load()));
            }
            if self.taken == self.fed && self.jobs.is_none() {
                return self.failed.take().map(Err);
            }
            if let Err(error) = block(&target.session, self.batch.waiter(done + 1), None, FOR_EVER) {
                (self.jobs, self.fed, self.taken) = (None, 0, 0);
                return Some(Err(error));
            }
        }
    }
}

impl<W: Worker, I: Iterator<Item = W::Job>> Iterator for Results<W, I> {
    type Item = Result<W::Output>;

    fn next(&mut self) -> Option<Result<W::Output>> {
        if self.taken == self.fed && self.jobs.is_none() {
            return self.failed.take().map(Err);
        }
        let target = self.target.take()?;
        let next = self.advance(&target);
        self.target = Some(target);
        next
    }
}

impl<W, I> Drop for Results<W, I> {
    fn drop(&mut self) {
        if let Some(target) = &self.target {
            target.session.cancel_batch(&self.batch);
        }
    }
}
