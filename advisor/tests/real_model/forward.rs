//! Ollama's API before a server that speaks OpenAI's, so that the `ollama` back end meets a real model.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Serves until the test ends; gives its address.
pub async fn start(openai: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, openai.clone()));
        }
    });
    format!("http://{address}")
}

async fn serve(mut stream: TcpStream, openai: String) {
    let Some((path, body)) = read(&mut stream).await else { return };
    let answer = match path.as_str() {
        "/api/chat" => chat(&openai, &serde_json::from_slice(&body).unwrap()).await,
        "/api/tags" => json!({ "models": [{ "name": "real", "modified_at": "", "size": 0 }] }),
        _ => json!({ "version": "0.0.0" }),
    };
    let body = answer.to_string();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    // A client that has gone needs no answer.
    let _ = stream.write_all((head + &body).as_bytes()).await;
}

async fn chat(openai: &str, asked: &Value) -> Value {
    let request = json!({
        "messages": asked["messages"],
        "response_format": {
            "type": "json_schema",
            "json_schema": { "name": "answer", "strict": true, "schema": asked["format"] },
        },
        "max_tokens": asked["options"]["num_predict"],
        "temperature": asked["options"]["temperature"],
        "seed": asked["options"]["seed"],
    });
    let url = format!("{openai}/chat/completions");
    // Whoever installed one before installed the same.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let response = reqwest::Client::new().post(url).json(&request).send().await.unwrap();
    let completion: Value = response.json().await.unwrap();
    let message = completion["choices"][0]["message"].clone();
    json!({
        "model": "real", "created_at": "", "done": true, "message": message,
        "total_duration": 0, "load_duration": 0, "prompt_eval_duration": 0, "eval_duration": 0,
        "prompt_eval_count": completion["usage"]["prompt_tokens"],
        "eval_count": completion["usage"]["completion_tokens"],
    })
}

async fn read(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
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
    Some((text.split(' ').nth(1)?.to_owned(), bytes[head..].to_vec()))
}
