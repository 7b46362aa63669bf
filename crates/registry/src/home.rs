//! The directories.

use crate::lock::Lock;
use crate::record::{Head, Node, machine};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

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

/// How often something is tried again that others may have removed at the same moment, and the pause before that.
const ATTEMPTS: u32 = 100;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(1);

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

    /// The log of the head, and of the node in its process.
    pub fn head_log(&self) -> PathBuf {
        self.logs().join("head.log")
    }

    /// The log of a node that has a process of its own.
    pub fn node_log(&self, name: &str) -> PathBuf {
        self.logs().join(format!("node-{name}.log"))
    }

    /// Make the directories, for their owner only (RG-2).
    pub fn create(&self) -> Result<(), Error> {
        for path in [self.directory.clone(), self.nodes_directory(), self.logs()] {
            create_directory(&path).map_err(|error| Error::Io { path: path.clone(), error })?;
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
        self.take_lock(&self.head_lock())
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
        self.take_lock(&self.node_lock(name))
    }

    /// Returns what tells the directory of the nodes' records from every copy of it: its inode and when that was made.
    pub fn nodes_directory_id(&self) -> io::Result<String> {
        let metadata = fs::metadata(self.nodes_directory())?;
        let made = metadata.created().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        Ok(format!("{:x}-{:x}", metadata.ino(), made.unwrap_or_default().as_nanos()))
    }

    /// Returns the record of the node of this name, if it was copied here from another directory (RG-6).
    pub fn copied_node(&self, name: &str) -> io::Result<Option<PathBuf>> {
        let Some(node) = self.last_node(name) else { return Ok(None) };
        let foreign = !node.directory.is_empty() && node.directory != self.nodes_directory_id()?;
        Ok(foreign.then(|| self.nodes_directory().join(format!("{name}.json"))))
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
        // No head may start here while its files go.
        let _lock = match Lock::take(&self.head_lock()) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        // Out of the way first: whoever starts a cluster of this name makes a directory of its own.
        let clusters = self.directory.parent().unwrap_or(Path::new("/"));
        let gone = paceline_net::private::unguessable(clusters, ".gone-")?;
        fs::rename(&self.directory, &gone)?;
        // A start that had looked up the directory before it was renamed may still make one file in it, and then finds
        // that its lock is gone and begins anew.
        insist(&[io::ErrorKind::DirectoryNotEmpty], || fs::remove_dir_all(&gone))
    }

    /// A cluster of this name that is just removed takes the directory of the lock with it, so that is made again.
    fn take_lock(&self, path: &Path) -> io::Result<Option<Lock>> {
        insist(&[io::ErrorKind::NotFound], || {
            self.create().map_err(|error| match error {
                Error::Io { error, .. } => error,
                other => io::Error::new(io::ErrorKind::PermissionDenied, other.to_string()),
            })?;
            Lock::take(path)
        })
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

/// Whoever tidies up may remove directories that are empty between our making one and the next.
fn create_directory(path: &Path) -> io::Result<()> {
    // AlreadyExists: it was there a moment ago, and is not any more.
    insist(&[io::ErrorKind::NotFound, io::ErrorKind::AlreadyExists], || {
        DirBuilder::new().recursive(true).mode(0o700).create(path)
    })
}

/// Tries again what fails like this because others make or remove files at the same moment.
fn insist<T>(passing: &[io::ErrorKind], mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if passing.contains(&error.kind()) => std::thread::sleep(ATTEMPT_PAUSE),
            done => return done,
        }
    }
    attempt()
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// All or nothing: a reader never sees half of it (RG-4).
fn write(path: &Path, record: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(record)?;
    text.push(b'\n');
    paceline_net::file::replace(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn home() -> (tempfile::TempDir, Home) {
        let directory = tempfile::tempdir().unwrap();
        let home = Home(directory.path().join("state"));
        (directory, home)
    }

    /// Runs `work` while other threads do `always` again and again.
    fn meanwhile(always: impl Fn() + Sync, work: impl FnOnce()) {
        struct Over<'a>(&'a AtomicBool);

        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }

        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        always();
                    }
                });
            }
            let _over = Over(&over);
            work();
        });
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
    fn lock_that_others_look_at_can_always_be_taken() {
        let (_directory, home) = home();
        let place = home.cluster("watched").unwrap();
        place.create().unwrap();
        meanwhile(
            || _ = place.is_head_alive(),
            || assert!((0..2000).all(|_| place.lock_head().unwrap().is_some()), "RG-5"),
        );
        let lock = place.lock_head().unwrap();
        assert!(place.is_head_alive());
        assert!(place.lock_head().unwrap().is_none());
        drop(lock);
        assert!(!place.is_head_alive());
    }

    #[test]
    fn cluster_started_while_it_is_removed_has_its_directory() {
        let (_directory, home) = home();
        let place = home.cluster("busy").unwrap();
        let remove = || {
            place.remove().unwrap();
            home.tidy();
        };
        let start = || {
            for _ in 0..200 {
                // None: it is being removed at this moment.
                let Some(_lock) = place.lock_head().unwrap() else { continue };
                assert!(place.path().join("head.lock").exists(), "RG-5: it is locked, so it stays");
            }
        };
        meanwhile(remove, start);
    }

    #[test]
    fn record_in_a_copied_directory_is_not_the_nodes_own() {
        let (directory, home) = home();
        let place = home.cluster("mine").unwrap();
        place.create().unwrap();
        let record =
            Node { name: "ada".into(), directory: place.nodes_directory_id().unwrap(), ..Node::default() };
        place.write_node(&record).unwrap();
        assert_eq!(place.copied_node("ada").unwrap(), None);
        let moved = Home(directory.path().join("moved"));
        fs::rename(home.path(), moved.path()).unwrap();
        assert_eq!(
            moved.cluster("mine").unwrap().copied_node("ada").unwrap(),
            None,
            "it is the same directory"
        );
        let other = home.cluster("mine").unwrap();
        other.create().unwrap();
        other.write_node(&record).unwrap();
        assert!(other.copied_node("ada").unwrap().is_some(), "RG-6");
        assert_eq!(other.copied_node("bob").unwrap(), None);
    }

    #[test]
    fn records_are_replaced_as_a_whole() {
        let (_directory, home) = home();
        let place = home.cluster("x").unwrap();
        place.create().unwrap();
        let old = Head { name: "old".into(), ..Head::default() };
        place.write_head(&old).unwrap();
        let mut open = fs::File::open(place.path().join("cluster.json")).unwrap();
        place.write_head(&Head { name: "new".into(), ..Head::default() }).unwrap();
        let mut text = String::new();
        io::Read::read_to_string(&mut open, &mut text).unwrap();
        assert_eq!(serde_json::from_str::<Head>(&text).unwrap(), old, "RG-4");
        let names = names_in(place.path());
        assert!(
            !names.iter().any(|name| name.starts_with(".cluster")),
            "RG-4: nothing else is left: {names:?}"
        );
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
