//! Hashes of files that were hashed before: kept by what tells that a file has not changed.
//!
//! * HA-1: a file counts as unchanged if its place on the disk, its length and both its times are what they were, and it
//!   was not so young when it was hashed that a change right after could have left them so.
//! * HA-2: a list that cannot be read or written costs time and nothing else.

use paceline_proto::store::Name;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// So many are kept.
const MOST: usize = 200_000;
/// Fewer files with fewer bytes than this are hashed again sooner than a list of them is written.
const MANY: usize = 100;
const MUCH: u64 = 16 << 20;
/// A file that has not changed for this long has times that the next change will not have (HA-1).
const SETTLED: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
struct Place {
    device: u64,
    inode: u64,
    length: u64,
    changed: (i64, i64),
    touched: (i64, i64),
}

#[derive(Default)]
pub(super) struct Hashes {
    known: HashMap<Place, Name>,
    file: Option<PathBuf>,
    /// How many files are new, and how many bytes they have together.
    new: (usize, u64),
}

impl Hashes {
    pub(super) fn load() -> Hashes {
        let file = cache_file();
        let bytes = file.as_ref().and_then(|file| fs::read(file).ok()).unwrap_or_default();
        let known: Vec<(Place, Name)> = rmp_serde::from_slice(&bytes).unwrap_or_default();
        Hashes { known: known.into_iter().collect(), file, new: (0, 0) }
    }

    pub(super) fn of(&mut self, path: &Path, found: &Metadata) -> io::Result<Name> {
        let place = Place {
            device: found.dev(),
            inode: found.ino(),
            length: found.len(),
            changed: (found.mtime(), found.mtime_nsec()),
            touched: (found.ctime(), found.ctime_nsec()),
        };
        if let Some(name) = self.known.get(&place) {
            return Ok(*name);
        }
        let mut hasher = blake3::Hasher::new();
        io::copy(&mut File::open(path)?, &mut hasher)?;
        let name = Name(*hasher.finalize().as_bytes());
        let newest = place.changed.0.max(place.touched.0);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if now.as_secs() as i64 - newest > SETTLED.as_secs() as i64 {
            self.known.insert(place, name);
            self.new = (self.new.0 + 1, self.new.1 + place.length);
        }
        Ok(name)
    }

    /// Keep what is new, if it took time to find out.
    pub(super) fn save(&self) {
        let worth = self.new.0 >= MANY || self.new.1 >= MUCH;
        let Some(file) = self.file.as_ref().filter(|_| worth) else { return };
        let kept: Vec<(&Place, &Name)> = self.known.iter().take(MOST).collect();
        let _ = write(file, &rmp_serde::to_vec(&kept).unwrap_or_default());
    }
}

fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    paceline_net::file::replace(file, bytes)
}

fn cache_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(folder.join("paceline").join("hashes"))
}
