//! The store: an embedded database (redb), in which every commit is whole after a kill. Bounded: the oldest entries go.

use super::Experience;
use redb::{AccessGuard, Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use std::path::{Path, PathBuf};

/// What is kept: within both bounds, the newest. An entry has some kilobytes on a cluster of ten nodes, so the first
/// binds there; the second on large ones. The newest entry is always kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub entries_max: u64,
    /// Of all entries; the file has up to about twice as much, since freed pages are used again.
    pub bytes_max: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Retention { entries_max: 10_000, bytes_max: 128 << 20 }
    }
}

const ENTRIES: TableDefinition<u64, &[u8]> = TableDefinition::new("experience");
/// Of all entries: one number, kept in the same commit.
const BYTES: TableDefinition<(), u64> = TableDefinition::new("experience bytes");

/// Why the store did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum ExperienceError {
    #[error("{}: the experience store cannot be opened: {reason}; name a file that a scheduler node wrote, or a new one in an existing folder", path.display())]
    Open { path: PathBuf, reason: String },
    #[error("{}: {reason}", path.display())]
    Database { path: PathBuf, reason: String },
    #[error("{}: entry {number} is damaged: {reason}", path.display())]
    Entry { path: PathBuf, number: u64, reason: String },
}

/// An open store. One process at a time.
pub struct Store {
    path: PathBuf,
    database: Database,
    retention: Retention,
}

impl Store {
    /// Opens a store, or makes one.
    pub fn open(path: &Path) -> Result<Store, ExperienceError> {
        Store::of(path, Database::create(path))
    }

    /// Opens a store that is there.
    pub fn open_existing(path: &Path) -> Result<Store, ExperienceError> {
        Store::of(path, Database::open(path))
    }

    fn of(path: &Path, opened: Result<Database, redb::DatabaseError>) -> Result<Store, ExperienceError> {
        let path = path.to_owned();
        match opened {
            Ok(database) => Ok(Store { path, database, retention: Retention::default() }),
            Err(error) => Err(ExperienceError::Open { path, reason: error.to_string() }),
        }
    }

    /// With other bounds, which hold from the next entry on.
    #[must_use]
    pub fn with_retention(mut self, retention: Retention) -> Store {
        self.retention = retention;
        self
    }

    fn fail(&self, error: impl std::fmt::Display) -> ExperienceError {
        ExperienceError::Database { path: self.path.clone(), reason: error.to_string() }
    }

    /// Adds an entry; it is on disk when this returns. The oldest ones go.
    pub fn add(&self, experience: &Experience) -> Result<(), ExperienceError> {
        let entry = serde_json::to_vec(experience).map_err(|error| self.fail(error))?;
        self.write(&entry).map_err(|error| self.fail(error))
    }

    fn write(&self, entry: &[u8]) -> Result<(), redb::Error> {
        let write = self.database.begin_write()?;
        {
            let mut table = write.open_table(ENTRIES)?;
            let mut bytes_table = write.open_table(BYTES)?;
            let known = bytes_table.get(())?.map(|bytes| bytes.value());
            let mut bytes = match known {
                Some(bytes) => bytes,
                // A store of an earlier version.
                None => {
                    table.iter()?.try_fold(0, |sum, entry| Ok::<_, redb::Error>(sum + length(&entry?.1)))?
                }
            };
            let next = table.last()?.map_or(0, |(number, _)| number.value() + 1);
            table.insert(next, entry)?;
            bytes += entry.len() as u64;
            while table.len()? > self.retention.entries_max.max(1)
                || (bytes > self.retention.bytes_max && table.len()? > 1)
            {
                let Some((_, oldest)) = table.pop_first()? else { break };
                bytes = bytes.saturating_sub(length(&oldest));
            }
            bytes_table.insert((), bytes)?;
        }
        write.commit()?;
        Ok(())
    }

    /// All entries, oldest first, with their numbers.
    pub fn entries(&self) -> Result<Vec<(u64, Experience)>, ExperienceError> {
        let read = self.database.begin_read().map_err(|error| self.fail(error))?;
        let table = match read.open_table(ENTRIES) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(vec![]),
            Err(error) => return Err(self.fail(error)),
        };
        let mut entries = vec![];
        for entry in table.iter().map_err(|error| self.fail(error))? {
            let (number, bytes) = entry.map_err(|error| self.fail(error))?;
            let number = number.value();
            let experience = serde_json::from_slice(bytes.value()).map_err(|error| {
                ExperienceError::Entry { path: self.path.clone(), number, reason: error.to_string() }
            })?;
            entries.push((number, experience));
        }
        Ok(entries)
    }
}

fn length(entry: &AccessGuard<'_, &'static [u8]>) -> u64 {
    entry.value().len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experience::tests::experience;

    fn minibatches(store: &Store) -> Vec<(u64, u64)> {
        store.entries().unwrap().into_iter().map(|(number, e)| (number, e.state.minibatch)).collect()
    }

    fn bounded(path: &Path, entries_max: u64, bytes_max: u64) -> Store {
        Store::open(path).unwrap().with_retention(Retention { entries_max, bytes_max })
    }

    #[test]
    fn entries_survive_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.redb");
        let store = bounded(&path, 3, u64::MAX);
        assert_eq!(minibatches(&store), []);
        (0..5).for_each(|minibatch| store.add(&experience(minibatch)).unwrap());
        drop(store);
        let store = Store::open_existing(&path).unwrap();
        assert_eq!(minibatches(&store), [(2, 2), (3, 3), (4, 4)]);
        assert_eq!(store.entries().unwrap()[0].1, experience(2), "refusals, order and cost among it");
    }

    #[test]
    fn bytes_are_bounded_too_and_so_is_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.redb");
        let entry = serde_json::to_vec(&experience(100)).unwrap().len() as u64;
        let store = bounded(&path, u64::MAX, 20 * entry);
        let length = || std::fs::metadata(&path).unwrap().len();
        (100..200).for_each(|minibatch| store.add(&experience(minibatch)).unwrap());
        let once = length();
        (200..500).for_each(|minibatch| store.add(&experience(minibatch)).unwrap());
        assert_eq!(
            minibatches(&store).iter().map(|of| of.1).collect::<Vec<_>>(),
            (480..500).collect::<Vec<_>>()
        );
        assert!(length() <= once.max(2 << 20), "{} bytes, {once} before", length());
        drop(store);
        let store = bounded(&path, u64::MAX, 1);
        store.add(&experience(7)).unwrap();
        assert_eq!(minibatches(&store), [(400, 7)], "the newest is always kept");
    }

    #[test]
    fn what_is_no_store_is_said_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.redb");
        assert!(Store::open_existing(&path).err().unwrap().to_string().contains("e.redb"));
        std::fs::write(&path, "not a database").unwrap();
        assert!(Store::open(&path).err().unwrap().to_string().contains("cannot be opened"));
    }
}
