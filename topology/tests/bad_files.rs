//! Each bad file with the exact messages it gets.

use rudder_topology::compile;
use std::path::Path;

fn messages(text: &str) -> Vec<String> {
    let errors = compile(text, Path::new("t.toml")).expect_err("the file is bad");
    errors.errors.iter().map(ToString::to_string).collect()
}

const STORAGE: &str = r#"[[nodes]]
name = "s0"
roles = ["storage"]
control = "127.0.0.1:0"
data = "127.0.0.1:0"
storage_directory = "d"
"#;

const COMPUTE: &str = r#"[[nodes]]
name = "c0"
machine = "m"
roles = ["compute"]
control = "127.0.0.1:0"
trainer_socket = "c0.sock"
cache = "1MiB"
"#;

const DATASET: &str = r#"[[datasets]]
name = "d"
directory = "d"
parts = 2
"#;

/// Lines that follow the storage node start at line 7, those after the compute node at line 8.
fn check(text: &str, expected: &[&str]) {
    assert_eq!(messages(text), expected, "{text}");
}

#[test]
fn the_good_pieces_are_good() {
    let text = format!(
        "{STORAGE}{COMPUTE}{DATASET}placement = \"round_robin\"\n[default_link]\nbandwidth = \"1Gbit/s\"\n"
    );
    compile(&text, Path::new("t.toml")).unwrap();
}

#[test]
fn text_and_keys() {
    check("", &["t.toml: no nodes; add at least one [[nodes]]"]);
    check("nodes = 3", &["t.toml:1: `nodes` is a whole number; write [[nodes]]"]);
    let syntax = messages("[[nodes]]\nname = \n");
    assert_eq!(syntax.len(), 1);
    assert!(syntax[0].starts_with("t.toml:2: not TOML: "), "{syntax:?}");
    check(
        &format!("{STORAGE}chache = 1\nname2 = 3\n"),
        &[
            "t.toml:7: unknown key `chache` in [[nodes]]; did you mean `cache`?",
            "t.toml:8: unknown key `name2` in [[nodes]]; did you mean `name`?",
        ],
    );
    check(
        &format!("{STORAGE}[limit]\n[limits]\nzebra = 1\n"),
        &[
            "t.toml:7: unknown key `limit` in the file; did you mean `limits`?",
            "t.toml:9: unknown key `zebra` in [limits]; it is one of link_in_flight_bytes, node_in_flight_bytes, transfer_bytes_max, transfer_timeout, heartbeat_timeout, link_rate_max",
        ],
    );
    check(
        "[[nodes]]\nname = 3\nroles = \"storage\"\ncontrol = []\ndata = true\nstorage_directory = 1.5\n",
        &[
            "t.toml:2: `name` is a whole number; write a text in quotes",
            "t.toml:3: `roles` is a text; write a list of texts such as [\"a\", \"b\"]",
            "t.toml:4: `control` is a list; write a text in quotes",
            "t.toml:5: `data` is true or false; write a text in quotes",
            "t.toml:6: `storage_directory` is a fraction; write a text in quotes",
        ],
    );
}

