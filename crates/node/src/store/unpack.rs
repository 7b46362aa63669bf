//! The directory of one client: its files at their paths below `root`, and beside it which of its manifests are laid
//! out.
//!
//! * UN-1: a manifest counts as laid out only once all of it is.
//! * UN-2: what a client's tasks write there stays until the client goes; only files that a later manifest has changed
//!   are replaced, each as a whole.

use super::left::{self, Laid, Stamp};
use super::{Shared, unable};
use paceline_proto::ClientId;
use paceline_proto::store::{Failure, File, Manifest, Name, is_inside};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What is there already.
#[derive(Default)]
pub(super) struct Tree {
    laid_out: BTreeSet<Name>,
    files: BTreeMap<String, Laid>,
    folders: BTreeSet<PathBuf>,
    notes: BTreeMap<String, Vec<String>>,
}

/// Lay a manifest out for this client. Gives its directory.
pub(super) fn unpack(shared: &Shared, client: ClientId, name: Name) -> Result<String, Failure> {
    let tree = {
        let mut state = shared.state.lock();
        shared.make(&mut state)?;
        state.clients.entry(client).or_default().tree.clone()
    };
    // One at a time for a client; others are not held up.
    let mut tree = tree.lock();
    let directory = shared.of_client(client);
    if !tree.laid_out.contains(&name) {
        let unpacked = tree.lay_out(shared, &directory, name);
        note(&directory, &unpacked);
        unpacked?;
    }
    Ok(directory.to_string_lossy().into_owned())
}

/// Slots say why the files are not there, if that can be written at all.
fn note(directory: &Path, unpacked: &Result<(), Failure>) {
    let failed = directory.join("failed");
    match unpacked {
        Ok(()) => drop(fs::remove_file(failed)),
        Err(why) => {
            let _ = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            let _ = fs::write(failed, why.to_string());
        }
    }
}

/// Something that this client brought could not be taken.
pub(super) fn refused(shared: &Shared, client: ClientId, why: &Failure) {
    let mut state = shared.state.lock();
    if shared.make(&mut state).is_ok() {
        note(&shared.of_client(client), &Err(why.clone()));
    }
}

impl Tree {
    /// Nothing is laid out any more; gives what was.
    pub(super) fn take_files(&mut self) -> BTreeMap<String, Laid> {
        std::mem::take(self).files
    }

    fn lay_out(&mut self, shared: &Shared, directory: &Path, name: Name) -> Result<(), Failure> {
        let manifest = manifest(shared, name)?;
        let root = directory.join("root");
        self.folder(directory)?;
        if self.files.is_empty() {
            self.files = left::take(shared, &manifest, &root);
        }
        self.folder(&root)?;
        self.folder(&directory.join("manifests"))?;
        self.folder(&directory.join("notes"))?;
        for folder in &manifest.folders {
            check(folder)?;
            self.folder(&root.join(folder))?;
        }
        for file in &manifest.files {
            check(&file.path)?;
            let same = |laid: &Laid| laid.name == file.name && laid.executable == file.executable;
            if self.files.get(&file.path).is_some_and(same) {
                continue;
            }
            let path = root.join(&file.path);
            self.folder(path.parent().unwrap_or(&root))?;
            let stamp = copy(shared, file, &path).or_else(|why| match why {
                Failure::Full { .. } if left::give_way(shared) => copy(shared, file, &path),
                why => Err(why),
            })?;
            let laid = Laid { name: file.name, executable: file.executable, stamp };
            self.files.insert(file.path.clone(), laid);
        }
        self.take_notes(directory, &manifest)?;
        let kept = directory.join("manifests").join(name.to_string());
        fs::write(&kept, manifest.to_bytes()).map_err(|error| unable(&kept, &error))?;
        self.laid_out.insert(name);
        Ok(())
    }

    /// Lines that are new come after those that are known: several who work for one client may bring manifests.
    fn take_notes(&mut self, directory: &Path, manifest: &Manifest) -> Result<(), Failure> {
        for (word, lines) in &manifest.notes {
            if !is_inside(word) || word.contains('/') {
                return Err(Failure::Other { text: format!("not a word: {word:?}") });
            }
            let known = self.notes.entry(word.clone()).or_default();
            for line in lines {
                if !known.contains(line) {
                    known.push(line.clone());
                }
            }
            let path = directory.join("notes").join(word);
            let text: String = known.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
            let new = path.with_extension("new");
            let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
            written.map_err(|error| unable(&path, &error))?;
        }
        Ok(())
    }

    fn folder(&mut self, path: &Path) -> Result<(), Failure> {
        if !self.folders.contains(path) {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|error| unable(path, &error))?;
            self.folders.insert(path.to_owned());
        }
        Ok(())
    }
}

fn manifest(shared: &Shared, name: Name) -> Result<Manifest, Failure> {
    let path = shared.cache().join(name.to_string());
    let bytes = read(&path)?;
    Manifest::from_bytes(&bytes).map_err(|error| Failure::Other { text: error.to_string() })
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| missing_or(path, &error))
}

fn missing_or(path: &Path, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::NotFound { Failure::Missing } else { unable(path, error) }
}

fn check(path: &str) -> Result<(), Failure> {
    if is_inside(path) {
        return Ok(());
    }
    Err(Failure::Other { text: format!("a path that leaves the client's directory: {path:?}") })
}

/// A copy of its own for the client (SR-2), put in its place as a whole (UN-2).
fn copy(shared: &Shared, file: &File, path: &Path) -> Result<Stamp, Failure> {
    let kept = shared.cache().join(file.name.to_string());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.paceline"));
    let copied = write_new(&kept, path, file.executable).or_else(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            let _ = fs::remove_file(path);
            return Err(error);
        }
        let _ = fs::remove_file(&beside);
        let copied = write_new(&kept, &beside, file.executable).and_then(|_| fs::rename(&beside, path));
        let copied = copied.and_then(|()| fs::symlink_metadata(path));
        copied.inspect_err(|_| drop(fs::remove_file(&beside)))
    });
    copied
        .map(Stamp::from)
        .map_err(|error| if kept.exists() { unable(path, &error) } else { Failure::Missing })
}

fn write_new(kept: &Path, path: &Path, executable: bool) -> io::Result<fs::Metadata> {
    let mut from = fs::File::open(kept)?;
    let mode = if executable { 0o700 } else { 0o600 };
    let mut to = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    io::copy(&mut from, &mut to)?;
    // The mode above was subject to the umask.
    to.set_permissions(Permissions::from_mode(mode))?;
    to.metadata()
}
