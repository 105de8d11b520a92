//! What wakes a component that waits.

use super::*;

#[tokio::test]
async fn a_waiter_is_woken_by_the_end_of_the_term() {
    let Scene { world, mut puppet, term, cast: _cast } = scene().await;
    {
        let mut change = Box::pin(puppet.changed(term, &Standing::Firm, None));
        world.pass(60 * SECOND).await;
        assert!(change.as_mut().now_or_never().is_none());
        world.depose(NAME).expect_soon("somebody led").await;
        assert_eq!(now(change), Standing::Over(types::Reason::Deposed));
    }
    // And is not kept waiting for what is over.
    let over = Standing::Over(types::Reason::Deposed);
    assert_eq!(now(puppet.changed(term, &over, None)), over);
}

#[tokio::test]
async fn a_waiter_is_told_of_danger_and_of_its_end() {
    let Scene { world, mut puppet, term, cast } = scene().await;
    world.pass(SECOND).await;
    cast.worker.cut().await;
    let mut change = Box::pin(puppet.changed(term, &Standing::Firm, None));
    while cast.leadership.remaining() > Duration::from_secs(4) {
        world.pass(SECOND).await;
    }
    assert_eq!(now(change), Standing::Endangered);
    assert_eq!(puppet.standing(term).await, Standing::Endangered);
    cast.worker.heal().await;
    change = Box::pin(puppet.changed(term, &Standing::Endangered, None));
    world.pass(SECOND).await;
    assert_eq!(now(change), Standing::Firm);
    cast.worker.cut().await;
    world.pass(60 * SECOND).await;
    let end = puppet.changed(term, &Standing::Firm, None);
    assert_eq!(now(end), Standing::Over(types::Reason::Expired));
}

#[tokio::test]
async fn a_waiter_for_a_time_is_woken_after_it() {
    let Campaign { world, mut puppet, term, worker: _worker, mut next, _rival } = campaign().await;
    {
        let change = not_yet(puppet.changed(term, &Standing::Firm, Some(SECOND)));
        assert_eq!(exactly_after(&world, SECOND, change).await, Standing::Firm);
    }
    assert_eq!(now(puppet.changed(term, &Standing::Firm, AT_ONCE)), Standing::Firm);
    assert_eq!(now(puppet.changed(term, &Standing::Endangered, None)), Standing::Firm);

    world.depose(NAME).expect_soon("somebody led").await;
    let leads = now(next.elected()).expect("leads");
    assert_eq!(now(puppet.elected(AT_ONCE)).unwrap_err(), NoTerm::NotYet);
    {
        let turn = not_yet(puppet.elected(Some(SECOND)));
        world.pass(SECOND).await;
        assert_eq!(now(turn).unwrap_err(), NoTerm::NotYet);
    }
    let turn = not_yet(puppet.elected(None));
    drop(leads);
    world.settle().await;
    now(turn).expect("leads");
}

#[tokio::test]
async fn the_clock_tells_a_component_what_nobody_has_told_it() {
    let Scene { world, mut puppet, term, cast } = scene().await;
    // Nothing happens in the process from now on, but what the component asks.
    cast.worker.pause().await;
    world.pass(cast.leadership.remaining() - Duration::from_nanos(1)).await;
    assert_eq!(puppet.remaining(term).await, Duration::from_nanos(1));
    assert_ne!(puppet.standing(term).await, Standing::Over(types::Reason::Expired));
    assert!(puppet.leading().await.is_some());
    world.pass(Duration::from_nanos(1)).await;
    assert!(cast.leadership.lost().now_or_never().is_none(), "nobody has been told");
    assert_eq!(puppet.remaining(term).await, Duration::ZERO);
    assert_eq!(now(puppet.put(term, "jobs/a", b"", None)), Err(Refusal::Stale));
    assert_eq!(now(puppet.get(term, "jobs/a")).map(drop), Err(Refusal::Stale));
    assert_eq!(puppet.standing(term).await, Standing::Over(types::Reason::Expired));
    assert!(puppet.leading().await.is_none());
    assert_eq!(now(puppet.elected(None)).unwrap_err(), NoTerm::Never(None));
    let over = puppet.changed(term, &Standing::Firm, None);
    assert_eq!(now(over), Standing::Over(types::Reason::Expired));
}

#[tokio::test]
async fn the_clock_wakes_whom_nobody_wakes() {
    let Scene { world, mut puppet, term, cast } = scene().await;
    cast.worker.pause().await;
    let change = Box::pin(puppet.changed(term, &Standing::Firm, None));
    let end = exactly_after(&world, cast.leadership.remaining(), change).await;
    assert_eq!(end, Standing::Over(types::Reason::Expired));
}
