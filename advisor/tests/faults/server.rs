//! A server that speaks as much of Ollama's and OpenAI's API as is needed, and misbehaves as told.

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

/// What happens to a question.
#[derive(Clone, Debug)]
pub enum Act {
    /// A model's text.
    Say(String),
    Status(u16),
    /// Nothing, for ever.
    Silence,
    /// Half of an answer, then the end of the connection.
    Cut,
    /// A body that is no API's.
    Body(Vec<u8>),
}

/// A running server.
pub struct Server {
    pub url: String,
    questions: Arc<Mutex<Vec<Value>>>,
}

impl Server {
    /// Serves the acts in turn, the last one for ever.
    pub async fn start(acts: Vec<Act>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let questions = Arc::new(Mutex::new(vec![]));
        let acts = Arc::new(Mutex::new(VecDeque::from(acts)));
        let seen = questions.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, acts.clone(), seen.clone()));
            }
        });
        Server { url, questions }
    }

    /// The same over TLS, with a certificate of its own for `localhost`, which comes back in PEM form.
    pub async fn start_tls(acts: Vec<Act>) -> (Server, String) {
        let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let questions = Arc::new(Mutex::new(vec![]));
        let acts = Arc::new(Mutex::new(VecDeque::from(acts)));
        let seen = questions.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, acts, seen) = (acceptor.clone(), acts.clone(), seen.clone());
                tokio::spawn(async move {
                    // A client that does not trust this server ends the handshake.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, acts, seen).await;
                    }
                });
            }
        });
        (Server { url, questions }, own.cert.pem())
    }

    /// Bodies of the questions so far.
    pub fn questions(&self) -> Vec<Value> {
        self.questions.lock().unwrap().clone()
    }
}

/// A connection, encrypted or not.
trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

async fn serve(mut stream: impl Stream, acts: Arc<Mutex<VecDeque<Act>>>, seen: Arc<Mutex<Vec<Value>>>) {
    let Some((path, body)) = read_request(&mut stream).await else { return };
    if path == "/api/tags" {
        let models = json!({ "models": [{ "name": "m", "modified_at": "", "size": 1 }] });
        return respond(&mut stream, 200, models.to_string().as_bytes(), None).await;
    }
    seen.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
    let act = {
        let mut acts = acts.lock().unwrap();
        if acts.len() > 1 { acts.pop_front().unwrap() } else { acts[0].clone() }
    };
    match act {
        Act::Say(text) => respond(&mut stream, 200, &wrap(&path, &text), None).await,
        Act::Status(status) => respond(&mut stream, status, b"{\"error\":\"so it is\"}", None).await,
        Act::Silence => std::future::pending().await,
        Act::Cut => {
            let whole = wrap(&path, "{\"choose\":[\"A\"],\"reason\":\"\"}");
            respond(&mut stream, 200, &whole[..whole.len() / 2], Some(whole.len())).await;
        }
        Act::Body(body) => respond(&mut stream, 200, &body, None).await,
    }
}

/// A model's text in the API's envelope.
fn wrap(path: &str, text: &str) -> Vec<u8> {
    let message = json!({ "role": "assistant", "content": text });
    let whole = match path {
        "/api/chat" => json!({ "model": "m", "created_at": "", "message": message, "done": true }),
        _ => {
            json!({ "choices": [{ "message": message }], "usage": { "prompt_tokens": 7, "completion_tokens": 3 } })
        }
    };
    whole.to_string().into_bytes()
}

async fn read_request(stream: &mut impl Stream) -> Option<(String, Vec<u8>)> {
    let mut bytes = vec![];
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let length: usize = length.unwrap_or(0);
    while bytes.len() < head + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let path = text.split(' ').nth(1)?.to_owned();
    Some((path, bytes[head..].to_vec()))
}

async fn respond(stream: &mut impl Stream, status: u16, body: &[u8], length: Option<usize>) {
    let length = length.unwrap_or(body.len());
    let head = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    // A client that has gone needs no answer.
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(body).await;
    let _ = stream.shutdown().await;
}