#[test]
fn names_and_roles() {
    check(
        "[[nodes]]\ncontrol = \"127.0.0.1:0\"\n",
        &[
            "t.toml:1: [[nodes]] has no `name`; add name = \"c0\"",
            "t.toml:1: node `number 1` has no role; write roles = [\"compute\"], [\"storage\"], [\"scheduler\"] or several",
        ],
    );
    let twice = format!("{STORAGE}{STORAGE}");
    check(&twice, &["t.toml:8: the name `s0` is taken by the node of line 2; give each node its own name"]);
    check(
        "[[nodes]]\nname = \"a b\"\nroles = [\"storge\"]\ncontrol = \"127.0.0.1:0\"\n",
        &[
            "t.toml:2: `name = \"a b\"`: `a b` is not a name: a name is made of a-z A-Z 0-9 . _ -",
            "t.toml:3: `roles = \"storge\"`: not one of the choices; did you mean `storage`?",
        ],
    );
    check(
        "[[nodes]]\nname = \"operator\"\nroles = [\"scheduler\"]\ncontrol = \"127.0.0.1:0\"\n",
        &["t.toml:2: `operator` is the operator's own name in certificates; choose another name"],
    );
    let scheduler = |name: &str| {
        format!("[[nodes]]\nname = \"{name}\"\nroles = [\"scheduler\"]\ncontrol = \"127.0.0.1:0\"\n")
    };
    check(
        &format!("{}{}", scheduler("x"), scheduler("y")),
        &["t.toml:7: `y` is a second scheduler beside `x`; give one node the role"],
    );
    check(
        &format!("{STORAGE}cache = \"1MiB\"\n"),
        &[
            "t.toml:7: `cache` is for compute nodes and `s0` is none; remove it or add \"compute\" to the node's roles",
        ],
    );
    check(
        &format!("{COMPUTE}staging = \"1MiB\"\n"),
        &[
            "t.toml:8: `staging` is for storage nodes and `c0` is none; remove it or add \"storage\" to the node's roles",
        ],
    );
}

#[test]
fn storage_settings() {
    for key in ["hot_cache", "staging"] {
        check(
            &format!("{STORAGE}{key} = \"1 parsec\"\n"),
            &[&format!(
                "t.toml:7: `{key} = \"1 parsec\"`: unknown unit `parsec`; write a size such as \"64MiB\", \"512KiB\", \"1GB\" or a number of bytes"
            )],
        );
    }
}

#[test]
fn addresses_and_paths() {
    let with = |control: &str, directory: &str| {
        format!(
            "[[nodes]]\nname = \"s0\"\nroles = [\"storage\"]\ncontrol = \"{control}\"\ndata = \"127.0.0.1:7\"\nstorage_directory = \"{directory}\"\n"
        )
    };
    check(
        &with("localhost:7", "~/d"),
        &[
            "t.toml:4: `control = \"localhost:7\"`: not an address; write IP:port such as \"127.0.0.1:7000\"",
            "t.toml:6: `storage_directory = \"~/d\"`: `~` is not expanded; write the whole path",
        ],
    );
    check(
        &with("0.0.0.0:7", ""),
        &[
            "t.toml:4: `control = \"0.0.0.0:7\"`: peers cannot dial this address; write the address of one interface",
            "t.toml:6: `storage_directory = \"\"`: the path is empty; write a path",
        ],
    );
    check(
        &with("10.0.0.1:7", "d"),
        &[
            "t.toml:4: 10.0.0.1:7 is not loopback and the file names no keys; add keys = \"DIR\" (made by `rudder keys init`) or bind 127.0.0.1",
        ],
    );
    check(
        &with("127.0.0.1:7", "d"),
        &["t.toml:5: `127.0.0.1:7` is also used by `s0`; give each node its own (port 0 takes a free port)"],
    );
    let long = format!("/{}", "x".repeat(120));
    check(
        &COMPUTE.replace("c0.sock", &long),
        &[&format!(
            "t.toml:6: `trainer_socket = \"/{}…\"`: a Unix socket's path has at most 100 bytes, this one has 121; choose a shorter one",
            "x".repeat(79)
        )],
    );
}

