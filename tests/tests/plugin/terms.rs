//! What a component does in a term.

use super::*;

#[tokio::test]
async fn a_component_knows_its_term_and_writes_in_it() {
    let Scene { world, mut puppet, term, cast } = scene().await;
    assert_eq!(puppet.election().await, NAME);
    assert_eq!(cast.leadership.election(), NAME);
    assert_eq!(puppet.id().await, "worker");
    assert_eq!(puppet.epoch(term).await, cast.leadership.epoch());
    assert_eq!(puppet.remaining(term).await, cast.leadership.remaining());
    assert_eq!(puppet.standing(term).await, Standing::Firm);
    let again = puppet.elected(None).expect_soon("leads").await;
    assert_eq!(puppet.epoch(again).await, cast.leadership.epoch());

    assert_eq!(puppet.get(term, "jobs/a").await, Ok(None));
    let revision = puppet.put(term, "jobs/a", b"1", None).expect_soon("leads").await;
    assert_eq!(world.get("jobs/a").await.as_deref(), Some(&b"1"[..]));
    let entry = puppet.get(term, "jobs/a").expect_soon("is read").await.expect("is there");
    assert_eq!((entry.modified, entry.value.as_slice()), (revision, &b"1"[..]));
    let puts: &[(&str, &[u8])] = &[("jobs/b", b"2"), ("jobs/c", b"3")];
    let all = puppet.write(term, &[("jobs/b", 0)], puts, &["jobs/a"]).await;
    assert!(all.expect("leads") > revision);
    assert_eq!(world.get("jobs/a").await, None);
    assert_eq!(world.get("jobs/c").await.as_deref(), Some(&b"3"[..]));
    puppet.delete(term, "jobs/b", None).expect_soon("leads").await;
    assert_eq!(world.get("jobs/b").await, None);

    puppet.proclaim(term, b"at home").expect_soon("leads").await;
    assert_eq!(world.leader(NAME).expect_soon("leads").await.value, b"at home");
    world.pass(3600 * SECOND).await;
    assert_eq!(puppet.standing(term).await, Standing::Firm);
    assert_eq!(puppet.remaining(term).await, cast.leadership.remaining());
}

#[tokio::test]
async fn a_write_that_expects_something_else_changes_nothing() {
    let Scene { world, mut puppet, term, cast: _cast } = scene().await;
    let first = puppet.put(term, "jobs/a", b"1", Some(0)).expect_soon("is new").await;
    let second = puppet.put(term, "jobs/a", b"2", Some(first)).expect_soon("is as expected").await;
    assert_eq!(puppet.put(term, "jobs/a", b"3", Some(0)).await, Err(Refusal::Conflict));
    assert_eq!(puppet.put(term, "jobs/a", b"3", Some(first)).await, Err(Refusal::Conflict));
    assert_eq!(puppet.delete(term, "jobs/a", Some(first)).await, Err(Refusal::Conflict));
    let all = puppet.write(term, &[("jobs/a", first)], &[("jobs/b", b"4")], &[]).await;
    assert_eq!(all, Err(Refusal::Conflict));
    assert_eq!(world.get("jobs/a").await.as_deref(), Some(&b"2"[..]));
    assert_eq!(world.get("jobs/b").await, None);
    puppet.delete(term, "jobs/a", Some(second)).expect_soon("is as expected").await;
    assert_eq!(puppet.standing(term).await, Standing::Firm);
}

