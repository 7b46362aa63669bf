//! Functions of other programs, called by the names they are exported under.

use super::target::Target;
use super::{Cluster, Error, Future, Options, Result};
use crate::{Bytes, FunctionId, ProgramId, Session, Start, exchange};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

/// What the bytes of a function begin with that Python exports: module, zero byte, name.
const EXPORTED: u8 = b'E';

/// Says which interpreter runs Python functions.
const PYTHON: &str = "PACELINE_PYTHON";

/// What a Python zygote does. The directory it starts in must not stand in for a module of the standard library; slots
/// find modules there all the same.
const ZYGOTE: &str =
    "import sys; sys.path[:] = filter(None, sys.path); from paceline._slot.zygote import main; main()";

/// Another program whose exported functions run on this cluster, in slots that are processes of that program. It is
/// started when one of them is first called.
#[derive(Clone)]
pub struct Program {
    session: Session,
    program: ProgramId,
    /// What comes before a function's name.
    prefix: Vec<u8>,
}

impl Cluster {
    /// A Rust program, by its file. Its functions are its tasks, by their names: `#[paceline::task(name = "...")]`.
    pub fn program(&self, path: impl AsRef<Path>) -> Program {
        let path = std::path::absolute(path.as_ref()).unwrap_or_else(|_| path.as_ref().to_owned());
        self.start(exchange::start_of(&path.to_string_lossy()), vec![exchange::NAMED])
    }

    /// A Python module, by its name. Its functions are those marked with `@paceline.export("...")`. It is imported by the
    /// interpreter of [`Builder::python`](super::Builder::python), else of the variable `PACELINE_PYTHON`, else of the
    /// virtual environment that is active, else by `python3`; paceline must be installed for it. Modules are found in the
    /// current directory and wherever that interpreter finds its own.
    pub fn python(&self, module: &str) -> Program {
        let interpreter = self.interpreter.clone().unwrap_or_else(usual_interpreter);
        let interpreter = interpreter.to_string_lossy().into_owned();
        let command = vec![interpreter, "-c".into(), ZYGOTE.into(), "-".into()];
        let prefix = [&[EXPORTED], module.as_bytes(), &[0]].concat();
        self.start(Start { command, variables: Vec::new() }, prefix)
    }

    fn start(&self, start: Start, prefix: Vec<u8>) -> Program {
        Program { program: self.session.program(start), session: self.session.clone(), prefix }
    }
}

fn usual_interpreter() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let environment = || set("VIRTUAL_ENV").map(|folder| folder.join("bin/python"));
    set(PYTHON).or_else(environment).unwrap_or_else(|| "python3".into())
}

impl Program {
    /// A function that the program exports under this name, with the types of its arguments and its value. Whether there
    /// is one, and whether it takes these, shows when it is called.
    ///
    /// ```no_run
    /// # fn main() -> paceline::Result<()> {
    /// # let cluster = paceline::Cluster::connect()?;
    /// let area = cluster.program("target/release/shapes").function::<(f64, f64), f64>("area");
    /// assert_eq!(area.call((2.0, 3.0))?, 6.0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn function<A: Arguments, O: DeserializeOwned>(&self, name: &str) -> Function<A, O> {
        let bytes: Bytes = [&self.prefix[..], name.as_bytes()].concat().into();
        Function {
            session: self.session.clone(),
            program: self.program,
            function: self.session.define(bytes),
            name: interned(name),
            options: Options::new(),
            types: PhantomData,
        }
    }
}

/// A function of another program. Cheap to clone.
pub struct Function<A, O> {
    session: Session,
    program: ProgramId,
    function: FunctionId,
    name: &'static str,
    options: Options,
    types: PhantomData<fn(A) -> O>,
}

impl<A, O> Clone for Function<A, O> {
    fn clone(&self) -> Function<A, O> {
        Function { session: self.session.clone(), ..*self }
    }
}

impl<A: Arguments, O: DeserializeOwned> Function<A, O> {
    /// The function with these options.
    #[must_use]
    pub fn options(&self, options: Options) -> Function<A, O> {
        Function { options, ..self.clone() }
    }

    /// Run it in a slot and wait for its value.
    pub fn call(&self, arguments: A) -> Result<O> {
        self.target()?.call(&arguments)
    }

    /// Have it run in a slot; its value comes with the future.
    pub fn submit(&self, arguments: A) -> Future<O> {
        match self.target() {
            Ok(target) => target.submit(&arguments),
            Err(error) => Future::failed(error),
        }
    }

    /// Run it for each tuple of arguments and wait for all values, in order.
    pub fn map(&self, items: impl IntoIterator<Item = A>) -> Result<Vec<O>> {
        self.target()?.map(items)
    }

    fn target(&self) -> Result<Target> {
        if self.session.is_closed() {
            return Err(Error::Closed);
        }
        let mut submission = self.options.submission(self.function)?;
        submission.shape.program = self.program;
        let (chunk, slots) = (self.options.chunk(), self.session.cpus() as usize);
        Ok(Target { session: self.session.clone(), submission, name: self.name, chunk, slots })
    }
}

/// The arguments of a call: a tuple, also of one or none.
pub trait Arguments: Serialize {}

macro_rules! arguments {
    ($($name:ident)*) => {
        impl<$($name: Serialize),*> Arguments for ($($name,)*) {}
    };
}

arguments!();
arguments!(A);
arguments!(A B);
arguments!(A B C);
arguments!(A B C D);
arguments!(A B C D E);
arguments!(A B C D E F);
arguments!(A B C D E F G);
arguments!(A B C D E F G H);

/// Errors and futures name functions without owning the name. There are few, and each is kept once.
pub(crate) fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut names = NAMES.lock();
    let names = names.get_or_insert_default();
    match names.get(name) {
        Some(known) => known,
        None => {
            let kept: &'static str = Box::leak(name.into());
            names.insert(kept);
            kept
        }
    }
}
