//! Servers that misbehave in every way: each consult still ends in a directive, and says why it is whose.

#[path = "faults/cluster.rs"]
mod cluster;
#[path = "faults/server.rs"]
mod server;

use cluster::{INJECTION, labels, state};
use rudder_advisor::open::open;
use rudder_advisor::{Consultant, Consulted, Source};
use rudder_policy::advice::breaker::{BreakerConfig, BreakerState};
use rudder_policy::advice::directive::{Action, Change};
use rudder_policy::advice::distilled::Distilled;
use rudder_policy::advice::features::{INPUTS, lever_table};
use rudder_policy::advice::lever::{LEVERS, LeverId};
use rudder_topology::{Advisor, AdvisorBackend, Nanos, NodeId, SecretPlace};
use server::{Act, Server};

/// A port below those that the kernel hands out and that no service uses.
const NOBODY_LISTENS: &str = "http://127.0.0.1:1";
const MODELS: [AdvisorBackend; 2] = [AdvisorBackend::Ollama, AdvisorBackend::OpenAi];

fn advisor(backend: AdvisorBackend, url: &str) -> Advisor {
    Advisor {
        backend,
        url: Some(url.to_owned()),
        model: Some("m".to_owned()),
        deadline: Nanos::from_millis(700),
        attempts: 1,
        ..Advisor::default()
    }
}

async fn consultant(advisor: &Advisor) -> Consultant {
    let opened = open(advisor).await.unwrap();
    Consultant::new(opened.backend, advisor, labels(), 1)
}

async fn consult(advisor: &Advisor) -> Consulted {
    consultant(advisor).await.consult(&state(), &[]).await
}

fn because(consulted: &Consulted) -> &str {
    match &consulted.source {
        Source::Rules { because } => because,
        other => panic!("not the rules: {other:?}"),
    }
}

/// What the rules do here: what the slow link carries is staged elsewhere.
fn assert_rules(consulted: &Consulted) {
    let change = consulted.directive.actions.first().map(|action| action.change);
    assert!(matches!(change, Some(Change::Stage { storage: NodeId(1), .. })), "{consulted:?}");
    assert!(consulted.predicted < 0.0);
}

