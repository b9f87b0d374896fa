//! Any server that speaks OpenAI's chat completions with a JSON schema: vLLM, llama.cpp and others.

use crate::backend::{Answering, Backend, BackendError, Question, Reply};
use crate::http;
use crate::secret;
use rudder_topology::{Advisor, SecretPlace};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// One model of one server.
#[derive(Clone, Debug)]
pub struct OpenAiBackend {
    client: reqwest::Client,
    url: String,
    model: String,
    key: Option<SecretPlace>,
    answer_tokens_max: u32,
    time_max: Duration,
}

/// The parts of a completion that are read.
#[derive(Deserialize)]
struct Completion {
    choices: Vec<CompletionChoice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct CompletionChoice {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
}

impl OpenAiBackend {
    /// Dials nothing yet. `url` is what stands before `/chat/completions`.
    pub fn new(advisor: &Advisor, url: &str, model: &str) -> Result<Self, BackendError> {
        let time_max = Duration::from_nanos(advisor.deadline.0);
        Ok(OpenAiBackend {
            client: http::client(advisor, url)?,
            url: format!("{}/chat/completions", url.trim_end_matches('/')),
            model: model.to_owned(),
            key: advisor.key.clone(),
            answer_tokens_max: advisor.answer_tokens_max,
            time_max,
        })
    }

    async fn complete(&self, question: &Question) -> Result<Reply, BackendError> {
        let request = json!({
            "model": self.model,
            "messages": [
                { "role": "system", "content": question.prompt.system },
                { "role": "user", "content": question.prompt.user },
            ],
            "response_format": {
                "type": "json_schema",
                "json_schema": { "name": "answer", "strict": true, "schema": question.prompt.schema },
            },
            "max_tokens": self.answer_tokens_max,
            "temperature": 0,
            "seed": 1,
            "stream": false,
        });
        let mut post = self.client.post(&self.url).json(&request);
        if let Some(place) = &self.key {
            post = post.bearer_auth(secret::read(place)?);
        }
        let response = post.send().await.map_err(|error| http::failure(error, self.time_max))?;
        let body = http::body(response, self.time_max).await?;
        let wrong = |what| BackendError::Malformed { api: "an OpenAI-compatible server", what };
        let completion: Completion = serde_json::from_slice(&body).map_err(|_| wrong("no completion"))?;
        let content = completion.choices.into_iter().next().and_then(|choice| choice.message.content);
        Ok(Reply {
            text: content.ok_or(wrong("no content"))?.into_bytes(),
            prompt_tokens: completion.usage.as_ref().and_then(|usage| usage.prompt_tokens),
            answer_tokens: completion.usage.as_ref().and_then(|usage| usage.completion_tokens),
        })
    }
}

impl Backend for OpenAiBackend {
    fn name(&self) -> String {
        format!("openai {}", self.model)
    }

    fn ask<'a>(&'a self, question: &'a Question) -> Answering<'a> {
        Box::pin(self.complete(question))
    }
}
