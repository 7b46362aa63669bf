//! What a store knows of one object.

use super::store::LinkId;
use super::tree::Tree;
use paceline_proto::objects::Reference;
use std::collections::BTreeSet;

/// Where the bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// They are being made by this process.
    Coming(LinkId),
    Small,
    Memory,
    /// On their way to disk. Whoever wants them waits for that.
    Spilling,
    Disk,
    /// They are elsewhere: with nodes that have copies, or wherever the owner knows.
    Away,
}

#[derive(Debug)]
pub(super) struct Object {
    pub reference: Reference,
    pub size: u64,
    pub place: Place,
    /// Processes that have a reference.
    pub holders: BTreeSet<LinkId>,
    /// Processes that have the memory, or the file on disk.
    pub having: BTreeSet<LinkId>,
    /// References on their way, and objects that refer to it.
    pub pins: u32,
    pub inside: Vec<Reference>,
    /// When it was put or wanted last, by the store's own count.
    pub used: u64,
    /// Questions that wait for the bytes.
    pub wanted: Vec<(LinkId, u64)>,
    /// Nodes that have the bytes, too,
    pub copies: BTreeSet<LinkId>,
    /// and those of them that were asked in vain.
    pub failed: BTreeSet<LinkId>,
    /// The bytes are being fetched, or were asked for.
    pub asked: bool,
    /// They are to come from another node than the owner's.
    pub elsewhere: bool,
    /// Nobody has them, and they are being made again.
    pub making: bool,
    /// Who gets them from whom.
    pub tree: Tree,
    /// The owner knows that this store holds it.
    pub up: bool,
    /// The owner has said that it is of no use any more; who has asked for its bytes before gets them.
    pub ended: bool,
    /// Of what the owner was asked before this number it has heard the contrary since.
    pub since: u64,
}

impl Object {
    pub fn new(reference: Reference, size: u64, place: Place, used: u64) -> Object {
        Object {
            reference,
            size,
            place,
            holders: BTreeSet::new(),
            having: BTreeSet::new(),
            pins: 0,
            inside: Vec::new(),
            used,
            wanted: Vec::new(),
            copies: BTreeSet::new(),
            failed: BTreeSet::new(),
            asked: false,
            elsewhere: false,
            making: false,
            tree: Tree::default(),
            up: false,
            ended: false,
            since: 0,
        }
    }

    /// Whether anything keeps it. Where the owner decides, it says when bytes are of no use any more.
    pub fn is_kept(&self, far: bool) -> bool {
        // Who has asked for the bytes gets them, even if it has let go of its reference meanwhile.
        let asked = !self.wanted.is_empty() || !self.tree.queue.is_empty() || !self.tree.serving.is_empty();
        let wanted = asked || matches!(self.place, Place::Coming(_));
        wanted
            || self.pins > 0
            || !self.holders.is_empty()
            || (far && self.place != Place::Away && !self.ended)
    }
}