#[tokio::test]
async fn a_good_answer_is_taken() {
    for backend in MODELS {
        let server = Server::start(vec![Act::Say(r#"{"choose":["A"],"reason":"so"}"#.to_owned())]).await;
        let consulted = consult(&advisor(backend, &server.url)).await;
        assert_eq!(consulted.source, Source::Backend, "{backend:?}: {:?}", consulted.attempts);
        assert_eq!(consulted.directive.actions, [consulted.options.shown[0].action]);
        let question = &server.questions()[0];
        assert_eq!(question["stream"], false);
        let schema = if backend == AdvisorBackend::Ollama {
            assert_eq!(question["keep_alive"], "600s");
            assert_eq!(question["options"]["num_predict"], 200);
            &question["format"]
        } else {
            assert_eq!(question["max_tokens"], 200);
            &question["response_format"]["json_schema"]["schema"]
        };
        assert_eq!(schema["properties"]["choose"]["items"]["enum"][0], "A", "{question}");
    }
}

#[tokio::test]
async fn every_fault_ends_in_the_rules_and_says_why() {
    let huge = format!("{{\"choose\":[\"{}\"]}}", "A".repeat(10 << 20));
    let cases: [(&str, Act, &str); 9] = [
        ("500", Act::Status(500), "error response|status 500"),
        ("404", Act::Status(404), "error response|status 404"),
        ("silence", Act::Silence, "no answer within"),
        ("cut", Act::Cut, "broke off"),
        ("10 MB", Act::Say(huge), "no JSON object|more than"),
        ("no API", Act::Body(b"<html>".to_vec()), "not what"),
        ("no UTF-8", Act::Body(vec![0xff; 100]), "not what"),
        ("wrong ids", Act::Say(r#"{"choose":["G","Z","B102"]}"#.to_owned()), "not shown"),
        ("nonsense", Act::Say(r#"{"choose":{"fly":true},"actions":7}"#.to_owned()), "no array"),
    ];
    for backend in MODELS {
        for (name, act, expected) in &cases {
            let server = Server::start(vec![act.clone()]).await;
            let consulted = consult(&advisor(backend, &server.url)).await;
            assert_rules(&consulted);
            let said = because(&consulted);
            assert!(expected.split('|').any(|part| said.contains(part)), "{backend:?}, {name}: {said}");
        }
        let consulted = consult(&advisor(backend, NOBODY_LISTENS)).await;
        assert_rules(&consulted);
        assert!(because(&consulted).contains("cannot be reached"), "{}", because(&consulted));
    }
}

#[tokio::test]
async fn refusals_go_into_the_next_prompt_and_a_second_attempt_may_succeed() {
    for backend in MODELS {
        let acts = vec![
            Act::Say(r#"{"choose":["Q"]}"#.to_owned()),
            Act::Say(r#"{"choose":["A"],"reason":""}"#.to_owned()),
        ];
        let server = Server::start(acts).await;
        let two = Advisor { attempts: 2, deadline: Nanos::from_secs(20), ..advisor(backend, &server.url) };
        let consulted = consult(&two).await;
        assert_eq!((consulted.source, consulted.attempts.len()), (Source::Backend, 2));
        let second = server.questions()[1].to_string();
        assert!(second.contains("refused in part: an option was named that was not shown"), "{second}");
    }
}

#[tokio::test]
async fn the_breaker_spares_a_broken_server_and_finds_it_again() {
    let acts =
        vec![Act::Status(500), Act::Status(500), Act::Say(r#"{"choose":["A"],"reason":""}"#.to_owned())];
    let server = Server::start(acts).await;
    let advisor = advisor(AdvisorBackend::OpenAi, &server.url);
    let opens = |open_ns| BreakerConfig { failures: 2, open_ns, open_ns_max: open_ns };
    let mut patient = consultant(&advisor).await.with_breaker(opens(u64::MAX));
    for _ in 0..5 {
        assert_rules(&patient.consult(&state(), &[]).await);
    }
    assert_eq!((server.questions().len(), patient.breaker()), (2, BreakerState::Open), "left alone");

    let acts =
        vec![Act::Status(500), Act::Status(500), Act::Say(r#"{"choose":["A"],"reason":""}"#.to_owned())];
    let server = Server::start(acts).await;
    let advisor = Advisor { url: Some(server.url.clone()), ..advisor };
    let mut eager = consultant(&advisor).await.with_breaker(opens(1));
    let mut sources = vec![];
    for _ in 0..3 {
        sources.push(eager.consult(&state(), &[]).await.source == Source::Backend);
    }
    assert_eq!((sources, eager.breaker()), (vec![false, false, true], BreakerState::Closed), "found again");
}

#[tokio::test]
async fn a_similar_state_costs_no_call_until_the_topology_changes_or_it_hurt() {
    let server = Server::start(vec![Act::Say(r#"{"choose":["A"],"reason":""}"#.to_owned())]).await;
    let mut consultant = consultant(&advisor(AdvisorBackend::Ollama, &server.url)).await;
    let first = consultant.consult(&state(), &[]).await;
    let mut alike = state();
    alike.compute[0].wait_share = 0.48;
    let second = consultant.consult(&alike, &[]).await;
    assert_eq!((second.source, &second.directive), (Source::Cache, &first.directive));
    consultant.set_topology(7);
    let third = consultant.consult(&alike, &[]).await;
    assert_eq!(third.source, Source::Backend);
    consultant.hurt(&third.directive);
    assert_eq!(consultant.consult(&alike, &[]).await.source, Source::Backend);
    assert_eq!(server.questions().len(), 3);
}

#[tokio::test]
async fn names_like_instructions_never_reach_a_model() {
    for backend in MODELS {
        let server = Server::start(vec![Act::Say("{}".to_owned())]).await;
        let topology = cluster::topology();
        assert_eq!(
            (topology.nodes[0].name.as_str(), topology.datasets[0].name.as_str()),
            (INJECTION, INJECTION)
        );
        consult(&advisor(backend, &server.url)).await;
        let sent = server.questions()[0].to_string();
        assert!(!sent.contains("IGNORE") && sent.contains("C0"), "{sent}");
    }
}

#[tokio::test]
async fn auto_takes_ollama_where_one_answers_and_says_what_it_took() {
    let server = Server::start(vec![Act::Say("{}".to_owned())]).await;
    let auto = |url: &str, model: Option<&str>| Advisor {
        backend: AdvisorBackend::Auto,
        model: model.map(str::to_owned),
        ..advisor(AdvisorBackend::Auto, url)
    };
    let found = open(&auto(&server.url, None)).await.unwrap();
    assert_eq!(
        (found.backend.name(), found.why),
        ("ollama m".to_owned(), Some("ollama m advises".to_owned()))
    );
    let other = open(&auto(&server.url, Some("llama"))).await.unwrap();
    assert!(other.backend.name() == "rules" && other.why.unwrap().contains("no model `llama`"));
    let none = open(&auto(NOBODY_LISTENS, None)).await.unwrap();
    assert!(none.backend.name() == "rules" && none.why.unwrap().contains("no Ollama"));
}

#[tokio::test]
async fn a_key_comes_from_its_file_and_stands_in_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "sk-very-secret\n").unwrap();
    let server = Server::start(vec![Act::Status(401)]).await;
    let mut advisor = advisor(AdvisorBackend::OpenAi, &server.url);
    advisor.key = Some(SecretPlace::File(file.clone()));
    let shown = format!("{:?}", consult(&advisor).await);
    assert!(shown.contains("status 401") && !shown.contains("very-secret"), "{shown}");
    std::fs::remove_file(&file).unwrap();
    let shown = format!("{:?}", consult(&advisor).await);
    assert!(shown.contains("`key_file` names cannot be read") && server.questions().len() == 1, "{shown}");
}

#[tokio::test]
async fn a_server_behind_tls_is_asked_where_its_authority_is_trusted_and_only_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("authority.pem");
    for backend in MODELS {
        let answer = r#"{"choose":["A"],"reason":""}"#.to_owned();
        let (server, certificate) = Server::start_tls(vec![Act::Say(answer)]).await;
        let stranger = advisor(backend, &server.url);
        let consulted = consult(&stranger).await;
        assert_rules(&consulted);
        assert!(because(&consulted).contains("certificate"), "{}", because(&consulted));
        assert_eq!(server.questions().len(), 0, "nothing was said to a stranger");
        std::fs::write(&file, certificate).unwrap();
        let trusting = Advisor { authority: Some(file.clone()), ..stranger };
        assert_eq!(consult(&trusting).await.source, Source::Backend);
        std::fs::write(&file, "no certificate").unwrap();
        let said = open(&trusting).await.err().unwrap().to_string();
        assert!(said.contains("`authority` names") && said.contains("authority.pem"), "{said}");
    }
}

#[tokio::test]
async fn recorded_answers_come_in_turn_and_end_in_the_rules() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("answers.jsonl");
    std::fs::write(&file, "{\"choose\":[\"A\"]}\n\nno answer\n").unwrap();
    let mut advisor = advisor(AdvisorBackend::Replay, "http://unused");
    advisor.replay = Some(file);
    let mut consultant = consultant(&advisor).await;
    assert_eq!(consultant.consult(&state(), &[]).await.source, Source::Backend);
    consultant.set_topology(1);
    let second = consultant.consult(&state(), &[]).await;
    assert!(because(&second).contains("no JSON object"));
    let third = consultant.consult(&state(), &[]).await;
    assert!(because(&third).contains("used up"));
    assert_rules(&third);
}

#[tokio::test]
async fn a_distilled_advisor_goes_the_same_way_and_one_of_other_levers_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("distilled.json");
    // It takes whatever stages.
    let mut weights = vec![0.0; INPUTS];
    let lever = LEVERS.iter().position(|lever| lever.id == LeverId::Stage);
    weights[lever.expect("one of the table")] = 1.0;
    let model = Distilled { lever_table: lever_table(), weights, threshold: 0.5 };
    let mut advisor = advisor(AdvisorBackend::Distilled, "http://unused");
    advisor.distilled = Some(file.clone());
    std::fs::write(&file, serde_json::to_string(&model).unwrap()).unwrap();
    let consulted = consult(&advisor).await;
    assert_eq!(consulted.source, Source::Backend);
    assert!(!consulted.directive.actions.is_empty());
    let stages = |action: &Action| matches!(action.change, Change::Stage { .. });
    assert!(consulted.directive.actions.iter().all(stages), "{consulted:?}");
    let other = Distilled { lever_table: 1, ..model };
    std::fs::write(&file, serde_json::to_string(&other).unwrap()).unwrap();
    let said = open(&advisor).await.err().unwrap().to_string();
    assert!(said.contains("`distilled` names") && said.contains("another table of levers"), "{said}");
    std::fs::remove_file(&file).unwrap();
    let said = open(&advisor).await.err().unwrap().to_string();
    assert!(said.contains("distilled.json") && said.contains("rudder experience train"), "{said}");
}

#[tokio::test]
async fn controls_go_the_same_way() {
    type Holds = fn(&Consulted) -> bool;
    let expected: [(AdvisorBackend, Holds); 4] = [
        (AdvisorBackend::Never, |c| c.directive.actions.is_empty()),
        (AdvisorBackend::First, |c| c.directive.actions == [c.options.shown[0].action]),
        (AdvisorBackend::Always, |c| c.directive.actions.len() == c.options.shown.len().min(5)),
        (AdvisorBackend::Rules, |c| matches!(c.directive.actions[0].change, Change::Stage { .. })),
    ];
    for (backend, holds) in expected {
        let consulted = consult(&advisor(backend, "http://unused")).await;
        assert!(consulted.source == Source::Backend && holds(&consulted), "{backend:?}: {consulted:?}");
    }
}
