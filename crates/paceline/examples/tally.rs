//! Two programs and one actor, on the cluster at an address: `tally ADDRESS host` makes it and keeps it until its standard
//! input ends, `tally ADDRESS vote NAME COUNT` finds it and votes.

use paceline::{Cluster, Credentials};
use std::collections::BTreeMap;
use std::io::Read;

struct Tally {
    votes: BTreeMap<String, u64>,
}

#[paceline::actor(name = "examples/tally", restarts = 3)]
impl Tally {
    fn new() -> Tally {
        Tally { votes: BTreeMap::new() }
    }

    fn vote(&mut self, name: String) -> u64 {
        let votes = self.votes.entry(name).or_default();
        *votes += 1;
        *votes
    }

    fn pid(&self) -> u32 {
        std::process::id()
    }

    #[checkpoint]
    fn state(&self) -> BTreeMap<String, u64> {
        self.votes.clone()
    }

    #[restore]
    fn set_state(&mut self, votes: BTreeMap<String, u64>) {
        self.votes = votes;
    }
}

fn main() -> paceline::Result<()> {
    paceline::init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [address, "host"] => {
            let cluster = Cluster::connect_to(address, Credentials::Found)?;
            let tally = Tally::options().named("tally").spawn(&cluster, ())?;
            println!("{}", tally.pid()?);
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
        }
        [address, "vote", name, count] => {
            let cluster = Cluster::connect_to(address, Credentials::Found)?;
            let tally = cluster.get_actor::<Tally>("tally")?;
            let count: usize = count.parse().unwrap_or(1);
            let votes: Vec<_> = (0..count).map(|_| tally.submit_vote(name.into())).collect();
            for vote in votes {
                match vote.wait() {
                    Ok(votes) => println!("{name}: {votes}"),
                    Err(error) => println!("{}", error.code()),
                }
            }
        }
        _ => eprintln!("tally ADDRESS host | vote NAME COUNT"),
    }
    Ok(())
}
