//! `paceline token`.

use crate::args::Token;
use crate::failure::Failure;
use crate::show;
use paceline_proto::question::Question;

pub fn run(args: &Token, json: bool) -> Result<(), Failure> {
    let target = super::target(&args.which)?;
    let answer = target.ask(Question::Token { reusable: args.reusable })?;
    if json {
        show::json(&answer);
        return Ok(());
    }
    show::line(answer["token"].as_str().unwrap_or_default());
    let address = target.head.address.as_deref().unwrap_or("HOST:PORT");
    let how =
        if args.reusable { "for any number of machines" } else { "for one machine, within ten minutes" };
    show::note(&format!("{how}: paceline join {address} --token TOKEN"));
    Ok(())
}
