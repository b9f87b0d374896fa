//! The repository's text keeps its rules, and each rule notices a file that breaks it.

use rudder_tests::docs::{missing_paths, root_entries};
use rudder_tests::source::{Finding, SourceFile, repository, root};
use rudder_tests::tidy;

fn report(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}

#[test]
fn the_repository_is_tidy() {
    let files = repository();
    assert!(files.len() > 40, "the walk found only {} files", files.len());
    let findings = tidy::check(&files);
    assert!(findings.is_empty(), "{}", report(&findings));
}

#[test]
fn documents_name_only_what_exists() {
    let (root, files) = (root(), repository());
    let entries = root_entries(&root);
    // The shipped data sets bring the notices of their sources, word for word.
    let documents =
        files.iter().filter(|file| file.path.ends_with(".md") && !file.path.starts_with("datasets/"));
    let findings: Vec<_> = documents.flat_map(|file| missing_paths(file, &entries, &root)).collect();
    assert!(findings.is_empty(), "{}", report(&findings));
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let manifests: Vec<_> =
        repository().into_iter().filter(|file| file.path.ends_with("/Cargo.toml")).collect();
    assert!(manifests.len() >= 13);
    for manifest in &manifests {
        assert!(inherits_lints(manifest), "{} has no `[lints] workspace = true`", manifest.path);
    }
}

fn inherits_lints(manifest: &SourceFile) -> bool {
    manifest.text.contains("[lints]\nworkspace = true\n")
}

#[test]
fn a_crate_of_its_own_lints_is_noticed() {
    assert!(!inherits_lints(&SourceFile::new("x/Cargo.toml", "[lints.rust]\nunsafe_code = \"allow\"\n")));
    assert!(inherits_lints(&SourceFile::new("x/Cargo.toml", "[package]\n\n[lints]\nworkspace = true\n")));
}

/// A rule, a file that breaks it, and one that looks alike but does not.
type Proof = (tidy::Rule, (&'static str, &'static str), (&'static str, &'static str));

const PROOFS: [Proof; 17] = [
    (tidy::whitespace, ("a.rs", "fn f() {}\t\n"), ("a.rs", "fn f() {}\n")),
    (tidy::whitespace, ("a.md", "text \nmore\n"), ("a.md", "text\nmore\n")),
    (tidy::whitespace, ("a.md", "text\r\n"), ("a.md", "")),
    (tidy::whitespace, ("a.md", "text"), ("a.md", "text\n")),
    (tidy::module_files, ("graph/src/io/mod.rs", "\n"), ("graph/src/modest.rs", "\n")),
    (tidy::unfinished, ("a.rs", "fn f() { todo!() }\n"), ("a.rs", "/// No `todo!` here.\n")),
    (tidy::unfinished, ("a.rs", concat!("// TO", "DO: more\n")), ("a.rs", "// All done\n")),
    (tidy::unsafe_code, ("policy/src/a.rs", "unsafe { f() }\n"), ("client/src/a.rs", "unsafe { f() }\n")),
    (
        tidy::safety_comments,
        ("client/src/a.rs", "unsafe { f() }\n"),
        ("client/src/a.rs", "// SAFETY: so\nunsafe { f() }\n"),
    ),
    (
        tidy::clocks_in_tests,
        ("actors/src/a.rs", "#[cfg(test)]\nmod tests {\n    fn f() { std::thread::sleep(d) }\n}\n"),
        ("actors/src/a.rs", "fn f() { let now = Instant::now(); }\n#[cfg(test)]\nmod tests {}\n"),
    ),
    (
        tidy::clocks_in_tests,
        ("tests/tests/a.rs", "let t = Instant::now();\n"),
        ("tests/tests/a.rs", "// Instant::now\n"),
    ),
    (
        tidy::foreign_places,
        ("README.md", concat!("see /wo", "rk/main\n")),
        ("README.md", "see the work/main\n"),
    ),
    (
        tidy::foreign_places,
        ("a.toml", concat!("https://pypi", ".org/simple\n")),
        ("a.toml", "https://example.org\n"),
    ),
    (
        tidy::scenarios_have_no_policy,
        ("scenarios/src/a.rs", "impl Policy for Mine {\n"),
        ("policy/src/a.rs", "impl Policy for Mine {\n"),
    ),
    (
        tidy::messages_carry_no_features,
        ("messages/src/mover.rs", "pub struct M { rows: Vec<u8> }\n"),
        ("messages/src/codec.rs", "pub fn encode() -> Vec<u8> {}\n"),
    ),
    (
        tidy::bare_ids,
        ("graph/src/a.rs", "pub fn f(block: u32) {}\n"),
        ("graph/src/a.rs", "pub fn f(block: BlockId) {}\n"),
    ),
    (
        tidy::bare_ids,
        ("graph/src/a.rs", "    pub node_id: String,\n"),
        ("graph/src/a.rs", "    node: u32,\n"),
    ),
];

#[test]
fn every_rule_notices_a_file_that_breaks_it() {
    for (at, (rule, (path, broken), (other, kept))) in PROOFS.iter().enumerate() {
        assert!(!rule(&SourceFile::new(path, broken)).is_empty(), "proof {at}: {broken:?} passed");
        let findings = rule(&SourceFile::new(other, kept));
        assert!(findings.is_empty(), "proof {at}: {}", report(&findings));
    }
    for rule in tidy::RULES {
        assert!(PROOFS.iter().any(|proof| std::ptr::fn_addr_eq(proof.0, rule)), "a rule without proof");
    }
}

#[test]
fn a_document_that_names_a_missing_path_is_noticed() {
    let entries = ["graph", "README.md"].map(str::to_owned).into();
    let missing = |text: &str| missing_paths(&SourceFile::new("README.md", text), &entries, &root()).len();
    assert_eq!(missing("see `graph/src/lib.rs` and [the list](Cargo.toml).\n"), 0);
    assert_eq!(missing("see `graph/src/nothing.rs`\n"), 1);
    assert_eq!(missing("[gone](docs/gone.md)\n"), 1);
    assert_eq!(missing("see NOTHING.md\n"), 1);
    assert_eq!(missing("`other/path.rs` is not ours, `graph/<name>.npy` is a pattern\n"), 0);
}
