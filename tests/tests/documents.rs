//! The examples of the documents work as they stand.

use rudder_tests::source::root;
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
