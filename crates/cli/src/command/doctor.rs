//! `paceline doctor`.

use crate::args::Which;
use crate::failure::Failure;

pub fn run(_args: &Which, _json: bool) -> Result<(), Failure> {
    Ok(())
}
