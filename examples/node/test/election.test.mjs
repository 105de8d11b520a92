// Candidates on a real etcd, when nothing goes wrong.

import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { after, before, describe, test } from 'node:test';
import { openElector } from '../incumbent/component.mjs';
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
        const one = await Session.connect(etcd.url, { identity: 'one' });
        const two = await Session.connect(etcd.url, { identity: 'two' });
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
          assert.equal(await leadership.resign(), 'resigned');
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
      await assert.rejects(second.put('writes-result', 'too late'), refusedAs('stale'));
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

    test('what does not fit is refused, and nobody else hears of it', async () => {
      const session = await Session.connect(etcd.url, { ttl: 2 });
      session.on('trouble', (sentence) => assert.fail(sentence));
      const good = await session.campaign('border');
      const { put, delete: remove } = /** @type {Record<string, (...given: any[]) => Promise<bigint>>} */ (
        { put: good.put.bind(good), delete: good.delete.bind(good) });
      const campaign = /** @type {(...given: any[]) => Promise<any>} */ (session.campaign.bind(session));
      const get = /** @type {(key: any) => Promise<any>} */ (session.get.bind(session));
      const attempts = [
        ...[undefined, null, 5, Buffer.from('x'), '\ud800'].map((name) => campaign(name)),
        ...['rase', null, 1].map((contest) => campaign('border-2', { contest })),
        ...[null, 5, [1], {}].map((value) => campaign('border-3', { value })),
        ...[null, 5, undefined].flatMap((key) => [put?.(key, ''), remove?.(key), get(key)]),
        ...[null, 5, undefined, [1], '\ud800'].map((value) => put?.('border-key', value)),
        ...[null, 0, 1.5, 'abc', -1n, 2n ** 63n, 2n ** 70n].flatMap((modified) => (
          [put?.('border-key', '', { modified }), remove?.('border-key', { modified })])),
      ];
      for (const attempt of attempts) {
        await assert.rejects(attempt ?? assert.fail(), refusedAs('configuration'));
      }
      await assert.rejects(put?.('border-key', '', { modified: 2n ** 63n - 1n }) ?? assert.fail(), refusedAs('conflict'));
      assert.ok(good.isValid());
      await good.put('border-key', Uint8Array.of(1));
      await good.resign();
      await session.close();
    });

    test('a campaign waits for an earlier one of the name that is given up', async () => {
      const giveUp = new AbortController();
      /** @type {Promise<import('../incumbent/session.mjs').Leadership> | undefined} */
      let next;
      const session = await Session.connect(etcd.url, {
        open: (config, mark) => {
          const elector = openElector(config, mark);
          return /** @type {any} */ ({
            handle(/** @type {bigint} */ at, /** @type {any[]} */ events) {
              const step = elector.handle(at, events);
              if (!next && step.commands.some(({ val }) => /** @type {any} */ (val).tag === 'elected')) {
                // It leads, and has not heard of it.
                giveUp.abort(new Error('given up'));
                next = session.campaign('again');
              }
              return step;
            },
          });
        },
      });
      await assert.rejects(session.campaign('again', { signal: giveUp.signal }), /given up/);
      const won = await next ?? assert.fail();
      const resigned = won.resign();
      const second = await session.campaign('again');
      assert.equal(await resigned, 'resigned');
      assert.ok(second.epoch > won.epoch);
      await second.resign();
      await session.close();
    });

    test('an operator has another candidate lead', async () => {
      const one = await Session.connect(etcd.url);
      const two = await Session.connect(etcd.url);
      const leadership = await one.campaign('wished');
      const next = two.campaign('wished');
      await eventually(() => etcd.keys('wished/').length === 2, 'both are in line');
      const waits = etcd.keys('wished/').find((key) => key !== Buffer.from(leadership.key).toString());
      const { kvs: [{ create_revision: created }] } = JSON.parse(etcd.ctl('get', '-w', 'json', `${waits}`));
      const [, lease] = etcd.ctl('lease', 'grant', '60').split(' ');
      await eventually(() => {
        // Its watch may not be on yet.
        etcd.ctl('put', `--lease=${lease}`, 'incumbent-wishes/wished/transfer', `${leadership.epoch} ${created} now`);
        return !leadership.isValid();
      }, 'it hears of the wish');
      assert.equal(await leadership.lost(), 'resigned');
      await leadership.resign();
      assert.equal((await next).epoch, BigInt(created));
      await Promise.all([one.close(), two.close(), (await next).resign()]);
    });

    test('a drained session leads no more until that is undone', async () => {
      const one = await Session.connect(etcd.url);
      const two = await Session.connect(etcd.url);
      const leadership = await one.campaign('drained');
      one.drain(1);
      const next = two.campaign('drained');
      assert.equal(await leadership.lost(), 'resigned', 'somebody is in line');
      await leadership.resign();
      const again = one.campaign('drained');
      await (await next).resign();
      await one.get('drained');
      assert.deepEqual(etcd.keys('drained'), [], 'nobody leads');
      one.undoDrain();
      await (await again).resign();
      await Promise.all([one.close(), two.close()]);
    });

    test('sessions share their elections', async () => {
      const shards = Array.from({ length: 8 }, (_, shard) => `shard-${shard}`);
      const stop = new AbortController();
      /** @param {Session} session */
      const leads = (session) => {
        /** @type {Set<string>} */
        const held = new Set();
        const all = shards.map(async (shard) => {
          while (!stop.signal.aborted) {
            const leadership = await session.campaign(shard, { signal: stop.signal });
            held.add(shard);
            await Promise.race([leadership.lost(), new Promise((end) => stop.signal.addEventListener('abort', end))]);
            held.delete(shard);
            await leadership.resign();
          }
        });
        return { held, over: Promise.allSettled(all) };
      };
      const one = await Session.connect(etcd.url);
      const two = await Session.connect(etcd.url);
      one.limit({ isFair: true });
      two.limit({ isFair: true, atMost: 6, atOnce: 2 });
      const first = leads(one);
      await eventually(() => first.held.size === 8, 'nobody else is there');
      const second = leads(two);
      await eventually(() => first.held.size === 4 && second.held.size === 4, 'each has its part');
      two.limit({ atMost: 1 });
      await eventually(() => second.held.size === 1, 'it has less');
      stop.abort();
      await Promise.all([first.over, second.over]);
      await Promise.all([one.close(), two.close()]);
    });

    test('waiting for the end of a term adds no listeners', async () => {
      const session = await Session.connect(etcd.url);
      const leadership = await session.campaign('waiters');
      const waiters = Array.from({ length: 20 }, () => leadership.lost());
      assert.equal(getEventListeners(leadership.signal, 'abort').length, 0);
      await leadership.resign();
      assert.deepEqual(new Set(await Promise.all(waiters)), new Set(['resigned']));
      await session.close();
    });

    test('a candidate that gives up leaves nothing behind', async () => {
      const session = await Session.connect(etcd.url);
      const rival = await Session.connect(etcd.url);
      const leadership = await session.campaign('given-up');
      const giveUp = new AbortController();
      const waits = rival.campaign('given-up', { signal: giveUp.signal });
      await eventually(() => etcd.keys('given-up/').length === 2, 'the rival is in line');
      giveUp.abort(new Error('given up'));
      await assert.rejects(waits, /given up/);
      assert.equal(etcd.keys('given-up/').length, 1);
      await assert.rejects(rival.campaign('given-up', { signal: giveUp.signal }), /given up/);
      await Promise.all([leadership.resign(), session.close(), rival.close()]);
    });

    test('many elections on one session, and names that are refused', async () => {
      const session = await Session.connect(etcd.url);
      const names = Array.from({ length: 20 }, (_, number) => `many-${number}`);
      const won = await Promise.all(names.map((name) => session.campaign(name)));
      assert.deepEqual(won.map(({ name }) => name), names);
      // It waits for the end of the one that leads.
      const again = session.campaign('many-1');
      await assert.rejects(session.campaign(''), refusedAs('withdrawn'));
      // More than may be under way: the others wait.
      await Promise.all(Array.from({ length: 600 }, (_, number) => won[number % 20]?.put(`load-${number}`, '')));
      assert.equal(etcd.keys('load-').length, 600);
      await Promise.all(won.map((leadership) => leadership.resign()));
      await (await again).resign();
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
  // Where etcd listens by default; something may listen here as well.
  await Session.connect('etcd://127.0.0.1').then((session) => session.close(), ({ message }) => {
    assert.match(message, /^no etcd answers at etcd:\/\/127\.0\.0\.1:2379 /);
  });
});