#[tokio::test]
async fn keys_are_touched_only_where_they_are_granted() {
    let Scene { world, mut puppet, term, cast } = scene().await;
    let refused = || Err(Refusal::NotPermitted);
    let before = world.store().revision();
    for key in ["data", "jobs", "job", "Jobs/a", ""] {
        assert_eq!(puppet.get(term, key).await.map(drop), refused().map(drop::<i64>), "{key}");
        assert_eq!(puppet.put(term, key, b"", None).await, refused(), "{key}");
        assert_eq!(puppet.delete(term, key, None).await, refused(), "{key}");
        assert_eq!(puppet.write(term, &[], &[("jobs/a", b""), (key, b"")], &[]).await, refused());
        assert_eq!(puppet.write(term, &[], &[("jobs/a", b"")], &[key]).await, refused());
        let expecting = puppet.write(term, &[(key, 0)], &[("jobs/a", b"")], &[]).await;
        assert_eq!(expecting, refused(), "what a key expects tells of it as well");
    }
    let mut nothing = Puppet::new(LeadershipCtx::of_term(&cast.leadership)).await;
    let held = nothing.leading().expect_soon("leads").await;
    assert_eq!(nothing.put(held, "jobs/a", b"", None).await, refused());

    // Even where everything is.
    let mut all = Puppet::new(LeadershipCtx::of_term(&cast.leadership).grant("")).await;
    let held = all.leading().expect_soon("leads").await;
    let own = String::from_utf8(cast.leadership.key().into()).expect("is text");
    // To `etcdctl`, any key below the name is a candidate.
    for key in
        [NAME, own.as_str(), "my-service/1", "my-service/", "my-service/zz", "my-service/a/b"]
    {
        assert_eq!(all.put(held, key, b"", None).await, refused(), "{key}");
        assert_eq!(all.delete(held, key, None).await, refused(), "{key}");
        assert_eq!(all.write(held, &[], &[("jobs/a", b"")], &[key]).await, refused(), "{key}");
    }
    assert_eq!(all.get(held, own.as_str()).await.map(drop), refused().map(drop::<i64>));
    assert_eq!(all.get(held, "my-service/zz").await, Ok(None), "others may have put it there");
    let _other = joins(&cast.worker.session().election("other")).await;
    assert!(invalid(&all.put(held, "other/1", b"", None).await.expect_err("is a candidate's")));
    assert_eq!(world.get("jobs/a").await, None);
    let after = i64::from(world.store().revision());
    assert!(after <= i64::from(before) + 1, "but for the other candidate");

    // What is only named alike belongs to nobody.
    let mut both =
        Puppet::new(LeadershipCtx::of_term(&cast.leadership).grant("jobs/").grant("my-service"))
            .await;
    let held = both.leading().expect_soon("leads").await;
    both.put(held, "my-service-data/a", b"", None).expect_soon("is granted").await;
    both.put(held, "my-services", b"", None).expect_soon("is granted").await;
    let expecting = both.write(held, &[("my-service/zz", 0)], &[("my-services", b"")], &[]).await;
    expecting.expect("only looks at it");
    both.put(held, "jobs/a", b"", None).expect_soon("is granted").await;
    assert!(cast.leadership.is_valid());
}

#[tokio::test]
async fn what_is_asked_for_in_an_earlier_term_is_stale() {
    let Campaign { world, mut puppet, term: first, next, worker: _worker, _rival } =
        campaign().await;
    drop(next);
    world.settle().await;
    world.depose(NAME).expect_soon("somebody led").await;
    assert_eq!(puppet.standing(first).await, Standing::Over(types::Reason::Deposed));
    assert_eq!(puppet.put(first, "jobs/a", b"", None).await, Err(Refusal::Stale));

    let second = puppet.elected(None).expect_soon("leads again").await;
    assert!(puppet.epoch(second).await > puppet.epoch(first).await);
    assert_eq!(puppet.standing(second).await, Standing::Firm);
    for _ in 0..2 {
        assert_eq!(puppet.put(first, "jobs/a", b"", None).await, Err(Refusal::Stale));
        assert_eq!(puppet.delete(first, "jobs/a", None).await, Err(Refusal::Stale));
        assert_eq!(puppet.write(first, &[], &[("jobs/a", b"")], &[]).await, Err(Refusal::Stale));
        assert_eq!(puppet.get(first, "jobs/a").await.map(drop), Err(Refusal::Stale));
        assert_eq!(puppet.proclaim(first, b"").await, Err(Refusal::Stale));
        assert_eq!(puppet.remaining(first).await, Duration::ZERO);
        // Nor is the later one resigned by it.
        puppet.resign(first).await;
    }
    assert_eq!(world.get("jobs/a").await, None);
    puppet.put(second, "jobs/a", b"", None).expect_soon("leads").await;
}

