//! Real consults of a real model through both HTTP back ends: valid answers, latency, and how much its choices depend on
//! the order in which options are shown, beside what the rules, the first option and chance would have chosen.
//! `./dev model` serves a model and runs this; wisdom is measured here, not asserted.

#[path = "real_model/forward.rs"]
mod forward;

use rudder_advisor::chooser::ChooserBackend;
use rudder_advisor::consult::attempt;
use rudder_advisor::ollama::OllamaBackend;
use rudder_advisor::openai::OpenAiBackend;
use rudder_advisor::{Backend, Question};
use rudder_graph::random::Key;
use rudder_policy::advice::choose::Chooser;
use rudder_policy::advice::directive::Action;
use rudder_policy::advice::evaluate::Evaluator;
use rudder_policy::advice::labels::Labels;
use rudder_policy::advice::lever::{Vocabulary, hot};
use rudder_policy::advice::options::{About, Options, options};
use rudder_policy::advice::parse::{Answer, Asked, parse};
use rudder_policy::advice::prompt::prompt;
use rudder_policy::advice::report::Reporter;
use rudder_policy::advice::schema::Form;
use rudder_policy::advice::state::{ClusterState, ComputeState, DatasetIndex, LinkState, StorageState};
use rudder_policy::testing::storage_state;
use rudder_topology::{Advisor, NodeId, PartId};
use std::time::Duration;

/// States asked about, each in two orders of its options.
const STATES: u64 = 15;

/// Two compute nodes that wait, two storage nodes; a link of each compute node is slow, which and how much is the seed's.
fn state(seed: u64) -> ClusterState {
    let key = Key::new(seed);
    let (slow, waits) = (key.below(0, 2) as usize, key.below(1, 2) as u16);
    let wait = |node: u16| if node == waits { 0.6 } else { 0.4 };
    let compute = |node: u16| ComputeState {
        node: NodeId(node),
        gpu_use: None,
        wait_share: wait(node),
        stretched: 0.0,
        stall_share: wait(node),
        stall_lately: wait(node),
        hit_rate: 0.3 + 0.6 * key.unit(2 + u64::from(node)) as f32,
        drift: 0.0,
        prefetch_share: 0.7,
        cache_free: 0.2,
        minibatch_share: 0.1,
        holds_share: 0.1,
        window_share: 0.4,
        moved_share: 0.5,
        ready: 0,
        waiting: vec![],
        next: vec![],
        wants: vec![(hot(DatasetIndex(0), PartId(node)), 100), (hot(DatasetIndex(0), PartId(1 - node)), 40)],
        jobs: vec![],
    };
    let link = |(at, (storage, compute)): (usize, (u16, u16))| LinkState {
        storage: NodeId(storage),
        compute: NodeId(compute),
        bandwidth_use: 0.5,
        rate_share: 1.0,
        slowed: if at % 2 == slow { 0.9 - 0.1 * at as f32 } else { 0.0 },
        latency_ms: None,
    };
    let pairs = [(2, 0), (3, 0), (2, 1), (3, 1)];
    ClusterState {
        minibatch: 100 + seed,
        compute: vec![compute(0), compute(1)],
        storage: [2, 3].map(|node| StorageState { replicated: 0.0, ..storage_state(NodeId(node)) }).into(),
        links: pairs.into_iter().enumerate().map(link).collect(),
        ..ClusterState::default()
    }
}

/// One question in one order, and the answer.
async fn ask(backend: &dyn Backend, state: &ClusterState, options: &Options) -> (Answer, Duration) {
    let labels = Labels::new(vec![NodeId(0), NodeId(1)], vec![NodeId(2), NodeId(3)]);
    let vocabulary = Vocabulary::of(state, &labels);
    let report = Reporter::default().compact(state, &labels, &[]);
    let question = Question {
        state: state.clone(),
        prompt: prompt(Form::Options, &report, options, &vocabulary, &[], &labels),
        options: options.clone(),
        key: Key::new(state.minibatch),
        time_max: Duration::from_secs(120),
    };
    let attempt = attempt(backend, &question).await;
    let asked = Asked { vocabulary: &vocabulary, options: &options.actions() };
    (parse(&attempt.result.unwrap().text, asked), attempt.took)
}

