// The loop, with electors that say what a test wants.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Driver } from '../incumbent/driver.mjs';
import { Session, now } from '../incumbent/session.mjs';

test('what an elector asked for is not told to the next one', async () => {
  /** @type {(outcome: any) => void} */
  let answer = () => {};
  /** @type {(change: any) => void} */
  let tell = () => {};
  let watching = true;
  const store = /** @type {any} */ ({
    ask: () => new Promise((resolve) => { answer = resolve; }),
    watch: (/** @type {any} */ _, /** @type {any} */ told) => {
      tell = told;
      return () => { watching = false; };
    },
  });
  /** @type {string[][]} */
  const given = [];
  let opens = 0;
  /** @type {bigint[]} */
  const seeds = [];
  const open = (/** @type {any} */ { seed }) => {
    opens += 1;
    if (opens === 2) throw new Error('another trap');
    const events = /** @type {string[]} */ ([]);
    given.push(events);
    seeds.push(...seed);
    return /** @type {any} */ ({
      handle(/** @type {bigint} */ _, /** @type {any[]} */ batch) {
        events.push(...batch.map(({ tag }) => tag));
        if (batch.some(({ tag }) => tag === 'close')) throw new Error('a trap');
        const commands = [
          { tag: 'call', val: { id: 1n, giveUp: 0n, operation: { tag: 'keep-alive', val: 1n } } },
          { tag: 'watch', val: { id: 2n, key: Buffer.of(), prefix: false } },
        ];
        return { commands: given.length === 1 ? commands : [] };
      },
    });
  };
  const config = { leaseTtl: 1n, safetyMargin: 0n, requestTimeout: 1n };
  /** @type {string[]} */
  const broke = [];
  const driver = new Driver({
    config, store, open, notify() {}, broken: ({ message }) => broke.push(message), replaced() {},
  });
  driver.push({ tag: 'wake' });
  await new Promise((turn) => setImmediate(turn));
  driver.push({ tag: 'close' });
  await new Promise((turn) => setImmediate(turn));
  assert.deepEqual(broke, ['a trap']);
  assert.ok(!watching && !driver.isRunning);
  while (!driver.isRunning) await new Promise((turn) => setImmediate(turn));
  assert.deepEqual(broke, ['a trap', 'another trap'], 'one that does not open is broken too');
  answer({ tag: 'ok', val: { tag: 'expired' } });
  tell({ tag: 'ended', val: { tag: 'timeout' } });
  driver.push({ tag: 'wake' });
  await new Promise((turn) => setImmediate(turn));
  assert.deepEqual(given, [['wake', 'close'], ['wake']]);
  assert.equal(new Set(seeds).size, 4, 'a new seed');
  driver.stop();
});

test('a renewal extends the terms on its lease that stand, and no others', async () => {
  const far = now() + 60_000_000_000n;
  const later = far + 1n;
  const leases = [1n, 1n, 2n, 1n];
  // The last one is over by the clock before anything can tell so.
  const soon = now() + 20_000_000n;
  const notice = (/** @type {any} */ val) => ({ tag: 'notify', val });
  const elected = (/** @type {number} */ election) => notice({
    tag: 'elected',
    val: {
      term: { election, epoch: BigInt(election) }, key: Buffer.of(), lease: leases[election - 1],
      validUntil: election === 4 ? soon : far,
    },
  });
  const open = /** @type {any} */ (() => ({
    handle: (/** @type {bigint} */ _, /** @type {any[]} */ events) => ({
      commands: events.flatMap(({ tag, val }) => {
        if (tag === 'campaign') return [elected(val.election)];
        if (tag !== 'yielded') return [];
        // With the event loop blocked, no timer has ended the last one yet.
        while (now() < soon) { /* a long computation */ }
        return [notice({ tag: 'extended', val: { lease: 1n, validUntil: later } })];
      }),
    }),
  }));
  const session = new Session(/** @type {any} */ ({ close() {} }), { open });
  /** @type {string[]} */
  const told = [];
  session.on('extended', ({ name }) => told.push(name));
  const led = await Promise.all(['a', 'b', 'other', 'late', 'ends'].map((name) => session.campaign(name)));
  led.at(-1)?.resign();
  await new Promise((turn) => setImmediate(turn));
  assert.deepEqual(told, ['a', 'b']);
  assert.deepEqual(led.slice(0, 4).map(({ validUntil }) => validUntil), [later, later, far, soon]);
  assert.deepEqual(led.slice(0, 4).map((one) => one.isValid()), [true, true, true, false]);
  assert.equal(await led[3]?.lost(), 'expired');
  for (const one of led) one.end('resigned');
});

