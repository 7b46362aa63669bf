//! stub until the control plane is there
use paceline_proto::LeaseId; use rustix::fd::OwnedFd; use std::io;
#[derive(Clone, Debug)]
pub struct Config { pub cpus: u64, pub spares: u64, pub command: Vec<String>, pub variables: Vec<(String,String)>, pub name: String }
pub struct SlotStatus { pub slot: paceline_proto::SlotId, pub pid: u32, pub state: &'static str }
pub struct Status { pub name: String, pub slots: Vec<SlotStatus> }
pub struct Embedded;
impl Embedded {
 pub fn start(_c: Config) -> io::Result<Embedded> { Ok(Embedded) }
 pub fn control(&mut self) -> OwnedFd { todo!() }
 pub fn connect(&self, _l: LeaseId) -> io::Result<OwnedFd> { todo!() }
 pub fn shutdown(&mut self) {}
 pub fn status(&self) -> Status { todo!() }
}
