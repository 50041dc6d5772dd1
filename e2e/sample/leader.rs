//! What a replica does while it leads: one task judges events and appends them, several in one transaction.

use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use crate::layout::LogIdentity;
use crate::ledger::{Admission, Record};
use crate::replica::{Replica, stopped};
use crate::session::{AppendError, Session, SessionError};
use crate::shared::{Answer, Role, Submission};

/// How many events may wait for the appender; more are told to come back later.
const QUEUE: usize = 1024;

/// How many events go into one transaction. A record with its path is under 2 kB, a request at most 1 MB.
const BATCH: usize = 100;

/// Whether a term goes on.
#[derive(Debug, PartialEq, Eq)]
enum Term {
    /// This process still leads.
    GoesOn,
    /// Another may lead.
    IsOver,
}

/// A batch that was judged, and what is left to do for it.
struct Judged {
    /// To be appended, in this order.
    records: Vec<Vec<u8>>,
    /// To be answered once the records are in the log.
    answers: Vec<(oneshot::Sender<Answer>, Answer)>,
}

impl Replica {
    /// Leads under an epoch just won, until the leader node or the epoch is no longer ours.
    ///
    /// # Errors
    /// [`SessionError`] when the session cannot go on, or the process was told to stop.
    pub async fn lead(&mut self, session: &Session, log: &LogIdentity, epoch: i32) -> Result<(), SessionError> {
        // What the ensemble has seen of older epochs is visible to this session since the epoch was set.
        drop(self.catch_up(session, log).await?);
        let (submit, mut queue) = mpsc::channel(QUEUE);
        self.shared.update(|standing| {
            let view = &mut standing.view;
            view.role = Role::Leader;
            view.leader = Some(self.config.pod_name.clone());
            view.epoch = Some(epoch);
            view.submit = Some(submit);
        });
        info!("this pod leads, epoch {epoch}");
        let ended = self.append_while_leading(session, log, epoch, &mut queue).await;
        info!("this pod no longer leads, epoch {epoch}");
        self.shared.update(|standing| {
            standing.view.role = Role::Follower;
            standing.view.leader = None;
            standing.view.submit = None;
        });
        queue.close();
        while let Ok(submission) = queue.try_recv() {
            reply(submission.answer, Answer::NotAppended);
        }
        ended
    }

    async fn append_while_leading(
        &mut self,
        session: &Session,
        log: &LogIdentity,
        epoch: i32,
        queue: &mut mpsc::Receiver<Submission>,
    ) -> Result<(), SessionError> {
        let Some(mut own) = session.leader().await?.filter(|node| session.owns(node)) else {
            return Ok(());
        };
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                biased;
                lost = session.lost() => return Err(lost),
                () = stopped(&mut self.stop) => {
                    self.finish(session, log, epoch, queue).await?;
                    return Err(SessionError::Stopped);
                }
                _ = &mut own.changed => match session.leader().await? {
                    Some(node) if session.owns(&node) => own = node,
                    Some(_) | None => return Ok(()),
                },
                _ = queue.recv_many(&mut batch, BATCH) => {
                    if self.append(session, log, epoch, batch).await? == Term::IsOver {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Takes no more events, appends those already taken, and resigns.
    async fn finish(
        &self,
        session: &Session,
        log: &LogIdentity,
        epoch: i32,
        queue: &mut mpsc::Receiver<Submission>,
    ) -> Result<(), SessionError> {
        self.shared.update(|standing| {
            standing.view.role = Role::Stopping;
            standing.view.submit = None;
        });
        queue.close();
        loop {
            let mut batch = Vec::new();
            let taken = queue.recv_many(&mut batch, BATCH).await;
            if taken == 0 || self.append(session, log, epoch, batch).await? == Term::IsOver {
                break;
            }
        }
        session.resign(epoch).await
    }

    /// Judges events, appends those admitted in one transaction that checks the epoch, and answers all of them.
    async fn append(
        &self,
        session: &Session,
        log: &LogIdentity,
        epoch: i32,
        batch: Vec<Submission>,
    ) -> Result<Term, SessionError> {
        let Judged { records, answers } = self.judge(epoch, batch);
        let first = self.shared.read(|standing| standing.ledger.applied()) + 1;
        let appended = if records.is_empty() {
            Ok(())
        } else {
            session.append(epoch, log, first, &records).await
        };
        // A refusal may rest on an event of the same batch, so nobody gets a verdict unless all of it holds.
        let all = |answers: Vec<(oneshot::Sender<Answer>, Answer)>, answer: Answer| {
            answers.into_iter().for_each(|(to, _)| reply(to, answer.clone()));
        };
        match appended {
            Ok(()) => {}
            Err(AppendError::Deposed) => {
                warn!("refused to append under epoch {epoch}: another epoch has begun");
                all(answers, Answer::NotAppended);
                return Ok(Term::IsOver);
            }
            Err(AppendError::Refused(error)) => {
                all(answers, Answer::NotAppended);
                return Err(error);
            }
            Err(AppendError::Unknown(error)) => {
                all(answers, Answer::Unknown);
                return Err(error);
            }
        }
        let applied = self.shared.update(|standing| {
            (first..)
                .zip(&records)
                .try_for_each(|(number, record)| standing.ledger.apply(number, record))
        });
        // The records are in the log, whatever became of applying them here.
        answers.into_iter().for_each(|(to, answer)| reply(to, answer));
        applied?;
        Ok(Term::GoesOn)
    }

    fn judge(&self, epoch: i32, batch: Vec<Submission>) -> Judged {
        self.shared.read(|standing| {
            let mut draft = standing.ledger.draft();
            let mut judged = Judged {
                records: Vec::new(),
                answers: Vec::new(),
            };
            for Submission { event, answer: to } in batch {
                let answer = match draft.admit(&event) {
                    Ok(Admission::Append(number)) => match serde_json::to_vec(&Record { epoch, event }) {
                        Ok(record) => {
                            judged.records.push(record);
                            Answer::Appended { number, epoch }
                        }
                        Err(_) => unreachable!("a record has only text and numbers, which always serialise"),
                    },
                    Ok(Admission::Duplicate(number)) => Answer::Duplicate { number, epoch },
                    Err(refusal) => Answer::Refused(refusal),
                };
                judged.answers.push((to, answer));
            }
            judged
        })
    }
}

fn reply(to: oneshot::Sender<Answer>, answer: Answer) {
    // Who asked may have gone away, which changes nothing.
    let _ = to.send(answer);
}
