//! The suite for stores finds stores that break their word: each of these breaks one
//! promise, and the checks that it is named with fail.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use incumbent::types::*;
use incumbent::{Clock as _, Failure, ManualClock, Mark, MemoryStore, Revision, Store, Watches};
use incumbent_conformance::Place;
use incumbent_tests::operations::{SECOND, all, grant};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

/// What breaks now and then does so each time after so many.
const SELDOM: u64 = 16;
/// How long a store may be waited for that is in memory, and may never answer.
const PATIENCE: Duration = Duration::from_millis(400);
/// How many breaks are looked for at once: most wait for what never comes.
const SIDE_BY_SIDE: usize = 8;

/// Declares what a store does wrong, and by which checks that has to be found.
macro_rules! breaks {
    ($($name:ident: $($check:ident),+;)+) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        enum Break {
            Nothing,
            $($name),+
        }

        const BREAKS: &[(Break, &[&str])] = &[$(($name, &[$(stringify!($check)),+])),+];
    };
}

breaks! {
    // Leases.
    GrantsTwice: a_lease_is_granted_once;
    GrantsLess: a_lease_is_granted_once;
    RenewsTheDead: a_lease_that_is_not_there_is_expired, a_lease_that_is_over_is_not_renewed;
    RenewsInWordsOnly: a_renewed_lease_lives_on;
    ExpiresEarly: a_lease_lives_as_long_as_granted_and_ends;
    ExpiresNever: a_lease_lives_as_long_as_granted_and_ends, a_lease_that_is_over_is_not_renewed;
    RevocationLeavesAKey: a_revoked_lease_takes_its_keys_along;
    KeysGoOneByOne: a_revoked_lease_takes_its_keys_along;
    NewLeasesHaveOldKeys: a_revoked_lease_takes_its_keys_along;
    // Claims.
    ClaimsOverwrite: a_key_is_claimed_once, of_many_claims_one_wins;
    ClaimsUnderTheDead: a_lease_that_is_not_there_is_expired;
    EpochsComeTwice: epochs_rise;
    // Reads.
    WritesAreForgotten: a_read_shows_what_was_acknowledged;
    ReadsAreOld: a_read_shows_what_was_acknowledged;
    ReadsAreInParts: a_read_is_at_one_revision;
    OrderIsIgnored: a_read_finds_what_it_selects;
    LimitIsIgnored: a_read_finds_what_it_selects;
    CreationIsIgnored: a_read_finds_what_it_selects;
    FromIsIgnored: a_list_is_read_from_a_key_on;
    FromIsLeftOut: a_list_is_read_from_a_key_on;
    FromWidens: a_list_is_read_from_a_key_on;
    KeysComeByAge: a_list_is_read_from_a_key_on;
    ValuesAreTold: a_read_of_keys_tells_no_values;
    PeeksAreInvented: a_peek_finds_the_key_in_the_end;
    HandlesAreStrangers: a_key_is_claimed_once, a_lease_is_granted_once;
    // Guarded writes.
    GuardsAreIgnored:
        a_guarded_write_is_applied_or_stale_or_conflict, nothing_lands_after_the_guard_is_gone;
    LeasesOfGuardsAreIgnored: a_guard_with_a_lease_sees_the_lease;
    ExpectationsAreIgnored:
        a_guarded_write_is_applied_or_stale_or_conflict, expectations_count_without_a_loss;
    PutsKeepTheLease: a_put_takes_the_lease_off;
    ProclamationsLoseTheLease: a_proclamation_keeps_the_lease;
    MutationsAreOneByOne: a_read_is_at_one_revision, a_write_is_one_revision_or_none;
    WritesAreDoubled:
        a_watch_starts_and_tells_each_change, watches_under_load_miss_and_repeat_nothing;
    InvalidIsApplied: an_impossible_write_is_invalid;
    // Watches.
    ChangesAreRepeated: watches_under_load_miss_and_repeat_nothing;
    ChangesAreMissed: watches_under_load_miss_and_repeat_nothing;
    ChangesAreSwapped: watches_under_load_miss_and_repeat_nothing;
    DeletionsAreUntold: a_watch_starts_and_tells_each_change;
    BeginningsAreIgnored: a_watch_begins_at_its_revision;
    NowIsThePast: a_watch_begins_at_its_revision;
    TheFutureIsNow: a_watch_begins_at_its_revision;
    ClosedWatchesTalk: a_closed_watch_is_silent;
    ForgottenIsSkipped: what_is_forgotten_is_told;
    // Many calls at once.
    OneFailsAnother: a_call_that_fails_fails_alone;
    PartsAreMadeTwice: a_call_that_fails_fails_alone;
    AnswersAreMixedUp: calls_at_once_answer_for_themselves;
    RevisionsAreOfTheBatch: calls_at_once_answer_for_themselves;
    BothWin: of_claims_at_once_one_wins;
    // Lost replies.
    GivenUpIsTriedAgain: what_was_given_up_happened_once_or_never;
    NeverGivesUp: a_stalled_call_gives_up_and_can_be_asked_again;
    Panics: a_revoked_lease_takes_its_keys_along;
}

use Break::*;

mod store;

use store::*;

/// So that what fails does so for what is broken.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_that_keeps_its_word_passes() {
    let report = incumbent_conformance::check(|| async { BrokenPlace::new(Nothing) }).await;
    println!("{report}");
    assert!(report.conforms());
    assert_eq!(report.skipped().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_break_is_found() {
    let tried = stream::iter(BREAKS).map(|(broken, checks)| async move {
        (broken, checks, incumbent_conformance::check(|| async { BrokenPlace::new(*broken) }).await)
    });
    let mut missed = Vec::new();
    let mut reports = tried.buffered(SIDE_BY_SIDE);
    while let Some((broken, checks, report)) = reports.next().await {
        let failed: BTreeMap<_, _> = report.failed().collect();
        println!("{broken:?}:");
        for check in *checks {
            match failed.get(check) {
                Some(sentence) => println!("    {check}: {sentence}"),
                None => missed.push((broken, check)),
            }
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
