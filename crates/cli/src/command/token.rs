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
    let token = answer["token"].as_str().unwrap_or_default();
    let address = answer["address"].as_str().unwrap_or("HOST:PORT");
    show::line(&super::start::join_line(address, token));
    show::note(if args.reusable {
        "for any number of machines"
    } else {
        "for one machine, within ten minutes"
    });
    Ok(())
}
