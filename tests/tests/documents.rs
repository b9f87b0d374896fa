//! The examples of the documents work as they stand.

use rudder_tests::process::cluster::{rudder, run};
use rudder_tests::source::root;
use std::collections::BTreeSet;
use std::path::Path;

/// The fenced blocks of a language in a document.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    let text = std::fs::read_to_string(root().join(document)).expect("the document is there");
    text.split(&opening)
        .skip(1)
        .filter_map(|rest| rest.split("\n```").next())
        .map(|b| format!("{b}\n"))
        .collect()
}

#[test]
fn the_topology_of_the_readme_compiles() {
    let examples = blocks("README.md", "toml");
    assert!(!examples.is_empty());
    for example in examples {
        let cluster = rudder_topology::compile(&example, Path::new("README.md"));
        let cluster = cluster.unwrap_or_else(|errors| panic!("{errors}\n{example}"));
        assert!(cluster.nodes.iter().any(|node| node.roles.compute));
    }
}

/// The commands of a document: the words after `rudder`, up to the end of the line or of the quoted piece.
fn commands(text: &str) -> BTreeSet<Vec<&str>> {
    let starts = text.match_indices("rudder ").filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        before.is_none_or(|c| c == '\n' || c == '`')
    });
    let end = |rest: &str| rest.find(['`', '\n', '#', ';']).unwrap_or(rest.len());
    let words = starts.map(|(at, start)| {
        let rest = &text[at + start.len()..];
        rest[..end(rest)].split_whitespace().collect()
    });
    words.collect()
}

#[test]
fn the_commands_of_the_readme_exist_with_their_options() {
    let text = std::fs::read_to_string(root().join("README.md")).expect("the document is there");
    let commands = commands(&text);
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands {
        let is_name = |word: &&&str| word.chars().all(|c| c.is_ascii_lowercase());
        let names: Vec<_> = command.iter().take_while(is_name).copied().collect();
        if names.first() == Some(&"help") {
            continue;
        }
        let help = run("help", &mut rudder(&[&names[..], &["--help"]].concat())).stdout.join("\n");
        for option in command.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "`rudder {}`: no {option} in\n{help}", command.join(" "));
        }
    }
}
