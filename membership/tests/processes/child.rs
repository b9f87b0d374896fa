//! The child's side: a node or an operator that prints what happens, until its standard input ends.

use ractor::message::{BoxedDowncastErr, Message, SerializedMessage};
use ractor::rpc::CallResult;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use rudder_membership::{Membership, MembershipConfig, OperatorSession, PeerChange};
use rudder_messages::codec;
use rudder_topology::{Cluster, Generation, NodeName, load};
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub const ROLE: &str = "RUDDER_TEST_ROLE";
pub const TOPOLOGY: &str = "RUDDER_TEST_TOPOLOGY";
pub const NODE: &str = "RUDDER_TEST_NODE";
pub const GENERATION: &str = "RUDDER_TEST_GENERATION";
pub const ADDRESS: &str = "RUDDER_TEST_ADDRESS";

/// Lines for the parent start with this; the rest is the test harness's.
pub const MARK: &str = "@ ";

fn say(line: &str) {
    println!("\n{MARK}{line}");
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Not a test: what a started copy of this binary runs.
#[test]
#[ignore = "the entry of child processes"]
fn child() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let cluster = Arc::new(load(Path::new(&variable(TOPOLOGY))).unwrap());
    match variable(ROLE).as_str() {
        "node" => runtime.block_on(node(cluster)),
        "operator" => runtime.block_on(operator(cluster)),
        other => panic!("`{other}` is no role: this is the entry of child processes"),
    }
    say("stopped");
}

async fn stdin_ended() {
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
}

async fn node(cluster: Arc<Cluster>) {
    let node = cluster.node_named(&NodeName::new(variable(NODE)).unwrap()).unwrap();
    let name = node.name.clone();
    let (echo, _) = Actor::spawn(None, Echo { name: name.to_string() }, ()).await.unwrap();
    ractor::pg::join(group(name.as_str()), vec![echo.get_cell()]);
    let config = MembershipConfig {
        node: node.id,
        generation: Generation(variable(GENERATION).parse().unwrap()),
        scheduler_address: variable(ADDRESS).parse().ok(),
        supervisor: None,
        cluster,
    };
    let membership = Membership::start(config).await.unwrap();
    say(&format!("listening {}", membership.bound_address()));
    let mut events = membership.subscribe();
    let stdin = stdin_ended();
    tokio::pin!(stdin);
    loop {
        tokio::select! {
            () = &mut stdin => break,
            event = events.recv() => {
                let event = event.expect("the membership runs");
                match event.change {
                    PeerChange::Up => say(&format!("up {} {}", event.node, event.generation.0)),
                    PeerChange::Lost(reason) => {
                        say(&format!("lost {} {} {reason:?}", event.node, event.generation.0));
                    }
                }
            }
        }
    }
    membership.shutdown().await;
    // Again, because that must do nothing.
    membership.shutdown().await;
}

async fn operator(cluster: Arc<Cluster>) {
    let name = NodeName::new(variable(NODE)).unwrap();
    let node = cluster.node_named(&name).unwrap().id;
    let session = OperatorSession::start(cluster).await.unwrap();
    let address: SocketAddr = variable(ADDRESS).parse().unwrap();
    session.connect(node, Some(address)).await.unwrap();
    let echo: ActorRef<EchoMessage> = session.member(&group(name.as_str())).expect("the group is known");
    let ask = |reply| EchoMessage::Say("hello".to_owned(), reply);
    let answer = echo.call(ask, Some(Duration::from_secs(30))).await.unwrap();
    let CallResult::Success(bytes) = answer else { panic!("no answer: {answer:?}") };
    say(&format!("answer {}", codec::decode::<String>(&bytes).unwrap()));
    stdin_ended().await;
    session.shutdown().await;
}

fn group(node: &str) -> String {
    format!("rudder/{node}/echo")
}

struct Echo {
    name: String,
}

enum EchoMessage {
    Say(String, RpcReplyPort<Vec<u8>>),
    Malformed,
}

impl Message for EchoMessage {
    fn serializable() -> bool {
        true
    }

    fn serialize(self) -> Result<SerializedMessage, BoxedDowncastErr> {
        let EchoMessage::Say(text, reply) = self else { return Err(BoxedDowncastErr) };
        let args = codec::encode(&text).map_err(|_| BoxedDowncastErr)?;
        Ok(SerializedMessage::Call { variant: "say".to_owned(), args, reply, metadata: None })
    }

    fn deserialize(message: SerializedMessage) -> Result<Self, BoxedDowncastErr> {
        let SerializedMessage::Call { args, reply, .. } = message else { return Ok(EchoMessage::Malformed) };
        Ok(codec::decode(&args).map_or(EchoMessage::Malformed, |text| EchoMessage::Say(text, reply)))
    }
}

impl Actor for Echo {
    type Msg = EchoMessage;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<EchoMessage>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<EchoMessage>,
        message: EchoMessage,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        if let EchoMessage::Say(text, reply) = message {
            reply.send(codec::encode(&format!("echo of {}: {text}", self.name))?)?;
        }
        Ok(())
    }
}
