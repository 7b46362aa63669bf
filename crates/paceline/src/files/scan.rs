//! Which files of a folder are code.
//!
//! * SC-1: of a folder that code is imported from: its modules, and its packages with all that is in them, but for data
//!   of more than [`LARGE`] bytes. Other folders stay: they may hold anything.
//! * SC-2: a folder that is reached twice, by a link or otherwise, is looked at once.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

/// Data in packages that has more is to be named by whoever needs it.
const LARGE: u64 = 1 << 20;
/// More than this is nobody's code.
const MOST: usize = 50_000;
const DEEPEST: usize = 64;

#[derive(Default)]
pub(super) struct Scan {
    pub found: BTreeSet<PathBuf>,
    seen: BTreeSet<PathBuf>,
}

impl Scan {
    /// A folder that code is imported from.
    pub(super) fn root(&mut self, folder: &Path) -> Result<(), String> {
        for entry in entries(folder) {
            let path = entry.path();
            if is_code(&path) && path.is_file() {
                self.add(path)?;
            } else if path.join("__init__.py").is_file() && !is_hidden(&path) {
                self.folder(&path, 0)?;
            }
        }
        Ok(())
    }

    /// Leave this folder out.
    pub(super) fn skip(&mut self, folder: &Path) {
        self.seen.insert(fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()));
    }

    /// One package or module, whatever is beside it.
    pub(super) fn package(&mut self, path: &Path) -> Result<(), String> {
        if path.is_dir() { self.folder(path, 0) } else { self.add(path.to_owned()) }
    }

    fn folder(&mut self, folder: &Path, depth: usize) -> Result<(), String> {
        // SC-2
        let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        if depth > DEEPEST || !self.seen.insert(real) {
            return Ok(());
        }
        for entry in entries(folder) {
            let path = entry.path();
            if is_hidden(&path) {
                continue;
            }
            let Ok(found) = fs::metadata(&path) else { continue };
            if found.is_dir() {
                self.folder(&path, depth + 1)?;
            } else if found.is_file() && (is_code(&path) || found.len() <= LARGE) {
                self.add(path)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: PathBuf) -> Result<(), String> {
        if self.found.len() >= MOST {
            return Err(format!(
                "more than {MOST} files of code are on sys.path, the last in {}",
                path.parent().unwrap_or(&path).display()
            ));
        }
        self.found.insert(path);
        Ok(())
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

fn is_code(path: &Path) -> bool {
    path.extension().is_some_and(|kind| kind == "py" || kind == "so")
}

fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') || name == "__pycache__" || name == "node_modules" || name.ends_with(".pyc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_and_packages_go_along_and_nothing_else() {
        let root = std::env::temp_dir().join(format!("paceline-scan-{}", std::process::id()));
        for folder in ["package/inner", "package/__pycache__", "data", ".hidden"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in [
            "main.py",
            "notes.txt",
            "package/__init__.py",
            "package/inner/deep.py",
            "package/words.json",
            "package/__pycache__/x.pyc",
            "data/x.py",
            ".hidden/__init__.py",
        ] {
            fs::write(root.join(file), file).unwrap();
        }
        fs::write(root.join("package/large.bin"), vec![0; LARGE as usize + 1]).unwrap();
        std::os::unix::fs::symlink(&root, root.join("package/loop")).unwrap();
        let mut scan = Scan::default();
        scan.root(&root).unwrap();
        let names: Vec<_> =
            scan.found.iter().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap()).collect();
        fs::remove_dir_all(&root).unwrap();
        let direct: Vec<_> = names.iter().filter(|name| !name.contains("loop")).copied().collect();
        assert_eq!(
            direct,
            ["main.py", "package/__init__.py", "package/inner/deep.py", "package/words.json"],
            "SC-1"
        );
    }
}