/// Of the gain that the evaluator expects of the best options, the part that was chosen, per action taken.
fn value(answer: &Answer, options: &Options) -> f64 {
    let predicted = |action: &Action| {
        options
            .shown
            .iter()
            .find(|choice| choice.action == *action)
            .map_or(0.0, |choice| f64::from(choice.predicted))
    };
    let mut all: Vec<_> = options.actions().iter().map(predicted).collect();
    all.sort_by(f64::total_cmp);
    let best: f64 = all.iter().take(answer.actions.len()).sum();
    if best < 0.0 { answer.actions.iter().map(predicted).sum::<f64>() / best } else { 0.0 }
}

#[derive(Default)]
struct Row {
    asked: u32,
    valid: u32,
    same: u32,
    first: u32,
    value: f64,
    took: Vec<Duration>,
}

async fn measure(backend: &dyn Backend) -> Row {
    let mut row = Row::default();
    for seed in 0..STATES {
        let state = state(seed);
        let labels = Labels::new(vec![NodeId(0), NodeId(1)], vec![NodeId(2), NodeId(3)]);
        let vocabulary = Vocabulary::of(&state, &labels);
        let shown = options(&state, &vocabulary, &About::default(), &Evaluator::ClosedForm, Key::new(seed));
        assert!(shown.shown.len() > 1, "there is something to choose from: {shown:#?}");
        let mut choices = vec![];
        for options in [shown.clone(), shown.shuffled(Key::new(seed + 1000))] {
            let (answer, took) = ask(backend, &state, &options).await;
            row.asked += 1;
            row.valid += u32::from(answer.refusals.iter().all(|refused| refused.reason.is_repetition()));
            row.first += u32::from(answer.actions.first() == Some(&options.shown[0].action));
            row.value += value(&answer, &options);
            row.took.push(took);
            let mut chosen = answer.actions;
            chosen.sort_unstable();
            choices.push(chosen);
        }
        row.same += u32::from(choices[0] == choices[1]);
    }
    row.took.sort_unstable();
    row
}

fn print(name: &str, row: &Row) {
    let percent = |part: u32, all: u32| 100 * part / all.max(1);
    println!(
        "| {name} | {} | {} % | {} % | {} % | {:.2} | {:.2} | {:.2} |",
        row.asked,
        percent(row.valid, row.asked),
        percent(row.same, row.asked / 2),
        percent(row.first, row.asked),
        row.value / f64::from(row.asked),
        row.took[row.took.len() / 2].as_secs_f64(),
        row.took[row.took.len() * 95 / 100].as_secs_f64(),
    );
}

#[tokio::test]
async fn a_real_model_answers_validly_through_both_back_ends() {
    let url = std::env::var("RUDDER_MODEL_URL").expect("run by `./dev model`, which sets RUDDER_MODEL_URL");
    let advisor = Advisor {
        answer_tokens_max: 120,
        deadline: rudder_topology::Nanos::from_secs(120),
        ..Advisor::default()
    };
    let openai = OpenAiBackend::new(&advisor, &url, "real").unwrap();
    let forward = Advisor { url: Some(forward::start(url).await), ..advisor };
    let ollama = OllamaBackend::new(&forward, "real").unwrap();
    println!("| back end | asked | valid | same when shuffled | first shown | value | p50 s | p95 s |");
    println!("|---|---|---|---|---|---|---|---|");
    for chooser in [Chooser::Rules, Chooser::Random, Chooser::First, Chooser::Always] {
        let control = ChooserBackend(chooser);
        print(&control.name(), &measure(&control).await);
    }
    for backend in [&openai as &dyn Backend, &ollama] {
        let row = measure(backend).await;
        print(&backend.name(), &row);
        assert_eq!(row.valid, row.asked, "a constrained answer was not valid");
    }
}