#[test]
fn compute_settings() {
    check(
        &COMPUTE.replace("1MiB", "1 parsec"),
        &[
            "t.toml:7: `cache = \"1 parsec\"`: unknown unit `parsec`; write a size such as \"64MiB\", \"512KiB\", \"1GB\" or a number of bytes",
        ],
    );
    check(
        &COMPUTE.replace("\"1MiB\"", "0"),
        &["t.toml:7: the cache is empty; write at least the size of one block"],
    );
    let small = format!(
        "{COMPUTE}{}[[datasets]]\nname = \"d\"\ndirectory = \"d\"\nparts = 1\nplacement = \"round_robin\"\nblock_bytes_max = \"2MiB\"\n",
        STORAGE
    );
    check(
        &small,
        &["t.toml:7: the cache of 1048576 bytes is smaller than one block of 2097152 bytes; enlarge it"],
    );
    check(
        &format!("{COMPUTE}credits = 2\n"),
        &["t.toml:8: credits = 2 with ready_ahead = 1 would stall trainers; write at least 3"],
    );
    check(
        &format!("{COMPUTE}ready_ahead = 65\ncredits = -1\n"),
        &[
            "t.toml:8: `ready_ahead = 65` is out of range; it is from 0 to 64",
            "t.toml:9: `credits = -1` is out of range; it is from 0 to 4294967295",
        ],
    );
    check(
        &format!("{COMPUTE}policy = \"fixed_window\"\n"),
        &[
            "t.toml:8: `policy = \"fixed_window\"`: not one of the choices; did you mean `{ fixed_window = 8 }`?",
        ],
    );
    check(
        &format!("{COMPUTE}policy = {{ fixed_windw = 8 }}\n"),
        &["t.toml:8: unknown key `fixed_windw` in `policy`; did you mean `fixed_window`?"],
    );
    check(
        &format!("{COMPUTE}policy = {{ fixed_window = 0 }}\n"),
        &["t.toml:8: `fixed_window = 0` is out of range; it is from 1 to 1024"],
    );
    for (policy, error) in [
        ("\"lfo\"", "`policy = \"lfo\"`: not one of the choices; did you mean `lfu`?"),
        (
            "{ massivegnn = { alpha = 1.5 } }",
            "`alpha = 1.5` is out of range; it is from 0.000001 to 0.999999",
        ),
        ("{ massivegnn = { alpha = \"much\" } }", "`alpha` is a text; write a number"),
        (
            "{ massivegnn = { gamma = 0.1 } }",
            "unknown key `gamma` in `massivegnn`; it is one of alpha, delta, f",
        ),
        ("{ massivegnn = { delta = 0 } }", "`delta = 0` is out of range; it is from 1 to 1048576"),
        ("{ massivegnn = 3 }", "`massivegnn` is a whole number; write a table"),
        (
            "{ rudder_paper = { controller = \"every\" } }",
            "`controller = \"every\"`: not one of the choices; did you mean `{ every = 32 }`?",
        ),
        (
            "{ rudder_paper = { controller = { random = 2 } } }",
            "`random = 2` is out of range; it is from 0 to 1",
        ),
        (
            "{ rudder_paper = { controller = {} } }",
            "`controller` is a table; write \"always\", \"never\", { random = 0.5 } or { every = 32 }",
        ),
        ("{ window_static = { cache = 0.6 } }", "`cache = 0.6` is out of range; it is from 0 to 0.5"),
        ("{ belady_superbatch = 2000 }", "`belady_superbatch = 2000` is out of range; it is from 1 to 1022"),
        (
            "{ vip = { fanout = [0] } }",
            "`fanout = [0]` is no fanout; write 1 to 8 hops of 1 to 65535 neighbours, such as [15, 10, 5]",
        ),
        ("{ vip = { epochs = 2 } }", "unknown key `epochs` in `vip`; it is one of seeds, fanout"),
        ("{ rudder = { epochs = 2 } }", "unknown key `epochs` in `rudder`; it is one of seeds, fanout"),
        ("{ presc = { epochs = 0 } }", "`epochs = 0` is out of range; it is from 1 to 100"),
        (
            "{ fixed_window = 8, belady_superbatch = 8 }",
            "`policy` is a table; write a policy such as \"rudder\" or { fixed_window = 8 }",
        ),
        (
            "{ belady_superbatch = 20 }\ncredits = 21",
            "credits = 21 do not let the policy belady_superbatch(20) look 20 minibatches ahead; write at least 22, or give the policy less to look at",
        ),
    ] {
        let line = if policy.contains("credits") { 9 } else { 8 };
        check(&format!("{COMPUTE}policy = {policy}\n"), &[&format!("t.toml:{line}: {error}")]);
    }
    check(
        "[[nodes]]\nname = \"c0\"\nroles = [\"compute\"]\ncontrol = \"127.0.0.1:0\"\n",
        &[
            "t.toml:1: compute node `c0` has no `trainer_socket`; add trainer_socket = \"/run/rudder/c0.sock\"",
            "t.toml:1: compute node `c0` has no `cache`; add cache = \"64MiB\"",
        ],
    );
}

