//! One page of ids, newest first: our ids sort by their age. Pure.

use std::collections::BTreeSet;

use shared::protocol::SessionId;
use shared::protocol::control::SessionList;

/// Sessions on a page.
const PAGE: usize = 100;

/// A page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// Newest first.
    pub(super) ids: Vec<SessionId>,
    /// What to ask for the sessions before these, if there are any.
    pub(super) next: Option<SessionId>,
    /// The number of the page with them, for those who count pages.
    pub(super) next_page: Option<u32>,
}

/// The page of `on_disk` (sorted) and `live` that `list` asks for.
pub(super) fn page(on_disk: &[SessionId], live: &BTreeSet<SessionId>, list: &SessionList) -> Page {
    let prefix = list.starts_with.as_deref().unwrap_or_default().to_ascii_lowercase();
    let is_wanted =
        |id: &SessionId| list.before.is_none_or(|before| *id < before) && id.to_string().starts_with(&prefix);
    let on_disk = narrow(on_disk, list.before, &prefix);
    let live: Vec<SessionId> = live.iter().copied().filter(is_wanted).collect();
    let skipped = if list.before.is_some() { 0 } else { list.page };
    let skip = usize::try_from(skipped).unwrap_or(usize::MAX).saturating_mul(PAGE);
    let mut ids: Vec<SessionId> = Merged { on_disk, live: &live }.skip(skip).take(PAGE + 1).collect();
    let goes_on = ids.len() > PAGE;
    ids.truncate(PAGE);
    Page {
        next: ids.last().copied().filter(|_| goes_on),
        next_page: skipped.checked_add(1).filter(|_| goes_on && list.before.is_none()),
        ids,
    }
}

/// The part of `ids` (sorted) before `before` and with `prefix`: the text of an id sorts as the id does.
fn narrow<'a>(ids: &'a [SessionId], before: Option<SessionId>, prefix: &str) -> &'a [SessionId] {
    let end = before.map_or(ids.len(), |before| ids.partition_point(|id| *id < before));
    let ids = &ids[..end];
    if prefix.is_empty() {
        return ids;
    }
    let ids = &ids[ids.partition_point(|id| id.to_string().as_str() < prefix)..];
    &ids[..ids.partition_point(|id| id.to_string().starts_with(prefix))]
}

/// Two sorted lists as one, from their ends; what is in both comes once.
struct Merged<'a> {
    on_disk: &'a [SessionId],
    live: &'a [SessionId],
}

impl Iterator for Merged<'_> {
    type Item = SessionId;

    fn next(&mut self) -> Option<SessionId> {
        let newest = self.on_disk.last().max(self.live.last()).copied()?;
        for list in [&mut self.on_disk, &mut self.live] {
            if let [rest @ .., last] = *list
                && *last == newest
            {
                *list = rest;
            }
        }
        Some(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(count: usize) -> Vec<SessionId> {
        let mut ids: Vec<SessionId> = (0..count).map(|_| SessionId::new()).collect();
        ids.sort_unstable();
        ids
    }

    fn newest_first(ids: &[SessionId]) -> Vec<SessionId> {
        ids.iter().rev().copied().collect()
    }

    fn ask(on_disk: &[SessionId], list: &SessionList) -> Page {
        page(on_disk, &BTreeSet::new(), list)
    }

    #[test]
    fn pages_have_a_hundred_each_newest_first() {
        let all = ids(250);
        let sorted = newest_first(&all);
        let number = |page| ask(&all, &SessionList { page, ..SessionList::default() });
        let first = Page { ids: sorted[..100].to_vec(), next: Some(sorted[99]), next_page: Some(1) };
        assert_eq!(number(0), first);
        assert_eq!(number(2), Page { ids: sorted[200..].to_vec(), next: None, next_page: None });
        assert_eq!(number(u32::MAX), Page { ids: Vec::new(), next: None, next_page: None });
        assert_eq!(ask(&all[..100], &SessionList::default()).next, None);
    }

    #[test]
    fn whoever_follows_next_gets_each_once_while_others_come_and_go() {
        let mut all = ids(350);
        let stay: BTreeSet<SessionId> = all.iter().copied().skip(1).step_by(2).collect();
        let mut got = Vec::new();
        let mut list = SessionList::default();
        loop {
            let page = ask(&all, &list);
            got.extend(page.ids);
            let Some(next) = page.next else { break };
            list.before = Some(next);
            // The one that was named last goes, too, and the oldest that does not stay.
            all.retain(|id| stay.contains(id) || *id != next);
            let oldest = all.iter().position(|id| !stay.contains(id)).unwrap();
            all.remove(oldest);
            all.push(SessionId::new());
            all.sort_unstable();
        }
        let unique: BTreeSet<SessionId> = got.iter().copied().collect();
        assert_eq!(unique.len(), got.len(), "none twice");
        assert!(unique.is_superset(&stay), "none of those that stay is missing");
    }

    #[test]
    fn live_ones_are_among_them_once_wherever_they_are() {
        let all = ids(6);
        let live = BTreeSet::from([all[1], all[4], all[5]]);
        let on_disk: Vec<SessionId> = all[..5].to_vec();
        assert_eq!(page(&on_disk, &live, &SessionList::default()).ids, newest_first(&all));
        let list = SessionList { before: Some(all[4]), ..SessionList::default() };
        assert_eq!(page(&on_disk, &live, &list).ids, newest_first(&all[..4]));
    }

    #[test]
    fn the_start_of_an_id_finds_it_among_all() {
        let mut all: Vec<SessionId> =
            (0..500_u128).map(|n| format!("{:032x}", n << 116 | n).parse().unwrap()).collect();
        all.sort_unstable();
        for id in &all {
            let text = id.to_string();
            let start = |length: usize| {
                let list = SessionList { starts_with: Some(text[..length].to_uppercase()), ..SessionList::default() };
                page(&all, &BTreeSet::from([all[3]]), &list).ids
            };
            assert_eq!(start(36), [*id]);
            let expected: Vec<SessionId> =
                newest_first(&all).into_iter().filter(|id| id.to_string().starts_with(&text[..2])).collect();
            assert_eq!(start(2), expected);
        }
    }
}
