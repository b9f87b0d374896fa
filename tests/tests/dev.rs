//! `./dev python` where its environment cannot be made: skipped without a network, failed with one.

use rudder_tests::process::Child;
use rudder_tests::process::cluster::PATIENCE;
use rudder_tests::source::root;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Plays every program that the script calls before it would download anything: installs fail, and asking the index
/// for versions ends with `index`.
fn stage(directory: &Path, index: u8) -> Command {
    let pip = format!("#!/bin/sh\n[ \"$1\" = index ] && exit {index}\necho 'no such version' >&2\nexit 1\n");
    let make = "mkdir -p \"$3/bin\" && cp \"$(dirname \"$0\")/pip\" \"$3/bin/pip\"";
    let python = format!(
        "#!/bin/sh\ncase \"$1\" in --version) echo Python 3.11.0 ;; -m) {make} ;; *) exit 0 ;; esac\n"
    );
    for (name, text) in [("python3", python.as_str()), ("pip", pip.as_str()), ("tc", "#!/bin/sh\n")] {
        let file = directory.join(name);
        fs::write(&file, text).expect("a script");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("a program");
    }
    let path = std::env::var("PATH").expect("a PATH");
    let mut command = Command::new(root().join("dev"));
    command.arg("python").env("PATH", format!("{}:{path}", directory.display()));
    command.env("CARGO_TARGET_DIR", directory.join("target"));
    command
}

#[test]
fn no_network_is_skipped_and_what_cannot_be_installed_fails() {
    let offline = tempfile::tempdir().expect("a directory");
    let exit = Child::start("dev", &mut stage(offline.path(), 1)).wait(PATIENCE);
    assert!(exit.status.success(), "{exit:?}");
    assert!(exit.stdout.iter().any(|line| line.starts_with("SKIPPED: no package index")), "{exit:?}");

    let online = tempfile::tempdir().expect("a directory");
    let exit = Child::start("dev", &mut stage(online.path(), 0)).wait(PATIENCE);
    assert!(!exit.status.success(), "{exit:?}");
    assert!(exit.stderr.iter().any(|line| line.contains("cannot be made")), "{exit:?}");
    assert!(
        exit.stderr.iter().any(|line| line.contains("no such version")),
        "what failed is shown: {exit:?}"
    );
}
