//! The scenario's dataset: imported once into the work folder, then reused.

use crate::compile::{DatasetSource, Medium, Scenario};
use rudder_client::dataset::{Dataset, DatasetError};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// What to import. Whoever runs scenarios brings the importer.
#[derive(Clone, Debug)]
pub struct ImportRequest {
    /// A path, or `generate:...`.
    pub from: String,
    /// Does not exist yet.
    pub target: PathBuf,
    pub name: String,
    pub parts: u32,
    pub rows_per_block: Option<u32>,
    pub seeds: u32,
    pub fanout: Vec<u32>,
    pub seed: u64,
}

/// Makes a dataset directory; the text of an error is shown as it is.
pub trait Import {
    fn import(&self, request: &ImportRequest) -> Result<(), String>;
}

#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("cannot import {from}: {reason}")]
    Import { from: String, reason: String },
    #[error("cannot use {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("a dataset of statistics has no graph: it is simulated at its scale and has no other report")]
    Statistics,
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error("{} lies in memory (tmpfs) and the scenario asks for a disk; give --work a folder on one", path.display())]
    NoDisk { path: PathBuf },
    #[error(
        "the dataset has {parts} parts and the scenario {storage_nodes} storage nodes; it needs at least one part each"
    )]
    Parts { parts: u32, storage_nodes: u32 },
    #[error("the dataset at {} lacks part {part} or its graph", path.display())]
    Incomplete { path: PathBuf, part: u32 },
}

/// The opened dataset; imports it into `work` where that has not been done.
pub fn prepare(scenario: &Scenario, work: &Path, importer: &dyn Import) -> Result<Dataset, PrepareError> {
    let directory = match &scenario.dataset {
        DatasetSource::Directory(directory) => directory.clone(),
        DatasetSource::Statistics(_) => return Err(PrepareError::Statistics),
        DatasetSource::Import { from, parts, rows_per_block } => {
            let request = ImportRequest {
                from: from.clone(),
                target: PathBuf::new(),
                name: name_of(from),
                parts: *parts,
                rows_per_block: *rows_per_block,
                seeds: scenario.trainer.seeds,
                fanout: scenario.trainer.fanout.clone(),
                seed: 1,
            };
            imported(request, scenario.cluster.medium, work, importer)?
        }
    };
    check_medium(&directory, scenario.cluster.medium)?;
    let path = fs::canonicalize(&directory)
        .map_err(|source| PrepareError::Folder { path: directory.clone(), source })?;
    let dataset = Dataset::open(path)?;
    let parts = dataset.book().parts() as u32;
    if parts < scenario.cluster.storage_nodes {
        return Err(PrepareError::Parts { parts, storage_nodes: scenario.cluster.storage_nodes });
    }
    let missing = (0..parts).find(|&part| !dataset.has_part(rudder_topology::PartId(part as u16)));
    if missing.is_some() || dataset.first_csc().is_none() {
        return Err(PrepareError::Incomplete { path: directory, part: missing.unwrap_or(0) });
    }
    Ok(dataset)
}

fn imported(
    mut request: ImportRequest,
    medium: Medium,
    work: &Path,
    importer: &dyn Import,
) -> Result<PathBuf, PrepareError> {
    let folder = work.join("datasets");
    let failed = |source| PrepareError::Folder { path: folder.clone(), source };
    fs::create_dir_all(&folder).map_err(failed)?;
    check_medium(&folder, medium)?;
    let stem = format!("{}-{}", request.name, fingerprint(&request));
    let target = folder.join(&stem);
    if target.join("dataset.toml").exists() {
        return Ok(target);
    }
    // Another run may be importing the same: each writes its own, and the first to finish wins.
    request.target = folder.join(format!("{stem}.{}", std::process::id()));
    importer
        .import(&request)
        .map_err(|reason| PrepareError::Import { from: request.from.clone(), reason })?;
    if fs::rename(&request.target, &target).is_err() {
        fs::remove_dir_all(&request.target).map_err(failed)?;
    }
    Ok(target)
}

/// A dataset's name from where it comes from.
fn name_of(from: &str) -> String {
    let stem = match from.strip_prefix("generate:") {
        Some(spec) => spec.split([':', ',']).next().unwrap_or_default(),
        None => from.trim_end_matches('/').rsplit('/').next().unwrap_or_default(),
    };
    let name: String = stem.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(40).collect();
    if name.is_empty() { "dataset".to_owned() } else { name }
}

/// Changes when anything that the import depends on changes: options, and names, sizes and times of source files.
fn fingerprint(request: &ImportRequest) -> String {
    let mut hasher = blake3::Hasher::new();
    let ImportRequest { from, parts, rows_per_block, seeds, fanout, seed, .. } = request;
    let options = format!("2 {from} {parts} {rows_per_block:?} {seeds} {fanout:?} {seed}");
    hasher.update(options.as_bytes());
    let source = Path::new(from);
    let mut files: Vec<PathBuf> = match fs::read_dir(source) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![source.to_owned()],
    };
    files.sort();
    for file in files {
        if let Ok(metadata) = fs::metadata(&file) {
            let changed = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            hasher.update(format!("{} {} {changed:?}", file.display(), metadata.len()).as_bytes());
        }
    }
    hasher.finalize().to_hex()[..12].to_owned()
}

fn check_medium(path: &Path, medium: Medium) -> Result<(), PrepareError> {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    if medium == Medium::Any {
        return Ok(());
    }
    let found = rustix::fs::statfs(path)
        .map_err(|errno| PrepareError::Folder { path: path.to_owned(), source: errno.into() })?;
    match found.f_type {
        TMPFS | RAMFS => Err(PrepareError::NoDisk { path: path.to_owned() }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_source() {
        for (from, name) in [
            ("../../datasets/debian", "debian"),
            ("a/b.c/", "bc"),
            ("generate:rmat:vertices=2M,edges=3M", "rmat"),
            ("generate:", "dataset"),
            ("/", "dataset"),
        ] {
            assert_eq!(name_of(from), name, "{from}");
        }
    }

    #[test]
    fn a_changed_source_is_another_dataset() {
        let folder = tempfile::tempdir().unwrap();
        let request = |parts| ImportRequest {
            from: folder.path().to_string_lossy().into_owned(),
            target: PathBuf::new(),
            name: "x".into(),
            parts,
            rows_per_block: None,
            seeds: 1,
            fanout: vec![1],
            seed: 1,
        };
        let empty = fingerprint(&request(1));
        assert_eq!(empty, fingerprint(&request(1)));
        assert_ne!(empty, fingerprint(&request(2)));
        fs::write(folder.path().join("edges.npy"), b"x").unwrap();
        assert_ne!(empty, fingerprint(&request(1)));
    }

    #[test]
    fn memory_is_no_disk() {
        let shared_memory = Path::new("/dev/shm");
        if rustix::fs::statfs(shared_memory).is_ok_and(|found| found.f_type == 0x0102_1994) {
            assert!(matches!(check_medium(shared_memory, Medium::Disk), Err(PrepareError::NoDisk { .. })));
            assert!(check_medium(shared_memory, Medium::Any).is_ok());
        }
        assert!(matches!(check_medium(Path::new("no/such"), Medium::Disk), Err(PrepareError::Folder { .. })));
    }
}
