//! What the documents say must exist.

use crate::source::{Finding, SourceFile};
use std::collections::BTreeSet;
use std::path::Path;

/// Every path that a document names and that `root` does not hold.
///
/// A word is taken for a path if its first component is an entry of the repository's root (`entries`), or if it is the
/// target of a link within the repository. Words with placeholders (`<p>`, `*`, `{a,b}`) are left out.
#[must_use]
pub fn missing_paths(file: &SourceFile, entries: &BTreeSet<String>, root: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        let missing = words(line)
            .filter(|word| is_path(word, entries))
            .chain(link_targets(line))
            .any(|path| !root.join(path.trim_end_matches(['/', '.'])).exists());
        if missing {
            findings.push(file.finding(at + 1, "names a path that does not exist"));
        }
    }
    findings
}

/// The names in the repository's root, build output left out.
#[must_use]
pub fn root_entries(root: &Path) -> BTreeSet<String> {
    std::fs::read_dir(root)
        .expect("a readable root")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with("target") && name != ".git")
        .collect()
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| c.is_whitespace() || "`\"'(),;:|=".contains(c))
        .map(|word| word.strip_prefix("./").unwrap_or(word))
        .filter(|word| !word.is_empty())
}

fn is_path(word: &str, entries: &BTreeSet<String>) -> bool {
    if word.contains(['<', '>', '*', '{', '}', '$', '[', ']']) {
        return false;
    }
    match word.split_once('/') {
        Some((first, _)) => entries.contains(first),
        None => word.ends_with(".md") && word.chars().next().is_some_and(char::is_uppercase),
    }
}

fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split(')').next()?.split('#').next()?;
        (!target.is_empty() && !target.contains("://")).then_some(target)
    })
}
