//! All that is to be delivered: which files, where they come from, and where they go.
//!
//! A file keeps its absolute path, below the client's directory on the node. So whatever was beside it is beside it
//! there, and whatever leads from one to another does so there.

use super::hashes::Hashes;
use super::scan::Scan;
use paceline_proto::store::{File, Manifest, Name};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What is asked for. All paths are absolute.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Folders that code is imported from, in order: the modules and packages in them go along.
    pub roots: Vec<PathBuf>,
    /// Folders below which modules were loaded without being packages.
    pub folders_with_modules: Vec<PathBuf>,
    /// Single packages and modules; what is beside them stays.
    pub packages: Vec<PathBuf>,
    /// Files that were named.
    pub files: Vec<PathBuf>,
    /// Folders that were named, for those that hold nothing.
    pub folders: Vec<PathBuf>,
    /// Folders that stay, wherever they are.
    pub skip: Vec<PathBuf>,
    pub notes: Vec<(String, Vec<String>)>,
}

/// Files at a moment.
#[derive(Debug)]
pub struct Bundle {
    pub name: Name,
    pub manifest: Manifest,
    pub(super) bytes: Vec<u8>,
    /// Where the bytes of each are, and how many.
    pub(super) sources: HashMap<Name, (PathBuf, u64)>,
}

impl Bundle {
    /// Find and hash them all.
    pub fn gather(wanted: &Wanted) -> Result<Bundle, String> {
        let mut scan = Scan::default();
        wanted.skip.iter().for_each(|folder| scan.skip(folder));
        for root in wanted.roots.iter().chain(&wanted.folders_with_modules) {
            scan.root(root)?;
        }
        for package in &wanted.packages {
            scan.package(package)?;
        }
        let mut paths: BTreeSet<PathBuf> = scan.found;
        for path in &wanted.files {
            if path.to_str().is_none() {
                return Err(format!("the name of this file is no text: {}", path.display()));
            }
            paths.insert(path.clone());
        }
        let mut hashes = Hashes::load();
        let mut files = Vec::new();
        let mut sources = HashMap::new();
        for path in paths {
            // One that went meanwhile, or may not be read, cannot have been imported either.
            let named = || wanted.files.contains(&path);
            let (name, length, executable) = match hash(&path, &mut hashes) {
                Ok(found) => found,
                Err(error) if named() => return Err(format!("{}: {error}", path.display())),
                Err(_) => continue,
            };
            let Some(below) = below_root(&path) else { continue };
            files.push(File { path: below, name, length, executable });
            sources.insert(name, (path, length));
        }
        hashes.save();
        let folders = wanted.folders.iter().filter_map(|path| below_root(path)).collect();
        Ok(Bundle::of(Manifest { files, folders, notes: wanted.notes.clone() }, sources))
    }

    /// What a client brought to this machine, for one of its tasks that brings it to another.
    pub fn brought(directory: &Path) -> Result<Bundle, String> {
        let mut newest = None;
        for entry in fs::read_dir(directory.join("manifests")).into_iter().flatten().flatten() {
            let made = entry.metadata().and_then(|found| found.modified()).ok();
            newest = newest.max(made.map(|made| (made, entry.path())));
        }
        let Some((_, path)) = newest else { return Ok(Bundle::of(Manifest::default(), HashMap::new())) };
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut manifest = Manifest::from_bytes(&bytes).map_err(|error| error.to_string())?;
        let mut sources = HashMap::new();
        let mut hashes = Hashes::default();
        // Tasks may have changed or removed some.
        manifest.files.retain_mut(|file| {
            let path = directory.join("root").join(&file.path);
            let Ok((name, length, _)) = hash(&path, &mut hashes) else { return false };
            (file.name, file.length) = (name, length);
            sources.insert(name, (path, length));
            true
        });
        Ok(Bundle::of(manifest, sources))
    }

    fn of(manifest: Manifest, sources: HashMap<Name, (PathBuf, u64)>) -> Bundle {
        let bytes = manifest.to_bytes();
        let name = Name(*blake3::hash(&bytes).as_bytes());
        Bundle { name, manifest, bytes, sources }
    }

    /// Of all that has to be there, each once; the manifest's own comes last.
    pub(super) fn names(&self) -> Vec<Name> {
        let each: BTreeMap<Name, ()> = self.manifest.files.iter().map(|file| (file.name, ())).collect();
        each.into_keys().chain([self.name]).collect()
    }
}

fn hash(path: &Path, hashes: &mut Hashes) -> std::io::Result<(Name, u64, bool)> {
    let found = fs::metadata(path)?;
    if !found.is_file() {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is not a file"));
    }
    let name = hashes.of(path, &found)?;
    Ok((name, found.len(), found.permissions().mode() & 0o100 != 0))
}

/// Where it goes below the client's directory.
fn below_root(path: &Path) -> Option<String> {
    let text = path.to_str()?.trim_start_matches('/');
    paceline_proto::store::is_inside(text).then(|| text.to_owned())
}
