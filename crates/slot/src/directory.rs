//! The directory of this slot, if its client is on another machine.
//!
//! Owns: its name, which the zygote drew before the fork and removes after the end. Does not own: the directory itself,
//! which is that of [`paceline_net::private`].

use paceline_net::private::Reserved;
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

static RESERVED: OnceLock<Reserved> = OnceLock::new();

pub(crate) fn set(reserved: Reserved) {
    let _ = RESERVED.set(reserved);
}

/// Makes the directory of this slot.
pub fn create() -> io::Result<PathBuf> {
    let reserved = RESERVED.get();
    reserved.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "this process is no slot"))?.create()
}
