//! What tasks run on.

use super::slot_main;
use super::target::Target;
use super::{Options, Result, Task};
use crate::{FunctionId, Session};
use parking_lot::RwLock;
use std::any::TypeId;
use std::collections::HashMap;
use std::ops::Deref;

/// What tasks run on: a [`Cluster`](super::Cluster) or an [`Executor`](super::Executor), or a pointer to one.
pub trait Runner {
    /// A task with its options, ready to be called here.
    #[doc(hidden)]
    fn target<T: Task>(&self, options: Options) -> Result<Target>;
}

impl<P> Runner for P
where
    P: Deref,
    P::Target: Runner,
{
    fn target<T: Task>(&self, options: Options) -> Result<Target> {
        (**self).target::<T>(options)
    }
}

/// The tasks that a session has heard of.
#[derive(Default)]
pub(crate) struct Functions(RwLock<HashMap<TypeId, FunctionId>>);

impl Functions {
    pub fn of<T: Task>(&self, session: &Session) -> FunctionId {
        let known = self.0.read().get(&TypeId::of::<T>()).copied();
        known.unwrap_or_else(|| {
            let function = session.define(slot_main::name_bytes(T::NAME));
            self.0.write().insert(TypeId::of::<T>(), function);
            function
        })
    }
}
