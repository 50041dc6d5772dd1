//! An app's root znode: seen, or created with all that it stands on.

use super::session::{Answer, Armed, Halt, Refusal, Session};
use crate::app::ensemble::RootView;
use crate::leadership::Term;

/// How often the creation begins anew when levels vanish while they are built upon.
const ATTEMPTS: usize = 3;

/// What is known of a znode after reading it.
pub struct Reading<V> {
    /// What is to be shown.
    pub view: V,
    /// Done when it has changed; none if it could not be watched.
    pub watch: Option<Armed>,
    /// Whether to read again after a while, as no watch tells of every change that could help.
    pub again: bool,
}

/// Reads and watches the root; creates it if it is missing and `term` is given.
///
/// Reads one znode, and when it is missing the levels above; writes only the missing ones.
///
/// # Errors
/// [`Halt`] when the session or the term has ended.
pub async fn ensure(session: &Session, term: Option<&Term>, path: &str) -> Result<Reading<RootView>, Halt> {
    let (exists, watch) = match session.exists(path).await? {
        Ok((exists, watch)) => (exists, Some(watch)),
        Err(Refusal::Forbidden) => {
            let view = RootView::Forbidden(format!("ZooKeeper refuses to let esfleet look at {path}"));
            return Ok(Reading {
                view,
                watch: None,
                again: true,
            });
        }
        Err(refusal) => {
            let view = RootView::Failed(format!("{path} cannot be looked at: {refusal}"));
            return Ok(Reading {
                view,
                watch: None,
                again: true,
            });
        }
    };
    let view = match term {
        _ if exists => RootView::Exists,
        None => RootView::Missing,
        Some(term) => create(session, term, path).await?,
    };
    let again = matches!(view, RootView::Forbidden(_) | RootView::Failed(_));
    Ok(Reading { view, watch, again })
}

/// How the creation of one level ended.
enum Level {
    /// It exists now, whoever made it.
    There,
    /// The level above is missing.
    NoParent,
    /// It cannot be made.
    Refused(RootView),
}

async fn create(session: &Session, term: &Term, path: &str) -> Result<RootView, Halt> {
    for _ in 0..ATTEMPTS {
        match create_level(session, term, path).await? {
            Level::There => return Ok(RootView::Exists),
            Level::Refused(view) => return Ok(view),
            Level::NoParent => {}
        }
        for missing in missing_ancestors(session, path).await? {
            match create_level(session, term, missing).await? {
                Level::There => {}
                Level::Refused(view) => return Ok(view),
                Level::NoParent => break,
            }
        }
    }
    Ok(RootView::Failed(format!(
        "{path} cannot be created: the levels above it vanish while it is built"
    )))
}

async fn create_level(session: &Session, term: &Term, path: &str) -> Result<Level, Halt> {
    Ok(match session.create(term, path).await? {
        Ok(()) | Err(Refusal::Present) => Level::There,
        Err(Refusal::Absent) => Level::NoParent,
        // The ensemble checks the parent's list before it looks whether the znode exists.
        Err(Refusal::Forbidden) if exists(session, path).await? => Level::There,
        Err(Refusal::Forbidden) => Level::Refused(RootView::Forbidden(format!(
            "ZooKeeper refuses to let esfleet create {path}: access is denied"
        ))),
        Err(refusal) => Level::Refused(RootView::Failed(format!("{path} cannot be created: {refusal}"))),
    })
}

/// The levels above `path` that do not exist, topmost first.
async fn missing_ancestors<'a>(session: &Session, path: &'a str) -> Result<Vec<&'a str>, Halt> {
    let mut missing = Vec::new();
    for ancestor in ancestors(path) {
        if exists(session, ancestor).await? {
            break;
        }
        missing.push(ancestor);
    }
    missing.reverse();
    Ok(missing)
}

/// Whether a znode certainly exists. One that may not be looked at is there: what is missing can always be seen.
async fn exists(session: &Session, path: &str) -> Result<bool, Halt> {
    let answer: Answer<bool> = session.exists_now(path).await;
    Ok(match answer? {
        Ok(exists) => exists,
        Err(Refusal::Absent) => false,
        Err(Refusal::Forbidden | Refusal::Present | Refusal::Other(_)) => true,
    })
}

/// The paths above `path`, deepest first, without `/`.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/')
        .map(|(slash, _)| &path[..slash])
        .filter(|ancestor| !ancestor.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_are_the_levels_above_deepest_first() {
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a/b", "/a"]);
        assert_eq!(ancestors("/a").collect::<Vec<_>>(), Vec::<&str>::new());
    }
}
