//! `paceline explain`.

use crate::args::Explain;
use crate::failure::Failure;
use crate::show;
use paceline_proto::question::Question;

pub fn run(args: &Explain, json: bool) -> Result<(), Failure> {
    let answer = super::target(&args.which)?.ask(Question::Explain { what: args.what.clone() })?;
    if json {
        show::json(&answer);
        return Ok(());
    }
    let lines = answer["lines"].as_array().into_iter().flatten().filter_map(|line| line.as_str());
    lines.for_each(show::line);
    Ok(())
}
