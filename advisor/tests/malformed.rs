//! Ten thousand spoiled answers through whole consults: each ends in a directive, and every item of every answer is
//! taken, left out by the evaluator, or refused with a reason.

#[path = "faults/cluster.rs"]
mod cluster;

use cluster::{labels, state};
use rudder_advisor::{Answering, Backend, BackendError, Consultant, Question, Reply, Source};
use rudder_graph::random::Key;
use rudder_policy::advice::breaker::BreakerConfig;
use rudder_topology::Advisor;
use serde_json::Value;
use std::sync::{Arc, Mutex};

const ANSWERS: u64 = 10_000;
/// More refusals of one answer are not kept.
const REFUSALS_MAX: usize = 16;

/// Answers each question with the next spoiled text.
struct Spoiler {
    said: Arc<Mutex<Vec<u8>>>,
}

impl Backend for Spoiler {
    fn name(&self) -> String {
        "spoiler".to_owned()
    }

    fn ask<'a>(&'a self, question: &'a Question) -> Answering<'a> {
        let text = spoil(question.key);
        self.said.lock().unwrap().clone_from(&text);
        let reply = Reply { text, ..Reply::default() };
        // Some do not come at all.
        let result = match question.key.below(1, 50) {
            0 => Err(BackendError::Status { status: 500 }),
            _ => Ok(reply),
        };
        Box::pin(std::future::ready(result))
    }
}

/// Answers of every kind, most of them wrong somewhere.
fn spoil(key: Key) -> Vec<u8> {
    let pick = |at: u64, list: &[&str]| list[key.below(at, list.len() as u64) as usize].to_owned();
    let labels =
        ["\"A\"", "\"B\"", "\"A\"", "\"Z\"", "\"AA\"", "\"\"", "7", "null", "[]", "{\"A\":1}", "\"a\""];
    let values = [
        "50",
        "-5",
        "1e40",
        "\"50%\"",
        "\"S0-C0\"",
        "\"S1\"",
        "\"C0\"",
        "\"C99\"",
        "true",
        "null",
        "{}",
        "600",
        "0",
    ];
    let names = [
        "link_share",
        "stage",
        "posture",
        "job_horizon",
        "far_predictor",
        "warm_group",
        "warm_block",
        "format_disk",
    ];
    let fields =
        ["link", "share_percent", "through", "compute", "posture", "group", "ttl_s", "ttl_s", "sudo"];
    let choices: Vec<_> = (0..key.below(2, 6)).map(|at| pick(100 + at, &labels)).collect();
    let action = |at: u64| {
        let sound = r#"{"lever":"link_share","link":"S0-C0","share_percent":40,"ttl_s":60}"#;
        if key.below(200 + at, 3) == 0 {
            return sound.to_owned();
        }
        let pairs = (0..key.below(300 + at, 5))
            .map(|pair| (1000 + at * 20 + pair * 2, 1001 + at * 20 + pair * 2))
            .map(|(name, value)| format!(",\"{}\":{}", pick(name, &fields), pick(value, &values)));
        format!("{{\"lever\":\"{}\"{}}}", pick(400 + at, &names), pairs.collect::<String>())
    };
    let actions: Vec<_> = (0..key.below(3, 8)).map(action).collect();
    let body = match key.below(4, 4) {
        0 => format!("{{\"choose\":[{}],\"reason\":\"r\"}}", choices.join(",")),
        1 => format!("{{\"actions\":[{}],\"reason\":\"r\"}}", actions.join(",")),
        2 => format!("{{\"choose\":[{}],\"actions\":[{}]}}", choices.join(","), actions.join(",")),
        _ => {
            pick(5, &["", "no", "[]", "{}", "{\"choose\":\"A\"}", "{\"actions\":{}}", "{\"answer\":[\"A\"]}"])
        }
    };
    let text = format!(
        "{}{body}{}",
        pick(6, &["", "", "", "", "```json\n", "Well: ", "{{"]),
        pick(7, &["", "", "", "", "\n```", "}"])
    );
    let mut bytes = text.into_bytes();
    for change in 0..key.below(8, 2) {
        let Some(at) = key.below(500 + change, bytes.len() as u64 + 1).checked_sub(1) else { continue };
        match key.below(600 + change, 3) {
            0 => bytes.truncate(at as usize),
            1 => bytes[at as usize] = key.draw(700 + change) as u8,
            _ => bytes.insert(at as usize, key.draw(800 + change) as u8),
        }
    }
    bytes
}

/// Items that an answer lists, where it is one JSON object and nothing else.
fn items(text: &[u8]) -> Option<usize> {
    let whole: Value = serde_json::from_slice(text).ok()?;
    let lists: Vec<_> = ["choose", "actions"].iter().filter_map(|key| whole.get(key)).collect();
    // A list that is none is one refusal.
    (!lists.is_empty()).then(|| lists.iter().map(|list| list.as_array().map_or(1, Vec::len)).sum())
}

#[tokio::test]
async fn every_item_of_ten_thousand_answers_is_taken_or_refused() {
    let said = Arc::new(Mutex::new(vec![]));
    let advisor = Advisor { attempts: 1, ..Advisor::default() };
    // It never opens: each answer is looked at.
    let patient = BreakerConfig { failures: u32::MAX, ..BreakerConfig::default() };
    let consultant = Consultant::new(Box::new(Spoiler { said: said.clone() }), &advisor, labels(), 1);
    let mut consultant = consultant.with_breaker(patient);
    let (mut by_backend, mut by_rules, mut counted) = (0, 0, 0);
    for answer in 0..ANSWERS {
        // Nothing that was answered before counts.
        consultant.set_topology(answer + 1);
        let consulted = consultant.consult(&state(), &[]).await;
        let text = said.lock().unwrap().clone();
        let shown = || format!("{}: {consulted:?}", String::from_utf8_lossy(&text));
        assert!(consulted.predicted.is_finite());
        let taken = consulted.directive.actions.len() + consulted.dropped.len();
        let came = consulted.attempts[0].result.is_ok() && consulted.refusals.len() < REFUSALS_MAX;
        if let Some(items) = items(&text).filter(|_| came) {
            counted += 1;
            // Where the rules answered, nothing of the back end's answer was taken.
            let taken = if consulted.source == Source::Backend { taken } else { 0 };
            assert_eq!(taken + consulted.refusals.len(), items, "{}", shown());
        }
        match &consulted.source {
            Source::Backend => by_backend += 1,
            Source::Rules { because } => {
                by_rules += 1;
                assert!(!because.is_empty() && !consulted.directive.actions.is_empty(), "{}", shown());
                let failed = matches!(consulted.attempts[0].result, Err(BackendError::Status { .. }));
                assert!(failed || !consulted.refusals.is_empty(), "{}", shown());
            }
            Source::Cache => panic!("{}", shown()),
        }
    }
    assert_eq!(by_backend + by_rules, ANSWERS);
    assert!(by_backend > 2000 && by_rules > 2000 && counted > 1000, "{by_backend} {by_rules} {counted}");
}
