//! What is known of one watched kind of child objects.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use kube::runtime::watcher::Event;

use super::projection::{ObjectKey, Projected};

/// How many deletions are remembered, so that the answer to an older write of ours cannot bring an
/// object back that the watch has already seen go. An answer is at most seconds late.
const TOMBSTONES: usize = 1024;

/// The projections of one kind in one scope, fed by a watch and by the answers to our own writes.
#[derive(Debug)]
pub struct ChildStore<P> {
    inner: RwLock<Inner<P>>,
}

#[derive(Debug)]
struct Inner<P> {
    objects: HashMap<ObjectKey, Entry<P>>,
    tombstones: HashMap<ObjectKey, u64>,
    /// Filled between `Init` and `InitDone`.
    arriving: HashMap<ObjectKey, Entry<P>>,
    ready: bool,
}

#[derive(Debug, Clone)]
struct Entry<P> {
    version: u64,
    data: Result<Arc<P>, Arc<str>>,
}

impl<P> Default for ChildStore<P> {
    fn default() -> Self {
        Self {
            inner: RwLock::new(Inner {
                objects: HashMap::new(),
                tombstones: HashMap::new(),
                arriving: HashMap::new(),
                ready: false,
            }),
        }
    }
}

impl<P> ChildStore<P> {
    /// The object at `key`: its projection, or the reason why it does not parse; none if there is none.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Result<Arc<P>, Arc<str>>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.objects.get(key).map(|entry| entry.data.clone())
    }

    /// All objects of one namespace that parse and that `wanted` accepts.
    pub fn select(&self, namespace: &str, wanted: impl Fn(&P) -> bool) -> Vec<Arc<P>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let objects = inner.objects.iter().filter(|(key, _)| key.namespace == namespace);
        objects
            .filter_map(|(_, entry)| entry.data.as_ref().ok())
            .filter(|data| wanted(data))
            .cloned()
            .collect()
    }

    /// Whether the first list has arrived.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).ready
    }

    /// Takes one event of the watch; the keys of the objects that changed.
    pub fn take(&self, event: Event<Projected<P>>) -> Vec<ObjectKey> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => {
                inner.arriving = HashMap::new();
                Vec::new()
            }
            Event::InitApply(object) => {
                let (key, entry) = split(object);
                inner.arriving.insert(key, entry);
                Vec::new()
            }
            Event::InitDone => inner.replace(),
            Event::Apply(object) => {
                let (key, entry) = split(object);
                if inner
                    .objects
                    .get(&key)
                    .is_some_and(|known| known.version >= entry.version)
                {
                    return Vec::new(); // the answer to our own write was faster than the watch
                }
                inner.tombstones.remove(&key);
                inner.objects.insert(key.clone(), entry);
                vec![key]
            }
            Event::Delete(object) => {
                let version = object.version();
                let key = object.key();
                inner.objects.remove(&key);
                if inner.tombstones.len() >= TOMBSTONES {
                    inner.tombstones.clear();
                }
                inner.tombstones.insert(key.clone(), version);
                vec![key]
            }
        }
    }

    /// The resource version at which the object at `key` is known; 0 if it is not.
    #[must_use]
    pub fn version(&self, key: &ObjectKey) -> u64 {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.objects.get(key).map_or(0, |entry| entry.version)
    }

    /// Takes the answer that there is no object at `key`, unless the watch has told of another version than `known`
    /// since that was asked.
    pub fn take_absence(&self, key: &ObjectKey, known: u64) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if inner.objects.get(key).is_some_and(|entry| entry.version == known) {
            inner.objects.remove(key);
        }
    }

    /// Takes an object as the answer to a write or read of ours named it, unless the watch knows better.
    pub fn take_answer(&self, object: Projected<P>) {
        let (key, entry) = split(object);
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let newer = |known: u64| known >= entry.version;
        if inner.objects.get(&key).is_some_and(|known| newer(known.version))
            || inner.tombstones.get(&key).copied().is_some_and(newer)
        {
            return;
        }
        inner.objects.insert(key, entry);
    }
}

