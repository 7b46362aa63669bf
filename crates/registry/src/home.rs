//! The directories.

use crate::lock::Lock;
use crate::record::{Head, Node, machine};
use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no home directory: neither PACELINE_HOME, XDG_STATE_HOME nor HOME is set")]
    Homeless,
    #[error(
        "not a name: {name:?}; letters, digits, '.', '-' and '_' will do, at most 64, beginning with a letter or digit"
    )]
    Name { name: String },
    #[error("{} belongs to user {owner}, and this is user {user}", path.display())]
    Foreign { path: PathBuf, owner: u32, user: u32 },
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

/// Where this user's clusters are.
#[derive(Clone, Debug)]
pub struct Home(PathBuf);

impl Home {
    pub fn find() -> Result<Home, Error> {
        Home::of(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>) -> Result<Home, Error> {
        let own = variable("PACELINE_HOME").map(PathBuf::from);
        let state = || variable("XDG_STATE_HOME").map(|state| Path::new(&state).join("paceline"));
        let home = || variable("HOME").map(|home| Path::new(&home).join(".local/state/paceline"));
        own.or_else(state).or_else(home).map(Home).ok_or(Error::Homeless)
    }

    pub fn at_path(path: PathBuf) -> Home {
        Home(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where this cluster's files are, or would be.
    pub fn cluster(&self, name: &str) -> Result<Place, Error> {
        if is_name(name) {
            Ok(Place { directory: self.0.join("clusters").join(name), name: name.into() })
        } else {
            Err(Error::Name { name: name.into() })
        }
    }

    /// Every cluster of which there are files, in the order of names.
    pub fn clusters(&self) -> Vec<Place> {
        let mut names = names_in(&self.0.join("clusters"));
        names.sort();
        names.into_iter().filter_map(|name| self.cluster(&name).ok()).collect()
    }

    /// The cluster whose head is at this address (`host:port`), with that head's record.
    pub fn at(&self, address: &str) -> Option<(Place, Head)> {
        self.clusters().into_iter().find_map(|place| {
            let head = place.head()?;
            (head.address.as_deref() == Some(address)).then_some((place, head))
        })
    }

    /// The key of the cluster whose head is, or was, at this address (`host:port`), if this user has it here.
    pub fn key_of(&self, address: &str) -> Option<PathBuf> {
        let known = |place: &Place| {
            let head = place.last_head().and_then(|head| head.address);
            let nodes = place.known_nodes().into_iter().filter_map(|node| node.head);
            head.into_iter().chain(nodes).any(|known| known == address)
        };
        let place = self.clusters().into_iter().find(|place| known(place) && place.key_file().exists())?;
        Some(place.key_file())
    }

    /// Remove the directories that hold nothing any more.
    pub fn tidy(&self) {
        let _ = fs::remove_dir(self.0.join("clusters"));
        let _ = fs::remove_dir(&self.0);
    }
}

/// The files of one cluster.
#[derive(Clone, PartialEq, Debug)]
pub struct Place {
    directory: PathBuf,
    name: String,
}

impl Place {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn path(&self) -> &Path {
        &self.directory
    }

    pub fn key_file(&self) -> PathBuf {
        self.directory.join("key")
    }

    pub fn journal(&self) -> PathBuf {
        self.directory.join("journal")
    }

    pub fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }

    /// Make the directories, for their owner only (RG-2).
    pub fn create(&self) -> Result<(), Error> {
        for path in [self.directory.clone(), self.nodes_directory(), self.logs()] {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(|error| Error::Io { path: path.clone(), error })?;
            check_owner(&path)?;
        }
        Ok(())
    }

    /// Refuse files of another user (RG-2).
    pub fn check_owner(&self) -> Result<(), Error> {
        if self.directory.exists() { check_owner(&self.directory) } else { Ok(()) }
    }

    /// The record of a head that lives (RG-1), here or on another machine that shares the home.
    pub fn head(&self) -> Option<Head> {
        if self.is_head_alive() { self.last_head() } else { None }
    }

    /// The record of the head that was here last, alive or not.
    pub fn last_head(&self) -> Option<Head> {
        read(&self.directory.join("cluster.json"))
    }

    pub fn is_head_alive(&self) -> bool {
        Lock::is_held(&self.head_lock())
    }

    pub fn lock_head(&self) -> io::Result<Option<Lock>> {
        Lock::take(&self.head_lock())
    }

    pub fn write_head(&self, head: &Head) -> io::Result<()> {
        write(&self.directory.join("cluster.json"), head)
    }

    /// The records of nodes that live (RG-1).
    pub fn nodes(&self) -> Vec<Node> {
        self.known_nodes().into_iter().filter(|node| self.is_node_alive(&node.name)).collect()
    }

    /// The records of all nodes that have been here.
    pub fn known_nodes(&self) -> Vec<Node> {
        let mut names = names_in(&self.nodes_directory());
        names.sort();
        let names = names.iter().filter_map(|name| name.strip_suffix(".json"));
        names.filter_map(|name| self.last_node(name)).collect()
    }

    pub fn last_node(&self, name: &str) -> Option<Node> {
        read(&self.nodes_directory().join(format!("{name}.json")))
    }

    pub fn is_node_alive(&self, name: &str) -> bool {
        Lock::is_held(&self.node_lock(name))
    }

    pub fn lock_node(&self, name: &str) -> io::Result<Option<Lock>> {
        Lock::take(&self.node_lock(name))
    }

    pub fn write_node(&self, node: &Node) -> io::Result<()> {
        write(&self.nodes_directory().join(format!("{}.json", node.name)), node)
    }

    pub fn remove_node(&self, name: &str) {
        let _ = fs::remove_file(self.nodes_directory().join(format!("{name}.json")));
    }

    /// Whether any daemon of this cluster lives on some machine that has these files.
    pub fn is_in_use(&self) -> bool {
        self.is_head_alive() || !self.nodes().is_empty()
    }

    /// Whether this record is from a daemon that can be reached over its unix socket (RG-3).
    pub fn is_here(record_of: &str) -> bool {
        record_of == machine()
    }

    /// Remove everything, unless a daemon still lives here.
    pub fn remove(&self) -> io::Result<()> {
        if self.is_in_use() {
            return Ok(());
        }
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn nodes_directory(&self) -> PathBuf {
        self.directory.join("nodes")
    }

    fn head_lock(&self) -> PathBuf {
        self.directory.join("head.lock")
    }

    fn node_lock(&self, name: &str) -> PathBuf {
        self.nodes_directory().join(format!("{name}.lock"))
    }
}

/// Names become file names, so they are plain.
pub fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    first && text.len() <= 64 && text.bytes().all(plain)
}

fn check_owner(path: &Path) -> Result<(), Error> {
    let user = rustix::process::geteuid().as_raw();
    let owner = fs::metadata(path).map_err(|error| Error::Io { path: path.into(), error })?.uid();
    if owner == user { Ok(()) } else { Err(Error::Foreign { path: path.into(), owner, user }) }
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// All or nothing: a reader never sees half of it.
fn write(path: &Path, record: &impl Serialize) -> io::Result<()> {
    let new = path.with_extension("new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(&new, flags, Mode::RUSR | Mode::WUSR)?;
    let mut text = serde_json::to_vec_pretty(record)?;
    text.push(b'\n');
    fs::File::from(file).write_all(&text)?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let directory = tempfile::tempdir().unwrap();
        let home = Home(directory.path().join("state"));
        (directory, home)
    }

    #[test]
    fn the_first_that_is_set_counts() {
        let of = |set: &[(&str, &str)]| {
            let set: Vec<_> =
                set.iter().map(|(name, value)| (name.to_string(), OsString::from(value))).collect();
            Home::of(|name| set.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()))
        };
        assert_eq!(of(&[("HOME", "/h"), ("PACELINE_HOME", "/p")]).unwrap().path(), Path::new("/p"));
        assert_eq!(of(&[("HOME", "/h"), ("XDG_STATE_HOME", "/x")]).unwrap().path(), Path::new("/x/paceline"));
        assert_eq!(of(&[("HOME", "/h")]).unwrap().path(), Path::new("/h/.local/state/paceline"));
        assert!(matches!(of(&[]), Err(Error::Homeless)));
    }

    #[test]
    fn a_record_counts_while_its_lock_is_held() {
        let (_directory, home) = home();
        let place = home.cluster("default").unwrap();
        place.create().unwrap();
        let lock = place.lock_head().unwrap().expect("nobody has it");
        let record =
            Head { name: "default".into(), address: Some("10.0.0.1:7077".into()), ..Head::default() };
        place.write_head(&record).unwrap();
        assert_eq!(place.head(), Some(record.clone()));
        assert!(place.lock_head().unwrap().is_none(), "it is taken");
        assert_eq!(
            home.at("10.0.0.1:7077").map(|(place, _)| place.name().to_owned()),
            Some("default".into())
        );
        assert_eq!(home.at("10.0.0.2:7077"), None);
        drop(lock);
        assert_eq!(place.head(), None, "RG-1");
        assert_eq!(place.last_head(), Some(record));
    }

    #[test]
    fn nothing_is_removed_that_is_in_use() {
        let (_directory, home) = home();
        let place = home.cluster("a").unwrap();
        place.create().unwrap();
        let lock = place.lock_node("ada").unwrap().unwrap();
        place.write_node(&Node { name: "ada".into(), ..Node::default() }).unwrap();
        place.remove().unwrap();
        assert_eq!(place.nodes().len(), 1);
        lock.remove();
        place.remove().unwrap();
        home.tidy();
        assert!(!home.path().exists());
    }

    #[test]
    fn others_may_not_look_and_names_are_plain() {
        let (_directory, home) = home();
        let place = home.cluster("x").unwrap();
        place.create().unwrap();
        assert_eq!(fs::metadata(place.path()).unwrap().mode() & 0o777, 0o700, "RG-2");
        for name in ["", ".", "..", "a/b", "-x", "a b", &"x".repeat(65)] {
            assert!(home.cluster(name).is_err(), "{name}");
        }
    }
}
