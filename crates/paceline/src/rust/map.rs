//! One task for many arguments.

use super::client::payload;
use super::future::{block, resolve};
use super::task::Task;
use super::{Cluster, Error, Options, Result};
use crate::{Batch, Bytes, Stored, Submission, Ticket};
use std::sync::Arc;
use std::time::Duration;

/// So many tasks are handed in at once: slots are at work while the rest is encoded.
const ROUND: usize = 1024;
/// Or so many bytes.
const ROUND_BYTES: usize = 1 << 20;

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
            // What is under way makes room by itself; without any, a round is let in beside what others have there.
            while batch.done() < fed && !self.session.has_room() {
                let target = batch.done() + (fed - batch.done()).min(ROUND).div_ceil(2);
                while !block(&self.session, batch.waiter(target), None, FOR_EVER)? {}
                self.take::<T>(batch, &mut ready, &mut values)?;
            }
            let Some(round) = round::<T>(&mut items)? else { break };
            let count = round.len();
            self.feed(submission, batch, fed, round)?;
            fed += count;
            self.take::<T>(batch, &mut ready, &mut values)?;
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
        ready: &mut Vec<Stored>,
        values: &mut Vec<T::Output>,
    ) -> Result<()> {
        batch.take_ready(ready);
        for stored in ready.drain(..) {
            values.push(resolve(&self.session, T::NAME, stored.load())?);
        }
        Ok(())
    }
}

/// The next tasks, encoded. None: there are no more.
fn round<T: Task>(items: &mut impl Iterator<Item = T::Arguments>) -> Result<Option<Vec<Bytes>>> {
    let mut round = Vec::new();
    let mut bytes = 0;
    while round.len() < ROUND && bytes < ROUND_BYTES {
        let Some(item) = items.next() else { break };
        let encoded = payload::<T>(&item)?;
        bytes += encoded.len();
        round.push(encoded);
    }
    Ok((!round.is_empty()).then_some(round))
}
