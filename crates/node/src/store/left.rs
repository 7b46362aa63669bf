//! What clients that are gone have left of their files, for the next one that brings the same: to make thousands of files
//! takes longer than all the rest of a start.
//!
//! * LE-1: a file is left only if it is as it was laid out: its place on the disk, its length and both its times say so.
//!   That is looked at when its client has gone, and again when another one gets it. Everything else is removed.
//! * LE-2: nothing is left that a process of its client could still have open.
//! * LE-3: it gives way when the disk is full.

use super::Shared;
use super::unpack::Tree;
use paceline_proto::ClientId;
use paceline_proto::store::{Manifest, Name};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// So many trees are kept, and so many bytes.
const MOST: usize = 8;
const MOST_BYTES: u64 = 1 << 30;
/// Fewer files than this are as quickly made.
const FEW: usize = 32;

/// A file as it was laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Laid {
    pub name: Name,
    pub executable: bool,
    pub stamp: Stamp,
}

/// What tells that a file was not touched: nobody can set the second of its times.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    length: u64,
    written: (i64, i64),
    touched: (i64, i64),
}

impl From<Metadata> for Stamp {
    fn from(found: Metadata) -> Stamp {
        Stamp {
            inode: found.ino(),
            length: found.len(),
            written: (found.mtime(), found.mtime_nsec()),
            touched: (found.ctime(), found.ctime_nsec()),
        }
    }
}

/// The directory of a client that has gone, out of the way of others.
pub(super) struct Going {
    pub client: ClientId,
    pub path: PathBuf,
    pub tree: Arc<Mutex<Tree>>,
}

/// Files that the next client may have.
pub(super) struct Left {
    path: PathBuf,
    files: BTreeMap<String, Laid>,
    bytes: u64,
}

/// Keep of a directory what may be kept, and remove the rest.
pub(super) fn keep(shared: &Shared, going: Going) {
    let mut files = going.tree.lock().take_files();
    let root = going.path.join("root");
    if files.len() < FEW {
        files.clear();
    } else {
        let mut found = BTreeMap::new();
        prune(&root, "", &files, &mut found);
        files = found;
    }
    let mut over = Vec::new();
    if files.is_empty() {
        over.push(going.path);
    } else {
        for beside in fs::read_dir(&going.path).into_iter().flatten().flatten() {
            let path = beside.path();
            if path != root && fs::remove_dir_all(&path).is_err() {
                let _ = fs::remove_file(&path);
            }
        }
        let bytes = files.values().map(|laid| laid.stamp.length).sum();
        let path = shared.base.join("left").join(going.path.file_name().unwrap_or_default());
        let mut state = shared.state.lock();
        if state.closed || fs::rename(&going.path, &path).is_err() {
            return;
        }
        state.left.push(Left { path, files, bytes });
        while state.left.len() > MOST || state.left.iter().map(|left| left.bytes).sum::<u64>() > MOST_BYTES {
            over.push(state.left.remove(0).path);
        }
    }
    over.iter().for_each(|path| drop(fs::remove_dir_all(path)));
}

/// Remove what is not as it was laid out, and note what is (LE-1).
fn prune(folder: &Path, inside: &str, laid: &BTreeMap<String, Laid>, found: &mut BTreeMap<String, Laid>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str() else {
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
            continue;
        };
        let inside = if inside.is_empty() { name.to_owned() } else { format!("{inside}/{name}") };
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            prune(&path, &inside, laid, found);
            // It stays if something is in it.
            let _ = fs::remove_dir(&path);
            continue;
        }
        match laid.get(&inside).filter(|laid| is_untouched(&path, laid)) {
            Some(laid) => drop(found.insert(inside, *laid)),
            None => drop(fs::remove_file(&path)),
        }
    }
}

fn is_untouched(path: &Path, laid: &Laid) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && Stamp::from(found) == laid.stamp)
}

/// Give a client what another one has left, if that is most of what it needs. Tells what is there then.
pub(super) fn take(shared: &Shared, manifest: &Manifest, root: &Path) -> BTreeMap<String, Laid> {
    let wanted: BTreeMap<&str, (Name, bool)> =
        manifest.files.iter().map(|file| (file.path.as_str(), (file.name, file.executable))).collect();
    let fits = |path: &str, laid: &Laid| wanted.get(path) == Some(&(laid.name, laid.executable));
    let left = {
        let mut state = shared.state.lock();
        let useful = |left: &Left| left.files.iter().filter(|(path, laid)| fits(path.as_str(), laid)).count();
        let best = (0..state.left.len()).max_by_key(|&place| useful(&state.left[place]));
        let Some(best) = best.filter(|&best| useful(&state.left[best]) * 2 > wanted.len()) else {
            return BTreeMap::new();
        };
        state.left.remove(best)
    };
    let mut files = BTreeMap::new();
    if fs::rename(left.path.join("root"), root).is_ok() {
        for (path, laid) in left.files {
            let there = root.join(&path);
            if fits(&path, &laid) && is_untouched(&there, &laid) {
                files.insert(path, laid);
            } else {
                let _ = fs::remove_file(there);
            }
        }
    }
    let _ = fs::remove_dir_all(left.path);
    files
}

/// Remove all of it, to make room (LE-3). False if there was nothing.
pub(super) fn give_way(shared: &Shared) -> bool {
    let left = std::mem::take(&mut shared.state.lock().left);
    left.iter().for_each(|left| drop(fs::remove_dir_all(&left.path)));
    !left.is_empty()
}
