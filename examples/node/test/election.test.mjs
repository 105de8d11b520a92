// Candidates on a real etcd, when nothing goes wrong.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { ElectionError, Session } from '../incumbent/session.mjs';
import { Etcd, eventually, VERSIONS } from './etcd.mjs';

/** @param {string} code */
const refusedAs = (code) => (/** @type {unknown} */ error) => (
  error instanceof ElectionError && error.code === code);

for (const version of VERSIONS) {
  describe(`etcd ${version}`, () => {
    /** @type {Etcd} */
    let etcd;
    before(async () => { etcd = await Etcd.start(version); });
    after(() => etcd.stop());

    for (const contest of /** @type {const} */ (['queue', 'race'])) {
      test(`two candidates of a ${contest} take turns`, async () => {
        const name = `turns-${contest}`;
        const one = await Session.connect(etcd.url, { id: 'one' });
        const two = await Session.connect(etcd.url, { id: 'two' });
        let epoch = 0n;
        let leadership = await one.campaign(name, { contest });
        for (let turn = 1; turn <= 6; turn += 1) {
          assert.ok(leadership.isValid());
          assert.ok(leadership.epoch > epoch, 'epochs rise');
          ({ epoch } = leadership);
          const rival = [one, two][turn % 2] ?? one;
          let elected = false;
          const next = rival.campaign(name, { contest }).finally(() => { elected = true; });
          await leadership.put('turn', `${turn}`);
          assert.ok(!elected, 'one at a time');
          await leadership.resign();
          assert.equal(await leadership.lost(), 'resigned');
          assert.ok(!leadership.isValid() && leadership.signal.aborted);
          leadership = await next;
        }
        await Promise.all([one.close(), two.close(), leadership.resign()]);
        assert.deepEqual(etcd.keys(name), [], 'nothing is left');
      });
    }

    test('a write belongs to its term', async () => {
      const session = await Session.connect(etcd.url);
      const first = await session.campaign('writes');
      const written = await first.put('writes-result', 'one', { modified: 0n });
      await assert.rejects(first.put('writes-result', 'two', { modified: 0n }), refusedAs('conflict'));
      assert.equal((await session.get('writes-result'))?.modified, written);
      await first.put('writes-result', Buffer.of(0, 255), { modified: written });
      assert.deepEqual((await session.get('writes-result'))?.value, Buffer.of(0, 255));
      await first.resign();
      const second = await session.campaign('writes');
      await assert.rejects(first.put('writes-result', 'late'), refusedAs('stale'));
      await assert.rejects(second.put(Buffer.from(second.key).toString(), 'mine'), refusedAs('refused'));
      await second.delete('writes-result');
      assert.equal(await session.get('writes-result'), undefined);
      await second.resign();
      await session.close();
      await assert.rejects(second.put('writes-result', 'too late'), refusedAs('refused'));
      await assert.rejects(session.campaign('writes'), refusedAs('closed'));
    });

    test('a write that passes the elector is refused by its guard', async () => {
      // Somebody removes the leader's key; nobody has told the leader when it writes.
      const session = await Session.connect(etcd.url);
      const leadership = await session.campaign('guards');
      etcd.ctl('del', Buffer.from(leadership.key).toString());
      // This process heard of nothing: its loop stood still.
      await assert.rejects(leadership.put('guards-result', 'late'), refusedAs('stale'));
      assert.match(await leadership.lost(), /^(fenced|deposed)$/);
      assert.equal(await session.get('guards-result'), undefined);
      await leadership.resign();
      await session.close();
    });

    test('whoever gives up leaves nothing behind', async () => {
      const session = await Session.connect(etcd.url);
      const rival = await Session.connect(etcd.url);
      const leadership = await session.campaign('patience');
      const patience = new AbortController();
      const waits = rival.campaign('patience', { signal: patience.signal });
      await eventually(() => etcd.keys('patience/').length === 2, 'the rival is in line');
      patience.abort(new Error('no patience'));
      await assert.rejects(waits, /no patience/);
      assert.equal(etcd.keys('patience/').length, 1);
      await assert.rejects(rival.campaign('patience', { signal: patience.signal }), /no patience/);
      await Promise.all([leadership.resign(), session.close(), rival.close()]);
    });

    test('many elections on one session, and names that are refused', async () => {
      const session = await Session.connect(etcd.url);
      const names = Array.from({ length: 20 }, (_, number) => `many-${number}`);
      const won = await Promise.all(names.map((name) => session.campaign(name)));
      assert.deepEqual(won.map(({ name }) => name), names);
      await assert.rejects(session.campaign('many-1'), refusedAs('withdrawn'));
      await assert.rejects(session.campaign(''), refusedAs('withdrawn'));
      const writes = Array.from({ length: 300 }, (_, number) => won[number % 20]?.put(`load-${number}`, ''));
      const settled = await Promise.allSettled(writes);
      assert.equal(settled.filter(({ status }) => status === 'fulfilled').length, 256);
      await Promise.all(won.map((leadership) => leadership.resign()));
      await session.close();
    });

    test('close waits for a leadership that is not resigned, and no longer than its time', async () => {
      const session = await Session.connect(etcd.url, { ttl: 2 });
      const leadership = await session.campaign('unyielding');
      await session.close();
      assert.ok(!leadership.isValid());
      assert.deepEqual(etcd.keys('unyielding/'), []);
    });
  });
}

test('an etcd that is not there is said in a sentence', async () => {
  await assert.rejects(Session.connect('etcd://127.0.0.1:1'), (error) => {
    assert.ok(error instanceof ElectionError);
    assert.equal(error.code, 'unreachable');
    assert.match(error.message, /^no etcd answers at etcd:\/\/127\.0\.0\.1:1 \(connect ECONNREFUSED 127\.0\.0\.1:1\): is it running there\?$/);
    return true;
  });
});

test('what cannot be is said in a sentence', async () => {
  for (const url of ['127.0.0.1:2379', 'etcd://', 'etcd://one:2379/folder', 'http://one:2379']) {
    await assert.rejects(Session.connect(url), refusedAs('configuration'));
  }
  const etcd = await Etcd.start('3.5');
  try {
    for (const options of [{ ttl: 2, margin: 2 }, { ttl: 0 }, { ttl: -1 }, { ttl: NaN }]) {
      await assert.rejects(Session.connect(etcd.url, options), refusedAs('configuration'));
    }
  } finally {
    await etcd.stop();
  }
});