test('of many calls some wait, what has waited too long is not sent, and renewals do not wait', async () => {
  /** @type {{ tag: string, answer: (outcome: any) => void }[]} */
  const asked = [];
  const store = /** @type {any} */ ({
    ask: (/** @type {any} */ { tag }) => new Promise((answer) => { asked.push({ tag, answer }); }),
  });
  const [soon, far] = [now() + 20_000_000n, now() + 60_000_000_000n];
  const call = (/** @type {number} */ id, tag = 'read', giveUp = far) => (
    { tag: 'call', val: { id: BigInt(id), giveUp, operation: { tag, val: [] } } });
  // The last but one is given up before it has its turn.
  const calls = [...Array(256).keys()].map((id) => call(id));
  calls.push(call(256), call(257, 'read', soon), call(258, 'keep-alive'));
  /** @type {any[]} */
  const told = [];
  const open = /** @type {any} */ (() => ({
    handle(/** @type {bigint} */ _, /** @type {any[]} */ events) {
      told.push(...events);
      return { commands: events.some(({ tag }) => tag === 'wake') ? calls : [] };
    },
  }));
  const config = { leaseTtl: 1n, safetyMargin: 0n, requestTimeout: 1n };
  const driver = new Driver({ config, store, open, notify() {}, broken() {}, replaced() {} });
  driver.push({ tag: 'wake' });
  await new Promise((turn) => setImmediate(turn));
  assert.equal(asked.length, 257);
  assert.equal(asked.at(-1)?.tag, 'keep-alive');
  while (now() < soon) await new Promise((turn) => setImmediate(turn));
  const done = { tag: 'ok', val: { tag: 'stale' } };
  asked[0]?.answer(done);
  await new Promise((turn) => setImmediate(turn));
  assert.equal(asked.length, 258, 'one has its turn');
  asked[1]?.answer(done);
  await new Promise((turn) => setImmediate(turn));
  assert.equal(asked.length, 258, 'the other one is late');
  assert.deepEqual(told.at(-1)?.val, { id: 257n, outcome: { tag: 'err', val: { tag: 'timeout' } } });
  driver.stop();
});

test('the elector is told 256 events at once', async () => {
  /** @type {number[]} */
  const steps = [];
  const open = /** @type {any} */ (() => ({
    handle(/** @type {bigint} */ _, /** @type {any[]} */ events) {
      steps.push(events.length);
      return { commands: [] };
    },
  }));
  const config = { leaseTtl: 1n, safetyMargin: 0n, requestTimeout: 1n };
  const store = /** @type {any} */ ({});
  const driver = new Driver({ config, store, open, notify() {}, broken() {}, replaced() {} });
  for (let event = 0; event < 600; event += 1) driver.push({ tag: 'wake' });
  while (steps.length < 3) await new Promise((turn) => setImmediate(turn));
  assert.deepEqual(steps, [256, 256, 88]);
  driver.stop();
});

test('of many candidacies some wait until others are in line, and can be given up meanwhile', async () => {
  /** @type {string[]} */
  const told = [];
  /** @type {any[]} */
  const notices = [];
  const open = /** @type {any} */ (() => ({
    handle(/** @type {bigint} */ mark, /** @type {any[]} */ events) {
      for (const { tag, val } of events) if (tag === 'campaign') told.push(val.name);
      const commands = notices.splice(0).map((val) => ({ tag: 'notify', val }));
      return { commands, deadline: mark + 1_000_000n };
    },
  }));
  const session = new Session(/** @type {any} */ ({ close() {} }), { open });
  const steps = async () => {
    for (let step = 0; step < 3; step += 1) await sleep(2);
  };
  /** @param {string} name */
  const end = (name) => session.campaign(name).then(() => 'leads', ({ code }) => code);
  const ends = [...Array(256).keys()].map((number) => end(`${number}`));
  const givesUp = new AbortController();
  const held = session.campaign('held', { signal: givesUp.signal });
  ends.push(end('next'), end('last'), end('waits'));
  await steps();
  assert.equal(told.length, 256);
  givesUp.abort(new Error('another plan'));
  await assert.rejects(held, /another plan/);
  const joined = { tag: 'joined', val: { election: 1, key: Buffer.of(), created: 1n } };
  // Whatever is said of one candidacy, it makes room for one.
  notices.push(joined, joined);
  await steps();
  assert.deepEqual(told.slice(256), ['next'], 'the elector never heard of the one that was given up');
  notices.push({ tag: 'withdrawn', val: { election: 1 } }, { tag: 'withdrawn', val: { election: 2 } });
  await steps();
  assert.deepEqual(told.slice(256), ['next', 'last']);
  const closed = session.close();
  notices.push({ tag: 'withdrawn', val: { election: 3 } });
  await steps();
  assert.equal(told.length, 258, 'nobody joins any more');
  notices.push({ tag: 'closed' });
  await closed;
  // So those that wait hear of the end as well.
  assert.deepEqual(new Set(await Promise.all(ends)), new Set(['closed']));
});
