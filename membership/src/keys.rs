//! `rudder keys init`: the cluster's authority, one key pair per node, one for the operator.
//!
//! Files: `ca.pem`, `ca.key`, `<node>.pem`, `<node>.key`, `operator.pem`, `operator.key`; keys have mode 0600. Nodes
//! need `ca.pem` and their own two files; `ca.key` is only needed here, to add nodes, and is best kept off line.

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rudder_client::identity::{IdentityError, PeerName, server_name};
use rudder_topology::{Cluster, NodeName};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What to do where the directory exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Leave it alone and say so.
    Refuse,
    /// Keep the authority and all keys, add those of new nodes.
    Extend,
    /// Make everything anew. Nodes with old keys can no longer join.
    Replace,
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysReport {
    pub directory: PathBuf,
    /// The names that got a key pair now, in the order of the topology, the operator last.
    pub made: Vec<String>,
    /// The names that kept theirs.
    pub kept: Vec<String>,
}

/// Why no keys were made. The directory is then as it was.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("{} exists; nothing was changed. Ask to extend it (new nodes) or to replace it (everything)", .0.display())]
    Exists(PathBuf),
    #[error("{} has no readable authority to extend: {reason}", directory.display())]
    NoAuthority { directory: PathBuf, reason: String },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{} has no parent folder", .0.display())]
    NoParent(PathBuf),
    #[error("the key or certificate of `{name}` cannot be made: {source}")]
    Generate { name: String, source: rcgen::Error },
    #[error(transparent)]
    Name(#[from] IdentityError),
}

struct Authority {
    params: CertificateParams,
    key: KeyPair,
}

/// Makes the keys of every node of the cluster and of the operator in `directory`, all or nothing.
pub fn init(cluster: &Cluster, directory: &Path, existing: Existing) -> Result<KeysReport, KeysError> {
    let nodes: Vec<NodeName> = cluster.nodes.iter().map(|node| node.name.clone()).collect();
    init_names(&nodes, directory, existing)
}

/// As [`init`], for names.
pub fn init_names(nodes: &[NodeName], directory: &Path, existing: Existing) -> Result<KeysReport, KeysError> {
    let mut names: Vec<PeerName> = nodes.iter().cloned().map(PeerName::Node).collect();
    names.push(PeerName::Operator);
    for name in &names {
        server_name(name)?;
    }
    let exists = directory.symlink_metadata().is_ok();
    if exists && existing == Existing::Refuse {
        return Err(KeysError::Exists(directory.to_owned()));
    }
    let old = (exists && existing == Existing::Extend).then_some(directory);
    let staging = Staging::new(directory)?;
    let report = fill(&staging, &names, old, directory)?;
    staging.publish(directory, exists)?;
    Ok(report)
}

fn fill(
    staging: &Staging,
    names: &[PeerName],
    old: Option<&Path>,
    directory: &Path,
) -> Result<KeysReport, KeysError> {
    let authority = match old {
        Some(old) => {
            staging.copy_all(old)?;
            read_authority(old)?
        }
        None => new_authority(staging)?,
    };
    let mut report = KeysReport { directory: directory.to_owned(), made: Vec::new(), kept: Vec::new() };
    let issuer = Issuer::from_params(&authority.params, &authority.key);
    for name in names {
        if staging.has(&format!("{name}.pem")) && staging.has(&format!("{name}.key")) {
            report.kept.push(name.to_string());
            continue;
        }
        let failed = |source| KeysError::Generate { name: name.to_string(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = leaf(name).map_err(failed)?.signed_by(&key, &issuer).map_err(failed)?;
        staging.write(&format!("{name}.key"), &key.serialize_pem(), 0o600)?;
        staging.write(&format!("{name}.pem"), &certificate.pem(), 0o644)?;
        report.made.push(name.to_string());
    }
    Ok(report)
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "rudder cluster authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    bound_validity(&mut params);
    params
}

/// A cluster's keys live as long as its authority; they are replaced by making new ones, not by running out.
fn bound_validity(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2070, 1, 1);
}

fn new_authority(staging: &Staging) -> Result<Authority, KeysError> {
    let failed = |source| KeysError::Generate { name: "ca".to_owned(), source };
    let params = authority_params();
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    staging.write("ca.key", &key.serialize_pem(), 0o600)?;
    staging.write("ca.pem", &certificate.pem(), 0o644)?;
    Ok(Authority { params, key })
}

/// The authority's parameters are the same in every cluster, so its key is all that must be read to issue more.
fn read_authority(directory: &Path) -> Result<Authority, KeysError> {
    let failed = |reason: String| KeysError::NoAuthority { directory: directory.to_owned(), reason };
    let pem = std::fs::read_to_string(directory.join("ca.key")).map_err(|e| failed(e.to_string()))?;
    let key = KeyPair::from_pem(&pem).map_err(|e| failed(e.to_string()))?;
    Ok(Authority { params: authority_params(), key })
}

fn leaf(name: &PeerName) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name.as_str());
    params.subject_alt_names = vec![SanType::DnsName(Ia5String::try_from(name.as_str())?)];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // Every process both accepts and dials.
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    bound_validity(&mut params);
    Ok(params)
}

/// A folder beside the final one, renamed into place when complete, removed when not.
struct Staging {
    folder: PathBuf,
}

