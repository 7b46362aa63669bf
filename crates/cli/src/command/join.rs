//! `paceline join`.

use crate::args::Join;
use crate::failure::{Failure, failed};
use crate::settings::Settings;

pub fn run(args: &Join, _json: bool) -> Result<(), Failure> {
    let settings = Settings::gather(args.flags())?;
    Err(failed(format!("{} cannot be joined yet", settings.text("address"))))
}
