//! Where the binaries under test are, built once if they are not.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The built binary of that name (`rudder` or `rudder-node`), in the profile and target folder of the running test.
///
/// # Panics
/// If the workspace's binaries do not build.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let directory = BUILT.get_or_init(build);
    let path = directory.join(name);
    assert!(path.is_file(), "{} was not built", path.display());
    path
}

/// Builds the binaries of the whole workspace (the same features as the tests, so that little is built twice).
/// Cargo does nothing when they are fresh, and holds its lock only meanwhile.
fn build() -> PathBuf {
    let test = std::env::current_exe().expect("the running test's path");
    // <target>/<profile>/deps/<test>
    let profile = test.ancestors().nth(2).expect("a profile folder").to_path_buf();
    let target = profile.parent().expect("a target folder");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(crate::source::root()).args(["build", "--quiet", "--workspace", "--bins", "--locked"]);
    cargo.arg("--target-dir").arg(target).stdin(Stdio::null());
    if profile.file_name().is_some_and(|name| name == "release") {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "the workspace's binaries do not build");
    profile.canonicalize().expect("the profile folder exists")
}