#[tokio::test]
async fn a_write_without_an_answer_is_unknown() {
    let Scene { world, mut puppet, term, cast } = scene().await;
    cast.worker.lose_next_answer();
    assert_eq!(puppet.put(term, "jobs/a", b"1", None).await, Err(Refusal::Unknown));
    assert_eq!(world.get("jobs/a").await.as_deref(), Some(&b"1"[..]));
    cast.worker.lose_next_answer();
    assert_eq!(puppet.proclaim(term, b"").await, Err(Refusal::Unknown));

    // The answer is not waited for beyond the term.
    cast.worker.pause().await;
    let deadline = cast.leadership.valid_until();
    let write = not_yet(puppet.put(term, "jobs/a", b"2", None));
    let written = exactly_after(&world, cast.leadership.remaining(), write).await;
    assert_eq!(world.clock().now(), deadline);
    assert_eq!(written, Err(Refusal::Unknown));
}

#[tokio::test]
async fn a_write_is_of_a_bounded_size() {
    let Scene { world, mut puppet, term, cast: _cast } = scene().await;
    let before = world.store().revision();
    let (key, most) = ("jobs/a", vec![7; MOST_BYTES - "jobs/a".len()]);
    let more = vec![7; most.len() + 1];
    assert!(invalid(&puppet.put(term, key, &more, None).await.expect_err("is too much")));
    // What is expected counts as well.
    assert!(invalid(&puppet.put(term, key, &most, Some(0)).await.expect_err("is too much")));
    let keys: Vec<_> = (0..=MOST_CHANGES).map(|n| format!("jobs/{n}")).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let many = puppet.write(term, &[], &[], &keys).await;
    assert!(invalid(&many.expect_err("is too much")));
    assert!(invalid(&puppet.proclaim(term, &[7; 4_097]).await.expect_err("is too much")));
    assert!(invalid(&puppet.proclaim(term, &more).await.expect_err("is too much")));
    let twice = puppet.write(term, &[], &[(key, b"1"), (key, b"2")], &[]).await;
    assert!(invalid(&twice.expect_err("is not possible")));
    assert_eq!(world.store().revision(), before);
    puppet.put(term, key, &most, None).expect_soon("is just as much").await;
    puppet.write(term, &[], &[], &keys[1..]).expect_soon("are just as many").await;
    puppet.proclaim(term, &[7; 4_096]).expect_soon("is just as much").await;
}

#[tokio::test]
async fn a_component_that_resigns_ends_the_term_and_its_platform_releases_it() {
    let Scene { world, mut puppet, term, mut cast } = scene().await;
    puppet.resign(term).await;
    assert_eq!(puppet.standing(term).await, Standing::Over(types::Reason::Resigned));
    assert_eq!(puppet.put(term, "jobs/a", b"", None).await, Err(Refusal::Stale));
    assert_eq!(now(cast.leadership.lost()), Reason::Resigned);
    // The component may work on until the platform has ended it.
    world.pass(SECOND).await;
    assert!(cast.next.elected().now_or_never().is_none());
    drop(puppet);
    cast.leadership.resign().expect_soon("is released").await;
    world.settle().await;
    now(cast.next.elected()).expect("leads");
}

#[tokio::test]
async fn a_component_cannot_hoard_terms() {
    let Scene { world: _world, mut puppet, term, cast: _cast } = scene().await;
    for _ in 0..2 * MOST_HANDLES {
        let another = puppet.leading().expect_soon("leads").await;
        puppet.forget(another).await;
    }
    for _ in 1..MOST_HANDLES {
        puppet.leading().expect_soon("leads").await;
    }
    puppet.forget(term).await;
    puppet.leading().expect_soon("leads").await;
    let strings = puppet.strings.incumbent_test_strings();
    let trap = strings.call_leading(&mut puppet.store).await.expect_err("is too much");
    assert!(format!("{trap:?}").contains("handles of terms"), "{trap:?}");
}
