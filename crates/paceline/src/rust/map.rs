//! One function for many arguments.
//!
//! * MP-1: items travel in chunks, as many as keep all slots busy; with a timeout one by one, for it is one item's.

use super::future::{FOR_EVER, block, resolve_with};
use super::target::Target;
use super::task;
use super::{Error, Result, travel};
use crate::exchange::{self, chunk};
use crate::{Batch, Bytes, Stored, Ticket};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// So many tasks are handed in at once: slots are at work while the rest is encoded.
const ROUND: usize = 1024;
/// Or so many bytes.
const ROUND_BYTES: usize = 1 << 20;
/// So many items are encoded before slots hear of any: the first slot starts while the second's share is encoded.
const ITEMS: usize = 1024;
/// Chunks for each slot, if nobody says.
const CHUNKS_PER_SLOT: usize = 4;

impl Target {
    pub fn map<A: Serialize, O: DeserializeOwned>(
        &self,
        items: impl IntoIterator<Item = A>,
    ) -> Result<Vec<O>> {
        let items = items.into_iter();
        let chunk = match (self.chunk, items.size_hint()) {
            (0, _) if !self.submission.timeout.is_zero() => 1,
            (0, (least, Some(most))) if least == most => self.chunk_of(most),
            (0, _) => {
                let items: Vec<A> = items.collect();
                let chunk = self.chunk_of(items.len());
                return self.map_chunks(chunk, items.into_iter());
            }
            (chunk, _) => chunk,
        };
        self.map_chunks(chunk, items)
    }

    fn chunk_of(&self, items: usize) -> usize {
        items.div_ceil(self.slots.max(1) * CHUNKS_PER_SLOT).max(1)
    }

    fn map_chunks<A: Serialize, O: DeserializeOwned>(
        &self,
        chunk: usize,
        items: impl Iterator<Item = A>,
    ) -> Result<Vec<O>> {
        let batch = Batch::new(true);
        let result = Map { target: self, batch: &batch, chunk }.collect(items);
        if result.is_err() {
            self.session.cancel_batch(&batch);
        }
        result
    }
}

struct Map<'a> {
    target: &'a Target,
    batch: &'a Arc<Batch>,
    chunk: usize,
}

impl Map<'_> {
    fn collect<A: Serialize, O: DeserializeOwned>(
        &self,
        mut items: impl Iterator<Item = A>,
    ) -> Result<Vec<O>> {
        let mut values = Vec::with_capacity(items.size_hint().0);
        let (mut fed, mut taken) = (0, 0);
        let mut ready = Vec::new();
        let round = (ITEMS / self.chunk).clamp(1, ROUND);
        loop {
            // What is under way makes room by itself; without any, a round is let in beside what others have there.
            while self.batch.done() < fed && !self.target.session.has_room() {
                let target = self.batch.done() + (fed - self.batch.done()).min(ROUND).div_ceil(2);
                while !block(&self.target.session, self.batch.waiter(target), None, FOR_EVER)? {}
                taken += self.take(&mut ready, &mut values)?;
            }
            let (payloads, last) = self.round(&mut items, round)?;
            let count = payloads.len();
            self.feed(fed, payloads)?;
            fed += count;
            taken += self.take(&mut ready, &mut values)?;
            if last {
                break;
            }
        }
        while taken < fed {
            let target = (self.batch.done() + ROUND).min(fed);
            while !block(&self.target.session, self.batch.waiter(target), None, FOR_EVER)? {}
            taken += self.take(&mut ready, &mut values)?;
        }
        Ok(values)
    }

    /// The next tasks, encoded, and whether there are no more.
    fn round<A: Serialize>(
        &self,
        items: &mut impl Iterator<Item = A>,
        most: usize,
    ) -> Result<(Vec<Bytes>, bool)> {
        let mut payloads = Vec::with_capacity(most.min(64));
        let mut bytes = 0;
        while payloads.len() < most && bytes < ROUND_BYTES {
            let Some(payload) = self.payload(items)? else { return Ok((payloads, true)) };
            bytes += payload.len();
            payloads.push(payload);
        }
        Ok((payloads, false))
    }

    /// The next task: one item or a chunk of them. None when there are no more.
    fn payload<A: Serialize>(&self, items: &mut impl Iterator<Item = A>) -> Result<Option<Bytes>> {
        let unsendable = |message| self.target.unsendable(message);
        if self.chunk == 1 {
            return items.next().map(|item| task::encode_call(&item).map_err(unsendable)).transpose();
        }
        let mut payload = vec![exchange::EACH];
        for item in items.take(self.chunk) {
            task::push_call(&mut payload, &item).map_err(unsendable)?;
        }
        Ok((payload.len() > 1).then(|| payload.into()))
    }

    fn feed(&self, first: usize, payloads: Vec<Bytes>) -> Result<()> {
        if self.target.session.is_closed() {
            return Err(Error::Closed);
        }
        let tickets = (first..).map(|index| Ticket::Batch(self.batch.clone(), index as u32));
        self.target.session.submit_many(&self.target.submission, tickets.zip(payloads));
        Ok(())
    }

    fn take<O: DeserializeOwned>(&self, ready: &mut Vec<Stored>, values: &mut Vec<O>) -> Result<usize> {
        self.batch.take_ready(ready);
        let count = ready.len();
        let session = &self.target.session;
        for stored in ready.drain(..) {
            resolve_with(session, self.target.name, stored.load(), |bytes| {
                if self.chunk == 1 {
                    values.push(travel::read(session, || task::decode(bytes))?);
                    return Ok(());
                }
                for value in chunk::iter(bytes) {
                    let value = value.ok_or("the values are cut off")?;
                    values.push(travel::read(session, || task::decode(value))?);
                }
                Ok(())
            })?;
        }
        Ok(count)
    }
}
