//! To come.
use std::io; use std::os::fd::OwnedFd; use paceline_proto::SlotId;
pub struct Zygote; pub struct Birth { pub slot: SlotId }
impl Zygote { pub fn new(_s: OwnedFd) -> io::Result<Zygote> { todo!() } pub fn next(&mut self) -> io::Result<Option<Birth>> { todo!() } pub fn forked(&mut self, _b: Birth, _p: u32) -> io::Result<()> { todo!() } }
impl Birth { pub fn become_slot(self, _z: Zygote) -> io::Result<(SlotId, OwnedFd, OwnedFd)> { todo!() } }
