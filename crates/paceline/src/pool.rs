//! Pools of a session: slots with state of their own.

use crate::cell::{Cell, Ticket};
use crate::session::Session;
use crate::state::tick;
use paceline_core::client::{HistoryFull, Outcome, PoolId, PoolSpec, Standing};
use paceline_proto::{SlotId, TaskId};
use std::sync::Arc;

/// A slot of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolPlace {
    /// What the node is called.
    pub node: String,
    pub slot: SlotId,
    /// It has run all standing calls.
    pub prepared: bool,
}

impl Session {
    /// Open a pool. Tasks name it by its shape and number.
    pub fn open_pool(&self, spec: PoolSpec) -> PoolId {
        let mut state = self.shared.state.lock();
        // Before it wants something: a slot says first for which task it works.
        self.shared.announce(&mut state);
        state.inner.act(|core, effects| core.open_pool(spec, effects))
    }

    /// Give a pool back: what waits for it is cancelled, and its slots end.
    pub fn close_pool(&self, pool: &PoolId) {
        if !self.shared.closed() {
            let mut state = self.shared.state.lock();
            state.inner.act(|core, effects| core.close_pool(pool, effects));
            self.shared.wake_leader(&state);
        }
    }

    /// Nothing more will be submitted to the pool: its slots go back as they run dry.
    pub fn finish_pool(&self, pool: &PoolId) {
        if !self.shared.closed() {
            self.shared.state.lock().inner.act(|core, effects| core.finish_pool(pool, effects));
        }
    }

    /// A call that every slot of the pool runs before all that is submitted from now on. Its outcome comes when all slots
    /// that are there have applied it.
    pub fn update_pool(&self, pool: &PoolId, call: Standing) -> Result<Arc<Cell>, HistoryFull> {
        let cell = Cell::new();
        self.stand(pool, call, Some(&cell))?;
        Ok(cell)
    }

    /// The same, and nobody waits for it.
    pub fn prepare_pool(&self, pool: &PoolId, call: Standing) -> Result<(), HistoryFull> {
        self.stand(pool, call, None)
    }

    fn stand(&self, pool: &PoolId, call: Standing, cell: Option<&Arc<Cell>>) -> Result<(), HistoryFull> {
        let mut state = self.shared.state.lock();
        self.shared.announce(&mut state);
        let ticket = cell.map(|cell| Ticket::Cell(cell.clone()));
        let task = state.inner.act(|core, effects| core.update_pool(tick(), pool, call, ticket, effects))?;
        if let Some(cell) = cell {
            cell.set_task(paceline_core::client::TaskKey(usize::MAX), task);
        }
        state.inner.flush_all();
        self.shared.watch_links(&mut state);
        Ok(())
    }

    /// Slots that come later run this call instead of all updates from the number `keep` on that were accepted before the
    /// task `after`. Says whether there were any.
    pub fn cut_pool(&self, pool: &PoolId, after: TaskId, keep: u32, call: Standing) -> bool {
        self.shared.state.lock().inner.core.cut_pool(pool, after, keep, call)
    }

    /// Its outcome comes when so many slots of the pool are there and have run all standing calls.
    pub fn pool_ready(&self, pool: &PoolId, count: u32) -> Arc<Cell> {
        let cell = Cell::new();
        let mut state = self.shared.state.lock();
        self.shared.announce(&mut state);
        let ticket = Ticket::Cell(cell.clone());
        state.inner.act(|core, effects| core.pool_ready(pool, count, ticket, effects));
        cell
    }

    /// Its outcome comes when the pool has ended, and says how.
    pub fn pool_ended(&self, pool: &PoolId) -> Arc<Cell> {
        let cell = Cell::new();
        let ticket = Ticket::Cell(cell.clone());
        self.shared.state.lock().inner.act(|core, effects| core.pool_ended(pool, ticket, effects));
        cell
    }

    /// Its outcome comes when nothing runs or waits in the pool any more; of one that is finished, when its slots are given
    /// back, too.
    pub fn pool_drained(&self, pool: &PoolId) -> Arc<Cell> {
        let cell = Cell::new();
        let ticket = Ticket::Cell(cell.clone());
        let mut state = self.shared.state.lock();
        state.inner.act(|core, effects| core.pool_drained(pool, ticket, effects));
        cell
    }

    /// End every call of a pool that has not begun as far as is known, but for the `keep` oldest. Says how many.
    pub fn cancel_waiting(&self, pool: &PoolId, keep: usize) -> usize {
        if self.shared.closed() {
            return 0;
        }
        let mut state = self.shared.state.lock();
        let count = state.inner.act(|core, effects| core.cancel_waiting(pool, keep, effects));
        self.shared.wake_leader(&state);
        count
    }

    /// Ends every call of a pool, whether it runs or not.
    pub fn cancel_pool(&self, pool: &PoolId) {
        if self.shared.closed() {
            return;
        }
        let mut state = self.shared.state.lock();
        state.inner.act(|core, effects| core.cancel_pool(pool, effects));
        self.shared.wake_leader(&state);
    }

    /// How whatever is submitted to the pool ends, if it is broken.
    pub fn pool_broken(&self, pool: &PoolId) -> Option<Outcome> {
        self.shared.state.lock().inner.core.pool_broken(pool)
    }

    /// Where the slots of a pool are.
    pub fn pool_places(&self, pool: &PoolId) -> Vec<PoolPlace> {
        let state = self.shared.state.lock();
        let places = state.inner.core.pool_places(pool).into_iter();
        let named = |(node, slot, prepared)| {
            let node = state.inner.names.get(&node).cloned();
            PoolPlace { node: node.unwrap_or_else(|| state.inner.own_name.clone()), slot, prepared }
        };
        places.map(named).collect()
    }

    /// How many bytes the standing calls of a pool take.
    pub fn pool_history(&self, pool: &PoolId) -> usize {
        self.shared.state.lock().inner.core.pool_history(pool)
    }
}
