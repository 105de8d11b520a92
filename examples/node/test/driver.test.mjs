// The loop, with electors that say what a test wants.

import assert from 'node:assert/strict';
import { test } from 'node:test';
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