#[test]
fn cores() {
    let node = |name: &str, cores: &str| {
        COMPUTE.replace("\"c0\"", &format!("\"{name}\"")).replace("c0.sock", name) + cores
    };
    check(
        &format!(
            "{}{}",
            node("c0", "mover_cores = \"0-3\"\n"),
            node("c1", "mover_cores = \"8\"\ntraining_cores = \"2-7\"\n")
        ),
        &[
            "t.toml:8: mover cores 2-3 of `c0` are training cores of `c1` on machine `m`; choose others, or cores = \"shared\" to allow it",
        ],
    );
    check(
        &node("c0", "mover_cores = \"core:1\"\ntraining_cores = \"core:0,core:1\"\n"),
        &[
            "t.toml:8: mover cores core:1 of `c0` are training cores of `c0` on machine `m`; choose others, or cores = \"shared\" to allow it",
        ],
    );
    check(
        &node("c0", "cores = \"shared\"\nmover_cores = \"0\"\n"),
        &["t.toml:9: cores = \"shared\" and `mover_cores` contradict each other; remove one of them"],
    );
    check(
        &node("c0", "training_cores = \"0\"\n"),
        &[
            "t.toml:1: node `c0` reserves cores but has no `mover_cores`; add mover_cores = \"0-3\" or the like",
        ],
    );
    check(
        &node("c0", "mover_cores = \"3-1\"\n"),
        &[
            "t.toml:8: `mover_cores = \"3-1\"`: not cores; write cpu numbers such as \"0-3,8\" or objects such as \"core:2\" or \"numa:0\"",
        ],
    );
    check(
        &node("c0", "cores = \"share\"\n"),
        &["t.toml:8: `cores = \"share\"`: not one of the choices; did you mean `shared`?"],
    );
}

#[test]
fn parts() {
    check(
        &format!("{STORAGE}{DATASET}"),
        &[
            "t.toml:10: nobody stores part 0 of `d` (and 1 more part); add [[parts]] part = 0, nodes = [\"NODE\"], or placement = \"round_robin\"",
        ],
    );
    let with = |nodes: &str| {
        format!("{STORAGE}{DATASET}placement = \"round_robin\"\n[[parts]]\npart = 1\nnodes = {nodes}\n")
    };
    check(&with("[\"s1\"]"), &["t.toml:14: part 1 is on `s1`, which is unknown; did you mean `s0`?"]);
    check(
        &with("[\"storage-zero\"]"),
        &["t.toml:14: part 1 is on `storage-zero`, which is unknown; name a node of the file"],
    );
    check(&with("[\"s0\", \"s0\"]"), &["t.toml:14: part 1 is on `s0` twice; name each node once"]);
    check(
        &with("[]"),
        &[
            "t.toml:10: nobody stores part 1 of `d`; add [[parts]] part = 1, nodes = [\"NODE\"], or placement = \"round_robin\"",
        ],
    );
    check(
        &format!(
            "{COMPUTE}{STORAGE}{DATASET}placement = \"round_robin\"\n[[parts]]\npart = 1\nnodes = [\"c0\"]\n[default_link]\nbandwidth = \"1Gbit/s\"\n"
        ),
        &["t.toml:21: part 1 is on `c0`, which is no storage node; add \"storage\" to its roles"],
    );
    check(
        &format!(
            "{STORAGE}{DATASET}placement = \"round_robin\"\n[[parts]]\npart = 2\nnodes = [\"s0\"]\n[[parts]]\ndataset = \"e\"\npart = 0\nnodes = [\"s0\"]\n"
        ),
        &[
            "t.toml:13: part 2 of `d` does not exist; its parts are 0 to 1",
            "t.toml:16: the dataset `e` is unknown; did you mean `d`?",
        ],
    );
    check(
        &format!(
            "{STORAGE}{DATASET}placement = \"round_robin\"\n[[parts]]\npart = 0\nnodes = [\"s0\"]\n[[parts]]\npart = 0\nnodes = [\"s0\"]\n"
        ),
        &["t.toml:15: part 0 of `d` is already placed on line 12; name all its nodes there"],
    );
    check(
        &format!("{STORAGE}{DATASET}placement = \"round_robin\"\nreplicas = 2\n"),
        &[
            "t.toml:11: 2 replicas of each part need as many storage nodes and the file has 1; lower `replicas`",
        ],
    );
    check(
        &format!("{STORAGE}{DATASET}placement = \"roundrobin\"\n{DATASET}placement = \"round_robin\"\n"),
        &[
            "t.toml:11: `placement = \"roundrobin\"`: not one of the choices; did you mean `round_robin`?",
            "t.toml:13: the dataset `d` is already on line 8; give each dataset its own name",
        ],
    );
    check(
        &format!("{COMPUTE}{STORAGE}{DATASET}placement = \"round_robin\"\n"),
        &[
            "t.toml:1: compute node `c0` reaches no node that stores part 0 of `d` (and 1 more part); add a link or [default_link]",
        ],
    );
}

