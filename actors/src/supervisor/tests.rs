use super::*;
use crate::mailbox::Mailbox;
use crate::worker::{self, Work};
use rudder_topology::NodeName;
use std::sync::Mutex;
use tokio::sync::mpsc;

enum Item {
    Echo(u32),
    Panic,
}

struct Echo {
    heard: mpsc::UnboundedSender<u32>,
}

impl Work for Echo {
    type Item = Item;

    async fn handle(&mut self, item: Item) {
        match item {
            Item::Echo(value) => self.heard.send(value).expect("the test listens"),
            Item::Panic => panic!("asked to"),
        }
    }
}

struct Fixture {
    root: ActorRef<SupervisorMessage>,
    join: tokio::task::JoinHandle<()>,
    mailboxes: Vec<Mailbox<Item>>,
    heard: mpsc::UnboundedReceiver<u32>,
    reason: Arc<Mutex<Option<String>>>,
}

fn spec(name: ActorName, strategy: Strategy, restarts_max: u32, children: Vec<ChildSpec>) -> SupervisorSpec {
    let intensity = RestartIntensity { restarts_max, window: Nanos::from_secs(3600) };
    SupervisorSpec { name, strategy, intensity, children, clock: NodeClock::start(), on_escalation: None }
}

/// Root -> loop -> three workers.
async fn fixture(node: &str, strategy: Strategy, inner_max: u32, outer_max: u32) -> Fixture {
    let node = NodeName::new(node).unwrap();
    let (sender, heard) = mpsc::unbounded_channel();
    let mut mailboxes = Vec::new();
    let mut children = Vec::new();
    for kind in [ActorKind::Predictor, ActorKind::Planner, ActorKind::Validator] {
        let mailbox = Mailbox::default();
        mailboxes.push(mailbox.clone());
        let sender = sender.clone();
        let make = move || Echo { heard: sender.clone() };
        children.push(worker::child(ActorName::of_node(&node, kind), mailbox, make));
    }
    let inner = spec(ActorName::of_node(&node, ActorKind::Loop), strategy, inner_max, children);
    let mut outer = spec(
        ActorName::of_node(&node, ActorKind::Node),
        Strategy::OneForOne,
        outer_max,
        vec![ChildSpec::supervisor(inner)],
    );
    let reason = Arc::new(Mutex::new(None));
    let told = reason.clone();
    outer.on_escalation = Some(Arc::new(move |why: &str| *told.lock().unwrap() = Some(why.to_owned())));
    let name = outer.name.to_string();
    let (root, join) = Actor::spawn(Some(name), Supervisor, Arc::new(outer)).await.unwrap();
    Fixture { root, join, mailboxes, heard, reason }
}

impl Fixture {
    /// A round trip through a worker: everything sent before has been handled.
    async fn echo(&mut self, worker: usize, value: u32) {
        self.mailboxes[worker].send(Item::Echo(value));
        assert_eq!(self.heard.recv().await, Some(value));
    }

    async fn restarts(&self) -> Vec<(ActorKind, u32)> {
        let snapshot = ractor::call!(self.root, SupervisorMessage::Snapshot).unwrap();
        snapshot.iter().map(|entry| (entry.actor, entry.restarts)).collect()
    }

    async fn shut_down(self) {
        self.root.send_message(SupervisorMessage::Shutdown).unwrap();
        self.join.await.unwrap();
    }
}

#[tokio::test]
async fn a_panic_restarts_that_actor_and_its_queue_survives() {
    let mut fixture = fixture("one", Strategy::OneForOne, 3, 3).await;
    fixture.echo(1, 1).await;
    fixture.mailboxes[1].send(Item::Panic);
    for value in 2..200 {
        fixture.mailboxes[1].send(Item::Echo(value));
    }
    for value in 2..200 {
        assert_eq!(fixture.heard.recv().await, Some(value));
    }
    let expected =
        [(ActorKind::Loop, 0), (ActorKind::Predictor, 0), (ActorKind::Planner, 1), (ActorKind::Validator, 0)];
    assert_eq!(fixture.restarts().await, expected);
    fixture.shut_down().await;
}

#[tokio::test]
async fn rest_for_one_takes_the_later_children_along() {
    let mut fixture = fixture("rest", Strategy::RestForOne, 3, 3).await;
    fixture.mailboxes[1].send(Item::Panic);
    fixture.echo(1, 7).await;
    fixture.echo(2, 8).await;
    let snapshot = ractor::call!(fixture.root, SupervisorMessage::Snapshot).unwrap();
    let restarts: Vec<_> = snapshot.iter().map(|entry| entry.restarts).collect();
    assert_eq!(restarts, [0, 0, 1, 1]);
    assert!(snapshot[2].causes[0].cause.contains("asked to"), "{:?}", snapshot[2].causes);
    assert!(snapshot[3].causes[0].cause.contains("with planner"), "{:?}", snapshot[3].causes);
    fixture.shut_down().await;
}

#[tokio::test]
async fn exhausted_intensity_escalates_and_the_subsystem_starts_afresh() {
    let mut fixture = fixture("escalate", Strategy::OneForOne, 2, 3).await;
    for _ in 0..3 {
        fixture.mailboxes[0].send(Item::Panic);
    }
    fixture.echo(0, 5).await;
    let expected =
        [(ActorKind::Loop, 1), (ActorKind::Predictor, 0), (ActorKind::Planner, 0), (ActorKind::Validator, 0)];
    assert_eq!(fixture.restarts().await, expected);
    assert_eq!(*fixture.reason.lock().unwrap(), None);
    fixture.shut_down().await;
}

#[tokio::test]
async fn the_root_gives_up_with_a_reason() {
    let fixture = fixture("root", Strategy::OneForOne, 0, 1).await;
    for _ in 0..2 {
        fixture.mailboxes[0].send(Item::Panic);
    }
    fixture.join.await.unwrap();
    let reason = fixture.reason.lock().unwrap().clone().expect("the root said why");
    assert!(reason.contains("predictor") && reason.contains("asked to"), "{reason}");
}
