//! One task for many arguments.

use super::client::payload;
use super::future::{block, resolve};
use super::task::Task;
use super::{Cluster, Error, Options, Result};
use crate::{Batch, Bytes, Outcome, Submission, Ticket};
use std::sync::Arc;
use std::time::Duration;

/// So many tasks are handed in at once: slots are at work while the rest is encoded.
const ROUND: usize = 1024;

const FOR_EVER: Duration = Duration::from_secs(3600 * 24 * 365);

impl Cluster {
    pub(crate) fn map_with<T: Task>(
        &self,
        options: Options,
        items: impl IntoIterator<Item = T::Arguments>,
    ) -> Result<Vec<T::Output>> {
        let submission = self.submission::<T>(options)?;
        let batch = Batch::new(true);
        let result = self.collect::<T>(&submission, &batch, items.into_iter());
        if result.is_err() {
            self.session.cancel_batch(&batch);
        }
        result
    }

    fn collect<T: Task>(
        &self,
        submission: &Submission,
        batch: &Arc<Batch>,
        mut items: impl Iterator<Item = T::Arguments>,
    ) -> Result<Vec<T::Output>> {
        let mut values = Vec::with_capacity(items.size_hint().0);
        let mut fed = 0;
        let mut ready = Vec::new();
        loop {
            let round: Vec<Bytes> =
                items.by_ref().take(ROUND).map(|item| payload::<T>(&item)).collect::<Result<_>>()?;
            let count = round.len();
            self.feed(submission, batch, fed, round)?;
            fed += count;
            self.take::<T>(batch, &mut ready, &mut values)?;
            if count < ROUND {
                break;
            }
        }
        while values.len() < fed {
            let target = (batch.done() + ROUND).min(fed);
            while !block(&self.session, batch.waiter(target), None, FOR_EVER)? {}
            self.take::<T>(batch, &mut ready, &mut values)?;
        }
        Ok(values)
    }

    fn feed(
        &self,
        submission: &Submission,
        batch: &Arc<Batch>,
        first: usize,
        round: Vec<Bytes>,
    ) -> Result<()> {
        if self.session.is_closed() {
            return Err(Error::Closed);
        }
        let tickets = (first..).map(|index| Ticket::Batch(batch.clone(), index as u32));
        self.session.submit_many(submission, tickets.zip(round));
        Ok(())
    }

    fn take<T: Task>(
        &self,
        batch: &Batch,
        ready: &mut Vec<Outcome>,
        values: &mut Vec<T::Output>,
    ) -> Result<()> {
        batch.take_ready(ready);
        for outcome in ready.drain(..) {
            values.push(resolve(&self.session, T::NAME, outcome)?);
        }
        Ok(())
    }
}
