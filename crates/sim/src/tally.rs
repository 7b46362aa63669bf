//! How often what happened: a simulation that never meets a case proves nothing about it.

macro_rules! tally {
    ($($name:ident: $what:literal),+ $(,)?) => {
        #[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
        pub struct Tally {
            $(#[doc = $what] pub $name: u64,)+
        }

        impl Tally {
            pub fn add(&mut self, other: &Tally) {
                $(self.$name += other.$name;)+
            }

            /// What never happened.
            pub fn missing(&self) -> Vec<&'static str> {
                let counts = [$(($what, self.$name)),+];
                counts.into_iter().filter(|(_, count)| *count == 0).map(|(what, _)| what).collect()
            }
        }

        impl std::fmt::Display for Tally {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let counts = [$(($what, self.$name)),+];
                let counts = counts.map(|(what, count)| format!("{count} {what}"));
                f.write_str(&counts.join(", "))
            }
        }
    };
}

tally! {
    tasks: "tasks",
    full: "times a queue was full",
    values: "values",
    raised: "exceptions",
    unsendable: "unsendable values",
    cancelled: "cancelled tasks",
    timed_out: "tasks that took too long",
    slot_died: "tasks lost with their slots",
    node_lost: "tasks lost with their nodes",
    poison: "poison tasks",
    unplaceable: "unplaceable tasks",
    head_lost: "tasks that waited for the head in vain",
    not_started: "tasks whose program did not start",
    program_runs: "runs in slots of other programs",
    program_deaths: "zygote deaths of other programs",
    ended_programs: "programs ended for want of use",
    runs: "runs",
    reruns: "repeated runs",
    interrupted: "interrupted runs",
    beside: "runs beside others",
    stopped: "runs stopped with their slots",
    started: "runs known to have begun",
    withdrawn: "calls given back",
    resumed: "resumed data links",
    refused: "refused data links",
    repeats: "repeated messages",
    timings: "heads with other settings than before",
    stalls: "processes that stood still",
    suspends: "suspended machines",
    outrun: "nodes sent away because a later start is known",
    slot_deaths: "slot deaths",
    unsent_deaths: "slot deaths before a result was sent",
    memory_deaths: "slots ended for want of memory",
    exceeded: "slots ended for their own limit of memory",
    stood_still: "slots ended because they stood still",
    zygote_deaths: "zygote deaths",
    lost_nodes: "lost nodes",
    leaving: "nodes that were to go",
    lies: "untrue words of peers",
    partitions: "partitions",
    turned_back: "peers that did not hear the welcome of a later head",
    isolations: "nodes cut off that stood still, with an actor",
    lost_clients: "lost clients",
    grants: "granted leases",
    recalls: "recalled leases",
    crowded: "clients told that there is no room",
    warm: "leases on warm slots",
    nested: "tasks of tasks",
    blocked: "waits for tasks of tasks",
    left_children: "tasks that returned before their children",
    too_deep: "waits that were one too many",
    here: "tasks that ran where they were waited for",
    too_large: "tasks that could not",
    printed: "printed lines",
    head_deaths: "deaths of the head",
    head_starts: "starts of the head after the first",
    superseded: "heads that met a later one",
    broken_links: "data links that were given up",
    abandoned: "leases given up without a head",
    silent_heads: "links to a silent head given up",
    submitted: "answers to those who submit work",
    work_runs: "starts of work",
    unwritten: "commits that the disk did not take",
    reopened: "journals opened again after an error",
    hung_writes: "commits that hung",
    torn: "commits lost with their head",
    groups: "groups opened",
    whole_groups: "groups that were whole",
    lost_groups: "groups that lost a member",
    group_lost: "tasks lost with their group",
    shared_actors: "actors that others call",
    guests: "guest leases",
    actor_died: "calls that ended with their actor's slot",
    actor_gone: "calls of actors that are gone",
    actor_away: "calls of actors of which nothing is known",
    pools: "pools opened",
    actors: "actors among them",
    pool_runs: "calls that ran in pools",
    standing_runs: "standing calls that ran",
    cuts: "updates that a state stands for",
    ready_pools: "pools that had as many slots as somebody waited for",
    ended_pools: "pools whose end was waited for",
    late_runs: "calls in slots that ran the history first",
    broken_pools: "tasks that ended with their pool",
    actor_deaths: "calls that ended with their actor",
}
