//! The settings that bound what one client may make the head remember.

use crate::failure::{Failure, usage};
use crate::settings::Settings;
use paceline_core::head::Config;
use paceline_node::LinkLimits;
use serde::{Deserialize, Serialize};

/// Holds one value for each `max_*` setting. The head names the setting when it refuses something.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClientLimits {
    group_members: u32,
    shapes: usize,
    placements: usize,
    programs: usize,
    actors: usize,
    called_actors: usize,
    claimed_leases: usize,
    unread_bytes: usize,
    client_state: usize,
    submitted_bytes: usize,
    client_links: usize,
    task_links: usize,
}

/// Holds one value for each `max_*` setting of nodes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NodeLimits {
    slot_links: usize,
    task_links: usize,
    store_links: usize,
}

impl Default for NodeLimits {
    fn default() -> NodeLimits {
        let LinkLimits { slot_links, task_links, store_links } = LinkLimits::default();
        NodeLimits { slot_links, task_links, store_links }
    }
}

impl NodeLimits {
    pub fn of(settings: &Settings) -> Result<NodeLimits, Failure> {
        Ok(NodeLimits {
            slot_links: count(settings, "max_slot_links")?,
            task_links: count(settings, "max_task_links")?,
            store_links: count(settings, "max_store_links")?,
        })
    }

    pub fn links(&self) -> LinkLimits {
        let &NodeLimits { slot_links, task_links, store_links } = self;
        LinkLimits { slot_links, task_links, store_links }
    }
}

fn count(settings: &Settings, name: &str) -> Result<usize, Failure> {
    match settings.count(name)? {
        Some(number) if number > 0 => Ok(usize::try_from(number).unwrap_or(usize::MAX)),
        _ => Err(usage(format!("{name} has to be a number above 0"))),
    }
}

fn bytes(settings: &Settings, name: &str) -> Result<usize, Failure> {
    match settings.bytes(name)? {
        Some(number) if number > 0 => Ok(usize::try_from(number).unwrap_or(usize::MAX)),
        _ => Err(usage(format!("{name} has to be a size above 0"))),
    }
}

impl ClientLimits {
    pub fn of(settings: &Settings) -> Result<ClientLimits, Failure> {
        let count = |name: &str| count(settings, name);
        let unread = settings.bytes("max_unread_bytes")?.unwrap_or(0);
        Ok(ClientLimits {
            group_members: u32::try_from(count("max_group_members")?).unwrap_or(u32::MAX),
            shapes: count("max_shapes")?,
            placements: count("max_placements")?,
            programs: count("max_programs")?,
            actors: count("max_actors")?,
            called_actors: count("max_called_actors")?,
            claimed_leases: count("max_claimed_leases")?,
            // Room for a few messages of any length: a peer that reads must never be dropped.
            unread_bytes: usize::try_from(unread).unwrap_or(usize::MAX).max(1 << 20),
            client_state: bytes(settings, "max_client_state")?,
            submitted_bytes: bytes(settings, "max_submitted_bytes")?,
            client_links: count("max_client_links")?,
            task_links: count("max_task_links")?,
        })
    }

    pub fn apply(&self, config: &mut Config) {
        config.max_group_members = self.group_members;
        config.max_shapes = self.shapes;
        config.max_placements = self.placements;
        config.max_programs = self.programs;
        config.max_actors = self.actors;
        config.max_called_actors = self.called_actors;
        config.max_claimed_leases = self.claimed_leases;
        config.max_unread_bytes = self.unread_bytes;
        config.max_client_state = self.client_state;
        config.max_submitted_bytes = self.submitted_bytes;
        config.max_client_links = self.client_links;
        config.max_task_links = self.task_links;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_proto::{ClusterId, Epoch};

    #[test]
    fn defaults_of_settings_are_those_of_the_head() {
        let config = Config::new(ClusterId(1), Epoch(1), [0; 32]);
        let mut applied = Config {
            max_actors: 0,
            max_unread_bytes: 0,
            max_client_state: 0,
            max_submitted_bytes: 0,
            max_client_links: 0,
            max_task_links: 0,
            ..config.clone()
        };
        ClientLimits::of(&Settings::default()).unwrap().apply(&mut applied);
        assert_eq!(format!("{applied:?}"), format!("{config:?}"));
    }

    #[test]
    fn defaults_of_settings_are_those_of_the_node() {
        assert_eq!(NodeLimits::of(&Settings::default()).unwrap(), NodeLimits::default());
    }
}