#[test]
fn links_and_limits() {
    let with = |link: &str| format!("{STORAGE}[[links]]\n{link}\n");
    check(
        &with("from = \"s0\"\nto = \"s0\"\nbandwidth = \"1Gbit/s\""),
        &["t.toml:7: the link leads from `s0` to itself; a node needs no link to itself, remove it"],
    );
    check(
        &with("between = [\"s0\", \"x\"]\nbandwidth = \"0bit/s\""),
        &[
            "t.toml:7: the link leads to `x`, which is unknown; name a node of the file",
            "t.toml:9: the bandwidth is zero; write more, or remove the link",
        ],
    );
    check(
        &with("bandwidth = \"1Gbit\""),
        &[
            "t.toml:7: the link has no ends; write from = \"A\" and to = \"B\", or between = [\"A\", \"B\"]",
            "t.toml:8: `bandwidth = \"1Gbit\"`: unknown unit `Gbit`; write a rate such as \"100Mbit/s\", \"1Gbit/s\" or \"12.5MB/s\"",
        ],
    );
    check(
        &with("between = [\"s0\"]\nlatency = \"1ms\""),
        &[
            "t.toml:7: [[links]] has no `bandwidth`; add bandwidth = \"1Gbit/s\"",
            "t.toml:8: `between` names 1 nodes; name two",
        ],
    );
    let link = "[[links]]\nbetween = [\"s0\", \"c0\"]\nbandwidth = \"1Gbit/s\"\n";
    check(
        &format!("{STORAGE}{COMPUTE}{link}{link}"),
        &[
            "t.toml:17: the link from `s0` to `c0` is already on line 14; keep one of them",
            "t.toml:17: the link from `c0` to `s0` is already on line 14; keep one of them",
        ],
    );
    check(
        &format!("{STORAGE}[default_link]\nfrom = \"s0\"\nbandwidth = \"1Gbit/s\"\n"),
        &["t.toml:8: [default_link] links every pair; remove `from`"],
    );
    check(
        &format!(
            "{STORAGE}[limits]\nheartbeat_timeout = \"1ms\"\nlink_in_flight_bytes = \"1GiB\"\nnode_in_flight_bytes = \"1MiB\"\nlink_rate_max = 5\n"
        ),
        &[
            "t.toml:8: `heartbeat_timeout = \"1ms\"` is out of range; it is from 100.0 ms to 60.00 s",
            "t.toml:9: `link_in_flight_bytes` is larger than `node_in_flight_bytes`; it must not be",
            "t.toml:11: `link_rate_max` is a whole number; write a text in quotes",
        ],
    );
}
