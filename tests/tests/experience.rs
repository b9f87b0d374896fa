//! `rudder experience` over a store as a scheduler node leaves it.

use rudder_advisor::Source;
use rudder_advisor::experience::{Experience, Store};
use rudder_policy::advice::cost::OpportunityCost;
use rudder_policy::advice::directive::{Action, Change, Directive};
use rudder_policy::advice::options::{Choice, Options};
use rudder_policy::advice::parse::{RefusalReason, Refused};
use rudder_policy::advice::state::ClusterState;
use rudder_policy::advice::trial::{Outcome, TrialVerdict};
use rudder_policy::parameters::Posture;
use rudder_tests::process::Child;
use rudder_tests::process::cluster::{PATIENCE, path_text, rudder, run};
use rudder_topology::NodeId;
use serde_json::Value;

fn experience(minibatch: u64) -> Experience {
    let action = |posture| Action { compute: NodeId(0), change: Change::Posture(posture), ttl_s: 60 };
    let choice = |posture| Choice { action: action(posture), predicted: -0.1 };
    let measured = Some(if minibatch.is_multiple_of(3) { 0.1 } else { -0.2 });
    Experience {
        backend: "openai small".to_owned(),
        source: Source::Backend,
        options: Options {
            shown: [Posture::DemandOnly, Posture::DemandFirst].map(choice).to_vec(),
            ranks: vec![0, 1],
        },
        refusals: vec![Refused { lever: Some("posture"), field: None, reason: RefusalReason::Duplicate }],
        dropped: vec![],
        cost: Some(OpportunityCost {
            demand_bytes: 5 << 20,
            demand_bytes_usual: 2 << 20,
            ..OpportunityCost::default()
        }),
        state: ClusterState { minibatch, ..ClusterState::default() },
        directive: Directive { actions: vec![action(Posture::DemandFirst)] },
        outcome: Outcome { predicted: -0.1, measured, verdict: TrialVerdict::Kept },
    }
}

#[test]
fn experience_is_shown_exported_and_learned_from() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("e.redb"), folder.path().join("evaluator.json"));
    let store = Store::open(&file).unwrap();
    (0..40).for_each(|minibatch| store.add(&experience(minibatch)).unwrap());
    drop(store);
    let file = path_text(&file);

    let shown = run("show", &mut rudder(&["experience", "show", file])).stdout;
    assert_eq!(shown.len(), 42, "{shown:#?}");
    assert!(shown[1].contains("      1        3.15  openai small"), "{}", shown[1]);
    assert!(shown[1].contains("+0.100") && shown[2].contains("-0.200") && shown[1].contains("openai small"));
    let json = run("show", &mut rudder(&["experience", "show", file, "--json"])).stdout.join("\n");
    assert_eq!(serde_json::from_str::<Vec<Experience>>(&json).unwrap()[7], experience(7));

    let exported = run("export", &mut rudder(&["experience", "export", file, "--format", "jsonl"])).stdout;
    let chat: Value = serde_json::from_str(&exported[1]).unwrap();
    assert_eq!((exported.len(), chat["messages"][1]["role"].as_str()), (40, Some("assistant")));
    assert!((chat["reward"].as_f64().unwrap() - 0.2).abs() < 1e-6);

    let said = run("train", &mut rudder(&["experience", "train", file, "--out", path_text(&out)])).stdout;
    assert!(said[0].contains("40 measured") && said[1].contains("best constant answer"), "{said:#?}");
    rudder_advisor::train::read(&out).unwrap();
    // A line for the one lever of these, and one for all; then the distilled advisor.
    assert!(said[2].contains("posture") && said[3].contains("all"), "{said:#?}");
    assert!(said[4].contains("best directives") && said[5].contains("best constant answer"), "{said:#?}");
    rudder_advisor::train::read_distilled(&folder.path().join("distilled.json")).unwrap();
}

#[test]
fn what_is_no_store_is_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none.redb");
    let exit = Child::start("show", &mut rudder(&["experience", "show", path_text(&file)])).wait(PATIENCE);
    assert_eq!(exit.status.code(), Some(2));
    assert!(exit.stderr.join("\n").contains("none.redb"), "{:?}", exit.stderr);
}
