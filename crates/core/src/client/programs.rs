//! Slots of other programs than the client's own: the head is told how they are started, and may find that they cannot.

use super::{Client, Effect, NotStarted, Outcome};
use paceline_proto::control::ClientToHead;
use paceline_proto::parts::carried;
use paceline_proto::{ProgramId, Start, StartError};
use std::collections::btree_map::Entry;

impl<Ticket: Clone> Client<Ticket> {
    /// Make a program known, so that shapes can name it; the same start gives the same name.
    pub fn add_program(&mut self, start: Start, out: &mut Vec<Effect<Ticket>>) -> ProgramId {
        let id = name(&start);
        if let Entry::Vacant(entry) = self.programs.entry(id) {
            entry.insert(start.clone());
            out.push(Effect::ToHead(ClientToHead::Program { program: id, start }));
        }
        id
    }

    /// The link to the head is new: it may have forgotten.
    pub(super) fn say_programs(&self, out: &mut Vec<Effect<Ticket>>) {
        for (&program, start) in &self.programs {
            out.push(Effect::ToHead(ClientToHead::Program { program, start: start.clone() }));
        }
    }

    pub(super) fn on_program_failed(
        &mut self,
        program: ProgramId,
        why: &StartError,
        out: &mut Vec<Effect<Ticket>>,
    ) {
        let Some(start) = self.programs.get(&program) else { return };
        let path = start.path().to_owned();
        for shape in self.shapes.keys() {
            if self.shapes.shape(shape).program != program {
                continue;
            }
            // Whoever submits such a task again has it tried again: the program may have been built meanwhile.
            self.want_nothing(shape, out);
            for key in self.shapes[shape].drain() {
                self.waiting.remove(carried(&self.tasks[key.0].payload));
                let outcome = NotStarted { path: path.clone(), why: why.clone() };
                self.finish_unplaced(key, Outcome::NotStarted(Box::new(outcome)), out);
            }
            self.stir_pool(shape, out);
        }
    }
}

/// What a program is called: a hash of how it is started.
pub fn name(start: &Start) -> ProgramId {
    let mut hasher = blake3::Hasher::new();
    let pairs = start.variables.iter().flat_map(|(name, value)| [name, value]);
    // Lengths keep the words apart.
    for word in start.command.iter().chain(pairs) {
        hasher.update(&(word.len() as u64).to_le_bytes()).update(word.as_bytes());
    }
    hasher.update(&(start.command.len() as u64).to_le_bytes());
    let hash = hasher.finalize();
    let (head, _) = hash.as_bytes().split_first_chunk::<8>().expect("a hash is longer than a name");
    ProgramId::of_hash(*head, start.command.is_empty())
}