impl<P> Inner<P> {
    fn replace(&mut self) -> Vec<ObjectKey> {
        let arrived = std::mem::take(&mut self.arriving);
        let gone: Vec<ObjectKey> = self
            .objects
            .keys()
            .filter(|key| !arrived.contains_key(*key))
            .cloned()
            .collect();
        let changed = arrived.iter().filter(|(key, entry)| {
            self.objects
                .get(*key)
                .is_none_or(|known| known.version != entry.version)
        });
        let changed: Vec<ObjectKey> = changed.map(|(key, _)| key.clone()).chain(gone).collect();
        self.objects = arrived;
        self.tombstones.clear(); // versions count anew where the API server was restored from a backup
        self.ready = true;
        changed
    }
}

fn split<P>(object: Projected<P>) -> (ObjectKey, Entry<P>) {
    let key = object.key();
    let version = object.version();
    (
        key,
        Entry {
            version,
            data: object.data.map(Arc::new).map_err(Arc::from),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn object(name: &str, version: u64) -> Projected<u64> {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("ns".to_owned()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        };
        Projected {
            metadata,
            data: Ok(version),
        }
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
        }
    }

    fn known(store: &ChildStore<u64>, name: &str) -> Option<u64> {
        store.get(&key(name)).map(|data| *data.unwrap())
    }

    #[test]
    fn a_list_replaces_everything_at_its_end_and_names_what_changed() {
        let store = ChildStore::default();
        store.take(Event::Apply(object("gone", 1)));
        store.take(Event::Apply(object("same", 2)));
        store.take(Event::Init);
        store.take(Event::InitApply(object("same", 2)));
        store.take(Event::InitApply(object("new", 3)));
        assert_eq!(
            known(&store, "gone"),
            Some(1),
            "nothing goes before the list is complete"
        );
        assert!(!store.is_ready());
        let mut changed = store.take(Event::InitDone);
        changed.sort();
        assert_eq!(changed, [key("gone"), key("new")]);
        assert_eq!(
            [known(&store, "gone"), known(&store, "same"), known(&store, "new")],
            [None, Some(2), Some(3)]
        );
        assert!(store.is_ready());
    }

    #[test]
    fn an_answer_is_known_before_the_watch_tells_and_the_watch_then_tells_nothing_new() {
        let store = ChildStore::default();
        store.take_answer(object("a", 5));
        assert_eq!(known(&store, "a"), Some(5));
        assert_eq!(store.take(Event::Apply(object("a", 5))), []);
        assert_eq!(store.take(Event::Apply(object("a", 6))), [key("a")]);
    }

    #[test]
    fn an_answer_that_there_is_none_counts_unless_the_watch_has_told_more() {
        let store = ChildStore::default();
        let _ = store.take(Event::Apply(object("a", 5)));
        store.take_absence(&key("a"), 4);
        assert_eq!((known(&store, "a"), store.version(&key("a"))), (Some(5), 5));
        store.take_absence(&key("a"), 5);
        assert_eq!((known(&store, "a"), store.version(&key("a"))), (None, 0));
    }

    #[test]
    fn an_older_answer_changes_nothing() {
        let store = ChildStore::default();
        store.take(Event::Apply(object("a", 7)));
        store.take_answer(object("a", 6));
        assert_eq!(known(&store, "a"), Some(7));
    }

    #[test]
    fn an_answer_to_a_write_before_a_deletion_brings_nothing_back() {
        let store = ChildStore::default();
        store.take(Event::Delete(object("a", 8)));
        store.take_answer(object("a", 7));
        assert_eq!(known(&store, "a"), None);
        store.take_answer(object("a", 9));
        assert_eq!(known(&store, "a"), Some(9));
    }

    #[test]
    fn an_object_that_does_not_parse_is_kept_with_its_reason() {
        let store = ChildStore::default();
        store.take(Event::Apply(Projected {
            data: Err("no spec".to_owned()),
            ..object("a", 1)
        }));
        assert_eq!(store.get(&key("a")), Some(Err(Arc::from("no spec"))));
        assert_eq!(store.select("ns", |_| true), Vec::<Arc<u64>>::new());
    }
}