test('what cannot be is said in a sentence', async () => {
  const urls = ['127.0.0.1:2379', 'etcd://', 'etcd://one:2379/a folder', 'http://one:2379', 'etcds://',
    'etcd://one/a?b', 'etcd://one/a#b', 'etcd://o%ne', 'etcd://[one]', 'etcd://one:0', 'etcd://one:99999', 'etcd://one:2379,', 'etcd://one two', 'etcd://::1'];
  for (const url of urls) {
    await assert.rejects(Session.connect(url), (error) => (
      refusedAs('configuration')(error) && String(error).includes(`${url} names no etcd`)));
  }
  for (const url of ['etcd://me:secret@one:2379', 'etcd://me:sec/ret@one', 'etcd://one,me:secret@two']) {
    await assert.rejects(Session.connect(url), (error) => (
      refusedAs('configuration')(error) && !/sec|ret@/.test(String(error))));
  }
  const given = /** @type {(url: any, options?: any) => Promise<Session>} */ (Session.connect);
  await assert.rejects(given(5), refusedAs('configuration'));
  const etcd = await Etcd.start('3.5');
  try {
    const session = await Session.connect(etcd.url);
    for (const most of [0, -1, 1.5, NaN, 2 ** 32, /** @type {any} */ ('2')]) {
      assert.throws(() => session.drain(most), refusedAs('configuration'));
      assert.throws(() => session.limit({ atMost: most }), refusedAs('configuration'));
    }
    await session.close();
    for (const options of [{ ttl: 2, margin: 2 }, { ttl: 0 }, { ttl: -1 }, { ttl: NaN }, { ttl: 'x' },
      { margin: null }, { identity: 5 }]) {
      await assert.rejects(given(etcd.url, options), refusedAs('configuration'));
    }
  } finally {
    await etcd.stop();
  }
});