impl Staging {
    fn new(directory: &Path) -> Result<Staging, KeysError> {
        let folder = beside(directory, "new")?;
        let created =
            DirBuilder::new().recursive(true).mode(0o700).create(folder.parent().unwrap_or(Path::new(".")));
        created
            .and_then(|()| DirBuilder::new().mode(0o700).create(&folder))
            .map_err(|source| KeysError::Write { path: folder.clone(), source })?;
        Ok(Staging { folder })
    }

    fn has(&self, file: &str) -> bool {
        self.folder.join(file).is_file()
    }

    fn write(&self, file: &str, text: &str, mode: u32) -> Result<(), KeysError> {
        let path = self.folder.join(file);
        let written =
            OpenOptions::new().write(true).create_new(true).mode(mode).open(&path).and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_all()
            });
        written.map_err(|source| KeysError::Write { path, source })
    }

    fn copy_all(&self, old: &Path) -> Result<(), KeysError> {
        let failed = |source| KeysError::Write { path: self.folder.clone(), source };
        for entry in std::fs::read_dir(old).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let known = Path::new(&name).extension().is_some_and(|end| end == "pem" || end == "key");
            if let (true, Some(name)) = (known, name.to_str()) {
                let text = std::fs::read_to_string(entry.path()).map_err(failed)?;
                self.write(name, &text, if name.ends_with(".key") { 0o600 } else { 0o644 })?;
            }
        }
        Ok(())
    }

    /// Puts the folder in place. The old one, if any, is moved aside first and removed last, so that at every moment
    /// one complete set of keys is on disk.
    fn publish(self, directory: &Path, exists: bool) -> Result<(), KeysError> {
        let failed = |source| KeysError::Write { path: directory.to_owned(), source };
        File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
        if !exists {
            return std::fs::rename(&self.folder, directory).map_err(failed);
        }
        let aside = beside(directory, "old")?;
        std::fs::rename(directory, &aside).map_err(failed)?;
        if let Err(error) = std::fs::rename(&self.folder, directory) {
            std::fs::rename(&aside, directory).map_err(failed)?;
            return Err(failed(error));
        }
        std::fs::remove_dir_all(&aside).map_err(failed)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Gone already where it was published.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn beside(directory: &Path, end: &str) -> Result<PathBuf, KeysError> {
    let no_parent = || KeysError::NoParent(directory.to_owned());
    let name = directory.file_name().ok_or_else(no_parent)?.to_string_lossy().into_owned();
    let parent = directory.parent().ok_or_else(no_parent)?;
    Ok(parent.join(format!(".{name}.{end}-{}", std::process::id())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rudder_client::identity::Identity;
    use std::os::unix::fs::PermissionsExt;

    fn names(list: &[&str]) -> Vec<NodeName> {
        list.iter().map(|&name| NodeName::new(name).unwrap()).collect()
    }

    fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn keys_load_as_identities_and_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("deep/keys");
        let report = init_names(&names(&["s0", "c0"]), &keys, Existing::Refuse).unwrap();
        assert_eq!(report.made, ["s0", "c0", "operator"]);
        for name in ["s0", "c0", "operator"] {
            let name = PeerName::parse(name).unwrap();
            let identity = Identity::load(&keys, &name).unwrap();
            identity.server_config().unwrap();
            identity.client_config().unwrap();
        }
        for (file, _) in files(&keys) {
            let mode = keys.join(&file).metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, if file.ends_with(".key") { 0o600 } else { 0o644 }, "{file}");
        }
        assert_eq!(
            std::fs::read_dir(folder.path().join("deep")).unwrap().count(),
            1,
            "nothing is left beside"
        );
    }

    #[test]
    fn existing_keys_are_kept_unless_asked() {
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("keys");
        init_names(&names(&["s0"]), &keys, Existing::Refuse).unwrap();
        let before = files(&keys);
        let refused = init_names(&names(&["s0"]), &keys, Existing::Refuse);
        assert!(matches!(refused, Err(KeysError::Exists(_))));
        assert_eq!(files(&keys), before);

        let report = init_names(&names(&["s0", "s1"]), &keys, Existing::Extend).unwrap();
        assert_eq!(
            (report.made, report.kept),
            (vec!["s1".to_owned()], vec!["s0".to_owned(), "operator".to_owned()])
        );
        let extended = files(&keys);
        assert!(before.iter().all(|file| extended.contains(file)));
        Identity::load(&keys, &PeerName::parse("s1").unwrap()).unwrap();

        init_names(&names(&["s0"]), &keys, Existing::Replace).unwrap();
        let replaced = files(&keys);
        assert_eq!(replaced.len(), before.len());
        assert!(replaced.iter().all(|file| !before.contains(file)));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failure_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("keys");
        std::fs::create_dir(&keys).unwrap();
        std::fs::write(keys.join("ca.key"), "no key").unwrap();
        let failed = init_names(&names(&["s0"]), &keys, Existing::Extend);
        assert!(matches!(failed, Err(KeysError::NoAuthority { .. })), "{failed:?}");
        assert_eq!(files(&keys), [("ca.key".to_owned(), b"no key".to_vec())]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        // A name that no certificate can carry.
        let fresh = folder.path().join("fresh");
        assert!(matches!(init_names(&names(&["17"]), &fresh, Existing::Refuse), Err(KeysError::Name(_))));
        assert!(!fresh.exists());
    }
}
