//! Questions to a page that a thread answers which borrows what it answers from.

use crossbeam_channel::{Receiver, Sender, bounded};

/// Asks.
#[derive(Debug)]
pub struct QuestionSender(Sender<Question>);

/// Answers.
#[derive(Debug)]
pub struct QuestionReceiver(Receiver<Question>);

#[derive(Debug)]
struct Question {
    text: String,
    answer: Sender<String>,
}

/// Both ends. When the asker is gone, the answerer ends.
#[must_use]
pub fn channel() -> (QuestionSender, QuestionReceiver) {
    let (sender, receiver) = bounded(0);
    (QuestionSender(sender), QuestionReceiver(receiver))
}

impl QuestionSender {
    /// The answer; nothing when there is no answerer any more.
    #[must_use]
    pub fn ask(&self, text: &str) -> String {
        let (answer, answered) = bounded(1);
        let sent = self.0.send(Question { text: text.to_owned(), answer });
        sent.ok().and_then(|()| answered.recv().ok()).unwrap_or_default()
    }
}

impl QuestionReceiver {
    /// Answers each question, until the asker is gone.
    pub fn answer(self, answer: impl Fn(&str) -> String) {
        for question in self.0 {
            // The one who asked may be gone meanwhile.
            let _ = question.answer.send(answer(&question.text));
        }
    }
}
