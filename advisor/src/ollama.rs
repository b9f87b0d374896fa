//! Ollama, by ollama-rs: structured output, the model kept loaded, no streaming.

use crate::backend::{Answering, Backend, BackendError, Question, Reply};
use crate::http;
use ollama_rs::Ollama;
use ollama_rs::error::OllamaError;
use ollama_rs::generation::chat::ChatMessage;
use ollama_rs::generation::chat::request::ChatMessageRequest;
use ollama_rs::generation::parameters::{FormatType, JsonStructure, KeepAlive, TimeUnit};
use ollama_rs::models::ModelOptions;
use rudder_topology::Advisor;
use std::time::Duration;

/// Where Ollama listens unless told otherwise.
pub const URL_DEFAULT: &str = "http://127.0.0.1:11434";

/// One model of one server.
#[derive(Clone, Debug)]
pub struct OllamaBackend {
    server: Ollama,
    model: String,
    options: ModelOptions,
    keep_alive: KeepAlive,
    time_max: Duration,
}

impl OllamaBackend {
    /// Dials nothing yet.
    pub fn new(advisor: &Advisor, model: &str) -> Result<Self, BackendError> {
        let time_max = Duration::from_nanos(advisor.deadline.0);
        let url = advisor.url.as_deref().unwrap_or(URL_DEFAULT);
        let client = http::client(advisor, url)?;
        let url = reqwest::Url::parse(url)
            .map_err(|error| BackendError::Unreachable { reason: error.to_string() })?;
        let server = Ollama::builder().url(url).reqwest_client(client).build();
        let options = ModelOptions::default()
            .num_predict(i32::try_from(advisor.answer_tokens_max).unwrap_or(i32::MAX))
            .num_ctx(u64::from(advisor.context_tokens))
            .temperature(0.0)
            .seed(1);
        let seconds = advisor.keep_alive.0 / 1_000_000_000;
        let keep_alive = match seconds {
            0 => KeepAlive::UnloadOnCompletion,
            time => KeepAlive::Until { time, unit: TimeUnit::Seconds },
        };
        Ok(OllamaBackend { server, model: model.to_owned(), options, keep_alive, time_max })
    }

    /// The models that the server has, by name. An answer says that there is an Ollama.
    pub async fn models(&self) -> Result<Vec<String>, BackendError> {
        let models = self.server.list_local_models().await.map_err(|error| self.failure(error))?;
        Ok(models.into_iter().map(|model| model.name).collect())
    }

    async fn chat(&self, question: &Question) -> Result<Reply, BackendError> {
        let schema = schemars::Schema::try_from(question.prompt.schema.clone())
            .map_err(|_| BackendError::Malformed { api: "Ollama", what: "a schema that is no object" })?;
        let messages = vec![
            ChatMessage::system(question.prompt.system.to_owned()),
            ChatMessage::user(question.prompt.user.clone()),
        ];
        let request = ChatMessageRequest::new(self.model.clone(), messages)
            .format(FormatType::StructuredJson(Box::new(JsonStructure::new_for_schema(schema))))
            .options(self.options.clone())
            .keep_alive(self.keep_alive.clone());
        let answer = self.server.send_chat_messages(request).await.map_err(|error| self.failure(error))?;
        let counted = answer.final_data.as_ref();
        Ok(Reply {
            prompt_tokens: counted.map(|data| data.prompt_eval_count),
            answer_tokens: counted.map(|data| data.eval_count),
            text: answer.message.content.into_bytes(),
        })
    }

    /// ollama-rs gives the body of an unsuccessful response as its text, and drops the status.
    fn failure(&self, error: OllamaError) -> BackendError {
        match error {
            OllamaError::ReqwestError(error) => http::failure(error, self.time_max),
            OllamaError::JsonError(_) => BackendError::Malformed { api: "Ollama", what: "no chat response" },
            OllamaError::Other(body) if body.contains("not found") && body.len() < 1000 => {
                BackendError::NoModel { model: self.model.clone() }
            }
            _ => BackendError::Malformed { api: "Ollama", what: "an error response" },
        }
    }
}

impl Backend for OllamaBackend {
    fn name(&self) -> String {
        format!("ollama {}", self.model)
    }

    fn ask<'a>(&'a self, question: &'a Question) -> Answering<'a> {
        Box::pin(self.chat(question))
    }
}
