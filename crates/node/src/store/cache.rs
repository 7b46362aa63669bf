//! Files by the hash of what is in them.

use super::{left, unable, unpack};
use paceline_net::store::{Incoming, Outgoing};
use paceline_proto::ClientId;
use paceline_proto::store::{Failure, Name};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Shared;

/// So many bytes of files that nobody uses any more are kept for whoever brings the same again.
const LIMIT: u64 = 4 << 30;

/// What is there, and when it was last asked for.
#[derive(Default)]
pub(super) struct Cache {
    kept: HashMap<Name, (u64, u64)>,
    bytes: u64,
    asked: u64,
    coming: u64,
}

impl Cache {
    pub(super) fn has(&mut self, name: &Name) -> bool {
        self.asked += 1;
        let asked = self.asked;
        self.kept.get_mut(name).map(|kept| kept.1 = asked).is_some()
    }

    fn number(&mut self) -> u64 {
        self.coming += 1;
        self.coming
    }

    fn add(&mut self, name: Name, length: u64, directory: &Path) {
        self.asked += 1;
        if self.kept.insert(name, (length, self.asked)).is_none() {
            self.bytes += length;
        }
        while self.bytes > LIMIT {
            let oldest = self.kept.iter().filter(|(other, _)| **other != name).min_by_key(|(_, kept)| kept.1);
            let Some((&oldest, &(length, _))) = oldest else { break };
            self.kept.remove(&oldest);
            self.bytes -= length;
            let _ = fs::remove_file(directory.join(oldest.to_string()));
        }
    }
}

/// A file on its way into the cache.
pub(super) struct Coming {
    shared: Arc<Shared>,
    /// Who brings it.
    client: ClientId,
    name: Name,
    length: u64,
    path: PathBuf,
    file: File,
    hash: blake3::Hasher,
}

impl Coming {
    pub(super) fn begin(
        shared: &Arc<Shared>,
        client: ClientId,
        name: Name,
        length: u64,
    ) -> Result<Coming, Failure> {
        let mut state = shared.state.lock();
        shared.make(&mut state)?;
        let path = shared.cache().join(format!("coming-{}", state.cache.number()));
        drop(state);
        enough_room(&shared.cache(), length).or_else(|full| {
            if left::give_way(shared) { enough_room(&shared.cache(), length) } else { Err(full) }
        })?;
        let file = File::create_new(&path).map_err(|error| unable(&path, &error))?;
        Ok(Coming { shared: shared.clone(), client, name, length, path, file, hash: blake3::Hasher::new() })
    }
}

/// What does not fit is refused before it is sent.
fn enough_room(directory: &Path, length: u64) -> Result<(), Failure> {
    let Ok(found) = rustix::fs::statvfs(directory) else { return Ok(()) };
    if found.f_bavail.saturating_mul(found.f_frsize) < length {
        return Err(unable(directory, &io::ErrorKind::StorageFull.into()));
    }
    Ok(())
}

impl Incoming for Coming {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.hash.update(bytes);
        self.file.write_all(bytes).map_err(|error| {
            let why = unable(&self.path, &error);
            // Room for the reason at least.
            let _ = self.file.set_len(0);
            unpack::refused(&self.shared, self.client, &why);
            why
        })
    }

    fn finish(self: Box<Self>) -> Result<(), Failure> {
        if self.hash.finalize().as_bytes() != &self.name.0 {
            let text = "what came is not what was announced: the file was changed meanwhile".into();
            return Err(Failure::Other { text });
        }
        let directory = self.shared.cache();
        let named = directory.join(self.name.to_string());
        fs::rename(&self.path, &named).map_err(|error| unable(&named, &error))?;
        self.shared.state.lock().cache.add(self.name, self.length, &directory);
        Ok(())
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        // It is gone from there if it was whole.
        let _ = fs::remove_file(&self.path);
    }
}

/// A file of the cache on its way to somebody.
pub(super) struct Leaving {
    file: File,
    length: u64,
}

impl Leaving {
    pub(super) fn open(shared: &Shared, name: Name) -> Result<Leaving, Failure> {
        if !shared.state.lock().cache.has(&name) {
            return Err(Failure::Missing);
        }
        let path = shared.cache().join(name.to_string());
        let file = File::open(&path).map_err(|error| unable(&path, &error))?;
        let length = file.metadata().map_err(|error| unable(&path, &error))?.len();
        Ok(Leaving { file, length })
    }
}

impl Outgoing for Leaving {
    fn total(&self) -> u64 {
        self.length
    }

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }
}
