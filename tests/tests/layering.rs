//! The arrows between the crates, from `cargo metadata`.

use cargo_metadata::{Metadata, MetadataCommand};
use rudder_tests::layering::{Ingredient, PURE, Use, forbidden, impurity, ingredients, workspace_uses};
use rudder_tests::source::root;

fn metadata() -> Metadata {
    let options = ["--locked", "--offline", "--filter-platform=x86_64-unknown-linux-gnu"].map(str::to_owned);
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(options)
        .exec()
        .expect("metadata")
}

fn one(user: &str, used: &str) -> Use {
    Use { user: user.to_owned(), used: used.to_owned() }
}

#[test]
fn only_the_arrows_of_the_architecture_exist() {
    let uses = workspace_uses(&metadata());
    assert!(uses.contains(&one("rudder-policy", "rudder-graph")), "the metadata is not read rightly");
    let found = forbidden(&uses);
    assert!(found.is_empty(), "not among the arrows: {found:#?}");
}

#[test]
fn an_arrow_against_the_order_is_noticed() {
    let allowed = [one("rudder-actors", "rudder-topology"), one("rudder-tests", "rudder-actors")];
    assert_eq!(forbidden(&allowed), []);
    for (user, used) in [
        ("rudder-policy", "rudder-messages"),
        ("rudder-graph", "rudder-policy"),
        ("rudder-scenarios", "rudder-actors"),
        ("rudder-scenarios", "rudder-dataplane"),
        ("rudder-client", "rudder-policy"),
        ("rudder-python", "rudder-policy"),
        ("rudder-importer", "rudder-policy"),
        ("rudder-graph", "rudder-tests"),
        ("rudder-stranger", "rudder-topology"),
    ] {
        assert_eq!(forbidden(&[one(user, used)]).len(), 1, "{user} -> {used} passed");
    }
}

#[test]
fn pure_crates_contain_nothing_impure() {
    let metadata = metadata();
    for package in PURE {
        let all = ingredients(&metadata, package);
        assert!(all.iter().any(|i| i.name == "serde"), "the ingredients of {package} are not read rightly");
        let found: Vec<_> = all.iter().filter_map(impurity).collect();
        assert!(found.is_empty(), "{package}: {found:?}");
    }
}

#[test]
fn impure_ingredients_are_noticed() {
    let named = |name: &str| Ingredient { name: name.to_owned(), ..Ingredient::default() };
    assert_eq!(impurity(&named("serde")), None);
    assert_eq!(impurity(&named("tokioless")), None);
    for name in ["tokio", "tokio-uring", "ractor", "rand", "getrandom", "libc", "metis"] {
        assert!(impurity(&named(name)).is_some(), "{name} passed");
    }
    assert!(impurity(&Ingredient { links: Some("z".to_owned()), ..named("zlib-sys") }).is_some());
    let blake3 = Ingredient { compiles_c: true, ..named("blake3") };
    assert!(impurity(&blake3).is_some());
    assert_eq!(impurity(&Ingredient { features: ["pure".to_owned()].into(), ..blake3 }), None);
}

#[test]
fn the_actors_crate_is_known_to_be_impure() {
    let found = ingredients(&metadata(), "rudder-actors").iter().filter_map(impurity).count();
    assert!(found > 3, "the check finds only {found} in a crate full of them");
}
